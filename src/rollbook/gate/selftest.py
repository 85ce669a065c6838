"""Can this gate fail? `judge` itself on synthetic scores, unchanged and worsened, beside what it promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rollbook.gate.judge import Outcome, Verdict, judge
from rollbook.gate.margin import Constants
from rollbook.gate.promises import DETECTION, FALSE_ALARMS, FALSE_PASSES, CheckedRate
from rollbook.gate.simulate import Scenario, draw
from rollbook.stats.scores import FloatArray
from rollbook.stats.sequential import LOOKS

Judge: TypeAlias = Callable[..., Verdict]
_PASSES: tuple[Outcome, ...] = ("improvement", "equivalent", "no regression")


@dataclass(frozen=True, kw_only=True)
class _Check:
    """How often the gate may, or must, give one of these outcomes."""

    scenario: str
    scores: Scenario
    outcomes: tuple[Outcome, ...]
    promised: float
    at_least: bool = False


_CHECKS = (
    _Check(
        scenario="unchanged, 5 seeds: called a regression",
        scores=Scenario(family="normal", seeds=5),
        outcomes=("regression",),
        promised=FALSE_ALARMS,
    ),
    _Check(
        scenario="unchanged, 3 seeds of scores with two levels: called a regression",
        scores=Scenario(family="bimodal", seeds=3),
        outcomes=("regression",),
        promised=FALSE_ALARMS,
    ),
    _Check(
        scenario="unchanged, 3 cells, adaptive: called a regression",
        scores=Scenario(family="normal", cells=3),
        outcomes=("regression",),
        promised=FALSE_ALARMS,
    ),
    _Check(
        scenario="worse by the margin, 10 seeds: passed",
        scores=Scenario(family="normal", seeds=10, drop=1.0),
        outcomes=_PASSES,
        promised=FALSE_PASSES,
    ),
    _Check(
        scenario="worse by the margin, adaptive: passed",
        scores=Scenario(family="normal", drop=1.0),
        outcomes=_PASSES,
        promised=FALSE_PASSES,
    ),
    _Check(
        scenario="worse by twice the margin, 10 seeds: called a regression",
        scores=Scenario(family="normal", seeds=10, drop=2.0),
        outcomes=("regression",),
        promised=DETECTION,
        at_least=True,
    ),
    _Check(
        scenario="worse by twice the margin in 1 cell of 3, adaptive: called a regression",
        scores=Scenario(family="rare failure", cells=3, drop=2.0),
        outcomes=("regression",),
        promised=DETECTION,
        at_least=True,
    ),
)


class Selftest(tuple[CheckedRate, ...]):
    """A row for each scenario."""

    @property
    def passed(self) -> bool:
        return all(row.ok for row in self)


def selftest(*, repetitions: int = 200, seed: int = 0, judge: Judge = judge) -> Selftest:
    """The same seed gives the same rows. `judge` may be another, to see this fail."""
    return Selftest(
        CheckedRate(
            scenario=check.scenario,
            promised=check.promised,
            measured=_rate(check, repetitions, seed, judge),
            repetitions=repetitions,
            at_least=check.at_least,
        )
        for check in _CHECKS
    )


def _rate(check: _Check, repetitions: int, seed: int, judge: Judge) -> float:
    made_up = draw(check.scores, repetitions, np.random.default_rng(seed))
    outcomes = [
        _outcome(ours, theirs, check.scores, judge) for ours, theirs in zip(made_up.ours, made_up.theirs, strict=True)
    ]
    return sum(outcome in check.outcomes for outcome in outcomes) / repetitions


def _outcome(ours: FloatArray, theirs: FloatArray, scores: Scenario, judge: Judge) -> Outcome:
    """Of one gate: scores are (cells, seeds)."""
    names = [f"cell-{number}" for number in range(len(ours))]
    baseline = dict(zip(names, theirs, strict=True))
    options = {"margin": 1.0, "constants": {name: Constants(reference=0.0, sd=scores.sd) for name in names}}
    if scores.seeds is not None:
        return judge(dict(zip(names, ours, strict=True)), baseline, **options).outcome
    return adaptive_verdict(dict(zip(names, ours, strict=True)), baseline, judge=judge, **options).outcome


def adaptive_verdict(
    candidate: Mapping[str, FloatArray], baseline: Mapping[str, FloatArray], *, judge: Judge = judge, **options: object
) -> Verdict:
    """As if the seeds were run as they are asked for."""
    looks = dict.fromkeys(candidate, 0)
    for look in range(len(LOOKS)):
        seen = {name: scores[: LOOKS[looks[name]]] for name, scores in candidate.items()}
        verdict = judge(seen, baseline, look=looks, **options)
        if not verdict.undecided or look + 1 == len(LOOKS):
            break
        looks |= dict.fromkeys(verdict.undecided, look + 1)
    return verdict
