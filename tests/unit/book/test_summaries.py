"""The figures of a metric, against examples computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makers import finished

import rollbook
from rollbook.book.metric_log import Series
from rollbook.book.summaries import COLUMNS, last_step, summarise

nan, inf = math.nan, math.inf


def series(*points):
    """(step, value) in order of step."""
    steps = np.array([step for step, _ in points], dtype=np.int64)
    values = np.array([value for _, value in points], dtype=np.float64)
    return Series(steps, np.arange(len(points), dtype=np.float64), values, np.zeros(len(points), dtype=np.int8))


def figures(*points, other=()):
    rows = summarise({"x": series(*points), **({"other": series(*other)} if other else {})})
    return dict(zip(COLUMNS, next(row for row in rows if row[0] == "x"), strict=True))


def test_auc_holds_each_value_until_the_next():
    # 10 for 10 steps, 20 for 30, 40 for none: (100 + 600) / 40
    assert figures((0, 10.0), (10, 20.0), (40, 40.0))["auc"] == 17.5


def test_auc_holds_the_last_value_until_the_runs_last_step():
    # 10 for 10 steps, 20 for 90: the run went on to 100 with another metric.
    assert figures((0, 10.0), (10, 20.0), other=[(100, 0.0)])["auc"] == 19.0


def test_auc_begins_at_the_first_value():
    # Nothing is known before step 50: 10 for 50 steps.
    assert figures((50, 10.0), (100, 90.0))["auc"] == 10.0


def test_auc_of_one_point_is_that_point():
    assert figures((7, 3.0))["auc"] == 3.0


def test_auc_of_points_at_one_step_is_their_mean():
    assert figures((7, 3.0), (7, 5.0))["auc"] == 4.0


def test_auc_passes_over_what_is_not_finite():
    # 10 holds through the NaN at 10 until 20.
    assert figures((0, 10.0), (10, nan), (20, 30.0), (40, 0.0))["auc"] == 20.0


def test_mean_is_over_logged_points_however_far_apart():
    assert figures((0, 1.0), (1, 2.0), (1_000, 6.0))["mean"] == 3.0


def test_final_is_the_mean_of_the_last_tenth_of_the_steps():
    points = [(step, float(step)) for step in range(0, 101, 10)]

    assert figures(*points)["final"] == 95.0


def test_final_is_unknown_when_nothing_was_logged_at_the_end():
    assert figures((0, 1.0), (10, 2.0), other=[(1_000, 0.0)])["final"] is None


def test_count_first_last_min_max_and_nonfinite():
    row = figures((0, nan), (1, 5.0), (2, -1.0), (3, inf), (4, 2.0))

    assert (row["count"], row["nonfinite"]) == (5, 2)
    assert (row["first"], row["last"], row["min"], row["max"]) == (5.0, 2.0, -1.0, 5.0)
    assert row["mean"] == 2.0


@pytest.mark.parametrize(
    ("values", "diverged"),
    [
        ([1.0, 2.0], False),
        ([nan, nan, 1.0, 2.0], False),  # no episode had ended yet
        ([1.0, nan, 2.0], True),
        ([1.0, nan], True),
        ([inf, 1.0], True),
        ([1.0, -inf, 1.0], True),
        ([nan], True),
        ([nan, inf, 1.0], True),
    ],
)
def test_a_run_diverged_by_an_infinity_or_a_nan_after_the_first_number(values, diverged):
    assert figures(*enumerate(values))["diverged"] is diverged


def test_a_metric_of_nothing_but_nan_has_a_count_and_no_figures():
    row = figures((0, nan), (1, nan))

    assert (row["count"], row["nonfinite"]) == (2, 2)
    assert [row[name] for name in ("first", "last", "min", "max", "mean", "auc", "final")] == [None] * 7


def test_nothing_logged_has_no_rows():
    assert summarise({}) == []
    assert last_step({}) is None


finite = st.floats(-1e100, 1e100)
points = st.lists(st.tuples(st.integers(-(2**40), 2**40), finite), min_size=1, max_size=30)


@given(points)
def test_every_average_lies_between_the_smallest_and_the_largest(given_points):
    row = figures(*sorted(given_points, key=lambda point: point[0]))
    slack = 1e-9 * max(abs(row["min"]), abs(row["max"]))

    for name in ("auc", "mean", "first", "last", *(["final"] if row["final"] is not None else [])):
        assert row["min"] - slack <= row[name] <= row["max"] + slack


@given(points, st.floats(0.1, 10), st.integers(-100, 100))
def test_auc_scales_with_the_values_and_does_not_mind_where_steps_begin(given_points, factor, shift):
    ordered = sorted(given_points, key=lambda point: point[0])

    auc = figures(*ordered)["auc"]
    scaled = figures(*((step + shift, value * factor) for step, value in ordered))["auc"]

    largest = max(abs(value) for _, value in ordered)
    assert scaled == pytest.approx(auc * factor, rel=1e-9, abs=1e-9 * largest * factor)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats()), min_size=1, max_size=30))
def test_whatever_was_logged_the_counts_add_up(given_points):
    row = figures(*sorted(given_points, key=lambda point: point[0]))

    assert row["count"] == len(given_points)
    assert row["nonfinite"] == sum(not math.isfinite(value) for _, value in given_points)


def test_sql_has_the_same_figures(book):
    finished(book, returns=[10.0, 20.0, 40.0], steps=[0, 10, 40])

    answer = rollbook.open(book).sql('select count, "first", "last", min, max, auc, final, diverged from summaries')
    assert answer.fetchall() == [(3, 10.0, 40.0, 10.0, 40.0, 17.5, 40.0, False)]


def test_figures_of_a_live_run_are_those_of_what_it_has_flushed(book):
    import time

    with rollbook.start("task", save_code=False) as run:
        run.log({"x": 4.0}, step=1)
        deadline = time.monotonic() + 10
        while not (rows := rollbook.open(book).sql("select count, auc from summaries").fetchall()):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    assert rows == [(1, 4.0)]
