"""What tracking costs a training loop: Rollbook beside the trackers in use.

Every tool logs rows of ten metrics, each in a fresh process, twice. In the first pass a clock stands around each call
(its own cost is subtracted); in the second there is none, and the CPU time of the process and all its children is
read instead. What a tool does in the background of its start is waited for and not counted, for none of them; nor is
the import of numpy, which every training program has made before.

    python benchmarks/tracking.py --write
    python benchmarks/tracking.py --rows 20000 --skip wandb --skip tensorboardX
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Target, document, publish, table, target_table, three_digits

NAMES = (
    "charts/episodic_return",
    "charts/episodic_length",
    "charts/SPS",
    "losses/critic",
    "losses/actor",
    "losses/alpha",
    "losses/entropy",
    "losses/q1_values",
    "losses/q2_values",
    "losses/approx_kl",
)
CONFIG = {"algo": "sac", "env": "Hopper-v5", "seed": 1, "lr": 3e-4}
LESS_CPU_THAN = {"trackio": 10, "wandb": 30, "tensorboardX": 100}  # times
ROWS = 200_000
MOST_ROWS = {"tensorboardX": 20_000, "wandb": 50_000, "mlflow": 300}  # a row costs the same, and they take their time
SETTLE_SECONDS = 3.0
STARTUP_FILES = 500
STARTUP_REPETITIONS = 11
WORK_SECONDS = 100e-6
STRETCH = 100

Row = dict[str, float]


# ---- the tools: start, log a row, finish ------------------------------------------------------------------------


@dataclass(frozen=True)
class Tool:
    """A tracker that has been started."""

    log: Callable[[Row, int], Any]
    finish: Callable[[], Any]
    stored_bytes: Callable[[], dict[str, int]]  # by stage; asked before and after finish


def start_rollbook(folder: Path) -> Tool:
    os.environ["ROLLBOOK_QUIET"] = "1"
    import rollbook

    run = rollbook.start("hopper", config=CONFIG, book=folder / "book")
    attempt = run.folder / "attempts" / str(run.attempt)

    def stored_bytes() -> dict[str, int]:
        files = {"log": attempt / "metrics.log", "stored": attempt / "metrics.parquet"}
        return {stage: path.stat().st_size for stage, path in files.items() if path.exists()}

    return Tool(run.log, run.finish, stored_bytes)


def start_trackio(folder: Path) -> Tool:
    os.environ["TRACKIO_DIR"] = str(folder)
    os.environ["HF_HUB_OFFLINE"] = "1"
    import trackio

    run = trackio.init(project="hopper", config=CONFIG, embed=False)
    return Tool(run.log, trackio.finish, lambda: {"stored": _folder_bytes(folder)})


def start_wandb(folder: Path) -> Tool:
    import wandb

    run = wandb.init(mode="offline", project="hopper", config=CONFIG, dir=folder)
    return Tool(run.log, run.finish, lambda: {"stored": _folder_bytes(folder, "*.wandb")})


def start_tensorboardx(folder: Path) -> Tool:
    import tensorboardX

    writer = tensorboardX.SummaryWriter(str(folder))

    def log(row: Row, step: int) -> None:
        for name, value in row.items():
            writer.add_scalar(name, value, step)

    return Tool(log, writer.close, lambda: {"stored": _folder_bytes(folder)})


def start_mlflow(folder: Path) -> Tool:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("hopper")
    mlflow.start_run()
    mlflow.log_params(CONFIG)

    def log(row: Row, step: int) -> None:
        mlflow.log_metrics(row, step=step)

    empty = _folder_bytes(folder)  # the tables of an empty database, which few rows do not outweigh
    return Tool(log, mlflow.end_run, lambda: {"stored": _folder_bytes(folder) - empty})


TOOLS: dict[str, Callable[[Path], Tool]] = {
    "rollbook": start_rollbook,
    "trackio": start_trackio,
    "wandb": start_wandb,
    "tensorboardX": start_tensorboardx,
    "mlflow": start_mlflow,
}


def _folder_bytes(folder: Path, pattern: str = "*") -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())


# ---- the two passes, each in a process of its own -----------------------------------------------------------------


def time_calls(name: str, rows: int, folder: Path) -> dict[str, Any]:
    """Microseconds that a call takes from the training thread."""
    values = _values(rows)
    tool = TOOLS[name](folder)
    time.sleep(SETTLE_SECONDS)
    durations, log, clock = array("q"), tool.log, time.perf_counter_ns
    for step in range(rows):
        row = dict(zip(NAMES, values[10 * step : 10 * step + 10], strict=True))
        before = clock()
        log(row, step)
        durations.append(clock() - before)
    tool.finish()
    cost = _clock_cost()
    ordered = sorted(durations)
    return {
        "p50": (ordered[rows // 2] - cost) / 1e3,
        "p99": (ordered[math.ceil(rows * 0.99) - 1] - cost) / 1e3,
        "mean": (sum(durations) / rows - cost) / 1e3,
    }


def count_cpu(name: str, rows: int, folder: Path) -> dict[str, Any]:
    """CPU microseconds of everything a row, what making the row costs left out; and bytes on disk a point."""
    import numpy  # noqa: F401 - as in any training program

    values = _values(rows)

    def loop(log: Callable[[Row, int], Any]) -> None:
        for step in range(rows):
            log(dict(zip(NAMES, values[10 * step : 10 * step + 10], strict=True)), step)

    before = cpu_seconds()
    loop(lambda *_: None)
    of_the_loop = cpu_seconds() - before

    tool = TOOLS[name](folder)
    time.sleep(SETTLE_SECONDS)
    before = cpu_seconds()
    loop(tool.log)
    time.sleep(1.0)  # background threads write what is left
    logged = cpu_seconds() - before - of_the_loop
    stored = tool.stored_bytes()
    tool.finish()
    time.sleep(1.0)  # a service process may still be at it
    finished = cpu_seconds() - before - of_the_loop
    stored |= tool.stored_bytes()
    return {
        "cpu_logged": logged / rows * 1e6,
        "cpu_finished": finished / rows * 1e6,
        **{f"bytes_{stage}": size / rows / len(NAMES) for stage, size in stored.items()},
    }


def _values(rows: int) -> array[float]:
    # One array instead of many lists: the garbage collector has nothing to walk through while we measure.
    generator = random.Random(1)
    return array("d", (generator.gauss(0, 100) for _ in range(rows * len(NAMES))))


def _clock_cost() -> int:
    clock, durations = time.perf_counter_ns, []
    for _ in range(20_000):
        before = clock()
        durations.append(clock() - before)
    return int(statistics.median(durations))


def cpu_seconds() -> float:
    """User and system time of this process, of its children that have ended, and of those that live."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total + sum(_living_child_seconds(pid) for pid in _descendants(os.getpid()))


