"""What the benchmark runner costs: the overhead of a job, and of planning and going on with ten thousand cells.

python benchmarks/runner.py --write
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import Target, document, publish, table, target_table

JOBS, WORKERS, MANY = 1000, 2, 10_000


def plain(jobs: int) -> float:
    """Seconds of so many processes, WORKERS at a time, with nothing around them."""
    began = time.perf_counter()
    at_work: list[subprocess.Popen[bytes]] = []
    for _ in range(jobs):
        if len(at_work) == WORKERS:
            at_work.pop(0).wait()
        at_work.append(subprocess.Popen(["true"]))
    for process in at_work:
        process.wait()
    return time.perf_counter() - began


def bench(folder: Path, seeds: int) -> float:
    """Seconds of `rollbook bench`, from its start to its end."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "rollbook", "bench", "--command", "true", "--env-ids", "E",
         "--num-seeds", str(seeds), "--workers", str(WORKERS), "--book", str(folder / "book")],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - began


def until_the_first_job(folder: Path) -> float:
    """Seconds until a benchmark of MANY cells has begun its first job; it is then stopped."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "rollbook", "bench", "--command", "true", "--env-ids", "E",
         "--num-seeds", str(MANY), "--workers", str(WORKERS), "--book", str(folder / "many")],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not list(folder.glob("many/benchmarks/*/cells/*.run")):
        time.sleep(0.005)
    seconds = time.perf_counter() - began
    process.kill()
    process.wait()
    return seconds


def going_on(folder: Path) -> float:
    """Seconds of the same command when all MANY cells have finished: their marks are all that it looks at."""
    (cells,) = folder.glob("many/benchmarks/*/cells")
    for cell in range(MANY):
        for mark in ("run", "exit.0", "settled"):
            (cells / f"{cell}.0.{mark}").touch()
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "rollbook", "bench", "--command", "true", "--env-ids", "E",
         "--num-seeds", str(MANY), "--workers", str(WORKERS), "--book", str(folder / "many"), "--json"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="save benchmarks/results/runner.md")
    options = parser.parse_args()
    os.environ["ROLLBOOK_QUIET"] = "1"
    with tempfile.TemporaryDirectory(prefix="rollbook-") as name:
        folder = Path(name)
        alone, ours = plain(JOBS), bench(folder, JOBS)
        nothing_to_do = bench(folder, JOBS)
        first, again = until_the_first_job(folder), going_on(folder)
    # Two are at work at a time: a job takes twice what the whole takes by the job.
    overhead = (ours - alone) * WORKERS / JOBS * 1000
    rows = [
        [f"{JOBS:,} processes of `true`, {WORKERS} at a time", f"{alone:.2f} s"],
        [f"`rollbook bench` with {JOBS:,} jobs of `true`, its own start included", f"{ours:.2f} s"],
        ["the same again: nothing to do", f"{nothing_to_do:.2f} s"],
        [f"{MANY:,} cells: from the command to the first job", f"{first:.2f} s"],
        [f"{MANY:,} cells, all finished: nothing to do", f"{again:.2f} s"],
    ]
    targets = [
        Target(figure="overhead of a job beyond its process", limit=30, measured=overhead, unit="ms"),
        Target(figure=f"planning {MANY:,} cells, until the first job", limit=3, measured=first, unit="s"),
        Target(figure=f"going on with {MANY:,} finished cells", limit=3, measured=again, unit="s"),
    ]
    text = document("What the benchmark runner costs", [], [table(["what", "took"], rows), target_table(targets)])
    publish("runner", text, write=options.write)


if __name__ == "__main__":
    main()
