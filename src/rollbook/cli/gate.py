"""gate, gate freeze, gate selftest."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollbook.cli.bench import execution_options
from rollbook.cli.options import DefaultGroup, ListCommand, book_option, current_book
from rollbook.cli.output import printable, relative, say, to_plain
from rollbook.cli.table import print_table
from rollbook.errors import BookUnwritable, RunNotFound, TrainingFailed, UsageError

if TYPE_CHECKING:
    from rollbook.book.book import Book
    from rollbook.gate.adaptive import Look
    from rollbook.gate.decide import Decision, Question
    from rollbook.gate.scores import Choice

_ASKED = ("algos", "env_ids", "task", "metric", "margin", "alpha", "anchor", "allow_failed")
_EPILOG = """\b
Examples:
  rollbook gate pr-308 --against latest
  rollbook gate v1.2-3-gabc1234 --against latest --margin 5% --anchor v1.2 --report report/
  rollbook gate --candidate-where "config->>'lr' = '0.001'" --against-where "config->>'lr' = '0.0003'"
  rollbook gate --filters '?ceik=env_id&cen=exp_name&metric=charts/episodic_return' 'ppo?tag=pr-308' 'ppo?tag=latest'
  rollbook gate --adaptive --command "python ppo.py" --env-ids Hopper-v5 Walker2d-v5 --against latest
  rollbook gate freeze latest
  rollbook gate selftest

