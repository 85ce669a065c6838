"""tag add, tag remove, tag move, tag list, tag log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rollbook.cli.options import (
    book_option,
    confirm,
    current_book,
    json_option,
    select_runs,
    selection_options,
    yes_option,
)
from rollbook.cli.output import print_json, printable, say
from rollbook.cli.table import print_table
from rollbook.errors import RunNotFound, UsageError

if TYPE_CHECKING:
    from rollbook.book.book import Book, RunRecord


@click.group(epilog="\b\nExample:\n  rollbook tag add latest --source-tag v1.0.0b2-9-g4605546")
def tag() -> None:
    """Name groups of runs. A tag changes for many runs in one step, and the journal keeps who changed what."""


def _source_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option("--source-tag", metavar="TAG", help="Runs that carry this tag, or are of this git version.")(
        command
    )


@tag.command(epilog="\b\nExample:\n  rollbook tag add latest --where \"git_describe = 'v1.2-3-gabc'\" --yes")
@click.argument("name")
@selection_options
@_source_option
@yes_option
@book_option
def add(
    name: str,
    runs: tuple[str, ...],
    regex: str | None,
    where: str | None,
    task: str | None,
    min_steps: int | None,
    source_tag: str | None,
    yes: bool,
) -> None:
    """Add a tag to runs."""
    _change("tag", name, runs, regex, _with_source(where, source_tag), task, min_steps, yes)


@tag.command(epilog="\b\nExample:\n  rollbook tag remove latest --source-tag rlops-pilot")
@click.argument("name")
@selection_options
@_source_option
@yes_option
@book_option
def remove(
    name: str,
    runs: tuple[str, ...],
    regex: str | None,
    where: str | None,
    task: str | None,
    min_steps: int | None,
    source_tag: str | None,
    yes: bool,
) -> None:
    """Remove a tag from runs."""
    from rollbook.book.find import carries

    where = _with_source(where, source_tag)
    if not (runs or regex or where or min_steps is not None):
        where = carries(name)
    _change("untag", name, runs, regex, where, task, min_steps, yes)


@tag.command(
    epilog="\b\nExamples:\n  rollbook tag move latest --to v1.2-3-gabc\n  rollbook tag move latest --to pr-308 --yes"
)
@click.argument("name")
@click.option("--to", metavar="TAG", help="Runs that carry this tag, or are of this git version.")
@click.option("--force", is_flag=True, help="Although the gate did not let them pass; the journal keeps that.")
@selection_options
@yes_option
@book_option
def move(
    name: str,
    to: str | None,
    force: bool,
    runs: tuple[str, ...],
    regex: str | None,
    where: str | None,
    task: str | None,
    min_steps: int | None,
    yes: bool,
) -> None:
    """Move a tag to other runs, cell by cell.

    A cell is a task with an algorithm and an environment. In each cell of the new runs, the tag leaves all others;
    cells that the new runs do not have keep theirs. All of it is one step. What the gate has last found to be a
    regression, invalid or inconclusive against the tag is moved to with --force alone.
    """
    from rollbook.book import journal
    from rollbook.book.find import carries

    _refuse_empty(name)
    book = current_book()
    doubt = _last_doubt(book, name, to)
    if doubt and not force:
        raise UsageError(
            f"the gate found {to} {doubt} against {name}",
            "more seeds may tell: rollbook gate --adaptive; --force moves it all the same, and the journal says so",
        )
    chosen = select_runs(book, runs, regex, _with_source(where, to), task, min_steps)
    cells = {(run.task, run.algo, run.env) for run in chosen}
    new = [run for run in chosen if name not in run.tags]
    moving_to = {run.run_id for run in chosen}
    before = [run for run in book.runs(carries(name)) if (run.task, run.algo, run.env) in cells]
    old = [run for run in before if run.run_id not in moving_to]
    if not new and not old:
        raise RunNotFound(f"the tag {name!r} is where it is to go already")
    print_table(
        ["cell", "from", "to"],
        [
            [" ".join(filter(None, cell)), _versions(before, cell), _versions(chosen, cell)]
            for cell in sorted(cells, key=str)
        ],
    )
    if not confirm(f"move the tag {printable(name)} in {len(cells)} cells?", yes):
        return
    ids, removed = [run.run_id for run in new], [run.run_id for run in old]
    forced = {"forced": doubt} if doubt else {}
    journal.append(book.layout.journal, "tag", ids, tags=[name], removed_from=removed, **forced)
    say(f"{printable(name)}: added to {len(ids)} runs, removed from {len(removed)}")


def _last_doubt(book: Book, name: str, to: str | None) -> str | None:
    """What the newest verdict on a candidate against this tag was, if it did not pass."""
    rows = book.rows(
        """select verdict->>'outcome' as outcome, (verdict->>'exit_code')::int as exit_code from verdicts
        where verdict->>'$.candidate.name' = ? and verdict->>'$.baseline.name' = ? order by number desc limit 1""",
        [to, name],
    )
    return rows[0]["outcome"] if rows and rows[0]["exit_code"] else None


def _versions(runs: Sequence[RunRecord], cell: tuple[str | None, ...]) -> str:
    """The code of a cell's runs, with how many of each."""
    count = Counter(run.git_describe or "?" for run in runs if (run.task, run.algo, run.env) == cell)
    return ", ".join(f"{version} ({number})" for version, number in count.items()) or "-"


