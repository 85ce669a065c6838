from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rollbook import stats
from rollbook.errors import InvalidScores
from rollbook.stats import intervals, sequential
from rollbook.stats.aggregate import batch_iqm, batch_mean

finite = st.floats(-1e6, 1e6, allow_subnormal=False)
tables = arrays.arrays(np.float64, st.tuples(st.integers(2, 12), st.integers(1, 6)), elements=finite)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---- aggregates


@given(tables)
def test_the_iqm_is_scipys_trimmed_mean(scores):
    from scipy.stats import trim_mean

    assert stats.iqm(scores) == pytest.approx(trim_mean(scores, 0.25, axis=None), rel=1e-9, abs=1e-6)


@given(tables)
def test_aggregates_lie_between_the_worst_and_the_best_run(scores):
    slack = 1e-9 * np.abs(scores).max()
    for aggregate in (stats.iqm, stats.mean, stats.median):
        assert scores.min() - slack <= aggregate(scores) <= scores.max() + slack


def test_the_median_is_over_tasks_of_their_means():
    assert stats.median([[0, 1, 10], [2, 3, 20]]) == 2
    assert stats.mean([[0, 1, 10], [2, 3, 20]]) == 6


def test_a_run_above_the_target_closes_no_other_runs_gap():
    assert stats.optimality_gap([[0.5], [2.0]]) == 0.25
    assert stats.optimality_gap([[0.5], [2.0]], target=2.0) == 0.75


@given(tables, tables)
def test_the_probability_of_improvement_is_mann_and_whitneys(ours, theirs):
    from scipy.stats import mannwhitneyu

    tasks = min(ours.shape[1], theirs.shape[1])
    ours, theirs = ours[:, :tasks], theirs[:, :tasks]
    u = [mannwhitneyu(ours[:, task], theirs[:, task]).statistic for task in range(tasks)]
    found = stats.probability_of_improvement(ours, theirs)

    assert found == pytest.approx(np.mean(u) / (len(ours) * len(theirs)))
    assert stats.probability_of_improvement(theirs, ours) == pytest.approx(1 - found)


def test_tasks_may_have_unequal_numbers_of_runs():
    scores = {"a": [1.0, 2.0, 3.0], "b": [10.0]}

    assert stats.mean(scores) == 6
    assert stats.iqm(scores) == 2.5
    assert stats.probability_of_improvement(scores, {"b": [9.0, 11.0], "a": [0.0]}) == 0.75


# ---- profiles


def test_a_profile_falls_from_one_to_zero():
    profile = stats.performance_profile({"a": [1.0, 2.0], "b": [3.0]}, [0.0, 1.0, 2.5, 3.0])

    assert profile.tolist() == [1.0, 0.75, 0.5, 0.0]


def test_sample_efficiency_is_the_aggregate_at_every_step():
    curves = {"a": [[0.0, 2.0], [1.0, 4.0]], "b": [[5.0, 7.0]]}

    assert stats.sample_efficiency(curves, batch_mean).tolist() == [2.75, 5.0]
    with pytest.raises(InvalidScores, match="one grid"):
        stats.sample_efficiency({"a": [[1.0, 2.0]], "b": [[1.0]]})


# ---- intervals


@given(st.integers(2, 10), st.integers(2, 10), st.floats(0.1, 10), st.integers(0, 99), st.booleans())
def test_a_difference_is_students_where_the_smaller_group_is_narrower_and_welchs_otherwise(
    runs, others, ratio, seed, cautious
):
    """Without caution, where the candidate is narrower, however many runs it has."""
    from scipy.stats import ttest_ind

    candidate, baseline = rng(seed).normal(size=runs) * ratio, rng(seed + 100).normal(size=others)
    found = stats.difference(candidate, baseline, cautious=cautious)
    own, other = candidate.var(ddof=1), baseline.var(ddof=1)
    pooled = own <= other if runs <= others or not cautious else other <= own
    expected = ttest_ind(candidate, baseline, equal_var=pooled)

    assert found.freedom == pytest.approx(expected.df)
    assert found.estimate / math.sqrt(found.variance) == pytest.approx(expected.statistic)
    low, high = expected.confidence_interval(0.9)
    interval = found.interval(0.05)
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert found.p_below(0.0) == pytest.approx(
        ttest_ind(candidate, baseline, equal_var=pooled, alternative="less").pvalue
    )


