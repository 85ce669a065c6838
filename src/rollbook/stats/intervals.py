"""How sure one can be: t intervals for what is decided, the bootstrap for what is described.

Below ten runs the percentile bootstrap is too narrow: at three, its 95% intervals of the IQM hold the truth in 82 to
89% of cases. The gate decides by `differences` and their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollbook.errors import InvalidScores
from rollbook.stats import aggregate
from rollbook.stats.scores import FloatArray, Scores, columns_of, same_tasks

_STATISTICS = {
    "iqm": aggregate.batch_iqm,
    "mean": aggregate.batch_mean,
    "median": aggregate.batch_median,
    "optimality_gap": aggregate.batch_optimality_gap,
}
Statistic = Literal["iqm", "mean", "median", "optimality_gap"]
Drawn: TypeAlias = NDArray[np.unsignedinteger[Any]]
_AT_ONCE = 100_000  # numbers that are resampled in one go: 0.8 MB, which a core's cache holds
LAST_BITS = 1e-12  # of the largest score: what rounding may add to equal numbers


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Of two means: the estimate, its squared standard error and the degrees of freedom of that."""

    estimate: float
    variance: float
    freedom: float

    def interval(self, alpha: float) -> Interval:
        """One-sided limits at level `alpha` each: together, 1 - 2 alpha."""
        low, high = stack([self]).limits(alpha)
        return Interval(float(low[0]), float(high[0]))

    def quantile(self, probability: float) -> float:
        return float(stack([self]).quantile(probability)[0])

    def p_below(self, limit: float) -> float:
        """One-sided p of the hypothesis that the true difference is at least `limit`."""
        return float(stack([self]).p_below(limit)[0])


