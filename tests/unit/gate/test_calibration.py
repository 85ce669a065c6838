"""The gate errs as seldom as it promises, and rules that err more often are noticed."""

from __future__ import annotations

import pytest

from rollbook.gate.calibration import Grid, broken, calibrate, worst
from rollbook.gate.promises import CheckedRate
from rollbook.gate.wrong_rules import WRONG_RULES

SMALL = Grid(family=("bimodal",), cells=(1,), seeds=(3, 10, None))


def rate(measured: float, **options) -> CheckedRate:
    return CheckedRate(scenario="", promised=0.05, measured=measured, repetitions=10_000, **options)


def test_a_rate_may_exceed_its_promise_by_three_standard_errors():
    assert rate(0.05).limit == pytest.approx(0.05 + 3 * 0.0021794, abs=1e-6)
    assert rate(0.0565).ok and not rate(0.0566).ok
    assert rate(0.0435, at_least=True).ok and not rate(0.0434, at_least=True).ok


def test_the_worst_figure_is_the_one_nearest_to_breaking_its_promise():
    figures = calibrate(Grid(family=("normal", "bimodal"), cells=(1,), seeds=(3,)), repetitions=500)

    rates = [figure.rate.measured for figure in figures if figure.name == "false passes"]
    assert worst(figures, "false passes").rate.measured == max(rates)
    coverages = [figure.rate.measured for figure in figures if figure.name == "coverage"]
    assert worst(figures, "coverage").rate.measured == min(coverages)


def test_the_gate_keeps_its_promises():
    figures = calibrate(Grid(cells=(1, 3), seeds=(3, 5, None)), repetitions=2000)

    assert broken(figures) == []
    assert {figure.name for figure in figures} == {
        "false regressions", "false passes", "false passes of a cell", "coverage", "detection"
    }  # fmt: skip


def test_it_keeps_them_where_the_baseline_has_fewer_seeds_than_the_candidate():
    grid = Grid(family=("normal", "bimodal", "lognormal"), cells=(1,), seeds=(10, 20), baseline_seeds=(3, 5, 10))

    assert broken(calibrate(grid, repetitions=10_000)) == []


def test_it_keeps_them_where_the_margin_is_estimated_from_few_seeds():
    assert broken(calibrate(Grid(cells=(1, 3), seeds=(3, 5), estimated=(True,)), repetitions=2000)) == []


def test_the_small_calibration_is_kept_by_the_right_rule():
    assert broken(calibrate(SMALL, repetitions=20_000)) == []


@pytest.mark.parametrize("name", WRONG_RULES)
def test_a_wrong_rule_fails_the_small_calibration(name):
    assert broken(calibrate(SMALL, repetitions=20_000, rule=WRONG_RULES[name]))


@pytest.mark.slow
def test_the_gate_keeps_its_promises_in_every_scenario_but_one():
    """Each of six cells has a twelfth of alpha to be found worse with: 93.6%, not 95%, if scores are most skewed."""
    missed = broken(calibrate(Grid()))

    assert [(figure.name, figure.scenario.family, figure.scenario.cells) for figure in missed] in (
        [],
        [("detection", "mirrored lognormal", 6)],
    )
    assert all(figure.rate.measured > 0.93 for figure in missed)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_RULES)
def test_a_wrong_rule_fails_the_full_calibration(name):
    assert broken(calibrate(Grid(cells=(1,)), repetitions=20_000, rule=WRONG_RULES[name]))


@pytest.mark.slow
def test_the_gate_keeps_its_promises_with_baselines_of_other_sizes():
    grid = Grid(cells=(1, 3), seeds=(3, 5, 10, 20), baseline_seeds=(5, 20))

    assert broken(calibrate(grid, repetitions=20_000)) == []


@pytest.mark.slow
def test_an_estimated_margin_costs_no_false_passes_and_false_regressions_only_where_failures_are_rare():
    """A baseline without the failures that there are is too good and too narrow at once: a documented weakness."""
    missed = broken(calibrate(Grid(estimated=(True,)), repetitions=20_000))

    assert {figure.name for figure in missed} <= {"false regressions"}
    assert {figure.scenario.family for figure in missed} <= {"mirrored lognormal", "rare failure"}
    assert all(figure.rate.measured < 0.11 for figure in missed)