def _descendants(parent: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_descendants(int(child))]
    return found


def _living_child_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = sum(int(field) for field in fields[11:15])  # its own user and system time, and of its ended children
    return ticks / os.sysconf("SC_CLK_TCK")


# ---- slowdown of a loop, start-up ---------------------------------------------------------------------------------


def products() -> Callable[[int], None]:
    """Work that leaves little of ours in the caches, as a training's does."""
    import numpy as np

    matrix = np.random.default_rng(1).normal(size=(48, 48)) / 48

    def work(repetitions: int) -> None:
        for _ in range(repetitions):
            matrix @ matrix

    return work


def counting() -> Callable[[int], None]:
    """Work that leaves the caches alone."""

    def work(repetitions: int) -> None:
        for _ in range(repetitions):
            pass

    return work


def slow_down(rows: int, folder: Path, work: Callable[[int], None]) -> dict[str, Any]:
    """Percent that a loop of 100 us of work a step gets slower when each step logs ten metrics.

    Virtual machines change their speed by the second, so stretches of some steps with and without logging follow each
    other at once, and the median of their ratios counts. To it comes all the CPU time of the background thread in a
    loop that always logs, which is more than it can take from the loop, by the loop's own time.
    """
    repetitions = 10  # until the loop has said how many are 100 us, which it goes on doing

    tool = start_rollbook(folder)
    values = _values(rows)
    time.sleep(SETTLE_SECONDS)

    def stretch(first: int, log: Callable[[Row, int], Any] | None) -> float:
        began = time.perf_counter()
        for step in range(first, first + STRETCH):
            work(repetitions)
            row = dict(zip(NAMES, values[10 * step : 10 * step + 10], strict=True))
            if log:
                log(row, step)
        return time.perf_counter() - began

    ratios = []
    for number, first in enumerate(range(0, rows, STRETCH)):
        if number % 2:  # the order alternates, so that a machine that gets slower favours neither
            plain, logged = stretch(first, None), stretch(first, tool.log)
        else:
            logged, plain = stretch(first, tool.log), stretch(first, None)
        ratios.append(logged / plain)
        repetitions = max(round(repetitions * STRETCH * WORK_SECONDS / plain), 1)
    background, began = time.process_time() - time.thread_time(), time.perf_counter()
    for first in range(0, rows, STRETCH):
        stretch(first, tool.log)
    background = time.process_time() - time.thread_time() - background
    share = background / (time.perf_counter() - began)
    tool.finish()
    return {"percent": 100 * (statistics.median(ratios) - 1 + share)}


