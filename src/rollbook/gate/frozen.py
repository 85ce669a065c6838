"""A baseline's constants, frozen in the journal: what scores are measured by must not move with what is measured.

    {"kind": "freeze", "tag": "latest", "margin": "10%", "cells": [{task, algo, env, metric, reference, sd, floor}]}

A later entry of the same tag replaces the cells that it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollbook.book import journal
from rollbook.book.layout import Layout
from rollbook.errors import DataError
from rollbook.gate.margin import DEFAULT_MARGIN, Constants, constants_of, parse_margin
from rollbook.gate.scores import Cell, ScoredRun
from rollbook.stats.scores import columns_of


@dataclass(frozen=True, kw_only=True)
class FrozenCell:
    metric: str
    seeds: int
    last_step: int | None
    constants: Constants


@dataclass(frozen=True, kw_only=True)
class Frozen:
    tag: str
    margin: str
    cells: Mapping[Cell, FrozenCell]
    number: int  # of the newest entry


def read_frozen(layout: Layout, tag: str) -> Frozen | None:
    """What was frozen for a tag, if anything."""
    found: Frozen | None = None
    for number, entry in journal.read_after(layout.journal, 0):
        if entry["kind"] == "freeze" and entry.get("tag") == tag:
            cells = {**(found.cells if found else {}), **dict(_parse(cell) for cell in entry["cells"])}
            found = Frozen(tag=tag, margin=entry["margin"], cells=cells, number=number)
    return found


def freeze(
    layout: Layout,
    tag: str,
    cells: Mapping[Cell, tuple[str, Sequence[ScoredRun]]],
    *,
    margin: str | None,
    floors: Mapping[str, float],
) -> Frozen:
    """Write down the constants of cells: each with its metric and its runs. `floors` are by environment."""
    before = read_frozen(layout, tag)
    chosen = str(parse_margin(margin)) if margin else before.margin if before else DEFAULT_MARGIN
    measured = {cell: _measure(cell, metric, runs, floors) for cell, (metric, runs) in cells.items()}
    number = journal.append(
        layout.journal,
        "freeze",
        [run.run_id for _, runs in cells.values() for run in runs],
        tag=tag,
        margin=chosen,
        cells=[_to_json(cell, one) for cell, one in measured.items()],
    )
    return Frozen(tag=tag, margin=chosen, cells={**(before.cells if before else {}), **measured}, number=number)


def _measure(cell: Cell, metric: str, runs: Sequence[ScoredRun], floors: Mapping[str, float]) -> FrozenCell:
    scores = [score for run in runs if (score := run.score(metric)) is not None]
    if len(scores) < len(runs) or len(runs) < 2:
        lacking = f"{len(runs) - len(scores)} of its {len(runs)} runs have no {metric}"
        raise DataError(
            f"{cell} cannot be a baseline: {lacking if len(runs) > 1 else 'it has one seed only'}",
            "finish its runs, or choose others with --where",
        )
    return FrozenCell(
        metric=metric,
        seeds=len(runs),
        last_step=max((run.last_step for run in runs if run.last_step is not None), default=None),
        constants=constants_of(columns_of({str(cell): scores})[0], floors.get(cell.env or "")),
    )


def _to_json(cell: Cell, one: FrozenCell) -> dict[str, Any]:
    return {**vars(cell), "metric": one.metric, "seeds": one.seeds, "last_step": one.last_step, **vars(one.constants)}


def _parse(entry: Mapping[str, Any]) -> tuple[Cell, FrozenCell]:
    return Cell(entry["task"], entry["algo"], entry["env"]), FrozenCell(
        metric=entry["metric"],
        seeds=entry["seeds"],
        last_step=entry["last_step"],
        constants=Constants(reference=entry["reference"], sd=entry["sd"], floor=entry["floor"]),
    )
