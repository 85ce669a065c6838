"""Did the change make the agent worse? Non-inferiority with a margin, cell by cell and over all of them.

A cell is a task with an algorithm and an environment; the unit is a training seed. In a cell the difference of means
has an interval [L, U] (pooled or Welch, see `stats.differences`), and the margin m says how much worse is acceptable:

    regression      U < 0, and not L > -m          worse, by more than is acceptable for all one knows
    improvement     L > 0, and not U < m
    equivalent      -m < L and U < m
    no regression   L > -m
    inconclusive    anything else: too few seeds for this margin
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rollbook.errors import InvalidScores, UsageError
from rollbook.gate.margin import DEFAULT_MARGIN, Constants, Margin, constants_of, in_returns, parse_margin
from rollbook.gate.rule import Ruling, compare, level_at, rule_on
from rollbook.stats.intervals import LAST_BITS, Difference, stack, variance_of
from rollbook.stats.scores import FloatArray
from rollbook.stats.sequential import LOOKS

Outcome = Literal[
    "identical", "regression", "improvement", "equivalent", "no regression", "inconclusive", "invalid", "new"
]
EXIT_CODES: dict[Outcome, int] = {
    "identical": 0, "improvement": 0, "equivalent": 0, "no regression": 0, "new": 0,
    "regression": 1, "inconclusive": 3, "invalid": 4,
}  # fmt: skip
_WORST_FIRST: tuple[Outcome, ...] = ("regression", "invalid", "inconclusive")
# In the order of the rule's numbers.
_BY_RULE: tuple[Outcome, ...] = ("regression", "improvement", "equivalent", "no regression", "inconclusive")
MIN_SEEDS = 3
_LARGEST = 1e150  # of a score: the square of a larger one is no number
_MOST_NAMES = 6  # of cells in a sentence
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

    @property
    def undecided(self) -> tuple[str, ...]:
        """Cells in which an adaptive gate goes on. None where the whole is a regression: further seeds would only give
        it the chance to be talked out of it.
        """
        if self.outcome == "regression":
            return ()
        return tuple(cell.cell for cell in self.cells if cell.outcome == "inconclusive")


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
    look: int | Mapping[str, int] | None = None,
) -> Verdict:
    """The candidate's cells against the baseline's. `floor` is a random policy's score; `constants` those of a frozen
    baseline, else taken from the baseline as it is given. `identical` and `problems` name cells that are settled
    without statistics: whose seeds logged the same numbers, and which are invalid and why. `look` is the number of an
    adaptive gate's look, or that of each cell: a cell that was decided earlier keeps the level that it was decided by.
    """
    looks = look if isinstance(look, Mapping) else {} if look is None else dict.fromkeys(candidate, look)
    _check(alpha, floor or {}, looks)
    wanted = parse_margin(margin)
    known = problems or {}
    cells = [
        _Cell(
            name,
            _scores(name, candidate.get(name)),
            _scores(name, baseline.get(name)),
            wanted,
            (floor or {}).get(name),
            constants or {},
            known.get(name),
            None if look is None else looks.get(name, 0),
        )
        for name in dict.fromkeys([*candidate, *known])
    ]
    judged = [cell for cell in cells if cell.name not in identical and cell.problem is None and not cell.is_new]
    ruling = _ruling(judged, alpha)
    places = {cell.name: place for place, cell in enumerate(judged)}
    verdicts = tuple(
        _identical(cell) if cell.name in identical else cell.verdict(ruling, places.get(cell.name), alpha)
        for cell in cells
    )
    outcome, reason = _whole(verdicts, ruling)
    return Verdict(
        outcome=outcome,
        reason=reason,
        cells=verdicts,
        aggregate=_aggregate(ruling) if ruling else None,
        margin=str(wanted),
        alpha=alpha,
        look=None if look is None else max(looks.values(), default=0),
    )


def _check(alpha: float, floor: Mapping[str, float], looks: Mapping[str, int]) -> None:
    if not 0 < alpha < 0.5:
        raise UsageError(f"alpha is {alpha:g}", "the share of false alarms that is acceptable, as 0.05")
    for name, value in floor.items():
        if not math.isfinite(value):
            raise UsageError(f"the floor of {name} is {value:g}", "the score of a random policy, a finite number")
    for look in looks.values():
        if look not in range(len(LOOKS)):
            raise UsageError(
                f"there is no look {look}", f"0 to {len(LOOKS) - 1}, at {', '.join(map(str, LOOKS))} seeds"
            )


def _scores(name: str, scores: ArrayLike | None) -> FloatArray:
    try:
        found = np.asarray([] if scores is None else scores, np.float64)
    except (TypeError, ValueError):
        raise InvalidScores(f"the scores of {name} are not numbers", "one number for each seed") from None
    if found.ndim != 1:
        raise InvalidScores(
            f"the scores of {name} have the shape {found.shape}", "one number for each seed, the mean of its episodes"
        )
    return found


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
        look: int | None,
    ) -> None:
        self.name, self.ours, self.theirs, self.look = name, ours, theirs, look
        self.is_new = not len(theirs) and problem is None
        self.problem = None if self.is_new else problem or _problem(ours, theirs)
        if self.problem or self.is_new:
            return
        self.constants = constants.get(name) or constants_of(theirs, floor)
        self.margin = in_returns(margin, self.constants)
        self.difference = compare(ours, theirs, adaptive=look is not None).only()
        largest = float(max(np.abs(ours).max(), np.abs(theirs).max()))
        if min(self.constants.scale, self.margin) <= LAST_BITS * largest:
            self._without_spread(margin)

    def _without_spread(self, margin: Margin) -> None:
        """A solved task, where every seed of the baseline has the same score: a floor or a margin says what is much."""
        if margin.unit == "returns":
            self.constants = Constants(reference=self.constants.reference, sd=margin.amount)
        elif self.difference.estimate == 0 and self.difference.variance == 0:
            self.constants = Constants(reference=self.constants.reference, sd=1.0)
            self.margin = 1.0
        elif margin.unit == "sd" and self.constants.distance is not None:
            self.problem = f"all seeds of the baseline are equal: {margin} is nothing, a margin as 10% or 25 is needed"
        else:
            self.problem = "all seeds of the baseline are equal, and there is no floor to measure by"

    def verdict(self, ruling: Ruling | None, place: int | None, alpha: float) -> CellVerdict:
        """`place` is the cell's in the ruling."""
        seeds = {"candidate_seeds": len(self.ours), "baseline_seeds": len(self.theirs)}
        if self.is_new:
            return CellVerdict(cell=self.name, outcome="new", reason="the baseline has no runs of it", **seeds)
        if self.problem or ruling is None or place is None:
            return CellVerdict(cell=self.name, outcome="invalid", reason=self.problem or "", **seeds)
        outcome = _BY_RULE[int(ruling.outcome[place])]
        low, high = float(ruling.low[place]), float(ruling.high[place])
        own, other = float(variance_of(self.ours)), float(variance_of(self.theirs))
        return CellVerdict(
            cell=self.name,
            outcome=outcome,
            reason=_reason(outcome, low, high),
            **seeds,
            candidate_mean=float(self.ours.mean()),
            baseline_mean=float(self.theirs.mean()),
            difference=self.difference.estimate,
            low=low,
            high=high,
            margin=self.margin,
            scale=self.constants.scale,
            p=float(ruling.p[place]),
            variance_ratio=own / other if other else None,
            resolvable=_resolvable(self.difference, level_at(alpha, self.look)),
            seeds_needed=_seeds_needed(math.sqrt((own + other) / 2), self.margin),
        )


