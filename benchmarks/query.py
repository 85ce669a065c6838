"""How long questions to large books take, each asked as a user asks it: a command in a fresh process.

Books are written through Rollbook's own writing functions and then checked against a run made by `rollbook.start`, so
that a hundred million points need not be logged one by one. Beside them stands what users do without a tracker's
query: pandas over one CSV file a run.

    python benchmarks/query.py --write
    python benchmarks/query.py --runs 1000 --folder /tmp/books
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from report import Target, document, publish, table, target_table, three_digits

if TYPE_CHECKING:
    from rollbook.book.book import Book
    from rollbook.book.metric_log import Series

METRIC = "charts/episodic_return"
NAMES = (METRIC, "charts/episodic_length", "charts/SPS", *(f"losses/loss_{number}" for number in range(7)))
GRID = tuple(
    itertools.product(
        ("sac", "td3", "ppo"),
        ("Hopper-v5", "HalfCheetah-v5", "Walker2d-v5", "Ant-v5"),
        (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    )
)
POINTS = {1_000: 1_000, 10_000: 1_000, 100_000: 1}  # runs of a book -> points of each metric of a run
STEPS_BETWEEN_POINTS = 1_000
SECONDS_BETWEEN_POINTS = 0.25
RUNS_A_BATCH = 250

TOP = ["top", "5", "--algo", "sac", "--env", "Hopper-v5", "--by", "auc", "--metric", METRIC, "--over", "seed"]
LIST = ["runs", "--where", "algo='sac' and seed=3", "--limit", "20"]
TOP_SQL = f"""
    select r.algo, r.env, r.config->>'lr' as lr, avg(s.auc) as score, stddev(s.auc) as std, count(*) as n
    from runs r join summaries s using (run_id)
    where s.name = '{METRIC}' and r.algo = 'sac' and r.env = 'Hopper-v5'
    group by all order by score desc limit 5