SLOWDOWNS = {
    "counting": ("where the work is counting", counting),
    "products": ("where it is 48x48 matrix products", products),
}

_START = """
import time
began = time.perf_counter()
import rollbook
imported = time.perf_counter()
run = rollbook.start("hopper", config={"algo": "sac", "env": "Hopper-v5", "seed": 1}, book="../book")
run.log({"charts/episodic_return": 1.0}, step=1)
logged = time.perf_counter()
run.finish()
print(logged - imported, time.perf_counter() - logged)
"""


def start_up() -> dict[str, float]:
    """Medians in milliseconds, each repetition a process of its own."""
    with tempfile.TemporaryDirectory(prefix="rollbook-") as temporary:
        checkout = Path(temporary) / "checkout"
        _generate_checkout(checkout)
        environment = os.environ | {"ROLLBOOK_QUIET": "1"}
        outputs = [
            subprocess.run(
                [sys.executable, "train.py"], cwd=checkout, env=environment, check=True, capture_output=True, text=True
            ).stdout.split()
            for _ in range(STARTUP_REPETITIONS)
        ]
    figures = {
        "start": statistics.median(float(start) for start, _ in outputs) * 1e3,
        "finish": statistics.median(float(finish) for _, finish in outputs) * 1e3,
    }
    bare = [sys.executable, "-c", "pass"]
    figures["import"] = _wall_ms([sys.executable, "-c", "import rollbook"]) - _wall_ms(bare)
    figures["import_start"] = _wall_ms([sys.executable, "-c", "import rollbook; rollbook.start"]) - _wall_ms(bare)
    program = Path(sys.executable).with_name("rollbook")
    if program.exists() and subprocess.run([program, "--help"], capture_output=True).returncode == 0:
        figures["help"] = _wall_ms([str(program), "--help"])
    return figures


def _generate_checkout(folder: Path) -> None:
    generator = random.Random(1)
    for number in range(STARTUP_FILES - 1):
        file = folder / f"package_{number % 20}" / f"module_{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"value_{line} = {generator.random()}\n" for line in range(100)))
    (folder / "train.py").write_text(_START)
    git = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "generated"]):
        subprocess.run([*git, *arguments], cwd=folder, check=True)


def _wall_ms(command: Sequence[str]) -> float:
    durations = []
    for _ in range(STARTUP_REPETITIONS):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        durations.append(time.perf_counter() - began)
    return statistics.median(durations) * 1e3


# ---- the parent process -------------------------------------------------------------------------------------------


