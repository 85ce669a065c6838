"""Does the gate keep its promises? Every kind of score, number of cells and number of seeds, in simulation.

docs/gate-calibration.md has the figures; docs/build_calibration.py writes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rollbook.gate.promises import COVERAGE, DETECTION, FALSE_ALARMS, FALSE_PASSES, CheckedRate
from rollbook.gate.simulate import FAMILIES, Rates, Rule, Scenario, simulate

REPETITIONS = 50_000
SEED = 1


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One promise in one scenario."""

    name: str
    scenario: Scenario
    rates: Rates  # all of this scenario
    rate: CheckedRate


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The scenarios of a calibration: all combinations. Fields are those of `Scenario`."""

    family: Sequence[str] = tuple(FAMILIES)
    cells: Sequence[int] = (1, 3, 6)
    seeds: Sequence[int | None] = (3, 5, 10, 20, None)
    sd: Sequence[float] = (1.0,)
    spread: Sequence[float] = (1.0,)
    baseline_seeds: Sequence[int] = (10,)
    estimated: Sequence[bool] = (False,)

    def scenarios(self) -> Iterator[Scenario]:
        axes = vars(self)
        for values in itertools.product(*axes.values()):
            yield Scenario(**dict(zip(axes, values, strict=True)))


def calibrate(
    grid: Grid, *, repetitions: int = REPETITIONS, seed: int = SEED, rule: Rule | None = None
) -> list[Figure]:
    """What is promised, measured in each scenario of the grid: unchanged, worse by just the margin and by twice it."""

    def rates_of(scenario: Scenario) -> Rates:
        return simulate(scenario, repetitions=repetitions, seed=seed, rule=rule)

    return [figure for scenario in grid.scenarios() for figure in _figures(scenario, rates_of)]


def _figures(unchanged: Scenario, rates_of: Callable[[Scenario], Rates]) -> Iterator[Figure]:
    same = rates_of(unchanged)
    yield _figure("false regressions", unchanged, same, same.regressions, promised=FALSE_ALARMS)
    yield _coverage(unchanged, same)
    at_margin = replace(unchanged, drop=1.0)
    worse = rates_of(at_margin)
    yield _figure("false passes", at_margin, worse, worse.passes, promised=FALSE_PASSES)
    yield _figure("false passes of a cell", at_margin, worse, worse.cell_passes, promised=FALSE_PASSES)
    yield _coverage(at_margin, worse)
    if unchanged.seeds is None and not unchanged.estimated:  # the scores' true spread may be larger than an estimate
        at_twice = replace(unchanged, drop=2.0)
        far_worse = rates_of(at_twice)
        yield _figure("detection", at_twice, far_worse, far_worse.regressions, promised=DETECTION, at_least=True)


def _figure(
    name: str, scenario: Scenario, rates: Rates, measured: float, *, promised: float, at_least: bool = False
) -> Figure:
    rate = CheckedRate(
        scenario=f"{name}: {scenario}",
        promised=promised,
        measured=measured,
        repetitions=rates.repetitions,
        at_least=at_least,
    )
    return Figure(name=name, scenario=scenario, rates=rates, rate=rate)


def _coverage(scenario: Scenario, rates: Rates) -> Figure:
    found = _figure("coverage", scenario, rates, rates.covered, promised=COVERAGE, at_least=True)
    intervals = rates.repetitions * scenario.cells  # cells are drawn independently: each counts
    return replace(found, rate=replace(found.rate, repetitions=intervals))


def broken(figures: Sequence[Figure]) -> list[Figure]:
    """Promises that are not kept."""
    return [figure for figure in figures if not figure.rate.ok]


def worst(figures: Sequence[Figure], name: str) -> Figure:
    """Of one name, the one nearest to breaking its promise or farthest beyond."""
    of_name = [figure for figure in figures if figure.name == name]
    return max(of_name, key=lambda figure: -figure.rate.measured if figure.rate.at_least else figure.rate.measured)