"""
CURVES_SQL = f"select run_id, avg(value) from metrics where name = '{METRIC}' group by run_id order by 2 desc limit 5"


# ---- building a book ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Plan:
    book: Path
    csv: Path | None  # where the same runs go as one CSV file each
    runs: int
    points: int


def build(plan: Plan) -> None:
    """All runs, by a process on each core."""
    from concurrent.futures import ProcessPoolExecutor

    from rollbook.book.layout import Layout

    Layout(plan.book).create()
    batches = range(0, plan.runs, RUNS_A_BATCH)
    with ProcessPoolExecutor() as pool:
        for _ in pool.map(build_batch, itertools.repeat(plan), batches):
            pass


def build_batch(plan: Plan, first: int) -> None:
    from unittest import mock

    with mock.patch("os.fsync"):  # this book may be lost, and is built again
        for number in range(first, min(first + RUNS_A_BATCH, plan.runs)):
            build_run(plan, number)


def build_run(plan: Plan, number: int) -> Path:
    """The folder that a run of one attempt leaves behind when it has finished."""
    from rollbook.book.layout import Layout, readable_name
    from rollbook.book.processes import this_process
    from rollbook.book.sealed import to_table, write_sealed
    from rollbook.book.summaries import last_step, summarise, to_text
    from rollbook.book.writer import AttemptWriter, create_run_folder
    from rollbook.records import AttemptInfo, Git, Provenance, RunInfo, Status

    config = config_of(number)
    task = config["env"].split("-")[0].lower()
    started_at = time.time() - 3_600 - 10.0 * (plan.runs - number)
    ended_at = started_at + plan.points * SECONDS_BETWEEN_POINTS
    run_id, folder = create_run_folder(Layout(plan.book), task, started_at)
    writer = AttemptWriter(folder, 0)
    command, cwd, process = ["python", "train.py", "--seed", str(config["seed"])], "project", this_process()
    writer.write_run(
        RunInfo(
            run_id=run_id,
            task=task,
            name=readable_name(run_id, {"algo": config["algo"], "env": config["env"]}),
            config=config,
            tags=["benchmark"],
            started_at=started_at,
            host="lab",
            user="nobody",
            command=command,
            cwd=cwd,
        )
    )
    git = Git(commit=f"{number % 97:040x}", describe=f"v1.0-{number % 97}-g0000000", branch="main")
    provenance = Provenance(git=git, python="3.11", platform="Linux", cpu="CPU", cpu_count=2)
    writer.write_attempt(
        AttemptInfo(number=0, started_at=started_at, process=process, command=command, cwd=cwd, provenance=provenance)
    )
    series = series_of(number, plan.points, started_at)
    write_sealed(writer.sealed_path, to_table(series))
    writer.log.close()
    writer.log.path.unlink()
    writer.write_status(
        Status(
            state="finished",
            heartbeat=ended_at,
            started_at=started_at,
            process=process,
            last_step=last_step(series),
            rows=plan.points,
            ended_at=ended_at,
            summaries=to_text(summarise(series)),
        )
    )
    os.utime(folder, (ended_at, ended_at))
    if plan.csv:
        write_csv(plan.csv / run_id, config, series)
    return folder


def config_of(number: int) -> dict[str, Any]:
    algo, env, lr = GRID[number % len(GRID)]
    return {"algo": algo, "env": env, "seed": number // len(GRID), "lr": lr, "gamma": 0.99, "batch_size": 256}


def series_of(number: int, points: int, started_at: float) -> dict[str, Series]:
    """Noisy curves that rise and level off."""
    import numpy as np

    from rollbook.book.metric_log import Series
    from rollbook.records import LEVELS

    generator = np.random.default_rng(number)
    rising = 1 - np.exp(-4 * np.arange(1, points + 1) / points)
    values = generator.uniform(500, 3_000) * rising + generator.normal(0, 100, (len(NAMES), points))
    steps = np.arange(1, points + 1, dtype=np.int64) * STEPS_BETWEEN_POINTS
    times = started_at + SECONDS_BETWEEN_POINTS * np.arange(points, dtype=np.float64)
    levels = np.full(points, LEVELS["info"], np.int8)
    return {name: Series(steps, times, row, levels) for name, row in zip(NAMES, values, strict=True)}


def write_csv(folder: Path, config: dict[str, Any], series: dict[str, Series]) -> None:
    """config.json and progress.csv, as Spinning Up and many scripts leave them."""
    import pyarrow as pa
    import pyarrow.csv

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    columns = {"step": series[METRIC].steps} | {name: one.values for name, one in series.items()}
    pyarrow.csv.write_csv(pa.table(columns), folder / "progress.csv")


def check_against_a_real_run() -> None:
    """A built run and one that `rollbook.start` made of the same rows leave the same files and the same answers."""
    import rollbook

    os.environ["ROLLBOOK_QUIET"] = "1"
    with tempfile.TemporaryDirectory(prefix="rollbook-") as temporary:
        plan = Plan(book=Path(temporary) / "book", csv=None, runs=1, points=50)
        build(plan)
        run = rollbook.start("hopper", config=config_of(0), tags=["benchmark"], book=plan.book)
        rows = zip(*(one.values.tolist() for one in series_of(0, plan.points, 0.0).values()), strict=True)
        for number, values in enumerate(rows, start=1):
            run.log(dict(zip(NAMES, values, strict=True)), step=number * STEPS_BETWEEN_POINTS)
        run.finish()
        book = rollbook.open(plan.book)
        built = book.sql(f"select run_id from runs where run_id <> '{run.id}'").fetchall()[0][0]
        of_real = traces(book, run.id)
        for what, of_built in traces(book, built).items():
            if of_built != of_real[what]:
                raise SystemExit(f"{what} of a built run are not those of a real one")


def traces(book: Book, run_id: str) -> dict[str, Any]:
    """What a run leaves behind, except what differs between any two runs: names and times."""
    folder = book.run(run_id).folder
    questions = {
        "runs": "select task, algo, env, seed, status, last_step, tags, config::varchar from runs",
        "params": "select key, value from params",
        "metrics": "select name, step, value from metrics",
        # Sums over a column of rows and over an array of its own may differ in their last digits.
        "summaries": "select name, count, max, round(mean, 6), round(auc, 6), round(final, 6) from summaries",
    }
    return {
        "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*")),
        "JSON keys": {path.name: sorted(json.loads(path.read_text())) for path in folder.rglob("*.json")},
        **{
            view: book.sql(f"{question} where run_id = '{run_id}' order by all").fetchall()
            for view, question in questions.items()
        },
    }


# ---- asking -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    seconds: float
    megabytes: float | None = None  # the largest that the process was
    fastest: float | None = None


def ask(command: Sequence[str], *, repetitions: int, cold: Path | None = None) -> Asked:
    """Medians over fresh processes; `cold` is a cache to remove before each."""
    seconds, megabytes = [], []
    for _ in range(repetitions):
        if cold:
            shutil.rmtree(cold, ignore_errors=True)
        began = time.perf_counter()
        # This process stays small: a child's peak is never below that of the process that started it.
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert child.stderr
        errors = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        seconds.append(time.perf_counter() - began)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{errors.decode()}")
        megabytes.append(usage.ru_maxrss / 1024)
    return Asked(statistics.median(seconds), statistics.median(megabytes), min(seconds))


def rollbook_command(book: Path, *arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("rollbook")), "--book", str(book), *arguments]


def ask_in_process(book: Path, query: str) -> Asked:
    worker = [sys.executable, __file__, "--worker", "sql", "--book", str(book), "--query", query]
    done = subprocess.run(worker, check=True, stdout=subprocess.PIPE, text=True)
    return Asked(float(done.stdout))


def time_sql(book: Path, query: str) -> float:
    """Median seconds of a warm question to an open book."""
    import rollbook

    opened = rollbook.open(book)
    durations = []
    for _ in range(25):
        began = time.perf_counter()
        opened.sql(query).fetchall()
        durations.append(time.perf_counter() - began)
    return statistics.median(durations[3:])


def ask_pandas(folder: Path, question: str) -> None:
    """The same answers from one CSV file a run, which only the files of the runs in question are read of."""
    import pandas as pd

    frames = []
    for run in folder.iterdir():
        config = json.loads((run / "config.json").read_text())
        if question == "curves" or (config["algo"] == "sac" and config["env"] == "Hopper-v5"):
            frame = pd.read_csv(run / "progress.csv", usecols=["step", METRIC])
            frames.append(frame.assign(run=run.name, lr=config["lr"]))
    means = pd.concat(frames).groupby(["lr", "run"])[METRIC].mean()
    answer = means if question == "curves" else means.groupby("lr").mean()
    print(answer.sort_values(ascending=False).head(5))


# ---- cases --------------------------------------------------------------------------------------------------------


@dataclass
class Report:
    rows: list[list[str]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def add(
        self,
        question: str,
        how: str,
        asked: Asked,
        *,
        peer: Asked | None = None,
        below_seconds: float | None = None,
        below_megabytes: float | None = None,
    ) -> None:
        print(f"{question}, {how}: {asked.seconds:.3f} s", file=sys.stderr)
        size = "" if asked.megabytes is None else three_digits(asked.megabytes)
        ratio = f"{peer.seconds / asked.seconds:.1f}" if peer else ""
        fastest = "" if asked.fastest is None else three_digits(asked.fastest)
        self.rows.append([question, how, three_digits(asked.seconds), fastest, size, ratio])
        name = f"{question}, {how}"
        if below_seconds:
            self.targets.append(Target(figure=name, limit=below_seconds, measured=asked.seconds, unit="s"))
        if below_megabytes and asked.megabytes:
            self.targets.append(
                Target(figure=f"{name}: memory", limit=below_megabytes, measured=asked.megabytes, unit="MB")
            )


def thousand_runs(book: Path, csv: Path, report: Report) -> None:
    cache = book / "cache"
    pandas = [sys.executable, __file__, "--worker", "pandas", "--csv", str(csv), "--query"]
    top_peer = ask([*pandas, "top"], repetitions=9)
    curves_peer = ask([*pandas, "curves"], repetitions=3)
    top, curves = "1,000 runs: best 5 of SAC on Hopper over seeds", "1,000 runs: mean of every run's curve"
    top_command, curves_command = rollbook_command(book, *TOP), rollbook_command(book, "sql", CURVES_SQL)

    cold = ask(top_command, repetitions=9, cold=cache)
    report.add(top, "`rollbook top`, no cache", cold, peer=top_peer, below_seconds=1.0)
    warm = ask(top_command, repetitions=9)
    report.add(top, "`rollbook top`", warm, peer=top_peer, below_seconds=0.5)
    report.add(top, "`book.sql`", ask_in_process(book, TOP_SQL), peer=top_peer, below_seconds=0.05)
    report.add(top, "pandas, one CSV a run", top_peer)
    cold = ask(curves_command, repetitions=3, cold=cache)
    report.add(curves, "`rollbook sql`, no cache (packs the metrics)", cold, peer=curves_peer)
    report.add(curves, "`rollbook sql`", ask(curves_command, repetitions=9), peer=curves_peer)
    report.add(curves, "`book.sql`", ask_in_process(book, CURVES_SQL), peer=curves_peer)
    report.add(curves, "pandas, one CSV a run", curves_peer)


def ten_thousand_runs(book: Path, report: Report) -> None:
    cache = book / "cache"
    top, curves = "10,000 runs: best 5 of SAC on Hopper over seeds", "10,000 runs: mean of every run's curve"
    top_command, curves_command = rollbook_command(book, *TOP), rollbook_command(book, "sql", CURVES_SQL)
    report.add(top, "`rollbook top`, no cache", ask(top_command, repetitions=1, cold=cache))
    warm = ask(top_command, repetitions=7)
    report.add(top, "`rollbook top`", warm, below_seconds=1.0, below_megabytes=2048)
    packing = ask(curves_command, repetitions=1)
    report.add(curves, "`rollbook sql`, first time (packs the metrics)", packing, below_megabytes=2048)
    warm = ask(curves_command, repetitions=7)
    report.add(curves, "`rollbook sql`", warm, below_megabytes=2048)
    report.add(top, "`book.sql`", ask_in_process(book, TOP_SQL))
    report.add(curves, "`book.sql`", ask_in_process(book, CURVES_SQL))


def hundred_thousand_runs(book: Path, report: Report) -> None:
    question, command = "100,000 runs: list SAC with seed 3", rollbook_command(book, *LIST)
    report.add(question, "`rollbook runs`, no cache", ask(command, repetitions=1, cold=book / "cache"))
    report.add(question, "`rollbook runs`", ask(command, repetitions=5), below_seconds=2.0)


def prepare(folder: Path, runs: int) -> Path:
    """The folder with `book` and, for the smallest case, `csv`; built unless it is there from last time."""
    place = folder / f"{runs}-runs"
    if not (place / "built").exists():
        shutil.rmtree(place, ignore_errors=True)
        print(f"building a book of {runs:,} runs", file=sys.stderr)
        worker = [sys.executable, __file__, "--worker", "build", "--size", str(runs), "--book", str(place / "book")]
        subprocess.run([*worker, *(["--csv", str(place / "csv")] if runs == 1_000 else [])], check=True)
        (place / "built").touch()
    return place


NOTES = """A book has ten metrics a run, of 1,000 points each (100,000 runs: one each). Commands are fresh processes,
`book.sql` is a question to an open book. *seconds* are medians; the fastest stands beside them, since the same command
takes up to twice as long on a shared virtual machine from one second to the next. *no cache* means that the book's own
cache/ was removed; with its files not in the page cache either, 10,000 runs took 36 s where they else took 6. *memory*
is the largest resident size of the process. pandas reads `config.json` of all runs, `progress.csv` of those that the
question is about, and no column but the step and the metric."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", choices=[*POINTS], default=[*POINTS], help="sizes of books")
    parser.add_argument("--folder", type=Path, help="keep the books here and use them again")
    parser.add_argument("--write", action="store_true", help="save benchmarks/results/query.md")
    parser.add_argument("--worker", choices=["build", "check", "sql", "pandas"], help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--book", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--csv", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--query", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        answer_as_worker(options)
        return

    subprocess.run([sys.executable, __file__, "--worker", "check"], check=True)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="rollbook-") as temporary:
        for runs in options.runs:
            place = prepare(options.folder or Path(temporary), runs)
            if runs == 1_000:
                thousand_runs(place / "book", place / "csv", report)
            elif runs == 10_000:
                ten_thousand_runs(place / "book", report)
            else:
                hundred_thousand_runs(place / "book", report)
    header = ["question", "how", "seconds", "fastest", "memory MB", "pandas, times ours"]
    sections = [table(header, report.rows), NOTES, target_table(report.targets)]
    text = document("How long questions take", ["rollbook", "duckdb", "pyarrow", "pandas"], sections)
    publish("query", text, write=options.write)


def answer_as_worker(options: argparse.Namespace) -> None:
    if options.worker == "build":
        build(Plan(book=options.book, csv=options.csv, runs=options.size, points=POINTS[options.size]))
    elif options.worker == "check":
        check_against_a_real_run()
    elif options.worker == "sql":
        print(time_sql(options.book, options.query))
    else:
        ask_pandas(options.csv, options.query)


if __name__ == "__main__":
    main()