def ask_worker(what: str, name: str, rows: int) -> dict[str, Any]:
    """A measurement in a fresh process and an empty folder."""
    folder = Path(tempfile.mkdtemp(prefix="rollbook-"))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--worker", what, "--tool", name, "--rows", str(rows), "--folder", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        raise SystemExit(f"{what} of {name} failed:\n{done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure_tool(name: str, rows: int, repetitions: int) -> dict[str, Any]:
    """Each figure's median over the repetitions."""
    rows = min(rows, MOST_ROWS.get(name, rows))
    print(f"measuring {name}, {rows:,} rows", file=sys.stderr)
    passes = [ask_worker("calls", name, rows) | ask_worker("cpu", name, rows) for _ in range(repetitions)]
    return {"rows": rows} | {figure: statistics.median(one[figure] for one in passes) for figure in passes[0]}


def tool_table(results: dict[str, dict[str, Any]]) -> str:
    ours = results["rollbook"]
    rows = [
        _tool_row("Rollbook, until before `finish`", ours, "cpu_logged", "bytes_log"),
        _tool_row("Rollbook, sealed to Parquet", ours, "cpu_finished", "bytes_stored"),
    ]
    for name, peer in results.items():
        if name == "rollbook":
            continue
        label = f"{name} (few rows, extrapolated)" if name == "mlflow" else name
        rows.append(_tool_row(label, peer, "cpu_finished", "bytes_stored", ours))
    header = ["tool", "rows", "p50 us", "p99 us", "mean us", "CPU us a row", "bytes a point"]
    return table([*header, "mean, times ours", "CPU, times ours", "bytes, times ours"], rows)


def tool_targets(results: dict[str, dict[str, Any]]) -> list[Target]:
    ours = results["rollbook"]
    targets = [
        Target(figure="`run.log`, p50", limit=1.5, measured=ours["p50"], unit="us"),
        Target(figure="`run.log`, p99", limit=10, measured=ours["p99"], unit="us"),
        Target(figure="CPU a row, background flush included", limit=4, measured=ours["cpu_logged"], unit="us"),
        Target(figure="CPU a row, sealing and its imports included", limit=4, measured=ours["cpu_finished"], unit="us"),
        Target(figure="bytes a point in the log", limit=12, measured=ours["bytes_log"], unit="B"),
        Target(figure="bytes a point, sealed", limit=10, measured=ours["bytes_stored"], unit="B"),
    ]
    for peer, times in LESS_CPU_THAN.items():
        if peer in results:
            share = 100 * ours["cpu_finished"] / results[peer]["cpu_finished"]
            targets.append(Target(figure=f"CPU a row, of {peer}'s", limit=100 / times, measured=share, unit="%"))
    return targets


def _tool_row(label: str, result: dict[str, Any], cpu: str, size: str, ours: dict[str, Any] | None = None) -> list[str]:
    figures = [three_digits(result[figure]) for figure in ("p50", "p99", "mean", cpu, size)]
    ratios = ["", "", ""]
    if ours:  # against our figures with everything in
        ratios = [f"{result[figure] / ours[figure]:.1f}" for figure in ("mean", "cpu_finished", "bytes_stored")]
    return [label, f"{result['rows']:,}", *figures, *ratios]


NOTES = """A row is a fresh dict of ten random floats and a step. *p50*, *p99*, *mean*: how long the call keeps the
training thread. *CPU*: user and system time of the process and all its children from after the start until everything
is on disk, divided by rows. Peers are compared with our figures that have the sealing to Parquet, and the imports that
it needs, in them; numpy is imported beforehand, as in every training program."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repetitions", type=int, default=3, help="of each tool; the median counts")
    parser.add_argument("--skip", action="append", default=[], metavar="PEER", choices=[*TOOLS][1:])
    parser.add_argument("--mlflow", action="store_true", help="MLflow on SQLite too; 300 rows")
    parser.add_argument("--write", action="store_true", help="save benchmarks/results/tracking.md")
    parser.add_argument("--worker", choices=["calls", "cpu", *SLOWDOWNS], help=argparse.SUPPRESS)
    parser.add_argument("--tool", choices=[*TOOLS], default="rollbook", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(answer_as_worker(options)), flush=True)
        return

    skipped = {*options.skip} | (set() if options.mlflow else {"mlflow"})
    results = {
        name: measure_tool(name, options.rows, 1 if name == "mlflow" else options.repetitions)
        for name in TOOLS
        if name not in skipped
    }
    print("measuring slowdown and start-up", file=sys.stderr)
    slowdowns = {
        work: [ask_worker(work, "rollbook", 100_000) for _ in range(options.repetitions)] for work in SLOWDOWNS
    }
    startup = start_up()
    targets = [
        *tool_targets(results),
        *(
            Target(
                figure=f"slowdown of a 100 us step that logs 10 metrics, {SLOWDOWNS[work][0]}",
                limit=3, measured=statistics.median(one["percent"] for one in found), unit="%",
            )
            for work, found in slowdowns.items()
        ),
        Target(
            figure=f"`rollbook.start` to the first logged row, git checkout of {STARTUP_FILES} files",
            limit=150, measured=startup["start"], unit="ms",
        ),
        Target(figure="`import rollbook` over bare Python", limit=100, measured=startup["import"], unit="ms"),
    ]  # fmt: skip
    if "help" in startup:
        targets.append(Target(figure="`rollbook --help`", limit=300, measured=startup["help"], unit="ms"))
    finish = (
        f"All that tracking imports, loaded by `rollbook.start`: {startup['import_start']:.0f} ms over bare Python. "
        f"`run.finish()` of such a short run, provenance and sealing included: {startup['finish']:.0f} ms."
    )
    text = document(
        "What tracking costs",
        ["rollbook", *(name for name in results if name != "rollbook")],
        [tool_table(results), NOTES, target_table(targets), finish],
    )
    publish("tracking", text, write=options.write)


def answer_as_worker(options: argparse.Namespace) -> dict[str, Any]:
    if options.worker in SLOWDOWNS:
        _, work = SLOWDOWNS[options.worker]
        return slow_down(options.rows, options.folder, work())
    measure = time_calls if options.worker == "calls" else count_cpu
    return measure(options.tool, options.rows, options.folder)


if __name__ == "__main__":
    main()
