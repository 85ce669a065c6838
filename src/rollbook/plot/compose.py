"""From runs of a book to a picture: the metric, the curves, their folding, published scores, and remarks on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rollbook.errors import DataError, MetricNotFound, RunNotFound, did_you_mean
from rollbook.plot.curves import Curve, Folded, Over, Statistic, fold, read_curves
from rollbook.plot.picture import Group, Panel, Picture, Reference
from rollbook.plot.published import Published, comparable_scores, scores_of
from rollbook.plot.scales import steps_text, time_text
from rollbook.plot.style import MUTED, look

if TYPE_CHECKING:
    from rollbook.book.book import Book
    from rollbook.plot.grouping import Lines, Panels

_SHOWN = 12  # names of metrics in a hint
_ENDS_EARLY = 0.9  # of the longest run's range: a mean that ends before is remarked on


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How curves are folded and drawn."""

    over: Over = "steps"
    statistic: Statistic = "mean"
    smooth: float = 0.05
    points: int = 200
    level: float = 0.95
    seeds: bool = True
    title: str | None = None


def choose_metric(book: Book, run_ids: Sequence[str], metric: str | None = None) -> str:
    """The one that was asked for, else eval/return if all runs logged it, else charts/episodic_return."""
    from rollbook.book.top import DEFAULT_METRICS

    logged = dict(
        book.sql(
            "select name, count(*) from summaries where run_id in (select unnest($1::varchar[])) group by name",
            [list(run_ids)],
        ).fetchall()
    )
    if not logged:
        raise RunNotFound("no run with metrics matches", "`rollbook runs` lists what there is")
    some = ", ".join(sorted(logged)[:_SHOWN]) + (f" and {len(logged) - _SHOWN} more" if len(logged) > _SHOWN else "")
    if metric is not None:
        if metric in logged:
            return metric
        raise MetricNotFound(
            f"no run logged the metric {metric!r}", did_you_mean(metric, logged) or f"there are: {some}"
        )
    first, second = DEFAULT_METRICS
    if logged.get(first) == len(run_ids) or (first in logged and second not in logged):
        return first
    if second in logged:
        return second
    raise MetricNotFound(f"no run logged {first} or {second}", f"name one with --metric; there are: {some}")


def read_lines(book: Book, panels: Panels, metric: str, over: Over) -> dict[str, Curve]:
    """The curve of each run that has one; at least one has to be more than a point."""
    run_ids = list(dict.fromkeys(run.run_id for lines in panels.values() for runs in lines.values() for run in runs))
    curves = read_curves(book, run_ids, metric, over)
    if not curves:
        raise DataError(
            f"{metric!r} has no finite value in these runs", "`rollbook sql` shows them: select * from summaries"
        )
    if max(len(curve.x) for curve in curves.values()) < 2:
        raise DataError(
            f"each run has one point of {metric!r}, which makes no curve",
            f"`rollbook runs --metric {metric}` lists them",
        )
    return curves


def make_picture(
    panels: Panels, labels: Sequence[str], curves: Mapping[str, Curve], metric: str, wishes: Wishes
) -> Picture:
    """Each line folded; the n-th label looks the same in all panels."""
    looks = {label: look(number) for number, label in enumerate(labels)}
    drawn = []
    for title, lines in panels.items():
        groups = [
            Group(label, _fold([curves[run.run_id] for run in runs if run.run_id in curves], wishes), *looks[label])
            for label, runs in lines.items()
            if any(run.run_id in curves for run in runs)
        ]
        if groups:
            drawn.append(Panel(title, groups))
    counts = [len(group.folded.each) for panel in drawn for group in panel.groups]
    note = describe(counts, wishes)
    return Picture(panels=drawn, metric=metric, over=wishes.over, title=wishes.title, note=note)


def _fold(curves: Sequence[Curve], wishes: Wishes) -> Folded:
    return fold(curves, points=wishes.points, smooth=wishes.smooth, statistic=wishes.statistic, level=wishes.level)


def describe(counts: Sequence[int], wishes: Wishes) -> str:
    """What lines and bands are, in small print: a picture goes where its command does not."""
    smoothed = f" Moving average over {100 * wishes.smooth:.3g}% of the {wishes.over}." if wishes.smooth else ""
    fewest, most = min(counts), max(counts)
    if most == 1:
        return "Each line is one run." + smoothed
    runs = f"{most} runs" if fewest == most else f"{fewest} to {most} runs"
    center, interval = ("Mean", "t") if wishes.statistic == "mean" else ("Interquartile mean", "bootstrap")
    thin = "; thin: each run" if wishes.seeds else ""
    percent = f"{100 * wishes.level:.3g}%"
    return f"{center} of {runs}, where all have data; {percent} {interval} interval{thin}.{smoothed}"


