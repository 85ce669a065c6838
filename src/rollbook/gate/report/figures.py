"""The figures of a report: forest plot, learning curves, performance profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from rollbook.plot.curves import Curve, fold, read_curves
from rollbook.plot.panels import draw_picture
from rollbook.plot.picture import Group, Panel, Picture
from rollbook.plot.style import GRID, INK, MUTED, PALETTE, shown, use_style
from rollbook.stats import performance_profile

if TYPE_CHECKING:
    from rollbook.book.book import Book
    from rollbook.gate.decide import CellDecision, Decision

_BASELINE, _CANDIDATE = PALETTE[0], PALETTE[1]
_POINTS = 100  # of a curve: a panel is a few hundred pixels wide
_MOST_THIN_LINES = 600  # in all panels; beyond, the page would be slow to open
_FARTHEST = 4.0  # margins that a forest plot shows at least half of its width for


def draw(book: Book, decision: Decision, plain: Mapping[str, Any]) -> dict[str, Figure]:
    with use_style():
        figures = {"forest": _forest(plain), "curves": _curves(book, decision, plain)}
        if plain["measures"]:
            figures["profiles"] = _profiles(plain)
    return {name: figure for name, figure in figures.items() if figure is not None}


def _forest(plain: Mapping[str, Any]) -> Figure | None:
    """A row a cell, in units of its margin: what is left of the band is worse than acceptable."""
    rows = [
        (cell["cell"], *(cell[key] / cell["margin"] for key in ("difference", "low", "high")), cell["outcome"])
        for cell in plain["cells"]
        if cell["margin"] and cell["low"] is not None
    ]
    if not rows:
        return None
    if (together := plain["aggregate"]) and len(rows) > 1:
        scaled = (together[key] / together["margin"] for key in ("difference", "low", "high"))
        rows.append(("all together", *scaled, together["outcome"]))
    height = 0.75 + 0.32 * len(rows)
    # Placed by hand: matplotlib's own layouts draw everything several times to find out.
    left = 0.3 + 0.075 * max(len(row[0]) for row in rows)
    figure = Figure(figsize=(left + 5.6, height))
    axes = figure.add_axes((left / (left + 5.6), 0.55 / height, 4.3 / (left + 5.6), 1 - 0.65 / height))
    axes.axvspan(-1, 1, color=GRID, alpha=0.5, linewidth=0)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    for place, (_, estimate, low, high, _) in enumerate(rows):
        axes.plot([low, high], [place, place], color=INK, linewidth=1.6, solid_capstyle="butt")
        axes.plot(estimate, place, "o", color=INK, markersize=4.5)
    reach = max(_FARTHEST / 2, *(min(abs(bound), 50.0) for row in rows for bound in row[2:4])) * 1.05
    axes.set_xlim(-reach, reach)
    axes.set_yticks(range(len(rows)), [shown(row[0]) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    for place, row in enumerate(rows):
        axes.annotate(row[4], (1.01, place), xycoords=("axes fraction", "data"), va="center", color=INK, fontsize=8)
    axes.set_xlabel("candidate minus baseline, in margins")
    return figure


def _curves(book: Book, decision: Decision, plain: Mapping[str, Any]) -> Figure | None:
    cells = [cell for cell in decision.cells if cell.pair.candidate and cell.pair.baseline]
    curves = _read(book, cells)
    panels = []
    for cell in cells:
        sides = (("baseline", cell.pair.baseline, _BASELINE), ("candidate", cell.pair.candidate, _CANDIDATE))
        groups = [
            Group(plain[who]["name"], fold(found, points=_POINTS), colour)
            for who, runs, colour in sides
            if (found := [curves[run.run_id] for run in runs if run.run_id in curves])
        ]
        if groups:
            panels.append(Panel(cell.verdict.cell, groups))
    if not panels:
        return None
    metrics = sorted({cell.pair.metric for cell in cells})
    picture = Picture(panels=panels, metric=" or ".join(metrics))
    return draw_picture(picture, seeds=len(curves) <= _MOST_THIN_LINES)


def _read(book: Book, cells: Sequence[CellDecision]) -> dict[str, Curve]:
    """By run; all runs of a metric in one go."""
    ids: dict[str, list[str]] = {}
    for cell in cells:
        ids.setdefault(cell.pair.metric, []).extend(run.run_id for run in (*cell.pair.candidate, *cell.pair.baseline))
    found: dict[str, Curve] = {}
    for metric, run_ids in ids.items():
        found.update(read_curves(book, run_ids, metric))
    return found


def _profiles(plain: Mapping[str, Any]) -> Figure:
    measures = plain["measures"]
    scores = {who: measures[who] for who in ("baseline", "candidate")}
    every = np.concatenate([np.asarray(runs) for side in scores.values() for runs in side.values()])
    thresholds = np.linspace(every.min(), every.max() + 1e-9, 201)
    figure = Figure(figsize=(6.0, 3.2))
    axes = figure.add_axes((0.11, 0.15, 0.86, 0.82))
    for who, colour in (("baseline", _BASELINE), ("candidate", _CANDIDATE)):
        axes.step(
            thresholds, performance_profile(scores[who], thresholds), color=colour, label=shown(plain[who]["name"])
        )
    axes.set_xlabel(f"normalised score (1 is {measures['unit']})")
    axes.set_ylabel("share of runs above")
    axes.set_ylim(-0.02, 1.02)
    axes.legend(frameon=False)
    return figure
