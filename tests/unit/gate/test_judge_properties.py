"""What holds of the gate's verdict, whatever the scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rollbook.errors import InvalidScores, UsageError
from rollbook.gate import Constants, Verdict, judge
from rollbook.gate.judge import EXIT_CODES
from rollbook.gate.margin import parse_margin
from rollbook.stats import difference
from rollbook.stats.sequential import LOOKS, nominal_levels

# Whole numbers, so that shifted and shuffled scores have the same means and spreads to the last bit.
whole = st.integers(-500, 500).map(float)
several = st.lists(whole, min_size=3, max_size=8)
cells = st.dictionaries(st.sampled_from("abcd"), st.tuples(several, several), min_size=1)
looks = st.none() | st.integers(0, len(LOOKS) - 1)
margins = st.sampled_from(["10%", "1sd", "0.5sd", 40, 400.0])

Groups = dict[str, tuple[list[float], list[float]]]


def sides(groups: Groups) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    ours = {name: np.array(pair[0]) for name, pair in groups.items()}
    return ours, {name: np.array(pair[1]) for name, pair in groups.items()}


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {"": verdict.outcome, **{cell.cell: cell.outcome for cell in verdict.cells}}


def badness(verdict: Verdict) -> int:
    """Passed, undecided, failed."""
    return {0: 0, 3: 1, 1: 2}[verdict.exit_code]


# ---- what changes nothing


@given(cells, margins, looks, st.randoms(use_true_random=False))
def test_the_order_of_seeds_and_cells_changes_no_verdict(groups, margin, look, random):
    names = list(groups)
    random.shuffle(names)
    shuffled = {name: tuple(random.sample(runs, len(runs)) for runs in groups[name]) for name in names}

    first, second = (judge(*sides(one), margin=margin, look=look) for one in (groups, shuffled))

    assert outcomes(first) == outcomes(second)


@given(cells, st.sampled_from(["1sd", "0.5sd", "10%"]), looks, st.integers(-4, 4))
def test_shifting_all_scores_changes_no_verdict(groups, margin, look, by):
    ours, theirs = sides(groups)
    moved = judge(
        {name: scores + 128 * by for name, scores in ours.items()},
        {name: scores + 128 * by for name, scores in theirs.items()},
        margin=margin,
        look=look,
    )

    assert outcomes(moved) == outcomes(judge(ours, theirs, margin=margin, look=look))


@given(cells, st.sampled_from(["1sd", "0.5sd", 40]), looks, st.integers(-20, 20))
def test_other_units_of_return_change_no_verdict(groups, margin, look, power):
    """By a power of two, which costs no digit."""
    ours, theirs = sides(groups)
    scaled = judge(
        {name: scores * 2.0**power for name, scores in ours.items()},
        {name: scores * 2.0**power for name, scores in theirs.items()},
        margin=margin * 2.0**power if isinstance(margin, int) else margin,
        look=look,
    )

    assert outcomes(scaled) == outcomes(judge(ours, theirs, margin=margin, look=look))


@given(several, several, margins, looks)
def test_two_cells_with_the_same_scores_have_the_same_verdict(ours, theirs, margin, look):
    verdict = judge({"a": ours, "b": ours}, {"a": theirs, "b": theirs}, margin=margin, look=look)

    assert verdict.cells[0].outcome == verdict.cells[1].outcome


# ---- worse is never better


@given(cells, st.floats(0.01, 1000), margins, looks, st.data())
def test_a_drop_never_improves_the_verdict(groups, drop, margin, look, data):
    ours, theirs = sides(groups)
    before = judge(ours, theirs, margin=margin, look=look)
    assume(before.outcome != "invalid")
    dropping = data.draw(st.sets(st.sampled_from(sorted(ours)), min_size=1))
    after = judge(
        {name: scores - (drop if name in dropping else 0) for name, scores in ours.items()},
        theirs,
        margin=margin,
        look=look,
    )
    assume(after.outcome != "invalid")

    assert badness(after) >= badness(before)


@given(cells, looks)
def test_a_larger_margin_never_fails_what_passed(groups, look):
    ours, theirs = sides(groups)
    narrow, wide = (judge(ours, theirs, margin=margin, look=look) for margin in (40, 80))

    assert badness(wide) <= badness(narrow)


@given(cells, margins)
def test_an_early_look_decides_nothing_that_all_of_alpha_would_not(groups, margin):
    ours, theirs = sides(groups)
    early, at_once = (judge(ours, theirs, margin=margin, look=look) for look in (0, None))

    if early.exit_code in (0, 1):
        assert early.exit_code == at_once.exit_code


# ---- what is said fits together


@given(cells, margins, looks)
def test_the_exit_code_follows_the_outcome_and_the_worst_cell(groups, margin, look):
    verdict = judge(*sides(groups), margin=margin, look=look)
    found = {cell.outcome for cell in verdict.cells}

    assert verdict.exit_code == EXIT_CODES[verdict.outcome]
    if "regression" in found:
        assert verdict.outcome == "regression"
    elif "invalid" in found:
        assert verdict.outcome in ("regression", "invalid")
    elif "inconclusive" in found:
        assert verdict.outcome in ("regression", "inconclusive")
    elif verdict.outcome != "regression":
        assert verdict.exit_code == 0


@given(cells, margins, looks)
def test_a_cells_outcome_can_be_read_off_its_interval(groups, margin, look):
    for cell in judge(*sides(groups), margin=margin, look=look).cells:
        if cell.outcome == "invalid":
            continue
        low, high, limit = cell.low, cell.high, cell.margin
        assert low <= cell.difference <= high
        passes = low > -limit
        assert (cell.outcome in ("improvement", "equivalent", "no regression")) == passes
        if cell.outcome == "regression":
            assert high < 0
        if len(groups) == 1 and high < 0 and not passes:
            assert cell.outcome == "regression"


@given(cells, margins, looks)
def test_further_seeds_are_asked_for_where_nothing_is_decided(groups, margin, look):
    verdict = judge(*sides(groups), margin=margin, look=look)
    open_cells = tuple(cell.cell for cell in verdict.cells if cell.outcome == "inconclusive")

    assert verdict.undecided == (() if verdict.outcome == "regression" else open_cells)


# ---- looks


def test_a_cell_that_was_decided_earlier_keeps_its_level():
    """Between the levels of the first look and the second, which is the stricter."""
    noise = np.random.default_rng(0).normal(size=10)
    baseline = {"a": noise - noise.mean(), "b": noise - noise.mean()}
    decided = {"a": np.array([0.9, 1.0, 1.1]), "b": noise[:5] - noise[:5].mean() - 1.4}
    cell = judge({"a": decided["a"]}, baseline, look=0, margin=5).cells[0]
    margin = -(cell.low - 1e-9)
    assert margin > 0

    passed, again = (
        judge(decided, baseline, look=look, margin=margin).cells[0].outcome for look in ({"a": 0, "b": 1}, 1)
    )

    assert (passed, again) == ("no regression", "inconclusive")


@pytest.mark.parametrize(("look", "baseline_seeds", "cautious"), [(None, 10, True), (4, 10, False), (4, 9, True)])
def test_an_adaptive_gate_with_ten_baseline_seeds_needs_less_caution(look, baseline_seeds, cautious):
    rng = np.random.default_rng(6)
    ours, theirs = rng.normal(size=20), 2 * rng.normal(size=baseline_seeds)
    (cell,) = judge({"a": ours}, {"a": theirs}, look=look).cells
    level = 0.05 if look is None else nominal_levels(0.05)[look]

    expected = difference(ours, theirs, cautious=cautious).interval(level)
    assert (cell.low, cell.high) == pytest.approx((expected.low, expected.high))
    assert expected != difference(ours, theirs, cautious=not cautious).interval(level)


@pytest.mark.parametrize("look", [-1, 5, {"a": 7}])
def test_there_are_five_looks(look):
    with pytest.raises(UsageError, match="there is no look"):
        judge({"a": [1.0, 2.0, 3.0]}, {"a": [1.0, 2.0, 3.0]}, look=look)


# ---- no spread


@pytest.mark.parametrize("score", [500.0, 0.1, -0.7, 0.0, 1e-9])
@pytest.mark.parametrize("margin", ["10%", "1sd", 0.05])
@pytest.mark.parametrize("floor", [None, -20.0])
def test_equal_scores_are_equivalent_however_their_mean_is_rounded(score, margin, floor):
    """The mean of three times 0.1 is not 0.1."""
    floors = {} if floor is None else {"a": floor}
    verdict = judge({"a": [score] * 5}, {"a": [score] * 3}, margin=margin, floor=floors)

    assert (verdict.outcome, verdict.reason) == ("equivalent", "inside the margin")
    assert verdict.cells[0].variance_ratio is None


def test_standard_deviations_of_equal_scores_are_no_margin():
    verdict = judge({"a": [499.0, 500.0, 500.0]}, {"a": [500.0] * 3}, margin="1sd", floor={"a": 20.0})

    assert verdict.outcome == "invalid"
    assert "1sd is nothing" in verdict.reason


def test_a_collapse_is_a_regression_where_neither_side_has_any_spread():
    verdict = judge({"a": [10.0] * 3}, {"a": [500.0] * 3}, floor={"a": 20.0})

    assert verdict.outcome == "regression"
    assert verdict.cells[0].p == 0


# ---- what is no score, and what is no question


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
@pytest.mark.parametrize("side", [0, 1])
def test_a_score_that_is_no_number_to_calculate_with_makes_its_cell_invalid_and_no_other(bad, side):
    groups = [{"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]} for _ in range(2)]
    groups[side]["a"][1] = bad
    verdict = judge(*groups)

    assert verdict.outcome == "invalid"
    assert verdict.cells[0].outcome == "invalid"
    assert verdict.cells[1].outcome != "invalid"


@given(st.integers(0, 2), several)
def test_fewer_than_three_seeds_are_invalid_on_either_side(runs, others):
    for ours, theirs in ((others[:runs], others), (others, others[: max(runs, 1)])):
        assert judge({"a": ours}, {"a": theirs}).outcome == "invalid"


def test_one_seed_suffices_where_it_is_identical():
    assert judge({"a": [3.0]}, {"a": [3.0, 4.0]}, identical={"a"}).outcome == "identical"


def test_identical_cells_leave_all_of_alpha_to_the_others():
    rng = np.random.default_rng(4)
    ours, theirs = {"a": rng.normal(size=5) - 1.2, "b": [1.0]}, {"a": rng.normal(size=10), "b": [1.0]}
    alone = judge({"a": ours["a"]}, theirs).cells[0]

    assert judge(ours, theirs, identical={"b"}).cells[0] == alone


def test_what_is_new_beside_what_is_equivalent_leaves_it_equivalent():
    scores = np.random.default_rng(1).normal(size=20)
    verdict = judge({"a": scores, "b": scores}, {"a": scores})

    assert (verdict.outcome, verdict.reason) == ("equivalent", "in every cell that the baseline has")


def test_a_table_of_episodes_is_refused():
    """Episodes are no seeds: flattened, they would make the gate much too sure."""
    with pytest.raises(InvalidScores, match=r"scores of a have the shape \(3, 10\)"):
        judge({"a": np.ones((3, 10))}, {"a": np.ones((3, 10))})


def test_words_are_no_scores():
    with pytest.raises(InvalidScores, match="are not numbers"):
        judge({"a": ["high", "low", "low"]}, {"a": [1.0, 2.0, 3.0]})


@pytest.mark.parametrize("alpha", [0.0, -0.1, 0.5, 1.0, math.nan])
def test_alpha_is_a_share_below_one_half(alpha):
    with pytest.raises(UsageError, match="alpha is"):
        judge({"a": [1.0, 2.0, 3.0]}, {"a": [1.0, 2.0, 3.0]}, alpha=alpha)


def test_a_floor_is_a_number():
    with pytest.raises(UsageError, match="the floor of a is nan"):
        judge({"a": [1.0, 2.0, 3.0]}, {"a": [1.0, 2.0, 3.0]}, floor={"a": math.nan})


@given(st.floats(1e-6, 1e9), st.sampled_from(["", "%", "sd"]))
def test_a_margin_reads_as_it_is_written(amount, unit):
    margin = parse_margin(f"{amount:.12g}{unit}")

    assert parse_margin(str(margin)) == margin


# ---- several cells


def test_a_cell_whose_interval_is_inside_the_margin_is_no_regression_of_holms():
    """Worse beyond doubt, by less than the margin: the interval that is shown decides, not the wider one of Holm."""
    rng = np.random.default_rng(5)
    noise = [sample - sample.mean() for sample in rng.normal(size=(2, 10))]
    baseline = dict.fromkeys("abcdef", noise[0])
    candidate = {name: noise[1] - (3.0 if name == "a" else 0.0) for name in "abcdef"}
    low = judge(candidate, baseline, margin=100).cells[0].low
    verdict = judge(candidate, baseline, margin=-low + 1e-6)

    assert verdict.cells[0].outcome == "equivalent"
    assert verdict.cells[0].reason == "slightly worse, inside the margin"


def test_frozen_constants_set_the_margin_in_standard_deviations():
    frozen = {"a": Constants(reference=0.0, sd=7.0)}

    assert judge({"a": [1.0, 2.0, 3.0]}, {"a": [1.0, 2.0, 3.0]}, margin="2sd", constants=frozen).cells[0].margin == 14


def test_the_seeds_that_are_needed_grow_with_the_candidates_spread():
    noise = np.array([-1.0, 0.0, 1.0])
    even, wider = (judge({"a": spread * noise}, {"a": noise}, margin=1).cells[0] for spread in (1, 3))

    assert even.seeds_needed == 13
    assert wider.seeds_needed == math.ceil((1 + 9) * (1.645 + 0.84) ** 2)
