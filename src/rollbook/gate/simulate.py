"""The gate on made-up scores whose truth is known, many thousand times at once: how often is it wrong?

A scenario says what scores are like, how many seeds there are and how much worse the candidate truly is, in margins:
a drop of 1 is exactly the margin. Nothing here decides: `rule_on` does, as for `judge`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rollbook.gate.rule import INCONCLUSIVE, REGRESSION, Levels, Outcomes, Ruling, compare, rule_on
from rollbook.stats.intervals import Differences
from rollbook.stats.scores import FloatArray
from rollbook.stats.sequential import LOOKS, nominal_levels

ALPHA = 0.05
_AT_ONCE = 500_000  # scores that are drawn in one go: 4 MB

Shape: TypeAlias = tuple[int, ...]
Family: TypeAlias = Callable[[np.random.Generator, Shape], FloatArray]


class Compare(Protocol):
    def __call__(self, ours: FloatArray, theirs: FloatArray, *, adaptive: bool) -> Differences: ...


# ---- scores, with mean 0 and standard deviation 1


def _normal(rng: np.random.Generator, shape: Shape) -> FloatArray:
    return rng.normal(size=shape)


def _lognormal(rng: np.random.Generator, shape: Shape) -> FloatArray:
    """A few seeds are far better than the rest."""
    return (np.exp(rng.normal(size=shape)) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)


def _mirrored_lognormal(rng: np.random.Generator, shape: Shape) -> FloatArray:
    """A few are far worse."""
    return -_lognormal(rng, shape)


def _two_levels(rng: np.random.Generator, shape: Shape, high: float) -> FloatArray:
    """Around 1 with a chance of `high`, else around 0."""
    noise = 0.1
    scores = (rng.random(size=shape) < high) + noise * rng.normal(size=shape)
    return np.asarray((scores - high) / math.sqrt(high * (1 - high) + noise**2))


def _bimodal(rng: np.random.Generator, shape: Shape) -> FloatArray:
    """Half of the seeds find the good gait."""
    return _two_levels(rng, shape, 0.5)


def _rare_failure(rng: np.random.Generator, shape: Shape) -> FloatArray:
    """One seed in five does not learn."""
    return _two_levels(rng, shape, 0.8)


def _heavy_tailed(rng: np.random.Generator, shape: Shape) -> FloatArray:
    """Student's t with 3 degrees of freedom."""
    return rng.standard_t(3, size=shape) / math.sqrt(3)


FAMILIES: dict[str, Family] = {
    "normal": _normal,
    "lognormal": _lognormal,
    "mirrored lognormal": _mirrored_lognormal,
    "bimodal": _bimodal,
    "rare failure": _rare_failure,
    "heavy tailed": _heavy_tailed,
}


# ---- what is simulated


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What may be exchanged, to see whether a wrong rule would be noticed."""

    compare: Compare = compare
    levels: Levels = nominal_levels


@dataclass(frozen=True, kw_only=True)
class Scenario:
    family: str = "normal"
    seeds: int | None = None  # of the candidate; None: the adaptive gate decides
    cells: int = 1
    drop: float = 0.0  # of the candidate's true mean, in the cells that drop
    dropping: int = 1  # cells, the first ones
    sd: float = 1.0  # of the baseline's scores
    spread: float = 1.0  # the candidate's standard deviation over the baseline's
    baseline_seeds: int = 10
    estimated: bool = False  # the margin is one standard deviation of the baseline's scores at hand, not of all

    def __str__(self) -> str:
        seeds = "adaptive" if self.seeds is None else f"{self.seeds} seeds"
        spread = f", {self.spread:g} times as wide" if self.spread != 1 else ""
        drop = f"a drop of {self.drop:g} margins in {self.dropping} of {self.cells}" if self.drop else "unchanged"
        margin = "an estimated margin" if self.estimated else f"sd of {self.sd:g} margins"
        return f"{self.family} scores, {seeds} against {self.baseline_seeds}, {drop}{spread}, {margin}"


@dataclass(frozen=True, kw_only=True)
class Gates:
    """How many gates ended, one on the first axis each."""

    failed: NDArray[np.bool_]
    passed: NDArray[np.bool_]
    outcome: Outcomes  # (repetitions, cells)
    low: FloatArray
    high: FloatArray
    seeds: NDArray[np.int64]  # (repetitions, cells) of the candidate

    def note(self, which: NDArray[np.bool_], now: Gates) -> None:
        """How some of them stand."""
        for field in fields(self):
            getattr(self, field.name)[which] = getattr(now, field.name)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Shares of all gates."""

    regressions: float
    passes: float
    cell_passes: float  # of the first cell
    covered: float  # intervals of cells that hold the true difference
    seeds: float  # of the candidate, on average over cells
    repetitions: int


