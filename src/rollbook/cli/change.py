"""note, verbosity, delete, archive, restore, purge, thin, du: changes after the fact."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rollbook.cli.options import (
    book_option,
    choose_runs,
    confirm,
    current_book,
    json_option,
    select_runs,
    selection_options,
    yes_option,
)
from rollbook.cli.output import print_json, printable, say, size
from rollbook.cli.table import print_table
from rollbook.errors import RunNotFound, UsageError
from rollbook.records import LEVELS

if TYPE_CHECKING:
    from rollbook.book.book import RunRecord
    from rollbook.book.layout import Layout
    from rollbook.book.tidy import Hidden

_LISTED = 30


@click.command(epilog='\b\nExample:\n  rollbook note 9f2c "the first run with the new replay buffer"')
@click.argument("run")
@click.argument("text")
@book_option
def note(run: str, text: str) -> None:
    """Add a note to a run."""
    from rollbook.book import journal

    book = current_book()
    record = book.run(run)
    # A program may note what it likes; who types nothing but space has made a mistake.
    journal.append(book.layout.journal, "note", [record.run_id], text=text if text.strip() else "")
    say(f"noted at {record.run_id}")


@click.command(epilog="\b\nExample:\n  rollbook verbosity 9f2c debug")
@click.argument("run")
@click.argument("level", type=click.Choice(list(LEVELS)))
@book_option
def verbosity(run: str, level: str) -> None:
    """Switch the metrics of a live run: essential, info or debug."""
    from rollbook.book import journal

    book = current_book()
    record = book.run(run)
    if record.status != "running":
        raise UsageError(f"run {record.run_id} is {record.status}", "only a running run can change its verbosity")
    journal.append(book.layout.journal, "verbosity", [record.run_id], level=level)
    say(f"{record.run_id} logs {level} metrics from the next second on")


@click.command(
    epilog="\b\nExamples:\n  rollbook delete 9f2c\n  rollbook delete --min-steps 100 --where \"status = 'failed'\""
)
@selection_options
@yes_option
@book_option
def delete(
    runs: tuple[str, ...], regex: str | None, where: str | None, task: str | None, min_steps: int | None, yes: bool
) -> None:
    """Hide runs from every answer. `restore` brings them back until `purge`."""
    from rollbook.book import tidy

    book = current_book()
    chosen = select_runs(book, runs, regex, where, task, min_steps)
    _list(chosen)
    if confirm(f"delete {_count(chosen)}?", yes):
        tidy.delete(book.layout, [run.run_id for run in chosen])
        say(f"deleted {_count(chosen)}; `rollbook restore RUN` undoes it, `rollbook purge` frees the space")


@click.command(epilog="\b\nExample:\n  rollbook archive --where \"started_at < '2026-01-01'\"")
@selection_options
@yes_option
@book_option
def archive(
    runs: tuple[str, ...], regex: str | None, where: str | None, task: str | None, min_steps: int | None, yes: bool
) -> None:
    """Move runs to the book's archive: kept whole, out of every answer."""
    from rollbook.book import tidy

    book = current_book()
    chosen = select_runs(book, runs, regex, where, task, min_steps)
    _list(chosen)
    if confirm(f"archive {_count(chosen)}?", yes):
        tidy.archive(book.layout, [run.run_id for run in chosen])
        say(f"archived {_count(chosen)}; `rollbook restore RUN` undoes it")


@click.command(
    epilog="\b\nExamples:\n  rollbook restore 9f2c\n  rollbook restore --all"
    "\n  rollbook restore --where \"algo = 'sac'\""
)
@selection_options
@click.option("--all", "everything", is_flag=True, help="Every deleted and archived run.")
@book_option
def restore(
    runs: tuple[str, ...],
    regex: str | None,
    where: str | None,
    task: str | None,
    min_steps: int | None,
    everything: bool,
) -> None:
    """Bring deleted or archived runs back. Conditions are on these runs alone."""
    from rollbook.book import tidy

    book = current_book()
    if not (runs or regex or where or task or min_steps is not None or everything):
        raise UsageError(
            "name the runs", "give RUN..., --regex RE, --where SQL or --all; `rollbook runs --hidden` lists them"
        )
    chosen = _choose_hidden(book.layout, tidy.hidden_runs(book.layout), runs, regex, where, task, min_steps)
    tidy.restore(book.layout, [run.run_id for run in chosen])
    say(f"restored {_count(chosen)}")


@click.command(epilog="\b\nExamples:\n  rollbook purge --yes\n  rollbook purge --where \"started_at < '2026-01-01'\"")
@selection_options
@yes_option
@book_option
def purge(
    runs: tuple[str, ...], regex: str | None, where: str | None, task: str | None, min_steps: int | None, yes: bool
) -> None:
    """Remove deleted runs for good, and code that no run needs any more. Conditions are on deleted runs alone."""
    from rollbook.book import tidy

    book = current_book()
    deleted = [run for run in tidy.hidden_runs(book.layout) if run.state == "deleted"]
    narrowed = bool(runs or regex or where or task or min_steps is not None)
    chosen: Sequence[Hidden | RunRecord] = []
    if deleted or narrowed:
        chosen = _choose_hidden(book.layout, deleted, runs, regex, where, task, min_steps)
    if chosen:
        print_table(["run", "task"], [[run.name, run.task] for run in chosen[:_LISTED]])
        _say_more(len(chosen))
        if not confirm(f"remove {_count(chosen)} for good? This cannot be undone", yes):
            return
    purged = tidy.purge(book.layout, [run.run_id for run in chosen])
    code = purged.objects
    runs_text = f"{purged.runs} run{'s' if purged.runs != 1 else ''} ({size(purged.bytes)})"
    say(f"purged {runs_text} and {code.count} code files ({size(code.bytes)}); code younger than an hour stays")