def _problem(ours: FloatArray, theirs: FloatArray) -> str | None:
    scores = np.concatenate([ours, theirs])
    if not np.isfinite(scores).all():
        return "a score is NaN or infinite"
    if np.abs(scores).max() > _LARGEST:
        return "a score is too large to calculate with"
    for who, count in (("candidate", len(ours)), ("baseline", len(theirs))):
        if count < MIN_SEEDS:
            return f"the {who} has {count} {'seed' if count == 1 else 'seeds'}, the gate needs at least {MIN_SEEDS}"
    return None


def _reason(outcome: Outcome, low: float, high: float) -> str:
    if outcome == "equivalent":
        side = "slightly worse, " if high < 0 else "slightly better, " if low > 0 else ""
        return f"{side}inside the margin"
    return {
        "regression": "worse than the baseline",
        "improvement": "better than the baseline",
        "no regression": "not worse by more than the margin",
    }.get(outcome, "these seeds cannot tell")


def _ruling(cells: Sequence[_Cell], alpha: float) -> Ruling | None:
    if not cells:
        return None
    return rule_on(
        stack([cell.difference for cell in cells]),
        np.array([cell.margin for cell in cells]),
        np.array([cell.constants.scale for cell in cells]),
        alpha=alpha,
        look=np.array([cell.look for cell in cells]) if cells[0].look is not None else None,
    )


def _aggregate(ruling: Ruling) -> Aggregate:
    found = ruling.aggregate
    return Aggregate(
        outcome=_BY_RULE[int(found.outcome)],
        difference=float(found.difference),
        low=float(found.low),
        high=float(found.high),
        margin=float(found.margin),
    )


def _whole(cells: Collection[CellVerdict], ruling: Ruling | None) -> tuple[Outcome, str]:
    """Regression before invalid before inconclusive before all that passes."""
    if not cells:
        return "invalid", "the candidate has no runs"
    by_outcome = {outcome: [cell for cell in cells if cell.outcome == outcome] for outcome in EXIT_CODES}
    if ruling and ruling.failed and not by_outcome["regression"]:
        return "regression", "worse over all cells together, though in no single one"
    for outcome in _WORST_FIRST:
        if found := by_outcome[outcome]:
            return outcome, _told(found)
    return _passing(cells, ruling)


def _told(cells: Collection[CellVerdict]) -> str:
    """Cells by what is said of them, so that a sentence stays one."""
    by_reason: dict[str, list[str]] = {}
    for cell in cells:
        by_reason.setdefault(cell.reason, []).append(cell.cell)
    return "; ".join(f"{_listed(names)}: {reason}" for reason, names in by_reason.items())


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _passing(cells: Collection[CellVerdict], ruling: Ruling | None) -> tuple[Outcome, str]:
    """What they have in common, else what they are together."""
    known = [cell for cell in cells if cell.outcome != "new"] or list(cells)
    if len({cell.outcome for cell in known}) == 1:
        every = "in every cell" if len(known) == len(cells) else "in every cell that the baseline has"
        return known[0].outcome, every if len(cells) > 1 else known[0].reason
    together = _BY_RULE[int(ruling.aggregate.outcome)] if ruling else "no regression"
    if EXIT_CODES[together] == 0:
        return together, "over all cells together; no cell is worse by more than its margin"
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
