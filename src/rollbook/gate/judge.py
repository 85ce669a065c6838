"""Did the change make the agent worse? Non-inferiority with a margin, cell by cell and over all of them.

A cell is a task with an algorithm and an environment; the unit is a training seed. In a cell the difference of means
has an interval [L, U] (pooled or Welch, see `stats.difference`), and the margin m says how much worse is acceptable:

    regression      U < 0, and not L > -m          worse, by more than is acceptable for all one knows
    improvement     L > 0, and not U < m
    equivalent      -m < L and U < m
    no regression   L > -m
    inconclusive    anything else: too few seeds for this margin
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rollbook.gate.margin import DEFAULT_MARGIN, Constants, Margin, constants_of, in_returns, parse_margin
from rollbook.stats.intervals import Difference, difference, mean_difference
from rollbook.stats.scores import FloatArray
from rollbook.stats.sequential import nominal_levels

Outcome = Literal[
    "identical", "regression", "improvement", "equivalent", "no regression", "inconclusive", "invalid", "new"
]
EXIT_CODES: dict[Outcome, int] = {
    "identical": 0, "improvement": 0, "equivalent": 0, "no regression": 0, "new": 0,
    "regression": 1, "inconclusive": 3, "invalid": 4,
}  # fmt: skip
_WORST_FIRST: tuple[Outcome, ...] = ("regression", "invalid", "inconclusive")
MIN_SEEDS = 3
_NO_SPREAD = 1e-12  # of the largest score: the last bits of equal numbers
_POWER = 0.8  # with which a margin is called resolvable


@dataclass(frozen=True, kw_only=True)
class CellVerdict:
    """Of one cell; differences in returns, candidate minus baseline."""

    cell: str
    outcome: Outcome
    reason: str
    candidate_seeds: int
    baseline_seeds: int
    candidate_mean: float | None = None
    baseline_mean: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    scale: float | None = None  # what a difference is divided by in the aggregate
    p: float | None = None  # that it is no worse, one-sided, adjusted for the number of cells (Holm)
    variance_ratio: float | None = None  # candidate's over baseline's
    resolvable: float | None = None  # the margin that these seeds could decide
    seeds_needed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """Over cells, each difference divided by its cell's scale."""

    outcome: Outcome
    difference: float
    low: float
    high: float
    margin: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    outcome: Outcome
    reason: str
    cells: tuple[CellVerdict, ...]
    aggregate: Aggregate | None
    margin: str
    alpha: float
    look: int | None  # of an adaptive gate, from 0

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]


def judge(
    candidate: Mapping[str, ArrayLike],
    baseline: Mapping[str, ArrayLike],
    *,
    margin: str | float = DEFAULT_MARGIN,
    alpha: float = 0.05,
    floor: Mapping[str, float] | None = None,
    constants: Mapping[str, Constants] | None = None,
    identical: Collection[str] = (),
    problems: Mapping[str, str] | None = None,
    look: int | None = None,
) -> Verdict:
    """The candidate's cells against the baseline's. `floor` is a random policy's score; `constants` those of a frozen
    baseline, else taken from the baseline as it is given. `identical` and `problems` name cells that are settled
    without statistics: whose seeds logged the same numbers, and which are invalid and why. `look` is the number of an
    adaptive gate's look.
    """
    wanted = parse_margin(margin)
    known = problems or {}
    cells = [
        _Cell(
            name,
            _scores(candidate.get(name)),
            _scores(baseline.get(name)),
            wanted,
            (floor or {}).get(name),
            constants or {},
            known.get(name),
        )
        for name in dict.fromkeys([*candidate, *known])
    ]
    judged = [cell for cell in cells if cell.name not in identical and cell.problem is None and not cell.is_new]
    worse, adjusted = _regressed(judged, alpha, look)
    verdicts = tuple(
        _identical(cell) if cell.name in identical else cell.verdict(_level(alpha, look), worse, adjusted)
        for cell in cells
    )
    aggregate = _aggregate(judged, alpha if len(judged) == 1 else alpha / 2, look)
    outcome, reason = _whole(verdicts, aggregate)
    return Verdict(
        outcome=outcome,
        reason=reason,
        cells=verdicts,
        aggregate=aggregate,
        margin=str(wanted),
        alpha=alpha,
        look=look,
    )


