"""Learning curves: read from a book, brought onto a common grid and folded over seeds.

A curve is the straight line between its logged points and ends where they end: nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from rollbook.errors import InvalidScores
from rollbook.stats.aggregate import batch_iqm, trimmed

if TYPE_CHECKING:
    from rollbook.book.book import Book

FloatArray: TypeAlias = NDArray[np.float64]
Over: TypeAlias = Literal["steps", "time"]
Statistic: TypeAlias = Literal["mean", "iqm"]

FEWEST_POINTS = 4
_REPETITIONS = 1_000  # of the bootstrap
_NEGLIGIBLE = 1e-4  # of a curve's range: a mean over less is the value itself


@dataclass(frozen=True, eq=False)
class Curve:
    """The finite points of one run by growing x. Values at one x are averaged: parallel episodes end at one step."""

    run_id: str
    x: FloatArray
    y: FloatArray

    def __post_init__(self) -> None:
        x, y = _in_order(np.asarray(self.x, np.float64), np.asarray(self.y, np.float64))
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)


@dataclass(frozen=True, eq=False)
class Folded:
    """Curves on one grid. Where a curve has no data, its line is NaN; where any has none, centre and interval are."""

    x: FloatArray  # (points,)
    center: FloatArray  # (points,)
    low: FloatArray  # (points,), NaN for one curve alone
    high: FloatArray
    each: FloatArray  # (runs, points)


def _in_order(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.all():
        x, y = x[finite], y[finite]
    steps = np.diff(x)
    if (steps < 0).any():
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
        steps = np.diff(x)
    if (steps == 0).any():
        first = np.flatnonzero(np.concatenate([[True], steps > 0]))
        y = np.add.reduceat(y, first) / np.diff(first, append=len(y))
        x = x[first]
    return x, y


def read_curves(book: Book, run_ids: Sequence[str], metric: str, over: Over = "steps") -> dict[str, Curve]:
    """One metric of many runs, over environment steps or over seconds since each run's start.

    A run without a finite value is not in the answer. Of a run that was resumed, the time between its attempts counts.
    """
    if not run_ids:
        return {}
    # Numbers instead of ids: ten million texts would take longer than all the rest.
    relation = book.sql(
        f"""
        with named as (select unnest($1::varchar[]) as run_id, unnest(range(len($1::varchar[])))::int as number),
        chosen as (select run_id, number{", started_at" if over == "time" else ""} from named
            {"join runs using (run_id)" if over == "time" else ""})
        select number, {_X[over]} as x, value as y from metrics join chosen using (run_id)
        where metrics.name = $2 and isfinite(value)
        """,
        [list(run_ids), metric],
    )
    columns = relation.fetchnumpy()
    number, x, y = (np.asarray(columns[name]) for name in ("number", "x", "y"))
    if len(run_ids) <= np.iinfo(np.uint16).max:
        number = number.astype(np.uint16)  # sorted by radix, in a tenth of the time
    order = np.argsort(number, kind="stable")
    x, y = x[order], y[order]
    ends = np.cumsum(np.bincount(number, minlength=len(run_ids)))
    parts = zip(run_ids, [0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    return {run_id: Curve(run_id, x[start:end], y[start:end]) for run_id, start, end in parts if end > start}


_X: dict[Over, str] = {
    "steps": "metrics.step::double",
    "time": "(epoch_us(metrics.time) - epoch_us(started_at)) / 1e6",
}


def fold(
    curves: Sequence[Curve],
    *,
    points: int = 200,
    smooth: float = 0,
    statistic: Statistic = "mean",
    level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Folded:
    """Curves on a common grid, with their centre and its interval where every curve has data.

    `smooth` is the width of a moving average, as a share of the range of x that the curves span together: at each
    point the mean of the line over a window around it. Near a curve's ends, where the window cannot lie around the
    point, a straight line is fitted to it instead: nothing is shifted, and the curve keeps its length.

    The interval of the mean is Student's t at each point, that of the IQM a percentile bootstrap over whole runs; `rng`
    draws it, by default always the same way, so that a picture comes out the same twice.
    """
    _check(curves, points, smooth, statistic, level)
    x, common = _grid(curves, points)
    window = smooth * float(x[-1] - x[0])
    each = np.stack([_on_grid(curve, x, window) for curve in curves])
    inside = (x >= common[0]) & (x <= common[1])
    shared = each[:, inside]
    if statistic == "mean":
        found = _mean_and_interval(shared, level)
    else:
        found = _iqm_and_interval(shared, level, rng or np.random.default_rng(0))
    center, low, high = (_placed(values, inside) for values in found)
    return Folded(x, center, low, high, each)


def _check(curves: Sequence[Curve], points: int, smooth: float, statistic: str, level: float) -> None:
    if not curves or not all(len(curve.x) for curve in curves):
        raise InvalidScores("a curve without a point cannot be folded", "leave it out knowingly")
    if points < FEWEST_POINTS:
        raise InvalidScores(f"a grid of {points} points", f"at least {FEWEST_POINTS}, better 200")
    if not 0 <= smooth < 1:
        raise InvalidScores(f"smoothing over {smooth} of the range", "a share below 1, as 0.05")
    if statistic not in get_args(Statistic):
        raise InvalidScores(f"curves are not folded by {statistic!r}", "by mean or iqm")
    if not 0 < level < 1:
        raise InvalidScores(f"the level of an interval is {level}", "between 0 and 1, as 0.95")


def _grid(curves: Sequence[Curve], points: int) -> tuple[FloatArray, tuple[float, float]]:
    """From the first to the last x of any curve, and the range that all of them have.

    The borders of that range are points of the grid: rounded to the next one, a mean would end early.
    """
    firsts, lasts = [float(curve.x[0]) for curve in curves], [float(curve.x[-1]) for curve in curves]
    start, end, common = min(firsts), max(lasts), (max(firsts), min(lasts))
    if start == end:
        return np.array([start]), common
    if common[0] > common[1]:
        return np.linspace(start, end, points), common
    lengths = np.array([common[0] - start, common[1] - common[0], end - common[1]])
    counts = np.maximum(np.rint(lengths / lengths.sum() * (points - 1)).astype(int), lengths > 0)
    counts[np.argmax(counts)] += points - 1 - counts.sum()
    borders = [start, *common, end]
    stretches = [np.linspace(borders[k], borders[k + 1], counts[k] + 1) for k in range(3)]
    return np.unique(np.concatenate(stretches)), common


def _on_grid(curve: Curve, x: FloatArray, window: float) -> FloatArray:
    line = np.interp(x, curve.x, curve.y, left=np.nan, right=np.nan)
    length = float(curve.x[-1] - curve.x[0])
    if length and min(window / length, 1) > _NEGLIGIBLE:
        inside = np.isfinite(line)
        line[inside] = _smoothed(curve, (x[inside] - curve.x[0]) / length, min(window / length, 1))
    return line


def _smoothed(curve: Curve, at: FloatArray, window: float) -> FloatArray:
    """A least-squares line through the curve over a window around each point, read off at that point.

    In the middle of its window, that is the mean. `at` and `window` are shares of the curve's range. The curve is the
    line between its points, so that each step counts once, however unevenly a run logs.
    """
    u = (curve.x - curve.x[0]) / (curve.x[-1] - curve.x[0])
    level = curve.y.mean()
    y = curve.y - level  # or the sums of a long curve would swallow the digits of a short window
    areas = _sums(np.diff(u) * (y[1:] + y[:-1]) / 2)
    middles = (u[1:] + u[:-1]) * (y[1:] + y[:-1])  # four times u y in the middle: Simpson's rule, exact for a parabola
    moments = _sums(np.diff(u) * (u[:-1] * y[:-1] + middles + u[1:] * y[1:]) / 6)

    def up_to(end: FloatArray) -> tuple[FloatArray, FloatArray]:
        before = np.clip(np.searchsorted(u, end, side="right") - 1, 0, len(u) - 2)
        width, first, last = end - u[before], y[before], np.interp(end, u, y)
        moment = u[before] * first + (u[before] + end) * (first + last) + end * last
        return areas[before] + width * (first + last) / 2, moments[before] + width * moment / 6

    start = np.clip(at - window / 2, 0, 1 - window)
    (area, moment), (area_before, moment_before) = up_to(start + window), up_to(start)
    mean = (area - area_before) / window
    center = start + window / 2
    slope = 12 * (moment - moment_before - center * mean * window) / window**3
    # A line through the last steps may leave what was ever reached.
    return np.asarray(np.clip(level + mean + slope * (at - center), curve.y.min(), curve.y.max()))


def _sums(parts: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(parts)])


def _mean_and_interval(each: FloatArray, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    count = len(each)
    center = each.mean(axis=0)
    if count < 2:
        return center, np.full_like(center, np.nan), np.full_like(center, np.nan)
    from scipy.special import stdtrit  # of Student's t; scipy.stats would take half a second to import

    half = stdtrit(count - 1, (1 + level) / 2) * each.std(axis=0, ddof=1) / np.sqrt(count)
    return center, center - half, center + half


def _iqm_and_interval(
    each: FloatArray, level: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray]:
    count, points = each.shape
    center = batch_iqm([each.T])
    low, high = np.full(points, np.nan), np.full(points, np.nan)
    if count > 1 and points:
        # Whole runs are drawn, the same ones at every point.
        times = rng.multinomial(count, np.full(count, 1 / count), size=_REPETITIONS).astype(np.int32)
        resampled = np.stack([_iqm_of_resamples(values, times) for values in each.T], axis=-1)
        low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return center, low, high


def _iqm_of_resamples(values: FloatArray, times: NDArray[np.int32]) -> FloatArray:
    """Of runs that were drawn so many times each (resamples, runs).

    As `batch_iqm` of the values drawn, but they are sorted once: how often a run lies in the middle half follows from
    how often it and the smaller ones were drawn.
    """
    count = len(values)
    cut = trimmed(count)
    order = np.argsort(values)
    up_to = np.clip(np.cumsum(times[:, order], axis=1, dtype=np.int32), cut, count - cut)
    return np.asarray(np.diff(up_to, axis=1, prepend=np.int32(cut)) @ values[order] / (count - 2 * cut))


def _placed(values: FloatArray, inside: NDArray[np.bool_]) -> FloatArray:
    everywhere = np.full(len(inside), np.nan)
    everywhere[inside] = values
    return everywhere