@dataclass(frozen=True, kw_only=True)
class Differences:
    """Many of them, as arrays of one shape; tasks, where there are several, are on the last axis."""

    estimate: FloatArray
    variance: FloatArray
    freedom: FloatArray

    def limits(self, level: ArrayLike) -> tuple[FloatArray, FloatArray]:
        half = self.quantile(1 - np.asarray(level)) * np.sqrt(self.variance)
        return self.estimate - half, self.estimate + half

    def quantile(self, probability: ArrayLike) -> FloatArray:
        from scipy.special import stdtrit  # of Student's t; scipy.stats would take half a second to import

        return np.asarray(stdtrit(self.freedom, probability))

    def p_below(self, limit: float) -> FloatArray:
        from scipy.special import stdtr

        exact = self.variance == 0
        error = np.sqrt(np.where(exact, 1.0, self.variance))
        return np.where(exact, self.estimate >= limit, stdtr(self.freedom, (self.estimate - limit) / error))

    def only(self) -> Difference:
        """Where there is one."""
        return Difference(estimate=float(self.estimate), variance=float(self.variance), freedom=float(self.freedom))

    def rows(self, chosen: NDArray[np.bool_]) -> Self:
        """Those of some comparisons, which are on the first axis."""
        return replace(self, **{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def updated(self, where: NDArray[np.bool_], by: Self) -> Self:
        """Others in some places."""
        changed = {}
        for field in fields(self):
            old, new = getattr(self, field.name), getattr(by, field.name)
            changed[field.name] = np.where(where.reshape(where.shape + (1,) * (old.ndim - where.ndim)), new, old)
        return replace(self, **changed)

    def mean(self, scale: FloatArray) -> Differences:
        """Over tasks, each divided by its scale."""
        variances = self.variance / scale**2
        return Differences(
            estimate=(self.estimate / scale).mean(axis=-1),
            variance=variances.sum(axis=-1) / variances.shape[-1] ** 2,
            freedom=_satterthwaite(variances, self.freedom),
        )


def stack(several: Sequence[Difference]) -> Differences:
    return Differences(
        estimate=np.array([one.estimate for one in several]),
        variance=np.array([one.variance for one in several]),
        freedom=np.array([one.freedom for one in several]),
    )


def difference(candidate: FloatArray, baseline: FloatArray, *, cautious: bool = True) -> Difference:
    """Candidate minus baseline on one task, as `differences` has it."""
    ours, theirs = np.asarray(candidate, np.float64), np.asarray(baseline, np.float64)
    if (fewest := min(len(ours), len(theirs))) < 2:
        raise InvalidScores(f"{fewest} run of one side tells nothing about its spread", "at least 2, better 3 or more")
    return differences(ours, theirs, cautious=cautious).only()


def mean_difference(several: Sequence[Difference]) -> Difference:
    """Of the mean over tasks."""
    return stack(several).mean(np.ones(len(several))).only()


def differences(candidate: FloatArray, baseline: FloatArray, *, cautious: bool = True) -> Differences:
    """Candidate minus baseline, runs on the last axis. Pooled variance where the side with fewer runs has the smaller
    one (of equally many, the candidate), Welch's otherwise.

    Three seeds of a skewed score often agree by luck, and Welch then believes them: 11% false regressions at a nominal
    5%, where scores have two levels. Without caution the side is always the candidate's, which is the same mistake
    where the baseline has fewer runs (docs/adr/0010).
    """
    own, other = variance_of(candidate), variance_of(baseline)
    n, m = candidate.shape[-1], baseline.shape[-1]
    narrower = other <= own if cautious and n > m else own <= other
    pooled = ((n - 1) * own + (m - 1) * other) / (n + m - 2)
    welch, freedom = _welch(own / n, n, other / m, m)
    return Differences(
        estimate=_estimate(candidate, baseline),
        variance=np.where(narrower, pooled * (1 / n + 1 / m), welch),
        freedom=np.where(narrower, n + m - 2, freedom),
    )


def welch_differences(candidate: FloatArray, baseline: FloatArray) -> Differences:
    """Welch's throughout: what the gate would do if it believed three seeds."""
    n, m = candidate.shape[-1], baseline.shape[-1]
    variance, freedom = _welch(variance_of(candidate) / n, n, variance_of(baseline) / m, m)
    return Differences(estimate=_estimate(candidate, baseline), variance=variance, freedom=freedom)


def _welch(own: FloatArray, n: int, other: FloatArray, m: int) -> tuple[FloatArray, FloatArray]:
    """Squared standard error of the difference, and its degrees of freedom, from those of the two means."""
    return own + other, _satterthwaite(np.stack([own, other], axis=-1), np.array([n - 1.0, m - 1.0]))


def _estimate(candidate: FloatArray, baseline: FloatArray) -> FloatArray:
    found = candidate.mean(axis=-1) - baseline.mean(axis=-1)
    largest = np.maximum(np.abs(candidate).max(axis=-1), np.abs(baseline).max(axis=-1))
    return np.where(np.abs(found) <= LAST_BITS * largest, 0.0, found)


def variance_of(scores: FloatArray) -> FloatArray:
    """Of equal scores it is zero, also where their mean is not one of them by its last bits."""
    found = scores.var(axis=-1, ddof=1)
    return np.where(found <= (LAST_BITS * np.abs(scores).max(axis=-1)) ** 2, 0.0, found)


def _satterthwaite(variances: FloatArray, freedoms: FloatArray) -> FloatArray:
    total = variances.sum(axis=-1, keepdims=True)
    nothing = total == 0
    shares = variances / np.where(nothing, 1.0, total)  # of large numbers, the squares would overflow
    inverse = (shares**2 / freedoms).sum(axis=-1)
    fewest = np.broadcast_to(freedoms, variances.shape).min(axis=-1)
    return np.where(nothing[..., 0], fewest, 1 / np.where(nothing[..., 0], 1.0, inverse))


def bootstrap_interval(
    scores: Scores,
    statistic: Statistic = "iqm",
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    repetitions: int = 50_000,
) -> Interval:
    """Percentile bootstrap, stratified: runs are drawn anew within each task."""
    columns = columns_of(scores)
    if not 0 < level < 1:
        raise InvalidScores(f"the level of an interval is {level}", "between 0 and 1, as 0.95")
    if repetitions < 1:
        raise InvalidScores(f"{repetitions} repetitions", "at least 1, better 10000 or more")
    at_once = min(max(_AT_ONCE // sum(map(len, columns)), 1), repetitions)
    counts = [min(at_once, repetitions - first) for first in range(0, repetitions, at_once)]
    measure = _IqmOfDrawn(columns, at_once) if statistic == "iqm" else _OfDrawn(columns, statistic)
    values = [measure([_drawn(len(column), count, rng) for column in columns]) for count in counts]
    low, high = np.quantile(np.concatenate(values), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _drawn(runs: int, count: int, rng: np.random.Generator) -> Drawn:  # (count, runs)
    """Which runs are drawn; small numbers are drawn several times as fast as large ones."""
    kind = np.uint8 if runs <= 2**8 else np.uint16 if runs <= 2**16 else np.uint32
    return rng.integers(runs, size=(count, runs), dtype=kind)


class _OfDrawn:
    """A statistic of resamples."""

    def __init__(self, columns: Sequence[FloatArray], statistic: Statistic) -> None:
        self.columns, self.statistic = columns, _STATISTICS[statistic]

    def __call__(self, drawn: Sequence[Drawn]) -> FloatArray:
        return self.statistic([column[places] for column, places in zip(self.columns, drawn, strict=True)])


class _IqmOfDrawn:
    """The interquartile mean of resamples. All scores are sorted once; how often each was drawn says how much of it is
    in the middle half, and no resample has to be sorted itself.
    """

    def __init__(self, columns: Sequence[FloatArray], at_once: int) -> None:
        pool = np.concatenate(columns)
        order = np.argsort(pool, kind="stable")
        self.ordered = pool[order]
        self.place = np.argsort(order, kind="stable")
        # Kept from one call to the next: memory that is new each time would cost as much as the arithmetic.
        self.row = len(pool) * np.arange(at_once)[:, None]
        self.flat = np.empty((at_once, len(pool)), np.int64)
        self.upto = np.empty((at_once, len(pool) + 1), np.int64)
        self.inside = np.empty((at_once, len(pool)))

    def __call__(self, drawn: Sequence[Drawn]) -> FloatArray:
        count, size = len(drawn[0]), len(self.ordered)
        cut = aggregate.trimmed(size)
        flat, upto, inside = self.flat[:count], self.upto[:count], self.inside[:count]
        first = 0
        for runs in drawn:
            last = first + runs.shape[1]
            flat[:, first:last] = self.place[first:last][runs]
            first = last
        flat += self.row[:count]
        times = np.bincount(flat.reshape(-1), minlength=flat.size).reshape(flat.shape)
        upto[:, 0] = cut
        np.cumsum(times, axis=-1, out=upto[:, 1:])
        np.clip(upto, cut, size - cut, out=upto)
        np.subtract(upto[:, 1:], upto[:, :-1], out=inside)
        return np.asarray(inside @ self.ordered / (size - 2 * cut))


def permutation_p(candidate: Scores, baseline: Scores, *, rng: np.random.Generator, repetitions: int = 10_000) -> float:
    """Two-sided p of the difference of IQMs, labels shuffled within each task; the true labels are among them."""
    pairs = same_tasks(candidate, baseline)
    seen = float(
        aggregate.batch_iqm([ours for ours, _ in pairs]) - aggregate.batch_iqm([theirs for _, theirs in pairs])
    )
    ours, theirs = [], []
    for one, other in pairs:
        both = np.broadcast_to(np.concatenate([one, other]), (repetitions, len(one) + len(other)))
        shuffled = rng.permuted(both, axis=-1)
        ours.append(shuffled[:, : len(one)])
        theirs.append(shuffled[:, len(one) :])
    drawn = aggregate.batch_iqm(ours) - aggregate.batch_iqm(theirs)
    # Sums in another order differ in their last bits: what is equal must count as equal.
    scale = max(float(np.abs(np.concatenate([np.concatenate(pair) for pair in pairs])).max()), 1e-300)
    as_large = np.count_nonzero(np.abs(drawn) >= abs(seen) - 1e-12 * scale)
    return (1 + int(as_large)) / (1 + repetitions)
