"""bench, bench status, bench cancel."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollbook.cli.options import Command, DefaultGroup, ListCommand, book_option, chosen_path, json_option
from rollbook.cli.output import printable, say, to_plain
from rollbook.cli.table import print_table
from rollbook.errors import BenchmarkNotFound, UsageError

if TYPE_CHECKING:
    from rollbook.bench.benchmark import Benchmark
    from rollbook.bench.conditions import Conditions
    from rollbook.bench.matrix import Cell
    from rollbook.bench.runner import Progress, Runner
    from rollbook.book.layout import Layout
    from rollbook.book.settings import Settings
    from rollbook.records import Provenance

EXECUTION = (
    "where", "workers", "cpus", "gpus", "memory", "time_limit", "ray_address", "partition", "retries", "fresh", "tags",
    "notes",
)  # fmt: skip
_EPILOG = """\b
Examples:
  rollbook bench --env-ids CartPole-v1 Acrobot-v1 --command "python my_ppo.py --cuda False" --num-seeds 3 --workers 4
  rollbook bench --env-ids Hopper-v5 --command "python td3.py {env} {seed}" --grid lr=1e-3,3e-4
  rollbook bench classic --tags nightly
  rollbook bench suite.toml --on slurm --workers 50 --cpus 2 --memory 4GB --time 2h
  rollbook bench status
  rollbook bench cancel classic-3f9a4c1b2d07
"""


@click.group(cls=DefaultGroup, epilog="\b\nExamples:\n  rollbook bench classic\n  rollbook bench status")
def bench() -> None:
    """Run programs over environments, grids and seeds; see how a benchmark is doing; stop one."""


def execution_options(command: Command) -> Command:
    """Where jobs run, with what, and how often: of every command that runs a matrix."""
    places = click.Choice(["local", "ray", "slurm"])
    for option in reversed(
        (
            click.option("--workers", type=int, metavar="N", help="Jobs at a time [default: one for each core]."),
            click.option("--cpus", type=int, metavar="N", help="Cores of a job [default: its share of the machine]."),
            click.option("--gpus", type=int, metavar="N", help="GPUs of a job."),
            click.option("--memory", metavar="4GB", help="Memory of a job, for Ray and Slurm."),
            click.option("--time", "time_limit", metavar="2h", help="Time limit of a job."),
            click.option("--on", "where", type=places, default="local", show_default=True),
            click.option(
                "--ray-address", metavar="ADDRESS", help="Of a Ray cluster [default: the one around, else a local one]."
            ),
            click.option("--partition", metavar="NAME", help="Slurm's."),
            click.option(
                "--retries", type=int, default=0, show_default=True, metavar="N", help="Further tries of a failed job."
            ),
            click.option("--fresh", is_flag=True, help="Run all anew, whatever has finished before."),
            click.option("--tags", metavar="A,B", help="Tags of the runs, besides the code's version."),
            click.option("--notes", default="", help="Why this benchmark is made."),
        )
    ):
        command = option(command)
    return command


@bench.command(cls=ListCommand, epilog=_EPILOG)
@click.argument("suite", required=False)
@click.option("--command", metavar="TEXT", help="Of a program; {env}, {seed} and {key} are filled in, else appended.")
@click.option("--algo", metavar="NAME", help="One of ours (without --command), or what the command's runs are called.")
@click.option("--env-ids", multiple=True, metavar="ENV...", help="Environments.")
@click.option("--num-seeds", type=int, metavar="N", help="[default: 3]")
@click.option("--start-seed", type=int, metavar="N", help="[default: 1]")
@click.option("--grid", multiple=True, metavar="KEY=A,B...", help="Every value with everything else; repeatable.")
@click.option("--steps", type=int, metavar="N", help="Environment steps; a command takes them as {steps}.")
@click.option("--resumes", is_flag=True, help="The command goes on from its run's checkpoint when it is retried.")
@execution_options
@click.option("--dry-run", is_flag=True, help="Print the commands, and end.")
@click.option("--task", metavar="TASK", help="[default: the suite's, else in rollbook.toml, else the project's name]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@book_option
def run(
    suite: str | None,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Run a matrix of jobs: every program with every environment, grid point and seed, each a tracked run.

    SUITE is a file, or one of ours: classic, mujoco-short, mujoco-off-policy, pomdp. The same command again goes on
    with what is not finished.
    """
    from rollbook.cli.bench_board import print_summary

    execution = {key: given.pop(key) for key in EXECUTION}
    cells = matrix_cells(suite, given)
    if dry_run:
        for cell in cells:
            print(printable(shlex.join(cell.command)))
        return 0
    runner = run_cells(cells, **execution)
    if as_json:
        print(json.dumps(to_plain(_as_object(runner.progress)), indent=1, ensure_ascii=False))
    else:
        print_summary(runner.progress)
    if runner.stopped:
        say(f"{runner.stopped}; the same command goes on with it")
        return 130 if runner.stopped == "interrupted" else 1
    return 0 if runner.progress.complete else 1