@click.command(epilog="\b\nExample:\n  rollbook thin --level debug --older-than 30d")
@click.option("--level", type=click.Choice(["debug", "info"]), required=True, help="Remove this level and above.")
@click.option("--older-than", default="0d", show_default=True, metavar="AGE", help="Ended longer ago: 12h, 30d, 8w.")
@click.option("--where", metavar="SQL", help="Only runs for which a condition on the view runs holds.")
@yes_option
@book_option
def thin(level: str, older_than: str, where: str | None, yes: bool) -> None:
    """Remove the more verbose metrics of old runs. This cannot be undone."""
    from rollbook.book import tidy

    book = current_book()
    before = time.time() - _seconds(older_than)
    levels = [name for name, rank in LEVELS.items() if rank >= LEVELS[level]]
    chosen = book.runs(
        f"status <> 'running' and epoch(coalesce(finished_at, started_at)) < {before} "
        f"and run_id in (select run_id from metrics where level in ({', '.join(map(repr, levels))}))"
        + (f" and ({where}\n)" if where else "")
    )
    if not chosen:
        raise RunNotFound(f"no run that old has {level} metrics", "`rollbook du` tells what takes the room")
    _list(chosen)
    if not confirm(f"remove {level} metrics of {_count(chosen)} for good?", yes):
        return
    thinned = [tidy.thin(book.layout, run.run_id, run.folder, level) for run in chosen]
    points, freed = sum(one.points for one in thinned), sum(one.bytes for one in thinned)
    say(f"removed {points:,} points of {_count(chosen)}, {size(max(freed, 0))}")


@click.command(epilog="\b\nExample:\n  rollbook du --limit 5")
@click.option("--limit", "-n", default=10, show_default=True, help="The largest N runs; 0 for all.")
@json_option
@book_option
def du(limit: int, as_json: bool) -> None:
    """How much room the book takes, and what takes it."""
    from rollbook.book import tidy

    book = current_book()
    used = tidy.usage(book.layout)
    shared = {name: tidy.size_of(book.path / name) for name in ("objects", "journal", "cache")}
    columns = ("metrics", "checkpoints", "media", "other", "total")
    if as_json:
        rows = [{"run_id": u.run_id, "task": u.task, **{c: getattr(u, c) for c in columns}} for u in used]
        print_json([*rows, *({"folder": name, "total": count} for name, count in shared.items())])
        return
    shown = used[:limit] if limit else used
    print_table(
        ["run", "task", *columns],
        [[u.run_id, u.task, *(size(getattr(u, c)) for c in columns)] for u in shown],
        right=columns,
    )
    total = sum(u.total for u in used)
    parts = ", ".join(f"{name} {size(count)}" for name, count in shared.items())
    say(f"{len(used):,} runs {size(total)}, {parts}; in all {size(total + sum(shared.values()))} in {book.path}")


def _choose_hidden(
    layout: Layout,
    hidden: list[Hidden],
    runs: tuple[str, ...],
    regex: str | None,
    where: str | None,
    task: str | None,
    min_steps: int | None,
) -> Sequence[Hidden | RunRecord]:
    """Those of the hidden runs that all of the given conditions hold for; without any condition, all of them."""
    from rollbook.book.book import open_hidden

    for option, text in (("--regex", regex), ("--where", where), ("--task", task)):
        # `purge --where "$CONDITION" --yes` in a script that forgot to set it must not mean every run.
        if text is not None and not text.strip():
            raise UsageError(f"{option} is empty", "leave it out, or give a condition")
    if hidden and not (runs or regex or where or task or min_steps is not None):
        return hidden  # also those that are too damaged to be asked about
    return choose_runs(
        open_hidden(layout, hidden), runs, regex, where, task, min_steps, listed_by="rollbook runs --hidden"
    )


def _list(chosen: list[RunRecord]) -> None:
    """What is about to change, before the question."""
    rows = [[run.name, run.task, run.status, run.last_step, run.tags or ""] for run in chosen[:_LISTED]]
    print_table(["run", "task", "status", "step", "tags"], rows, right=["step"])
    _say_more(len(chosen))


def _say_more(count: int) -> None:
    if count > _LISTED:
        say(f"... and {count - _LISTED:,} more")


def _count(chosen: Sequence[Hidden | RunRecord]) -> str:
    return printable(chosen[0].run_id) if len(chosen) == 1 else f"{len(chosen):,} runs"


def _seconds(age: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", age.strip())
    if not match:
        raise UsageError(f"{age!r} is no age", "write a number and a unit: 90s, 30m, 12h, 30d or 8w")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[match[2]]