@tag.command(epilog="\b\nExamples:\n  rollbook tag log\n  rollbook tag log latest --json")
@click.argument("name", required=False)
@json_option
@book_option
def log(name: str | None, as_json: bool) -> None:
    """Who moved which tag when, the newest first."""
    from datetime import UTC, datetime

    from rollbook.book import journal

    rows = [
        {
            "number": number,
            "time": datetime.fromtimestamp(entry["time"], UTC),
            "user": entry["user"],
            "host": entry.get("host"),
            "tag": tag_name,
            "added": entry["runs"] if entry["kind"] == "tag" else [],
            "forced": entry.get("forced"),
            "removed": entry["runs"] if entry["kind"] == "untag" else entry.get("removed_from", []),
        }
        for number, entry in journal.read_after(current_book().layout.journal, 0)
        if entry["kind"] in ("tag", "untag")
        for tag_name in entry.get("tags", ())
        if name is None or tag_name == name
    ][::-1]
    if as_json:
        print_json(rows)
        return
    table = [[row["time"], row["user"], row["tag"], len(row["added"]), len(row["removed"])] for row in rows]
    print_table(["time", "user", "tag", "added to", "removed from"], table, right=["added to", "removed from"])


@tag.command(name="list", epilog="\b\nExample:\n  rollbook tag list --json")
@json_option
@book_option
def list_tags(as_json: bool) -> None:
    """Every tag, with how many runs carry it."""
    rows = current_book().rows(
        """select tag, count(*) as runs, count(distinct (task, algo, env)) as cells, max(started_at) as newest
        from tags join runs using (run_id) group by tag order by newest desc, tag"""
    )
    if as_json:
        print_json(rows)
    elif rows:
        print_table(["tag", "runs", "cells", "newest"], [list(row.values()) for row in rows], right=["runs", "cells"])
    else:
        say("no run carries a tag; `rollbook tag add NAME RUN` adds one")


def _refuse_empty(name: str) -> None:
    if not name.strip():
        raise UsageError("a tag needs at least one character", "rollbook tag add latest RUN")


def _with_source(where: str | None, source_tag: str | None) -> str | None:
    from rollbook.book.find import of_tag

    if source_tag is None:
        return where
    return f"({where}\n) and {of_tag(source_tag)}" if where else of_tag(source_tag)


def _change(
    kind: str,
    name: str,
    runs: tuple[str, ...],
    regex: str | None,
    where: str | None,
    task: str | None,
    min_steps: int | None,
    yes: bool,
) -> None:
    from rollbook.book import journal

    _refuse_empty(name)
    book = current_book()
    chosen = select_runs(book, runs, regex, where, task, min_steps)
    chosen = [run for run in chosen if (name in run.tags) == (kind == "untag")]
    if not chosen:
        raise RunNotFound(f"every matching run {'lacks' if kind == 'untag' else 'has'} the tag {name!r} already")
    if len(chosen) > 1:
        print_table(["run", "tags"], [[run.name, run.tags or ""] for run in chosen[:30]])
        verb = "add the tag {} to" if kind == "tag" else "remove the tag {} from"
        if not confirm(f"{verb.format(printable(name))} {len(chosen)} runs?", yes):
            return
    journal.append(book.layout.journal, kind, [run.run_id for run in chosen], tags=[name])
    runs_text = f"{len(chosen)} run{'s' if len(chosen) > 1 else ''}"
    say(f"{runs_text} {'tagged' if kind == 'tag' else 'untagged'} {printable(name)}")