def _level(alpha: float, look: int | None) -> float:
    """One-sided level of an interval: all of alpha at once, or what an adaptive gate may use at this look."""
    return alpha if look is None else nominal_levels(alpha)[look]


def _scores(scores: ArrayLike | None) -> FloatArray:
    return np.asarray([] if scores is None else scores, np.float64).reshape(-1)


class _Cell:
    """A cell's runs, and what follows from them."""

    def __init__(
        self,
        name: str,
        ours: FloatArray,
        theirs: FloatArray,
        margin: Margin,
        floor: float | None,
        constants: Mapping[str, Constants],
        problem: str | None,
    ) -> None:
        self.name, self.ours, self.theirs = name, ours, theirs
        self.is_new = not len(theirs) and problem is None
        self.problem = None if self.is_new else problem or _problem(ours, theirs)
        if self.problem or self.is_new:
            return
        self.constants = constants.get(name) or constants_of(theirs, floor)
        self.margin = in_returns(margin, self.constants)
        self.difference = difference(ours, theirs)
        largest = float(max(np.abs(ours).max(), np.abs(theirs).max()))
        if self.constants.scale <= _NO_SPREAD * largest:
            self._without_spread(margin)

    def _without_spread(self, margin: Margin) -> None:
        """A solved task, where every seed of the baseline has the same score: a floor or a margin says what is much."""
        if margin.unit == "returns":
            self.constants = Constants(reference=self.constants.reference, sd=margin.amount)
        elif self.difference.estimate == 0 and self.difference.variance == 0:
            self.constants = Constants(reference=self.constants.reference, sd=1.0)
            self.margin = 1.0
        else:
            self.problem = "all seeds of the baseline are equal, and there is no floor to measure by"

    def regressed(self, level: float) -> bool:
        interval = self.difference.interval(level)
        return interval.high < 0 and not interval.low > -self.margin

    def verdict(self, level: float, worse: Collection[str], adjusted: Mapping[str, float]) -> CellVerdict:
        seeds = {"candidate_seeds": len(self.ours), "baseline_seeds": len(self.theirs)}
        if self.is_new:
            return CellVerdict(cell=self.name, outcome="new", reason="the baseline has no runs of it", **seeds)
        if self.problem:
            return CellVerdict(cell=self.name, outcome="invalid", reason=self.problem, **seeds)
        interval = self.difference.interval(level)
        outcome, reason = _classify(self.name in worse, interval.low, interval.high, self.margin)
        spread = float(self.theirs.var(ddof=1))
        return CellVerdict(
            cell=self.name,
            outcome=outcome,
            reason=reason,
            **seeds,
            candidate_mean=float(self.ours.mean()),
            baseline_mean=float(self.theirs.mean()),
            difference=self.difference.estimate,
            low=interval.low,
            high=interval.high,
            margin=self.margin,
            scale=self.constants.scale,
            p=adjusted.get(self.name),
            variance_ratio=float(self.ours.var(ddof=1)) / spread if spread else None,
            resolvable=_resolvable(self.difference, level),
            seeds_needed=_seeds_needed(self.constants.sd, self.margin),
        )


def _problem(ours: FloatArray, theirs: FloatArray) -> str | None:
    if not np.isfinite(ours).all() or not np.isfinite(theirs).all():
        return "a score is NaN or infinite"
    for who, runs in (("candidate", len(ours)), ("baseline", len(theirs))):
        if runs < MIN_SEEDS:
            return f"the {who} has {runs} {'seed' if runs == 1 else 'seeds'}, the gate needs at least {MIN_SEEDS}"
    return None