def test_the_mean_difference_of_one_task_is_its_own():
    one = stats.difference(rng(1).normal(size=4), rng(2).normal(size=9))

    assert stats.mean_difference([one]).variance == pytest.approx(one.variance)
    assert stats.mean_difference([one]).freedom == pytest.approx(one.freedom)


def test_equal_tasks_add_up_their_degrees_of_freedom():
    one = stats.difference(rng(1).normal(size=5), 3 * rng(2).normal(size=5))
    both = stats.mean_difference([one, one])

    assert both.freedom == pytest.approx(2 * one.freedom)
    assert both.variance == pytest.approx(one.variance / 2)


def test_scores_without_any_spread_have_an_exact_difference():
    found = stats.difference(np.full(3, 500.0), np.full(5, 500.0))

    assert found.interval(0.05) == stats.Interval(0.0, 0.0)
    assert stats.mean_difference([found]).interval(0.05) == stats.Interval(0.0, 0.0)
    assert (found.p_below(1.0), found.p_below(-1.0)) == (0.0, 1.0)


def test_many_differences_at_once_are_those_of_each():
    ours, theirs = rng(1).normal(size=(4, 3, 5)), 2 * rng(2).normal(size=(4, 3, 9))
    many = stats.differences(ours, theirs)
    low, high = many.limits(0.05)

    for place in np.ndindex(4, 3):
        one = stats.difference(ours[place], theirs[place])
        assert (many.estimate[place], many.variance[place], many.freedom[place]) == pytest.approx(
            (one.estimate, one.variance, one.freedom)
        )
        assert (low[place], high[place]) == pytest.approx((one.interval(0.05).low, one.interval(0.05).high))
        assert many.p_below(0.3)[place] == pytest.approx(one.p_below(0.3))


@pytest.mark.parametrize("score", [0.1, 500.0, -1e-7, 0.0])
def test_equal_scores_have_no_spread_and_no_difference(score):
    """The mean of three times 0.1 is not 0.1."""
    found = stats.difference(np.full(3, score), np.full(5, score))

    assert (found.estimate, found.variance) == (0.0, 0.0)


def test_one_run_has_no_spread():
    with pytest.raises(InvalidScores, match="1 run of one side"):
        stats.difference(np.array([1.0]), np.array([1.0, 2.0]))


def test_a_bootstrap_interval_depends_on_its_generator_alone():
    scores = rng().normal(size=(10, 26))
    first, second = (stats.bootstrap_interval(scores, rng=rng(1), repetitions=1000) for _ in range(2))

    assert first == second
    assert first != stats.bootstrap_interval(scores, rng=rng(2), repetitions=1000)
    assert first.low < stats.iqm(scores) < first.high


def test_a_bootstrap_interval_has_the_width_of_the_standard_error():
    scores = rng(3).normal(size=(400, 1))
    interval = stats.bootstrap_interval(scores, "mean", rng=rng(4), repetitions=20_000)
    half = 1.96 * scores.std() / 20

    assert interval.low == pytest.approx(scores.mean() - half, abs=0.01)
    assert interval.high == pytest.approx(scores.mean() + half, abs=0.01)


def test_runs_are_drawn_anew_within_their_task():
    """Between tasks there are worlds, within them nothing: a bootstrap across tasks would have an interval."""
    interval = stats.bootstrap_interval({"a": [0.0] * 5, "b": [1000.0] * 5}, "mean", rng=rng(), repetitions=200)

    assert interval == stats.Interval(500.0, 500.0)


@pytest.mark.parametrize("runs", [(10, 10, 10), (1, 2, 300), (3,), (1,)])
@pytest.mark.parametrize("ties", [False, True])
def test_the_iqm_of_resamples_is_found_without_sorting_them(runs, ties):
    columns = [rng(size).normal(size=size).round(0 if ties else 9) for size in runs]
    drawn = [intervals._drawn(size, 50, rng(size + 1)) for size in runs]
    plainly = batch_iqm([column[places] for column, places in zip(columns, drawn, strict=True)])

    found = intervals._IqmOfDrawn(columns, at_once=60)

    assert found(drawn) == pytest.approx(plainly, rel=1e-12, abs=1e-12)
    assert found(drawn[:]).tolist() == found(drawn).tolist()


