from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from makers import RETURN, finished

import rollbook
from rollbook.errors import InvalidScores
from rollbook.plot.curves import Curve, fold, read_curves

values = st.floats(-1e6, 1e6, allow_subnormal=False)


@st.composite
def curves(draw, least_points=1):
    x = draw(st.lists(st.integers(0, 100_000), min_size=least_points, max_size=20, unique=True))
    y = draw(st.lists(values, min_size=len(x), max_size=len(x)))
    return Curve("run", np.array(x, float), np.array(y))


def noisy(seed: int, points: int = 100) -> Curve:
    rng = np.random.default_rng(seed)
    return Curve(f"run{seed}", np.sort(rng.uniform(0, 1000, points)), rng.normal(size=points))


# ---- curves


def test_a_curve_is_sorted_finite_and_has_one_value_for_each_x():
    curve = Curve("run", np.array([3, 1, 1, 2, 5, np.inf]), np.array([30.0, 10.0, 20.0, np.nan, 50.0, 1.0]))

    assert curve.x.tolist() == [1, 3, 5]
    assert curve.y.tolist() == [15, 30, 50]


def test_curves_are_read_over_steps(book):
    first = finished(book, seed=1, returns=[1.0, 2.0, float("nan"), 4.0], steps=[0, 10, 20, 30])
    second = finished(book, seed=2, returns=[5.0, 6.0, 7.0], steps=[4, 4, 2])
    other = finished(book, seed=3, metric="losses/critic")

    found = read_curves(rollbook.open(book), [second, first, other], RETURN)

    assert list(found) == [second, first]
    assert (found[first].x.tolist(), found[first].y.tolist()) == ([0, 10, 30], [1, 2, 4])
    assert (found[second].x.tolist(), found[second].y.tolist()) == ([2, 4], [7, 5.5])


def test_time_is_in_seconds_since_the_start_of_the_run(book):
    run_id = finished(book, returns=[1.0, 2.0, 3.0])
    opened = rollbook.open(book)
    rows = opened.sql("select epoch_us(time) - epoch_us(started_at) from metrics join runs using (run_id)").fetchall()

    curve = read_curves(opened, [run_id], RETURN, over="time")[run_id]

    assert curve.x.tolist() == sorted({micros / 1e6 for (micros,) in rows})
    assert 0 <= curve.x[0] < 60


def test_no_runs_have_no_curves(book):
    finished(book)

    assert read_curves(rollbook.open(book), [], RETURN) == {}


# ---- the grid


@given(st.lists(curves(), min_size=1, max_size=5), st.integers(4, 60), st.sampled_from([0, 0.1, 0.9]))
def test_nothing_is_extrapolated(some, points, smooth):
    folded = fold(some, points=points, smooth=smooth)
    first, last = max(curve.x[0] for curve in some), min(curve.x[-1] for curve in some)
    inside = (folded.x >= first) & (folded.x <= last)

    assert (np.isfinite(folded.center) == inside).all()
    for curve, line in zip(some, folded.each, strict=True):
        has_data = (folded.x >= curve.x[0]) & (folded.x <= curve.x[-1])
        assert (np.isfinite(line) == has_data).all()
        slack = 1e-9 * np.abs(curve.y).max() + 1e-9
        assert (line[has_data] >= curve.y.min() - slack).all()
        assert (line[has_data] <= curve.y.max() + slack).all()


@given(st.lists(curves(least_points=2), min_size=1, max_size=5), st.integers(4, 60))
def test_the_grid_has_the_points_asked_for_and_the_ends_of_what_all_curves_share(some, points):
    first, last = max(curve.x[0] for curve in some), min(curve.x[-1] for curve in some)
    assume(first <= last)

    folded = fold(some, points=points)

    assert len(folded.x) == points
    assert (np.diff(folded.x) > 0).all()
    assert {first, last, min(c.x[0] for c in some), max(c.x[-1] for c in some)} <= set(folded.x.tolist())


def test_seeds_without_a_step_in_common_have_no_mean():
    folded = fold([Curve("a", [0.0, 1.0], [1.0, 1.0]), Curve("b", [2.0, 3.0], [5.0, 5.0])])

    assert np.isnan(folded.center).all()
    assert np.isfinite(folded.each).any(axis=1).all()


def test_one_point_is_a_grid_of_one_point():
    folded = fold([Curve("a", [7.0], [1.0]), Curve("b", [7.0], [3.0])])

    assert (folded.x.tolist(), folded.center.tolist()) == ([7.0], [2.0])


# ---- smoothing


def test_without_smoothing_a_line_goes_through_its_points():
    curve = Curve("run", np.arange(11.0), np.arange(11.0) ** 2)

    assert fold([curve], points=11).center.tolist() == curve.y.tolist()


@given(curves(least_points=2), values, st.floats(0.01, 0.99))
def test_smoothing_keeps_constants(curve, value, smooth):
    flat = Curve("run", curve.x, np.full(len(curve.x), value))

    assert fold([flat], smooth=smooth).center == pytest.approx(np.full(200, value), rel=1e-12)


