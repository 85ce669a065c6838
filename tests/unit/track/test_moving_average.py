"""run.log_mean: the moving average from the first value on."""

from __future__ import annotations

import math

import pytest
from makers import points

import rollbook
from rollbook.errors import InvalidMetric, UsageError


@pytest.fixture
def run(book):
    run = rollbook.start("task", save_code=False)
    yield run
    run.finish()


def means(run, name="r"):
    run.finish()
    return [value for _, value in points(run.book, run.id, name)]


def test_the_average_is_over_the_last_window_values_and_starts_at_once(run):
    for value in (1.0, 3.0, 5.0, 7.0):
        run.log_mean({"r": value}, window=2)

    assert means(run) == [1.0, 2.0, 4.0, 6.0]


def test_nan_is_left_out_of_the_average(run):
    for value in (math.nan, 2.0, math.nan, 4.0):
        run.log_mean({"r": value}, window=10)

    first, *rest = means(run)
    assert math.isnan(first)
    assert rest == [2.0, 2.0, 3.0]


def test_each_metric_has_a_window_of_its_own(run):
    run.log_mean({"r": 1.0, "s": 10.0})
    run.log_mean({"r": 3.0})

    assert means(run) == [1.0, 2.0]
    assert points(run.book, run.id, "s") == [(0, 10.0)]


def test_a_window_that_shrinks_keeps_the_newest_values(run):
    for value in (1.0, 2.0, 3.0):
        run.log_mean({"r": value}, window=3)
    run.log_mean({"r": 4.0}, window=2)

    assert means(run)[-1] == 3.5


def test_a_window_below_one_is_refused(run):
    with pytest.raises(UsageError, match="at least 1, got 0"):
        run.log_mean({"r": 1.0}, window=0)


def test_what_is_not_a_number_is_refused(run):
    with pytest.raises(InvalidMetric, match="'r'"):
        run.log_mean({"r": "high"})


@pytest.mark.parametrize("data", [[1], 3.0, "x"])
def test_data_that_is_no_dict_is_refused(run, data):
    with pytest.raises(InvalidMetric, match="takes a dict"):
        run.log_mean(data)


def test_a_window_is_a_whole_number(run):
    with pytest.raises(UsageError, match="whole number"):
        run.log_mean({"r": 1.0}, window=1.5)