@pytest.mark.parametrize("runs", [3, 256, 257, 70_000])
def test_every_run_can_be_drawn_and_none_beyond(runs):
    drawn = intervals._drawn(runs, 2_000_000 // runs, rng())

    assert (drawn.min(), drawn.max()) == (0, runs - 1)


@pytest.mark.parametrize("statistic", ["iqm", "mean", "median", "optimality_gap"])
def test_the_bootstrap_draws_as_many_resamples_as_it_is_told_to(statistic):
    """More than fit into one go, of tasks with unequal numbers of runs."""
    scores = {"a": rng(1).normal(size=40), "b": rng(2).normal(size=7)}
    interval = stats.bootstrap_interval(scores, statistic, rng=rng(3), repetitions=20_000)
    again = stats.bootstrap_interval(scores, statistic, rng=rng(4), repetitions=20_000)

    assert interval.low < getattr(stats, statistic)(scores) < interval.high
    assert (again.low, again.high) == pytest.approx((interval.low, interval.high), abs=0.03)


def test_a_permutation_test_knows_equal_from_different():
    scores = rng().normal(size=(8, 3))

    assert stats.permutation_p(scores, scores, rng=rng(), repetitions=500) == 1.0
    assert stats.permutation_p(scores, scores + 5, rng=rng(), repetitions=500) == pytest.approx(1 / 501)


def test_permutations_of_large_returns_that_are_equal_count_as_equal():
    scores = np.array([[9999.1], [9999.2], [9999.3]])
    other = scores[::-1].copy()

    assert stats.permutation_p(scores, other, rng=rng(), repetitions=200) == 1.0


# ---- sequential


def test_all_of_alpha_is_spent_at_the_last_look():
    assert sequential.spent(1.0, 0.05) == pytest.approx(0.05)
    assert sequential.spent(0.0, 0.05) == 0


def test_the_levels_are_those_of_the_specification():
    assert stats.nominal_levels(0.05) == pytest.approx((0.0113, 0.0101, 0.0134, 0.0169, 0.0242), abs=3e-4)


@pytest.mark.parametrize("alpha", [0.05, 0.025, 0.01])
def test_false_alarms_by_each_look_are_what_is_spent(alpha):
    from scipy.special import ndtri

    sums = rng(5).normal(size=(400_000, 20)).cumsum(axis=1)
    limits = [
        float(ndtri(1 - level)) * math.sqrt(look)
        for look, level in zip(stats.LOOKS, stats.nominal_levels(alpha), strict=True)
    ]
    crossed = np.stack([sums[:, look - 1] > limit for look, limit in zip(stats.LOOKS, limits, strict=True)])

    for number, look in enumerate(stats.LOOKS):
        rate = crossed[: number + 1].any(axis=0).mean()
        assert rate == pytest.approx(stats.spent(look / 20, alpha), abs=4 * math.sqrt(alpha / 400_000))


# ---- what is no score


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0, 2.0], "1 dimensions"),
        ([[1.0, math.nan]], "NaN or infinity"),
        ({"a": [math.inf]}, "NaN or infinity"),
        ([["a"]], "not numbers"),
        ([[1.0], [1.0, 2.0]], "not numbers"),
        ({}, "no task"),
        ({"a": []}, "shape (0,)"),
        (np.zeros((0, 3)), "shape (0,)"),
    ],
)
def test_what_is_no_score_is_refused(scores, message):
    with pytest.raises(InvalidScores) as refused:
        stats.iqm(scores)

    assert message in refused.value.message
    assert refused.value.hint


def test_two_groups_have_the_same_tasks():
    with pytest.raises(InvalidScores, match="only one of the two groups has the task 'b'"):
        stats.probability_of_improvement({"a": [1.0]}, {"a": [1.0], "b": [1.0]})
    with pytest.raises(InvalidScores, match="1 tasks against 2"):
        stats.probability_of_improvement([[1.0]], [[1.0, 2.0]])


def test_an_interval_needs_a_level_and_repetitions():
    with pytest.raises(InvalidScores, match=r"level of an interval is 1.5"):
        stats.bootstrap_interval([[1.0]], rng=rng(), level=1.5)
    with pytest.raises(InvalidScores, match="0 repetitions"):
        stats.bootstrap_interval([[1.0]], rng=rng(), repetitions=0)
