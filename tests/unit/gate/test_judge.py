from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import UsageError
from rollbook.gate import Constants, judge
from rollbook.gate.margin import parse_margin


def scores(mean: float, sd: float = 1.0, runs: int = 10, seed: int = 0) -> np.ndarray:
    """Exactly this mean and standard deviation, so that verdicts follow by arithmetic."""
    drawn = np.random.default_rng(seed).normal(size=runs)
    return mean + sd * (drawn - drawn.mean()) / drawn.std(ddof=1)


BASELINE = {"Hopper-v5": scores(100.0)}


def outcome(mean: float, *, runs: int = 10, sd: float = 1.0, **options) -> str:
    return judge({"Hopper-v5": scores(mean, sd, runs, seed=1)}, BASELINE, **options).outcome


# ---- the rule, margin 1 sd: no floor is known


@pytest.mark.parametrize(
    ("mean", "runs", "expected"),
    [
        (97.0, 10, "regression"),
        (103.0, 10, "improvement"),
        (100.0, 20, "equivalent"),
        (100.4, 10, "no regression"),
        (99.3, 3, "inconclusive"),
    ],
)
def test_the_interval_and_the_margin_decide(mean, runs, expected):
    assert outcome(mean, runs=runs) == expected


def test_worse_inside_the_margin_is_equivalent_and_says_so():
    verdict = judge({"Hopper-v5": scores(99.0, 0.1, 20)}, {"Hopper-v5": scores(100.0, 0.1)}, margin=5)

    assert verdict.outcome == "equivalent"
    assert verdict.reason == "slightly worse, inside the margin"


@pytest.mark.parametrize(
    ("expected", "code"),
    [("regression", 1), ("improvement", 0), ("equivalent", 0), ("no regression", 0), ("inconclusive", 3)],
)
def test_exit_codes_are_those_of_the_contract(expected, code):
    means = {
        "regression": 97.0,
        "improvement": 103.0,
        "equivalent": 100.0,
        "no regression": 100.4,
        "inconclusive": 99.3,
    }
    runs = {"equivalent": 20, "inconclusive": 3}.get(expected, 10)
    verdict = judge({"Hopper-v5": scores(means[expected], runs=runs, seed=1)}, BASELINE)

    assert (verdict.outcome, verdict.exit_code) == (expected, code)


def test_the_figures_of_a_cell():
    (cell,) = judge({"Hopper-v5": scores(98.0, 1.0, 10, seed=1)}, BASELINE).cells
    half = 1.7341 * math.sqrt(2 / 10)  # t at 0.95 with 18 degrees of freedom

    assert (cell.candidate_seeds, cell.baseline_seeds) == (10, 10)
    assert (cell.candidate_mean, cell.baseline_mean, cell.difference) == pytest.approx((98.0, 100.0, -2.0))
    assert (cell.low, cell.high) == pytest.approx((-2 - half, -2 + half), abs=1e-4)
    assert (cell.margin, cell.scale, cell.variance_ratio) == pytest.approx((1.0, 1.0, 1.0))
    assert cell.resolvable == pytest.approx((1.7341 + 0.8620) * math.sqrt(2 / 10), abs=1e-4)
    assert cell.seeds_needed == 13


# ---- margins


def test_a_share_is_of_the_distance_to_a_random_policy():
    verdict = judge({"Hopper-v5": scores(99.0)}, BASELINE, margin="10%", floor={"Hopper-v5": 20.0})

    assert verdict.cells[0].margin == pytest.approx(8.0)
    assert verdict.cells[0].scale == pytest.approx(80.0)


def test_near_a_random_policy_the_margin_is_in_standard_deviations():
    verdict = judge({"Hopper-v5": scores(99.0)}, BASELINE, margin="10%", floor={"Hopper-v5": 99.0})

    assert verdict.cells[0].margin == pytest.approx(1.0)


def test_frozen_constants_beat_the_runs_at_hand():
    frozen = {"Hopper-v5": Constants(reference=200.0, sd=5.0, floor=0.0)}
    verdict = judge({"Hopper-v5": scores(99.0)}, BASELINE, margin="10%", constants=frozen)

    assert verdict.cells[0].margin == pytest.approx(20.0)


@pytest.mark.parametrize(("text", "amount", "unit"), [("10%", 10, "%"), ("1.0sd", 1, "sd"), (25, 25, "returns")])
def test_margins_are_shares_deviations_or_returns(text, amount, unit):
    assert (parse_margin(text).amount, parse_margin(text).unit) == (amount, unit)


@pytest.mark.parametrize("margin", ["0", "-1", "0%", "nan", "inf", "much", "", "1 2", "1e999", "--"])
def test_a_margin_that_is_not_positive_is_wrong_usage(margin):
    with pytest.raises(UsageError, match="the margin is"):
        judge({"a": scores(1.0)}, {"a": scores(1.0)}, margin=margin)


# ---- several cells


def cells(*means: float, runs: int = 10) -> dict[str, np.ndarray]:
    return {f"env{number}": scores(mean, runs=runs, seed=number) for number, mean in enumerate(means)}


def test_one_bad_cell_among_good_ones_is_a_regression():
    verdict = judge(cells(100, 100, 96), cells(100, 100, 100))

    assert verdict.outcome == "regression"
    assert [cell.outcome for cell in verdict.cells] == ["equivalent", "equivalent", "regression"]
    assert verdict.reason == "env2: worse than the baseline"


def test_a_small_loss_everywhere_is_a_regression_of_the_whole():
    verdict = judge(cells(*[99.2] * 6, runs=10), cells(*[100] * 6))

    assert {cell.outcome for cell in verdict.cells} == {"inconclusive"}
    assert verdict.aggregate is not None
    assert (verdict.aggregate.outcome, verdict.outcome) == ("regression", "regression")
    assert verdict.reason == "worse over all cells together, though in no single one"


