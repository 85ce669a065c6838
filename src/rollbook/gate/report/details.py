"""What a reader may want to look up: commands, versions, the change itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollbook.errors import RollbookError
from rollbook.gate.scores import ScoredRun

if TYPE_CHECKING:
    from rollbook.book.book import Book
    from rollbook.gate.decide import Decision

_MOST_DIFF_LINES = 2_000
_MOST_COMMANDS = 200


@dataclass(frozen=True, kw_only=True)
class Details:
    commands: list[tuple[str, str]]  # run, command
    diff: str | None  # of the code, baseline to candidate
    cut: int  # lines that it is longer


def gather(book: Book, decision: Decision) -> Details:
    ours = [run for cell in decision.cells for run in cell.pair.candidate]
    theirs = [run for cell in decision.cells for run in cell.pair.baseline]
    lines = (_diff(book, theirs, ours) or "").splitlines(keepends=True)
    return Details(
        commands=_commands(book, [*ours, *theirs]),
        diff="".join(lines[:_MOST_DIFF_LINES]) or None,
        cut=max(len(lines) - _MOST_DIFF_LINES, 0),
    )


def _commands(book: Book, runs: Sequence[ScoredRun]) -> list[tuple[str, str]]:
    ids = [run.run_id for run in runs[:_MOST_COMMANDS]]
    rows = book.sql("select run_id, command from runs where list_contains(?, run_id)", [ids]).fetchall()
    found = dict(rows)
    return [(run_id, found.get(run_id, "")) for run_id in ids]


def _diff(book: Book, theirs: Sequence[ScoredRun], ours: Sequence[ScoredRun]) -> str | None:
    """Between the newest run of each side, if both stored their code."""
    from rollbook.book import code

    if not ours or not theirs:
        return None
    try:
        old, new = (book.run(runs[-1].run_id).stored().provenance.code for runs in (theirs, ours))
        if not old or not new:
            return None
        return code.diff(book.layout, old, new, labels=("baseline", "candidate"))
    except RollbookError:
        return None  # a damaged or purged file; `rollbook code diff` says what is wrong with it