@given(curves(least_points=2), st.floats(-100, 100), st.floats(0.01, 0.99))
def test_smoothing_neither_shifts_nor_bends_straight_lines(curve, slope, smooth):
    straight = Curve("run", curve.x, slope * curve.x)
    folded = fold([straight], smooth=smooth)

    assert folded.center == pytest.approx(slope * folded.x, abs=1e-6 * abs(slope) * 1e5 + 1e-9)


def test_smoothing_is_the_mean_of_the_line_over_the_window():
    curve = noisy(1)
    folded = fold([curve], points=21, smooth=0.2)
    half = 0.1 * (curve.x[-1] - curve.x[0])

    for x, found in list(zip(folded.x, folded.center, strict=True))[2:-2]:
        around = np.linspace(x - half, x + half, 200_001)
        assert found == pytest.approx(np.interp(around, curve.x, curve.y).mean(), abs=1e-4)


def test_smoothing_takes_noise_away_to_the_very_ends():
    raw, smooth = [], []
    for seed in range(20):
        curve = noisy(seed, points=2000)
        raw.append(fold([curve]).center)
        smooth.append(fold([curve], smooth=0.1).center)

    assert np.std(smooth) < 0.2 * np.std(raw)
    assert np.std(np.array(smooth)[:, [0, -1]]) < 0.3


def test_smoothing_keeps_the_length_of_a_curve():
    curve = noisy(1)
    folded = fold([curve], smooth=0.5)

    assert np.isfinite(folded.center).all()
    assert (folded.x[0], folded.x[-1]) == (curve.x[0], curve.x[-1])


def test_smoothing_at_an_end_reads_a_line_through_the_window_off():
    curve = noisy(1)
    folded = fold([curve], points=50, smooth=0.2)
    around = np.linspace(folded.x[-1] - 0.2 * (folded.x[-1] - folded.x[0]), folded.x[-1], 20_001)

    expected = np.polynomial.Polynomial.fit(around, np.interp(around, curve.x, curve.y), 1)(folded.x[-1])
    assert folded.center[-1] == pytest.approx(expected, abs=1e-3)


# ---- intervals


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_interval_of_the_mean_is_students_t(level):
    from scipy import stats

    some = [Curve(str(seed), np.arange(50.0), noisy(seed, 50).y) for seed in range(5)]
    folded = fold(some, points=50, level=level)
    low, high = stats.t.interval(
        level, df=4, loc=folded.each.mean(axis=0), scale=stats.sem(folded.each, axis=0, ddof=1)
    )

    assert folded.center == pytest.approx(folded.each.mean(axis=0))
    assert folded.low == pytest.approx(low)
    assert folded.high == pytest.approx(high)


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_one_run_has_no_interval(statistic):
    folded = fold([noisy(1)], statistic=statistic)

    assert np.isfinite(folded.center).all()
    assert np.isnan(folded.low).all()
    assert np.isnan(folded.high).all()


def test_the_iqm_cuts_off_the_outer_quarters_and_its_interval_lies_within_the_runs():
    from scipy.stats import trim_mean

    some = [Curve(str(seed), np.arange(50.0), noisy(seed, 50).y) for seed in range(8)]
    folded = fold(some, points=50, statistic="iqm")

    assert folded.center == pytest.approx(trim_mean(folded.each, 0.25, axis=0))
    assert (folded.low <= folded.center).all() and (folded.center <= folded.high).all()
    assert (folded.low >= folded.each.min(axis=0)).all() and (folded.high <= folded.each.max(axis=0)).all()


def test_the_bootstrap_is_the_iqm_of_runs_drawn_anew():
    from rollbook.plot.curves import _iqm_of_resamples
    from rollbook.stats import iqm

    rng = np.random.default_rng(0)
    for count in range(2, 12):
        scores = rng.normal(size=count)
        times = rng.multinomial(count, np.full(count, 1 / count), size=20).astype(np.int32)
        expected = [iqm(np.repeat(scores, some)[:, None]) for some in times]
        assert _iqm_of_resamples(scores, times) == pytest.approx(expected)


def test_the_bootstrap_is_the_same_twice_and_another_with_another_generator():
    some = [noisy(seed) for seed in range(12)]
    first, again = fold(some, statistic="iqm"), fold(some, statistic="iqm")
    other = fold(some, statistic="iqm", rng=np.random.default_rng(7))

    assert np.array_equal(first.low, again.low, equal_nan=True)
    assert not np.array_equal(first.low, other.low, equal_nan=True)


@pytest.mark.parametrize(
    "wrong", [{"points": 3}, {"smooth": 1.0}, {"smooth": -0.1}, {"statistic": "median"}, {"level": 1.0}]
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidScores):
        fold([noisy(1)], **wrong)


def test_nothing_cannot_be_folded():
    with pytest.raises(InvalidScores, match="without a point"):
        fold([])
    with pytest.raises(InvalidScores, match="without a point"):
        fold([noisy(1), Curve("empty", np.array([1.0]), np.array([np.nan]))])
