"""The short-cut: the same seed, the same steps, the same numbers. It settles a refactoring with one or two seeds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rollbook.book.find import quoted
from rollbook.gate.scores import Cell, Pair, ScoredRun

if TYPE_CHECKING:
    from rollbook.book.book import Book, RunRecord

# How long something took differs between two runs of the same code.
_TIMING = re.compile(r"(^|[/_.])(sps|fps|time|times|timer|seconds|duration|elapsed|eta|wall_?clock)([/_.]|$)", re.I)


def is_timing(metric: str) -> bool:
    return _TIMING.search(metric) is not None


def identical_cells(book: Book, pairs: Iterable[Pair]) -> set[Cell]:
    """Cells in which every seed of the candidate logged what the baseline's same seed did."""
    matched = {pair.cell: match for pair in pairs if not pair.problem and (match := _same_seeds(pair))}
    figures = _figures(book, _ids(matched))
    # Summaries are at hand and nearly always differ; only where they do not are the points worth reading.
    alike = {
        cell: match
        for cell, match in matched.items()
        if all(figures.get(ours.run_id) == figures.get(theirs.run_id) for ours, theirs in match)
    }
    records = (
        {run.run_id: run for run in book.runs(f"run_id in ({', '.join(map(quoted, _ids(alike)))})")} if alike else {}
    )
    return {
        cell
        for cell, match in alike.items()
        if all(_stream(records[ours.run_id]) == _stream(records[theirs.run_id]) for ours, theirs in match)
    }


def _ids(matched: Mapping[Cell, Sequence[tuple[ScoredRun, ScoredRun]]]) -> list[str]:
    return [run.run_id for match in matched.values() for both in match for run in both]


def _same_seeds(pair: Pair) -> list[tuple[ScoredRun, ScoredRun]]:
    """Every run of the candidate with its counterpart; empty if one has none."""
    theirs = {run.seed: run for run in pair.baseline if run.seed is not None}
    match = [(run, theirs[run.seed]) for run in pair.candidate if run.seed in theirs]
    complete = len(match) == len(pair.candidate)
    return match if complete and all(one.last_step == other.last_step for one, other in match) else []


def _figures(book: Book, run_ids: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Of every metric but the timing, by run."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    if not run_ids:
        return found
    rows = book.sql(
        """select run_id, name, "count", nonfinite, "first", "last", "min", "max", "mean", auc
        from summaries where list_contains(?, run_id) order by run_id, name""",
        [run_ids],
    ).fetchall()
    for run_id, name, *figures in rows:
        if not is_timing(name):
            found.setdefault(run_id, []).append((name, *figures))
    return found


def _stream(run: RunRecord) -> dict[str, tuple[bytes, bytes]]:
    """Steps and values of every metric but the timing, bit by bit."""
    from rollbook.book.run_folder import run_series

    series = run_series(run.stored(), [])
    return {name: (one.steps.tobytes(), one.values.tobytes()) for name, one in series.items() if not is_timing(name)}