# ---- published scores


def add_published(
    picture: Picture, panels: Panels, curves: Mapping[str, Curve]
) -> tuple[Picture, list[Published], list[str]]:
    """Reference lines where steps are comparable: the picture with them, the scores used, and where there are none."""
    if not re.search(r"return|reward", picture.metric, re.IGNORECASE):
        return picture, [], [f"published scores are returns; {picture.metric!r} is drawn without them"]
    used: list[Published] = []
    missing: list[str] = []
    drawn = []
    for panel in picture.panels:
        lines = panels[panel.title]
        algos = sorted({run.algo for runs in lines.values() for run in runs if run.algo})
        references = []
        for algo in algos:
            steps = _steps(lines, algo, curves)
            scores = comparable_scores(algo, panel.title, steps)
            used += scores
            if not scores:
                missing.append(_why_missing(algo, panel.title, steps))
            colour = _colour(panel, lines, algo)
            references += [
                Reference(one.label(panel.title, with_algo=len(algos) > 1), one.score, colour) for one in scores
            ]
        drawn.append(replace(panel, references=references))
    return replace(picture, panels=drawn), used, missing


def _steps(lines: Lines, algo: str, curves: Mapping[str, Curve]) -> int:
    drawn = [run for runs in lines.values() for run in runs if run.algo == algo and run.run_id in curves]
    return max((run.last_step or 0 for run in drawn), default=0)


def _colour(panel: Panel, lines: Lines, algo: str) -> str:
    """That of the algorithm's line, if it has one of its own."""
    own = [group for group in panel.groups if {run.algo for run in lines[group.label]} == {algo}]
    return own[0].colour if len(own) == 1 else MUTED


def _why_missing(algo: str, env: str, steps: int) -> str:
    at = sorted({one.steps for one in scores_of(algo, env)})
    if not at:
        return f"no published score of {algo} on {env} in the table"
    published = _listed(map(steps_text, at))
    return f"published scores of {algo} on {env} are at {published} steps, the runs have {steps_text(steps)}"


def _listed(parts: Iterable[str]) -> str:
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last


# ---- what a reader of the picture should know


def remarks(picture: Picture, panels: Panels, curves: Mapping[str, Curve], diverged: Iterable[str]) -> list[str]:
    """Runs that are not drawn, or drawn although they failed or diverged, and means that end early."""
    runs = {run.run_id: run for lines in panels.values() for chosen in lines.values() for run in chosen}
    found = []
    if without := [run_id for run_id in runs if run_id not in curves]:
        found.append(f"without a finite {picture.metric}: {_some(without)}")
    for status in ("failed", "interrupted", "lost", "running"):
        if these := [run.run_id for run in runs.values() if run.status == status and run.run_id in curves]:
            found.append(f"{status}, drawn as far as {'it' if len(these) == 1 else 'they'} got: {_some(these)}")
    if these := [run_id for run_id in diverged if run_id in curves]:
        found.append(f"diverged, finite values drawn: {_some(these)}")
    return found + _early_ends(picture, panels, curves)


def _early_ends(picture: Picture, panels: Panels, curves: Mapping[str, Curve]) -> list[str]:
    """No mean is drawn beyond the shortest run: which one that is, where it makes much of a difference."""
    text = steps_text if picture.over == "steps" else time_text
    found = []
    for panel in picture.panels:
        for group in panel.groups:
            x = group.folded.x
            reached = x[np.isfinite(group.folded.center)]
            ends = {
                run.run_id: curves[run.run_id].x[-1] for run in panels[panel.title][group.label] if run.run_id in curves
            }
            shortest = min(ends, key=lambda run_id: ends[run_id])
            if not len(reached):
                found.append(f"{group.label} on {panel.title}: the runs have no stretch in common, so there is no mean")
            elif reached[-1] - x[0] < _ENDS_EARLY * (x[-1] - x[0]):
                found.append(
                    f"{group.label} on {panel.title}: the mean ends at {text(float(reached[-1]))} of "
                    f"{text(float(x[-1]))}, with run {shortest}"
                )
    return found


def _some(run_ids: Sequence[str]) -> str:
    shown = ", ".join(run_ids[:3])
    return f"{len(run_ids)} runs ({shown}{', ...' if len(run_ids) > 3 else ''})" if len(run_ids) > 1 else f"run {shown}"