def run_cells(
    cells: Sequence[Cell],
    *,
    where: str,
    workers: int | None,
    cpus: int | None,
    gpus: int | None,
    memory: str | None,
    time_limit: str | None,
    ray_address: str | None,
    partition: str | None,
    retries: int,
    fresh: bool,
    tags: str | None,
    notes: str,
) -> Runner:
    """Run what is left of a matrix, with the live table; the runner tells how it went."""
    from rollbook.bench.benchmark import find_or_plan
    from rollbook.bench.conditions import Conditions, CurrentConditions
    from rollbook.bench.executors.choice import Wishes, check, choose_executor
    from rollbook.bench.runner import Runner
    from rollbook.book.provenance import script_of
    from rollbook.book.settings import load_settings
    from rollbook.cli.bench_board import Board

    wishes = Wishes(
        where=where,
        workers=workers,
        cpus=cpus,
        gpus=gpus,
        memory_bytes=parse_bytes(memory) if memory else None,
        time_limit_seconds=parse_seconds(time_limit) if time_limit else None,
        ray_address=ray_address,
        partition=partition,
    )
    check(wishes)
    if retries < 0:
        raise UsageError(f"--retries is {retries}", "--retries 2")
    layout, settings = _layout(), load_settings()
    layout.create()
    provenance = _provenance(layout, settings, cells)
    _warn_of_uncommitted_work(provenance)
    benchmark = find_or_plan(layout, cells, provenance, fresh=fresh)
    first = Conditions(settings=settings, provenance=provenance, own_tags=_tags(tags), notes=notes)
    script = script_of(cells[0].command, Path.cwd())
    conditions = CurrentConditions(layout, script, first, _warn_of_other_code)
    _tag_earlier_runs(benchmark, tags)
    with benchmark.taken(), Board(benchmark) as board:
        executor, at_once = choose_executor(benchmark, conditions, wishes)
        runner = Runner(benchmark, executor, workers=at_once, retries=retries, tell=board.tell, failed=board.failed)
        board.begin(runner.progress)
        runner.run()
    return runner


@bench.command(epilog="\b\nExamples:\n  rollbook bench status\n  rollbook bench status classic-3f9a4c1b2d07 --json")
@click.argument("name", metavar="[BENCHMARK]", required=False)
@json_option
@book_option
def status(name: str | None, as_json: bool) -> None:
    """How a benchmark is doing; without a name, how all of them are."""
    from rollbook.bench.benchmark import STANDINGS, list_benchmarks
    from rollbook.bench.runner import progress_of
    from rollbook.cli.bench_board import print_summary

    if name:
        progress = progress_of(_find(name))
        if as_json:
            print(json.dumps(to_plain(_as_object(progress)), indent=1, ensure_ascii=False))
        else:
            print_summary(progress)
        return
    found = [progress_of(benchmark) for benchmark in list_benchmarks(_layout())]
    if as_json:
        rows = [{key: value for key, value in _as_object(progress).items() if key != "cells"} for progress in found]
        print(json.dumps(to_plain(rows), indent=1, ensure_ascii=False))
        return
    table = [
        [one.benchmark.plan.benchmark, len(one.standings), *(one.count(standing) for standing in STANDINGS)]
        for one in found
    ]
    print_table(["benchmark", "cells", *STANDINGS], table, right=["cells", *STANDINGS])


@bench.command(epilog="\b\nExample:\n  rollbook bench cancel classic-3f9a4c1b2d07")
@click.argument("name", metavar="BENCHMARK")
@book_option
def cancel(name: str) -> None:
    """Stop a benchmark that runs elsewhere; what has finished stays, and its command goes on with the rest."""
    from rollbook.bench.executors.slurm import cancel_jobs
    from rollbook.bench.job import find

    benchmark = _find(name)
    benchmark.cancel()
    if benchmark.is_being_run():
        say(f"asked {benchmark.plan.benchmark} to stop")
        return
    # Its runner is gone; programs that it left behind are asked directly.
    arrays = cancel_jobs(benchmark)
    left = [
        find(benchmark, cell, newest.number) for cell, newest in benchmark.tries().items() if newest.exit_code is None
    ]
    for running in left:
        if running:
            running.ask_to_stop("cancelled")
    what = f"{sum(map(bool, left))} programs left behind" + (f" and {arrays} arrays of Slurm jobs" if arrays else "")
    say(f"nobody runs {benchmark.plan.benchmark}; {what} were asked to stop")


def matrix_cells(suite: str | None, matrix: Mapping[str, Any]) -> list[Cell]:
    """Of a suite or a program, as the command line describes it."""
    from rollbook.bench.matrix import make_cells
    from rollbook.bench.suites import make_program, read_suite
    from rollbook.book.settings import git_root, load_settings

    given = {key: value for key, value in matrix.items() if value is not None and value is not False and value != ()}
    if "grid" in given:
        given["grid"] = dict(_grid(text) for text in given["grid"])
    if suite:
        if clash := given.keys() & {"command", "algo"}:
            raise UsageError(f"a suite and --{min(clash)} were given", "put the program into the suite's file")
        return make_cells(read_suite(suite, given))
    if "command" not in given and "algo" not in given:
        raise UsageError("no program was given", 'a suite, --algo ppo or --command "python train.py"')
    settings = load_settings()
    return make_cells([make_program({"task": settings.task or (git_root() or Path.cwd()).name or "bench", **given})])