def _classify(worse: bool, low: float, high: float, margin: float) -> tuple[Outcome, str]:
    if worse:
        return "regression", "worse than the baseline"
    if low > 0 and not high < margin:
        return "improvement", "better than the baseline"
    if low > -margin and high < margin:
        side = "slightly worse, " if high < 0 else "slightly better, " if low > 0 else ""
        return "equivalent", f"{side}inside the margin"
    if low > -margin:
        return "no regression", "not worse by more than the margin"
    return "inconclusive", "these seeds cannot tell"


def _regressed(cells: Collection[_Cell], alpha: float, look: int | None) -> tuple[set[str], dict[str, float]]:
    """Names of cells that are worse, and their adjusted p. Of several, Holm's procedure at half of alpha; the other
    half is the aggregate's.
    """
    share = alpha if len(cells) == 1 else alpha / 2
    p = {cell.name: cell.difference.p_below(0.0) for cell in cells}
    by_p = sorted(cells, key=lambda cell: p[cell.name])
    worse: set[str] = set()
    adjusted: dict[str, float] = {}
    largest, rejecting = 0.0, True
    for number, cell in enumerate(by_p):
        left = len(by_p) - number
        largest = max(largest, min(p[cell.name] * left, 1.0))
        adjusted[cell.name] = largest
        level = _level(share / left, look)
        rejecting = rejecting and p[cell.name] < level
        if rejecting and cell.regressed(level):
            worse.add(cell.name)
    return worse, adjusted


def _aggregate(cells: Collection[_Cell], alpha: float, look: int | None) -> Aggregate | None:
    if not cells:
        return None
    scaled = [
        Difference(
            estimate=cell.difference.estimate / cell.constants.scale,
            variance=cell.difference.variance / cell.constants.scale**2,
            freedom=cell.difference.freedom,
        )
        for cell in cells
    ]
    mean = mean_difference(scaled)
    margin = float(np.mean([cell.margin / cell.constants.scale for cell in cells]))
    interval = mean.interval(_level(alpha, look))
    worse = interval.high < 0 and not interval.low > -margin
    outcome, _ = _classify(worse, interval.low, interval.high, margin)
    return Aggregate(outcome=outcome, difference=mean.estimate, low=interval.low, high=interval.high, margin=margin)


def _whole(cells: Collection[CellVerdict], aggregate: Aggregate | None) -> tuple[Outcome, str]:
    """Regression before invalid before inconclusive before all that passes."""
    if not cells:
        return "invalid", "the candidate has no runs"
    by_outcome = {outcome: [cell for cell in cells if cell.outcome == outcome] for outcome in EXIT_CODES}
    if aggregate and aggregate.outcome == "regression" and not by_outcome["regression"]:
        return "regression", "worse over all cells together, though in no single one"
    for outcome in _WORST_FIRST:
        if found := by_outcome[outcome]:
            return outcome, "; ".join(f"{cell.cell}: {cell.reason}" for cell in found)
    kinds = {cell.outcome for cell in cells}
    if len(kinds) == 1:
        outcome = next(iter(kinds))
        return outcome, "in every cell" if len(cells) > 1 else next(iter(cells)).reason
    if aggregate and EXIT_CODES[aggregate.outcome] == 0:
        return aggregate.outcome, "over all cells together; no cell is worse by more than its margin"
    return "no regression", "no cell is worse by more than its margin"


def _identical(cell: _Cell) -> CellVerdict:
    mean = float(cell.ours.mean()) if len(cell.ours) else None
    return CellVerdict(
        cell=cell.name,
        outcome="identical",
        reason="every seed logged the same numbers",
        candidate_seeds=len(cell.ours),
        baseline_seeds=len(cell.theirs),
        candidate_mean=mean,
        baseline_mean=mean,
        difference=0.0,
    )


def _resolvable(difference: Difference, level: float) -> float:
    """The margin that seeds like these decide with a chance of 80%."""
    return (difference.quantile(1 - level) + difference.quantile(_POWER)) * math.sqrt(difference.variance)


def _seeds_needed(sd: float, margin: float) -> int:
    """On each side, about, to decide the margin with a chance of 80% at a level of 5%."""
    return max(math.ceil(2 * ((1.645 + 0.84) * sd / margin) ** 2), MIN_SEEDS)
