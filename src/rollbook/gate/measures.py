"""The field's aggregate measures beside the verdict: descriptive, never what decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rollbook.stats import (
    Interval,
    bootstrap_interval,
    iqm,
    mean,
    median,
    optimality_gap,
    permutation_p,
    probability_of_improvement,
)
from rollbook.stats.scores import FloatArray

if TYPE_CHECKING:
    from rollbook.gate.decide import CellDecision
    from rollbook.gate.margin import Constants

_SEED = 20_210_830  # of the resampling: the same runs give the same intervals
_REPETITIONS = 10_000


@dataclass(frozen=True, kw_only=True)
class Measure:
    name: str
    candidate: float
    candidate_interval: Interval
    baseline: float
    baseline_interval: Interval


@dataclass(frozen=True, kw_only=True)
class Measures:
    """Over all cells that could be compared."""

    unit: str  # what a score of 1 is
    rows: tuple[Measure, ...]
    improvement: float  # probability that a run of the candidate beats one of the baseline
    iqm_difference: float
    p: float  # two-sided, of that difference, by permutation
    candidate: dict[str, list[float]]  # normalised scores by cell
    baseline: dict[str, list[float]]
    few_seeds: bool


def measures_of(cells: Sequence[CellDecision]) -> Measures | None:
    """None where no cell has scores on both sides."""
    compared = [cell for cell in cells if cell.verdict.scale and cell.verdict.margin is not None]
    if not compared:
        return None
    by_floor = all(_is_above_random(cell.constants) for cell in compared)
    ours = {cell.verdict.cell: _normalised(cell, by_floor, ours=True) for cell in compared}
    theirs = {cell.verdict.cell: _normalised(cell, by_floor, ours=False) for cell in compared}
    rng = np.random.default_rng(_SEED)
    statistics = {"iqm": iqm, "median": median, "mean": mean}
    if by_floor:
        statistics["optimality_gap"] = optimality_gap
    rows = tuple(
        Measure(
            name=name,
            candidate=statistic(ours),
            candidate_interval=bootstrap_interval(ours, name, rng=rng, repetitions=_REPETITIONS),  # type: ignore[arg-type]
            baseline=statistic(theirs),
            baseline_interval=bootstrap_interval(theirs, name, rng=rng, repetitions=_REPETITIONS),  # type: ignore[arg-type]
        )
        for name, statistic in statistics.items()
    )
    return Measures(
        unit="the baseline, 0 a random policy" if by_floor else "one standard deviation above the baseline",
        rows=rows,
        improvement=probability_of_improvement(ours, theirs),
        iqm_difference=iqm(ours) - iqm(theirs),
        p=permutation_p(ours, theirs, rng=rng),
        candidate={name: scores.tolist() for name, scores in ours.items()},
        baseline={name: scores.tolist() for name, scores in theirs.items()},
        few_seeds=min(map(len, [*ours.values(), *theirs.values()])) < 10,
    )


def _is_above_random(constants: Constants | None) -> bool:
    """Whether 0 can be a random policy and 1 the baseline."""
    return (
        constants is not None
        and constants.distance is not None
        and constants.floor is not None
        and constants.reference > constants.floor
    )


def _normalised(cell: CellDecision, by_floor: bool, *, ours: bool) -> FloatArray:
    scores = np.asarray(cell.pair.scores(cell.pair.candidate if ours else cell.pair.baseline))
    constants = cell.constants
    if by_floor and constants and constants.floor is not None:
        return np.asarray((scores - constants.floor) / (constants.reference - constants.floor))
    assert cell.verdict.scale and cell.verdict.baseline_mean is not None
    if constants and constants.sd:
        return np.asarray((scores - constants.reference) / constants.sd)
    return np.asarray((scores - cell.verdict.baseline_mean) / cell.verdict.scale)