\b
Exit codes: 0 no regression, 1 regression, 2 wrong usage, 3 inconclusive, 4 invalid (data missing).
"""


@click.group(
    cls=DefaultGroup, epilog="\b\nExamples:\n  rollbook gate pr-308 --against latest\n  rollbook gate selftest"
)
def gate() -> None:
    """Did this change make the agent worse? Freeze what a baseline is measured by; see that the gate can fail."""


@gate.command(cls=ListCommand, epilog=_EPILOG)
@click.argument("candidate", required=False)
@click.option("--against", metavar="TAG", help="The baseline: a tag, or a version of the code [default: latest].")
@click.option("--candidate-where", metavar="SQL", help="Runs of the candidate, by a condition on the view runs.")
@click.option("--against-where", metavar="SQL", help="Runs of the baseline.")
@click.option("--filters", multiple=True, metavar="TEXT...", help="Both sides, as openrlbenchmark's filters.")
@click.option("--algo", "algos", multiple=True, metavar="NAME", help="Only this algorithm; repeatable.")
@click.option("--env-ids", multiple=True, metavar="ENV...", help="Only these environments; one that lacks is invalid.")
@click.option("--task", metavar="TASK", help="Only runs of this task.")
@click.option("--metric", metavar="NAME", help="[default: eval/return if logged, else charts/episodic_return]")
@click.option("--margin", metavar="10%", help="How much worse is acceptable: 10%, 1.0sd or 25 [default: as frozen].")
@click.option("--alpha", type=float, default=0.05, show_default=True, metavar="P", help="The risk of a false alarm.")
@click.option("--anchor", metavar="TAG", help="A release to hold it against, too [default: anchor in rollbook.toml].")
@click.option("--allow-failed", is_flag=True, help="Leave out runs that crashed or diverged; the verdict says so.")
@click.option("--report", metavar="DIR", help="Write report.html, report.md, report.json and figures there.")
@click.option("--github", is_flag=True, help="Add the verdict to the summary of a GitHub Actions step.")
@click.option("--table", "as_table", is_flag=True, help="Print openrlbenchmark's table: mean ± std of the last points.")
@click.option("--last", type=int, default=100, show_default=True, metavar="N", help="Of that table: points of a run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--adaptive", is_flag=True, help="Train the candidate's seeds here, as few as the answer needs.")
@click.option("--command", metavar="TEXT", help="With --adaptive: the program [else the algorithm of --algo].")
@click.option("--suite", metavar="NAME", help="With --adaptive: a suite instead of a program.")
@click.option("--steps", type=int, metavar="N", help="With --adaptive: environment steps.")
@click.option("--start-seed", type=int, default=1, show_default=True, metavar="N", help="With --adaptive.")
@execution_options
@book_option
def run(
    candidate: str | None,
    against: str | None,
    candidate_where: str | None,
    against_where: str | None,
    filters: tuple[str, ...],
    report: str | None,
    github: bool,
    as_table: bool,
    last: int,
    as_json: bool,
    adaptive: bool,
    **given: Any,
) -> int:
    """Say whether the candidate is worse than the baseline, cell by cell and over all of them.

    CANDIDATE is a tag or a version of the code. A cell is a task with an algorithm and an environment; the unit is a
    training seed. The verdict goes to the journal.
    """
    from rollbook.book.settings import load_settings
    from rollbook.gate.decide import Question, decide
    from rollbook.gate.filters import parse_filters

    asked = {key: given.pop(key) for key in _ASKED}
    asked["anchor"] = asked["anchor"] or load_settings().anchor
    if filters:
        if candidate or against or candidate_where or against_where:
            raise UsageError("--filters name both sides already", "leave out CANDIDATE, --against and the conditions")
        chosen = parse_filters(filters)
        asked["metric"] = asked["metric"] or chosen.metric
        ours, theirs = chosen.candidate, chosen.baseline
    else:
        theirs = _choice(
            "the baseline", against or (None if against_where else "latest"), against_where, "--against TAG"
        )
        if not adaptive:
            hint = "rollbook gate CANDIDATE, or --candidate-where SQL"
            ours = _choice("the candidate", candidate, candidate_where, hint)
    if adaptive:
        decision, looks = _train_and_decide(candidate, theirs, asked, given)
    else:
        if given["command"] or given["suite"]:
            raise UsageError("a program is run with --adaptive only", "rollbook gate --adaptive --command ...")
        decision, looks = decide(current_book(), Question(candidate=ours, baseline=theirs, **asked), tell=say), []
    return _answer(decision, looks, report=report, github=github, table=last if as_table else None, as_json=as_json)


def _train_and_decide(
    name: str | None, baseline: Choice, asked: dict[str, Any], given: dict[str, Any]
) -> tuple[Decision, list[Look]]:
    """Seeds of the code that is here, look by look. The same command again goes on with them."""
    from rollbook.book.find import quoted
    from rollbook.cli.bench import EXECUTION, matrix_cells, run_cells
    from rollbook.cli.gate_baseline import top_up
    from rollbook.gate.adaptive import run_looks
    from rollbook.gate.decide import Question, decide
    from rollbook.gate.scores import Cell, Choice

    execution = {key: given.pop(key) for key in EXECUTION}
    if name:
        execution["tags"] = ",".join(filter(None, [execution["tags"], name]))
    start_seed = given.pop("start_seed")
    suite, matrix = given.pop("suite"), {**given, "env_ids": asked["env_ids"], "task": asked["task"]}
    if len(asked["algos"]) > 1:
        raise UsageError(f"{len(asked['algos'])} algorithms were given", "a suite has several programs: --suite FILE")
    matrix["algo"] = next(iter(asked["algos"]), None)
    benchmarks: list[str] = []
    first = matrix_cells(suite, {**matrix, "start_seed": start_seed, "num_seeds": 1})
    top_up(current_book(), baseline, first, _as_arguments(suite, matrix), execution)

    def run_seeds(cells: Collection[Cell] | None, seeds: Sequence[int]) -> None:
        planned = matrix_cells(suite, {**matrix, "start_seed": seeds[0], "num_seeds": len(seeds)})
        wanted = [one for one in planned if cells is None or Cell(one.task, one.algo, one.env) in cells]
        runner = run_cells(wanted, **execution)
        if runner.stopped == "interrupted":
            raise KeyboardInterrupt
        if not runner.progress.complete:
            why = runner.stopped or f"{runner.progress.count('failed')} of {len(wanted)} jobs failed"
            raise TrainingFailed(f"the gate is not decided: {why}", "the same command goes on with it")
        benchmarks.append(runner.benchmark.plan.benchmark)

    def decide_at(looks: dict[Cell, int]) -> Decision:
        listed = ", ".join(map(quoted, benchmarks))
        version = name or current_book().runs(f"benchmark in ({listed})")[0].git_describe or "the code here"
        ours = Choice(name=version, where=f"benchmark in ({listed})")
        return decide(current_book(), Question(candidate=ours, baseline=baseline, **asked), looks=looks, tell=say)

    def tell(look: Look) -> None:
        say(
            f"{look.seeds} seeds: {look.outcome}, {look.undecided} cells undecided, "
            f"alpha spent {look.spent:.4f} of {asked['alpha']:g}"
        )

    return run_looks(run_seeds, decide_at, start_seed=start_seed, alpha=asked["alpha"], tell=tell)


def _as_arguments(suite: str | None, matrix: dict[str, Any]) -> list[str]:
    """Of `rollbook bench`, for the same programs elsewhere."""
    given = {key: matrix[key] for key in ("command", "algo", "steps", "task") if matrix[key] is not None}
    named = [str(Path(suite).absolute()) if suite and Path(suite).exists() else suite] if suite else []
    return [*named, *(part for key, value in given.items() for part in (f"--{key}", str(value)))]


def _choice(who: str, tag: str | None, where: str | None, hint: str) -> Choice:
    from rollbook.gate.decide import by_tag
    from rollbook.gate.scores import Choice

    if tag and where:
        raise UsageError(f"{who} is named twice: {tag!r} and {where!r}", "a tag or a condition, not both")
    if where:
        return Choice(name=where, where=where)
    if not tag:
        raise UsageError(f"{who} is not named", hint)
    return by_tag(tag)


def _answer(
    decision: Decision,
    looks: Sequence[Look],
    *,
    report: str | None,
    github: bool,
    table: int | None,
    as_json: bool,
) -> int:
    """Journal, print and report; the exit code is the verdict's."""
    from rollbook.gate.decide import record
    from rollbook.gate.plain import to_plain as decision_to_plain

    book = current_book()
    plain = to_plain(decision_to_plain(decision, looks))
    try:
        record(book, decision, plain)
    except BookUnwritable as error:
        say(f"warning: the verdict is not in the journal: {error.message}")
    if as_json:
        print(json.dumps(plain, indent=1, ensure_ascii=False))
    elif table is not None:
        _print_last_points(book, decision.question, table)
    else:
        print_verdict(plain)
    if report:
        from rollbook.gate.report import write_report

        say(f"report: {relative(write_report(book, decision, plain, Path(report)))}")
    if github:
        _write_step_summary(plain)
    return decision.exit_code


