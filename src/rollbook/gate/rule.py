"""The rule of the gate as arithmetic on arrays: cells on the last axis, before it any number of comparisons.

So the verdict on one candidate and a simulation of many thousand are the same lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rollbook.stats.intervals import Differences, differences
from rollbook.stats.scores import FloatArray
from rollbook.stats.sequential import nominal_levels

BASELINE_SEEDS = 10  # that an adaptive gate tops its baseline up to
REGRESSION, IMPROVEMENT, EQUIVALENT, NO_REGRESSION, INCONCLUSIVE = range(5)
Outcomes: TypeAlias = NDArray[np.int64]
Levels: TypeAlias = Callable[[float], Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class AggregateRuling:
    """Over the cells of each comparison, in units of their scales."""

    outcome: Outcomes
    difference: FloatArray
    low: FloatArray
    high: FloatArray
    margin: FloatArray


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """On each cell, and on the whole."""

    outcome: Outcomes
    low: FloatArray
    high: FloatArray
    p: FloatArray  # that a cell is no worse, adjusted for the number of cells
    aggregate: AggregateRuling

    @property
    def failed(self) -> NDArray[np.bool_]:
        """The whole is a regression. A single cell is its own aggregate."""
        together = (self.aggregate.outcome == REGRESSION) & (self.outcome.shape[-1] > 1)
        return np.asarray((self.outcome == REGRESSION).any(axis=-1) | together)

    @property
    def undecided(self) -> NDArray[np.bool_]:
        return np.asarray((self.outcome == INCONCLUSIVE).any(axis=-1) & ~self.failed)

    @property
    def passed(self) -> NDArray[np.bool_]:
        return ~(self.failed | self.undecided)


def compare(ours: FloatArray, theirs: FloatArray, *, adaptive: bool) -> Differences:
    """Candidate minus baseline, seeds on the last axis. The levels of an adaptive gate leave room: with a baseline of
    ten it needs less caution, and finds more (docs/adr/0010).
    """
    return differences(ours, theirs, cautious=not adaptive or theirs.shape[-1] < BASELINE_SEEDS)


def rule_on(
    compared: Differences,
    margin: FloatArray,
    scale: FloatArray,
    *,
    alpha: float,
    look: int | NDArray[np.int64] | None = None,
    levels: Levels = nominal_levels,
) -> Ruling:
    """`look` is the number of the look of an adaptive gate, or that of each cell: what was decided earlier keeps the
    level that it was decided by. Without one, all of alpha is used at once.

    Of several cells, regressions share half of alpha by Holm's procedure, and the aggregate has the other half. That a
    cell is not worse by more than its margin is shown at all of alpha: the whole passes only where every cell does.
    """
    if look is None:
        look, levels = 0, _at_once
    looks = np.broadcast_to(look, compared.estimate.shape)
    share = alpha if looks.shape[-1] == 1 else alpha / 2
    low, high = compared.limits(np.asarray(levels(alpha))[looks])
    rejected, p = _holm(compared.p_below(0.0), looks, share, levels)
    level = np.asarray(levels(share))[looks.max(axis=-1)]
    return Ruling(
        outcome=_classify(rejected & ~(low > -margin), low, high, margin),
        low=low,
        high=high,
        p=p,
        aggregate=_aggregate(compared.mean(scale), (margin / scale).mean(axis=-1), level),
    )


def level_at(alpha: float, look: int | None) -> float:
    """One-sided level of an interval: all of alpha at once, or what an adaptive gate may use at this look."""
    return alpha if look is None else nominal_levels(alpha)[look]


def _at_once(alpha: float) -> tuple[float]:
    return (alpha,)


def _aggregate(mean: Differences, margin: FloatArray, level: FloatArray) -> AggregateRuling:
    low, high = mean.limits(level)
    outcome = _classify((high < 0) & ~(low > -margin), low, high, margin)
    return AggregateRuling(outcome=outcome, difference=mean.estimate, low=low, high=high, margin=margin)


def _classify(worse: NDArray[np.bool_], low: FloatArray, high: FloatArray, margin: FloatArray) -> Outcomes:
    better = (low > 0) & ~(high < margin)
    inside = (low > -margin) & (high < margin)
    found = np.select(
        [worse, better, inside, low > -margin], [REGRESSION, IMPROVEMENT, EQUIVALENT, NO_REGRESSION], INCONCLUSIVE
    )
    return np.asarray(found, np.int64)


def _holm(
    p: FloatArray, looks: NDArray[np.int64], share: float, levels: Levels
) -> tuple[NDArray[np.bool_], FloatArray]:
    """What is rejected, and adjusted p. The smallest p is held against a level of share/E, the next of share/(E - 1),
    until one is too large.
    """
    left = np.arange(p.shape[-1], 0, -1)
    by_look = np.array([levels(share / count) for count in left.tolist()])  # (cells, looks)
    order = np.argsort(p, axis=-1, kind="stable")
    back = np.argsort(order, axis=-1, kind="stable")
    ordered = np.take_along_axis(p, order, axis=-1)
    limits = by_look[np.arange(len(left)), np.take_along_axis(looks, order, axis=-1)]
    rejected = np.logical_and.accumulate(ordered < limits, axis=-1)
    adjusted = np.minimum(np.maximum.accumulate(ordered * left, axis=-1), 1.0)
    return np.take_along_axis(rejected, back, axis=-1), np.take_along_axis(adjusted, back, axis=-1)
