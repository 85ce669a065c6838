"""Options that many commands share, and the choice of runs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rollbook.cli.output import say
from rollbook.errors import RunNotFound, UsageError

if TYPE_CHECKING:
    from rollbook.book.book import Book, RunRecord

Command = TypeVar("Command", bound=Callable[..., Any])


class DefaultGroup(click.Group):
    """A command that has commands of its own: `bench` alone runs one, `bench status` is about those that there are."""

    default = "run"

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [self.default, *args]
        return super().parse_args(context, args)


def _remember_book(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.obj = {**(context.obj or {}), "book": value}


def book_option(command: Command) -> Command:
    return click.option("--book", metavar="DIR", expose_value=False, callback=_remember_book, help="The book to use.")(
        command
    )


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON array of objects.")(command)


def choice_options(command: Command) -> Command:
    """RUN... --regex --where --task: which runs a command is about."""
    for option in (
        click.argument("runs", nargs=-1, metavar="[RUN]..."),
        click.option("--regex", metavar="RE", help="Runs whose readable name matches."),
        click.option("--where", metavar="SQL", help="Runs for which a condition on the view runs holds."),
        click.option("--task", metavar="TASK", help="Only runs of this task."),
    ):
        command = option(command)
    return command


def selection_options(command: Command) -> Command:
    """RUN... --regex --where --task --min-steps: which runs a command changes."""
    return click.option("--min-steps", type=int, metavar="N", help="Runs that ended with fewer than N steps.")(
        choice_options(command)
    )


class ListCommand(click.Command):
    """--env-ids A B C is --env-ids A --env-ids B --env-ids C, for options whose metavar ends in dots."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        lists = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and parameter.multiple and str(parameter.metavar).endswith("...")
            for name in parameter.opts
        }
        expanded: list[str] = []
        option: str | None = None
        for argument, following in itertools.pairwise([*args, "-"]):
            if argument.startswith("-"):
                has_values = argument in lists and not following.startswith("-")
                option = argument if has_values else None
                expanded += [] if has_values else [argument]  # click says what is missing
            else:
                expanded += [option, argument] if option else [argument]
        return super().parse_args(context, expanded)


def yes_option(command: Command) -> Command:
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)


def current_book() -> Book:
    """The book that --book, the environment or the configuration leads to."""
    from rollbook.book.book import open_book

    return open_book(chosen_path(), tell=say, one_moment=True)


def chosen_path() -> str | None:
    context = click.get_current_context()
    return (context.obj or {}).get("book")


def select_runs(
    book: Book, runs: tuple[str, ...], regex: str | None, where: str | None, task: str | None, min_steps: int | None
) -> list[RunRecord]:
    """Everything that all of the given conditions hold for. At least one is needed."""
    if not (runs or regex or where or min_steps is not None):
        raise UsageError("name the runs", "give RUN..., --regex RE, --where SQL or --min-steps N")
    return choose_runs(book, runs, regex, where, task, min_steps)


def choose_runs(
    book: Book,
    runs: tuple[str, ...],
    regex: str | None,
    where: str | None,
    task: str | None,
    min_steps: int | None = None,
    *,
    listed_by: str = "rollbook runs",
) -> list[RunRecord]:
    """Everything that all of the given conditions hold for; all runs if there is none."""
    import re

    conditions = ["true"]
    if where:
        conditions.append(f"({where}\n)")
    if min_steps is not None:
        conditions.append(f"coalesce(last_step, 0) < {int(min_steps)} and status <> 'running'")
    chosen = book.runs(" and ".join(conditions))
    if task:
        chosen = [run for run in chosen if run.task == task]
    if regex:
        try:
            pattern = re.compile(regex)
        except re.error as error:
            raise UsageError(f"{regex!r} is not a regular expression: {error}") from None
        chosen = [run for run in chosen if pattern.search(run.name)]
    if runs:
        named = {book.run(reference).run_id for reference in runs}
        chosen = [run for run in chosen if run.run_id in named]
    if not chosen:
        raise RunNotFound("no run matches", f"`{listed_by}` lists them")
    return chosen


def key_value(text: str) -> tuple[str, str]:
    """Of --set KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text!r} is not KEY=VALUE", "--set lr=1e-4")
    return key, value


def confirm(question: str, yes: bool) -> bool:
    """One question, on stderr; --yes answers it."""
    try:
        return yes or click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise UsageError("nobody answered the question", "--yes answers it") from None
