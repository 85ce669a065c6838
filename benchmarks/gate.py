"""What the gate costs: its statistics, and `rollbook gate` on a book, report included.

python benchmarks/gate.py --write
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from report import Target, document, publish, table, target_table

import rollbook
from rollbook import stats
from rollbook.gate import judge
from rollbook.gate.selftest import selftest
from rollbook.stats.intervals import Statistic

RUNS, TASKS, REPETITIONS = 10, 26, 50_000
OTHERS: tuple[Statistic, ...] = ("mean", "median", "optimality_gap")
TIMES = 5
# Environments, seeds, points of a run, and the seconds that a gate on two such versions may take.
BOOKS = ((6, 10, 1_000, 5), (57, 10, 10_000, 20))


def seconds(work: Callable[[], object]) -> float:
    """The median of a few, after one that warms up."""
    work()
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[TIMES // 2]


def bootstrap(statistic: Statistic) -> float:
    scores = np.random.default_rng(0).normal(size=(RUNS, TASKS))
    return seconds(
        lambda: stats.bootstrap_interval(scores, statistic, rng=np.random.default_rng(1), repetitions=REPETITIONS)
    )


def one_verdict() -> float:
    """Of the gate itself, on as many cells as there are tasks."""
    rng = np.random.default_rng(2)
    candidate, baseline = ({f"task-{number}": rng.normal(size=RUNS) for number in range(TASKS)} for _ in range(2))
    return seconds(lambda: judge(candidate, baseline))


def build(book: Path, envs: int, seeds: int, points: int) -> None:
    """Two versions of an agent; the second is a little worse in every fifth environment."""
    rng = np.random.default_rng(3)
    share = np.linspace(0, 1, points)
    steps = (share * 1_000_000).astype(int).tolist()
    for tag in ("baseline", "candidate"):
        for env in range(envs):
            drop = 0.2 if tag == "candidate" and env % 5 == 0 else 0.0
            for seed in range(seeds):
                level = 1000 * (1 - drop) * rng.normal(1, 0.05)
                returns = (level * (1 - np.exp(-4 * share)) + 50 * rng.normal(size=points)).tolist()
                config = {"algo": "ppo", "env": f"env-{env}", "seed": seed}
                with rollbook.start("gate", config=config, tags=[tag], book=book, save_code=False) as run:
                    for step, value in zip(steps, returns, strict=True):
                        run.log({"charts/episodic_return": value}, step=step)


def gate_on(book: Path) -> float:
    command = [sys.executable, "-m", "rollbook", "--book", str(book), "gate", "candidate", "--against", "baseline"]
    began = time.perf_counter()
    done = subprocess.run([*command, "--report", str(book / "report")], capture_output=True, check=False)
    assert done.returncode == 1, done.stderr  # the drop is found
    return time.perf_counter() - began


def on_books() -> tuple[list[list[str]], list[Target]]:
    rows, targets = [], []
    os.environ["ROLLBOOK_QUIET"] = "1"
    for envs, seeds, points, limit in BOOKS:
        what = f"`rollbook gate` with report, 2 versions x {envs} environments x {seeds} seeds x {points:,} points"
        with tempfile.TemporaryDirectory() as folder:
            book = Path(folder) / "book"
            build(book, envs, seeds, points)
            rows.append([f"{what}: the first, which packs the metrics and freezes", f"{gate_on(book):.2f} s"])
            taken = sorted(gate_on(book) for _ in range(3))[1]
        rows.append([f"{what}: later ones", f"{taken:.2f} s"])
        targets.append(Target(figure=what, limit=limit, measured=taken, unit="s"))
    return rows, targets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="save benchmarks/results/gate.md")
    options = parser.parse_args()
    of_books, book_targets = on_books()
    iqm = bootstrap("iqm")
    sizes = f"{REPETITIONS:,} repetitions of {RUNS} runs x {TASKS} tasks"
    rows = [
        [f"bootstrap interval of the IQM, {sizes}", f"{iqm:.3f} s"],
        *([f"the same of the {name.replace('_', ' ')}", f"{bootstrap(name):.3f} s"] for name in OTHERS),
        [f"`judge`, {TASKS} cells with {RUNS} seeds each", f"{1000 * one_verdict():.2f} ms"],
        ["`selftest`", f"{seconds(selftest):.2f} s"],
        *of_books,
    ]
    targets = [Target(figure=f"bootstrap interval of the IQM, {sizes}", limit=1, measured=iqm, unit="s"), *book_targets]
    sections = [table(["what", "took"], rows), f"The median of {TIMES}.", target_table(targets)]
    publish("gate", document("What the gate costs", ["numpy", "scipy", "matplotlib"], sections), write=options.write)


if __name__ == "__main__":
    main()