def print_verdict(plain: dict[str, Any]) -> None:
    from rollbook.gate.text import COLUMNS, advice, cell_rows

    print(printable(plain["sentence"]))
    print()
    print_table(COLUMNS, cell_rows(plain), right=COLUMNS[1:-1])
    if lines := list(advice(plain)):
        print()
        for line in lines:
            print(printable(line))


def _print_last_points(book: Book, question: Question, last: int) -> None:
    from rollbook.gate.filters import last_points

    choices = [question.candidate, question.baseline]
    columns, rows = last_points(book, choices, question.metric, last, only=question.only)
    print_table(columns, rows, right=columns[1:])


def _write_step_summary(plain: dict[str, Any]) -> None:
    from rollbook.gate.report import to_markdown

    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        raise UsageError(
            "GITHUB_STEP_SUMMARY is not set: this is no step of GitHub Actions",
            "--report DIR writes report.md, which may go anywhere",
        )
    with open(path, "a", encoding="utf-8") as file:
        file.write(to_markdown(plain))


@gate.command(
    cls=ListCommand,
    epilog="\b\nExamples:\n  rollbook gate freeze latest\n  rollbook gate freeze v1.2 --margin 5% --floor Mine-v0=-120",
)
@click.argument("tag")
@click.option("--margin", metavar="10%", help="How much worse is acceptable: 10%, 1.0sd or 25 [default: 10%].")
@click.option("--floor", "floors", multiple=True, metavar="ENV=SCORE", help="A random policy's score; repeatable.")
@click.option("--algo", "algos", multiple=True, metavar="NAME", help="Only this algorithm; repeatable.")
@click.option("--env-ids", multiple=True, metavar="ENV...", help="Only these environments.")
@click.option("--task", metavar="TASK", help="Only runs of this task.")
@click.option("--metric", metavar="NAME", help="[default: eval/return if logged, else charts/episodic_return]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array of objects.")
@book_option
def freeze(tag: str, margin: str | None, floors: tuple[str, ...], as_json: bool, **asked: Any) -> None:
    """Write down what a baseline is measured by: its mean, its spread, a random policy's score, and the margin.

    A random policy is tried where the environment is installed; --floor names its score elsewhere.
    """
    from rollbook.cli.output import print_json
    from rollbook.gate.decide import Question, by_tag, freeze_cells
    from rollbook.gate.scores import explain_nothing, pair_up, read_side

    book = current_book()
    choice = by_tag(tag)
    only = Question(candidate=choice, baseline=choice, **asked).only
    side = read_side(book, choice, asked["metric"], only=only)
    if not side:
        raise explain_nothing(book, choice, only)
    pairs = pair_up(side, {}, metric=asked["metric"])
    if bad := next((pair for pair in pairs if pair.problem), None):
        raise RunNotFound(f"{bad.cell}: {bad.problem}", "a baseline has finished runs only; --env-ids leaves cells out")
    cells = {pair.cell: (pair.metric, pair.candidate) for pair in pairs}
    frozen = freeze_cells(book, tag, cells, margin=margin, given=dict(map(_floor, floors)))
    rows = [
        {**vars(cell), "metric": one.metric, "seeds": one.seeds, **vars(one.constants), "margin": frozen.margin}
        for cell, one in frozen.cells.items()
        if cell in cells
    ]
    if as_json:
        print_json(rows)
        return
    columns = ["task", "algo", "env", "metric", "seeds", "reference", "sd", "floor", "margin"]
    print_table(columns, [[row[column] for column in columns] for row in rows], right=columns[4:])


def _floor(text: str) -> tuple[str, float]:
    import math

    env, _, score = text.rpartition("=")
    try:
        floor = float(score)
    except ValueError:
        floor = math.nan
    if not env or not math.isfinite(floor):
        raise UsageError(f"--floor {text!r} is not ENV=SCORE", "--floor MyEnv-v0=-120")
    return env, floor


@gate.command(epilog="\b\nExample:\n  rollbook gate selftest")
@click.option("--repetitions", type=click.IntRange(min=100), default=200, show_default=True, metavar="N")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array of objects.")
def selftest(repetitions: int, as_json: bool) -> int:
    """See that the gate can fail: synthetic scores, unchanged and worsened, with rates beside those promised."""
    import dataclasses

    from rollbook.cli.output import print_json
    from rollbook.gate.selftest import selftest as run_selftest

    rows = run_selftest(repetitions=repetitions)
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        columns = ["scenario", "promised", "measured", "repetitions", "ok"]
        print_table(
            columns,
            [[row.scenario, row.promise, f"{row.measured:.1%}", row.repetitions, row.ok] for row in rows],
            right=["promised", "measured", "repetitions"],
        )
    return 0 if all(row.ok for row in rows) else 1