def simulate(scenario: Scenario, *, repetitions: int, seed: int, rule: Rule | None = None) -> Rates:
    at_once = max(_AT_ONCE // (scenario.cells * (LOOKS[-1] + scenario.baseline_seeds)), 1)
    rng = np.random.default_rng(seed)
    counts = [min(at_once, repetitions - first) for first in range(0, repetitions, at_once)]
    shares = [_shares(scenario, count, rng, rule or Rule()) for count in counts]
    regressions, passes, cell_passes, covered, seeds = np.average(shares, axis=0, weights=counts).tolist()
    return Rates(
        regressions=regressions,
        passes=passes,
        cell_passes=cell_passes,
        covered=covered,
        seeds=seeds,
        repetitions=repetitions,
    )


def _shares(scenario: Scenario, count: int, rng: np.random.Generator, rule: Rule) -> FloatArray:
    made_up = draw(scenario, count, rng)
    gate = adaptive_gates if scenario.seeds is None else fixed_gates
    gates = gate(made_up.ours, made_up.theirs, made_up.margin, made_up.scale, rule=rule)
    of_first = gates.outcome[:, 0]
    covered = (gates.low <= made_up.truth) & (made_up.truth <= gates.high)
    return np.array(
        [
            gates.failed.mean(),
            gates.passed.mean(),
            ((of_first != REGRESSION) & (of_first != INCONCLUSIVE)).mean(),
            covered.mean(),
            gates.seeds.mean(),
        ]
    )


@dataclass(frozen=True, kw_only=True)
class MadeUp:
    """Scores (repetitions, cells, seeds), the candidate's as many as there may be; the rest is (repetitions, cells)."""

    ours: FloatArray
    theirs: FloatArray
    margin: FloatArray
    scale: FloatArray
    truth: FloatArray  # the difference of the true means


def draw(scenario: Scenario, count: int, rng: np.random.Generator) -> MadeUp:
    family = FAMILIES[scenario.family]
    most = LOOKS[-1] if scenario.seeds is None else scenario.seeds
    noise = scenario.sd * scenario.spread * family(rng, (count, scenario.cells, most))
    theirs = scenario.sd * family(rng, (count, scenario.cells, scenario.baseline_seeds))
    spread = theirs.std(axis=-1, ddof=1) if scenario.estimated else np.full((count, scenario.cells), scenario.sd)
    margin = spread if scenario.estimated else np.ones((count, scenario.cells))
    drops = np.where(np.arange(scenario.cells) < scenario.dropping, scenario.drop, 0.0)
    truth = -drops * margin
    return MadeUp(ours=noise + truth[..., None], theirs=theirs, margin=margin, scale=spread, truth=truth)


# ---- gates


def fixed_gates(
    ours: FloatArray,
    theirs: FloatArray,
    margin: FloatArray,
    scale: FloatArray,
    *,
    alpha: float = ALPHA,
    rule: Rule | None = None,
) -> Gates:
    """All seeds at once. Scores are (repetitions, cells, seeds), margin and scale (repetitions, cells)."""
    compared = (rule or Rule()).compare(ours, theirs, adaptive=False)
    ruling = rule_on(compared, margin, scale, alpha=alpha)
    return _gates(ruling, np.full(ruling.outcome.shape, ours.shape[-1]))


def adaptive_gates(
    ours: FloatArray,
    theirs: FloatArray,
    margin: FloatArray,
    scale: FloatArray,
    *,
    alpha: float = ALPHA,
    rule: Rule | None = None,
) -> Gates:
    """Look after look, with further seeds only in cells that are undecided, until the whole is decided."""
    chosen = rule or Rule()
    looks = np.zeros(ours.shape[:-1], np.int64)
    known = chosen.compare(ours[..., : LOOKS[0]], theirs, adaptive=True)
    undecided = np.ones(ours.shape[:-1], bool)
    ended = _nothing_yet(ours.shape[:-1])
    for look, seeds in enumerate(LOOKS):
        going_on = np.asarray(undecided.any(axis=-1))
        if look:
            looks[undecided] = look
            known = known.updated(undecided, chosen.compare(ours[..., :seeds], theirs, adaptive=True))
        ruling = rule_on(
            known.rows(going_on),
            margin[going_on],
            scale[going_on],
            alpha=alpha,
            look=looks[going_on],
            levels=chosen.levels,
        )
        ended.note(going_on, _gates(ruling, np.array(LOOKS)[looks[going_on]]))
        undecided[going_on] = (ruling.outcome == INCONCLUSIVE) & ruling.undecided[:, None]
    return ended


def _gates(ruling: Ruling, seeds: NDArray[np.int64]) -> Gates:
    return Gates(
        failed=ruling.failed,
        passed=ruling.passed,
        outcome=ruling.outcome,
        low=ruling.low,
        high=ruling.high,
        seeds=seeds,
    )


def _nothing_yet(shape: Shape) -> Gates:
    return Gates(
        failed=np.zeros(shape[:1], bool),
        passed=np.zeros(shape[:1], bool),
        outcome=np.full(shape, INCONCLUSIVE),
        low=np.zeros(shape),
        high=np.zeros(shape),
        seeds=np.zeros(shape, np.int64),
    )