def _grid(text: str) -> tuple[str, list[str]]:
    key, equals, values = text.partition("=")
    if not equals or not key or not values:
        raise UsageError(f"--grid {text!r} is not KEY=A,B", "--grid lr=1e-3,3e-4")
    return key.lstrip("-"), values.split(",")


def _layout() -> Layout:
    from rollbook.book.layout import Layout
    from rollbook.book.settings import find_book

    return Layout(find_book(chosen_path()))


def _find(name: str) -> Benchmark:
    """By its id, or the beginning of it."""
    from rollbook.bench.benchmark import list_benchmarks

    found = [one for one in list_benchmarks(_layout()) if one.plan.benchmark.startswith(name)]
    exact = [one for one in found if one.plan.benchmark == name]
    if not found:
        raise BenchmarkNotFound(f"there is no benchmark {name!r}", "rollbook bench status lists them")
    if len(found) > 1 and not exact:
        raise UsageError(f"{len(found)} benchmarks begin with {name!r}", "rollbook bench status lists them")
    return (exact or found)[0]


def _provenance(layout: Layout, settings: Settings, cells: Sequence[Cell]) -> Provenance:
    """Of all jobs; programs that are not there are refused before anything is planned."""
    from rollbook.bench.launch import check_program
    from rollbook.book.provenance import gather, script_of

    for program in {cell.command[0]: cell for cell in cells}.values():
        check_program(program.command, Path.cwd())
    return gather(layout, settings, script_of(cells[0].command, Path.cwd()))


def _warn_of_uncommitted_work(provenance: Provenance) -> None:
    if provenance.git and provenance.git.dirty:
        version = provenance.git.describe or "before the first commit"
        say(
            f"warning: the code has uncommitted changes: its version {version} cannot be checked out again; "
            "the runs keep the diff"
        )


def _warn_of_other_code(conditions: Conditions) -> None:
    git = conditions.provenance.git
    say(f"warning: the code has changed meanwhile: jobs from here on are of {git.describe if git else 'no version'}")


def _tags(tags: str | None) -> list[str]:
    import os

    from rollbook.track.config import as_tags

    return [*as_tags(tags), *as_tags(os.environ.get("ROLLBOOK_TAGS")), *as_tags(os.environ.get("WANDB_TAGS"))]


def _tag_earlier_runs(benchmark: Benchmark, tags: str | None) -> None:
    """Tags of a later call are for the runs of the earlier ones, too."""
    from rollbook.book import journal
    from rollbook.book.book import open_book
    from rollbook.track.config import as_tags

    for tag in as_tags(tags) if benchmark.tries() else []:
        quoted = benchmark.plan.benchmark.replace("'", "''")
        runs = open_book(benchmark.layout.root).runs(f"benchmark = '{quoted}'")
        if lacking := [run.run_id for run in runs if tag not in run.tags]:
            journal.append(benchmark.layout.journal, "tag", lacking, tags=[tag])


def _as_object(progress: Progress) -> dict[str, Any]:
    from rollbook.bench.benchmark import STANDINGS

    benchmark = progress.benchmark
    tries = benchmark.tries()
    return {
        "benchmark": benchmark.plan.benchmark,
        "complete": progress.complete,
        **{standing: progress.count(standing) for standing in STANDINGS},
        "seconds_left": progress.seconds_left,
        "cells": [
            {
                "run_id": benchmark.plan.run_ids[number],
                "task": cell.task,
                "algo": cell.algo,
                "env": cell.env,
                "seed": cell.seed,
                "grid": cell.grid,
                "status": progress.standings[number],
                "tries": tries[number].number + 1 if number in tries else 0,
                "exit_code": tries[number].exit_code if number in tries else None,
                "command": cell.command,
            }
            for number, cell in enumerate(benchmark.plan.cells)
        ],
    }


def parse_bytes(text: str) -> int:
    """500MB, 4GB, 4G, 1.5GiB."""
    import re

    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT])i?B?", text.strip(), re.IGNORECASE)
    if not match or not float(match[1]):
        raise UsageError(f"--memory {text!r} is no size", "--memory 4GB")
    return int(float(match[1]) * 1024 ** (1 + "KMGT".index(match[2].upper())))


def parse_seconds(text: str) -> float:
    """90, 90s, 30m, 2h, 1d, 1:30:00."""
    import re

    units = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
    if match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", text.strip()):
        seconds = float(match[1]) * units[match[2]]
    elif match := re.fullmatch(r"(\d+):(\d\d):(\d\d)", text.strip()):
        seconds = 3600.0 * int(match[1]) + 60 * int(match[2]) + int(match[3])
    else:
        raise UsageError(f"--time {text!r} is no length of time", "--time 90s, 30m, 2h or 1:30:00")
    if not seconds > 0:
        raise UsageError(f"--time {text!r} leaves no time", "--time 2h")
    return seconds
