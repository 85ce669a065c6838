"""How sure one can be: t intervals for what is decided, the bootstrap for what is described.

Below ten runs the percentile bootstrap is too narrow: at three, its 95% intervals of the IQM hold the truth in 82 to
89% of cases. The gate decides by `difference` and `mean_difference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

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
_AT_ONCE = 2_000_000  # numbers that are resampled in one go: 16 MB


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
        half = self.quantile(1 - alpha) * np.sqrt(self.variance)
        return Interval(self.estimate - half, self.estimate + half)

    def quantile(self, probability: float) -> float:
        from scipy.special import stdtrit  # of Student's t; scipy.stats would take half a second to import

        return float(stdtrit(self.freedom, probability))

    def p_below(self, limit: float) -> float:
        """One-sided p of the hypothesis that the true difference is at least `limit`."""
        from scipy.special import stdtr

        if self.variance == 0:
            return float(self.estimate >= limit)
        return float(stdtr(self.freedom, (self.estimate - limit) / np.sqrt(self.variance)))


def difference(candidate: FloatArray, baseline: FloatArray) -> Difference:
    """Candidate minus baseline on one task. Pooled variance where the candidate's is the smaller, Welch's otherwise.

    Three seeds of a skewed score often agree by luck, and Welch then believes them: up to 12.6% false regressions at a
    nominal 5%, against 3.5% by this rule.
    """
    ours, theirs = np.asarray(candidate, np.float64), np.asarray(baseline, np.float64)
    n, m = len(ours), len(theirs)
    if n < 2 or m < 2:
        raise InvalidScores(
            f"{min(n, m)} run of one side tells nothing about its spread", "at least 2, better 3 or more"
        )
    own, other = float(ours.var(ddof=1)), float(theirs.var(ddof=1))
    estimate = float(ours.mean() - theirs.mean())
    if own <= other:
        pooled = ((n - 1) * own + (m - 1) * other) / (n + m - 2)
        return Difference(estimate=estimate, variance=pooled * (1 / n + 1 / m), freedom=n + m - 2)
    return Difference(
        estimate=estimate,
        variance=own / n + other / m,
        freedom=_satterthwaite([own / n, other / m], [n - 1, m - 1]),
    )


def mean_difference(differences: Sequence[Difference]) -> Difference:
    """Of the mean over tasks."""
    variances = [one.variance for one in differences]
    count = len(differences)
    return Difference(
        estimate=float(np.mean([one.estimate for one in differences])),
        variance=sum(variances) / count**2,
        freedom=_satterthwaite(variances, [one.freedom for one in differences]),
    )


def _satterthwaite(variances: Sequence[float], freedoms: Sequence[float]) -> float:
    total = sum(variances)
    if not total:
        return float(min(freedoms))
    shares = [variance / total for variance in variances]  # of large numbers, the squares would overflow
    return 1 / sum(share**2 / freedom for share, freedom in zip(shares, freedoms, strict=True))


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
    size = sum(map(len, columns))
    values = []
    for first in range(0, repetitions, max(_AT_ONCE // size, 1)):
        count = min(max(_AT_ONCE // size, 1), repetitions - first)
        values.append(_STATISTICS[statistic](_resampled(columns, count, rng)))
    low, high = np.quantile(np.concatenate(values), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _resampled(columns: Sequence[FloatArray], count: int, rng: np.random.Generator) -> list[FloatArray]:
    return [column[rng.integers(len(column), size=(count, len(column)))] for column in columns]


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