def test_a_single_cell_has_all_of_alpha_and_many_share_half_of_it():
    """Just significant alone; not so among five."""
    alone = judge(cells(98.9, runs=8), cells(100))
    among = judge(cells(98.9, 101, 101, 101, 101, runs=8), cells(*[100] * 5))

    assert alone.cells[0].outcome == "regression"
    assert among.cells[0].outcome == "inconclusive"


def test_adjusted_p_follow_holm():
    verdict = judge(cells(98, 99, 100), cells(100, 100, 100))
    raw = []
    for number, mean in enumerate((98, 99, 100)):
        (cell,) = judge({"x": scores(mean, seed=number)}, {"x": scores(100, seed=number)}).cells
        raw.append(cell.p)

    assert [cell.p for cell in verdict.cells] == pytest.approx([3 * raw[0], 2 * raw[1], raw[2]])


def test_invalid_comes_after_regression_and_before_inconclusive():
    few = {"env0": scores(100, runs=2)}
    inconclusive, regression = {"env1": scores(99.3, runs=3)}, {"env2": scores(90)}
    baseline = cells(100, 100, 100)

    assert judge(few | inconclusive, baseline).outcome == "invalid"
    assert judge(few | inconclusive | regression, baseline).outcome == "regression"


def test_a_cell_that_the_baseline_lacks_is_new_and_passes():
    verdict = judge(cells(100, 100, runs=20), {"env0": scores(100)})

    assert [cell.outcome for cell in verdict.cells] == ["equivalent", "new"]
    assert verdict.exit_code == 0


# ---- what cannot be judged


@pytest.mark.parametrize(
    ("candidate", "baseline", "reason"),
    [
        ([1.0, 2.0], [1.0, 2.0, 3.0], "the candidate has 2 seeds, the gate needs at least 3"),
        ([1.0, 2.0, 3.0], [1.0], "the baseline has 1 seed, the gate needs at least 3"),
        ([1.0, math.nan, 3.0], [1.0, 2.0, 3.0], "a score is NaN or infinite"),
        ([], [1.0, 2.0, 3.0], "the candidate has 0 seeds, the gate needs at least 3"),
        ([499.0, 500.0, 500.0], [500.0] * 3, "all seeds of the baseline are equal, and there is no floor"),
    ],
)
def test_what_cannot_be_judged_is_invalid_and_says_why(candidate, baseline, reason):
    verdict = judge({"a": candidate}, {"a": baseline})

    assert (verdict.outcome, verdict.exit_code) == ("invalid", 4)
    assert reason in verdict.reason


def test_a_candidate_without_runs_is_invalid():
    assert judge({}, {"a": [1.0, 2.0, 3.0]}).outcome == "invalid"


def test_a_solved_task_with_equal_scores_is_equivalent():
    assert judge({"CartPole-v1": [500.0] * 5}, {"CartPole-v1": [500.0] * 3}).outcome == "equivalent"


def test_a_solved_task_with_a_floor_is_measured_by_it():
    floor = {"CartPole-v1": 20.0}
    slightly = judge({"CartPole-v1": [499.0, 500.0, 500.0]}, {"CartPole-v1": [500.0] * 3}, floor=floor)
    badly = judge({"CartPole-v1": [9.0, 10.0, 10.0]}, {"CartPole-v1": [500.0] * 3}, floor=floor)

    assert (slightly.outcome, badly.outcome) == ("equivalent", "regression")


def test_a_solved_task_with_a_margin_in_returns_is_measured_by_it():
    baseline = {"CartPole-v1": [500.0] * 3}

    assert judge({"CartPole-v1": [499.0, 500.0, 500.0]}, baseline, margin=25).outcome == "equivalent"
    assert judge({"CartPole-v1": [9.0, 10.0, 10.0]}, baseline, margin=25).outcome == "regression"


def test_identical_runs_need_no_statistics():
    verdict = judge({"a": [3.0]}, {"a": [3.0]}, identical={"a"})

    assert (verdict.outcome, verdict.exit_code) == ("identical", 0)


# ---- adaptive


def test_an_early_look_needs_more_evidence():
    """Between the level of the first look and all of alpha."""
    candidate, baseline = {"a": scores(98.6, 0.9, runs=3)}, {"a": scores(100.0)}

    assert judge(candidate, baseline).outcome == "regression"
    assert judge(candidate, baseline, look=0).outcome == "inconclusive"


# ---- in general


finite = st.floats(-1e4, 1e4, allow_subnormal=False)
several = st.lists(finite, min_size=3, max_size=8)


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(several, several), min_size=1), st.floats(1.0, 1e3))
def test_shifting_all_scores_changes_no_verdict(groups, margin):
    ours = {name: np.array(pair[0]) for name, pair in groups.items()}
    theirs = {name: np.array(pair[1]) for name, pair in groups.items()}
    moved = judge(
        {k: np.round(v) + 512 for k, v in ours.items()},
        {k: np.round(v) + 512 for k, v in theirs.items()},
        margin=margin,
    )
    plain = judge({k: np.round(v) for k, v in ours.items()}, {k: np.round(v) for k, v in theirs.items()}, margin=margin)

    assert [cell.outcome for cell in moved.cells] == [cell.outcome for cell in plain.cells]


@given(several, several)
def test_an_exit_code_of_zero_means_that_no_cell_may_be_worse_than_its_margin(ours, theirs):
    verdict = judge({"a": ours}, {"a": theirs}, margin=10)
    (cell,) = verdict.cells

    if verdict.exit_code == 0:
        assert cell.low is not None and cell.low > -10
    if verdict.outcome == "regression":
        assert cell.high is not None and cell.high < 0
