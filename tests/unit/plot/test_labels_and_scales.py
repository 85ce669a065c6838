from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.plot.labels import spread
from rollbook.plot.layout import columns_for, wrapped
from rollbook.plot.scales import round_range, round_ticks, spread_text, steps_text, tick_labels, time_text, value_text

heights = st.lists(st.floats(0, 1), min_size=1, max_size=20)


@given(heights, st.floats(0.01, 0.2))
def test_labels_keep_their_order_and_a_gap(wanted, gap):
    places = spread(wanted, gap, 0, 1)
    order = np.argsort(wanted, kind="stable")

    assert (np.diff(places[order]) >= gap * (1 - 1e-9)).all()


@given(heights)
def test_labels_stay_inside_where_there_is_room(wanted):
    places = spread(wanted, 0.05, 0, 1)

    assert places.min() >= -1e-9
    assert places.max() <= 1 + 1e-9


def test_labels_that_are_far_apart_stay_where_they_belong():
    assert spread([0.9, 0.1, 0.5], 0.1, 0, 1) == pytest.approx([0.9, 0.1, 0.5])


def test_labels_of_one_place_are_centred_on_it():
    assert spread([0.5, 0.5, 0.5], 0.1, 0, 1) == pytest.approx([0.4, 0.5, 0.6])


def test_without_room_labels_stick_out_on_both_sides_alike():
    assert spread([0.0, 0.0, 0.0], 1.0, 0, 1) == pytest.approx([-0.5, 0.5, 1.5])


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e7), st.integers(2, 12), st.sampled_from(["number", "steps", "time"]))
def test_ticks_are_few_inside_and_tell_apart(low, length, most, kind):
    ticks = round_ticks(low, low + length, most, kind)

    assert len(ticks) <= most
    assert all(low - 1e-6 * length <= tick <= low + length * (1 + 1e-6) for tick in ticks)
    assert (np.diff(ticks) > 0).all()


@given(st.floats(0, 10), st.floats(1, 1e7), st.integers(3, 12))
def test_ticks_use_the_room_that_they_have(low, length, most):
    assert len(round_ticks(low, low + length, most)) >= most // 3


def test_ticks_are_written_in_one_unit():
    assert tick_labels(round_ticks(0, 1_000_000, 6), "steps") == ["0", "0.2M", "0.4M", "0.6M", "0.8M", "1M"]
    assert tick_labels(round_ticks(0, 50_000, 6), "steps") == ["0", "10k", "20k", "30k", "40k", "50k"]
    assert tick_labels(round_ticks(0, 5400, 5, "time"), "time") == ["0", "30 min", "60 min", "90 min"]
    assert tick_labels(round_ticks(0, 8 * 3600, 5, "time"), "time") == ["0", "2 h", "4 h", "6 h", "8 h"]
    assert tick_labels(round_ticks(-2000, 4000, 4)) == ["-2,000", "0", "2,000", "4,000"]
    assert tick_labels(round_ticks(0, 12_000, 5)) == ["0", "2.5k", "5k", "7.5k", "10k"]
    assert tick_labels(round_ticks(0.0001, 0.0004, 4)) == ["0.0001", "0.0002", "0.0003", "0.0004"]


@given(st.floats(0, 1e6), st.floats(1e-3, 1e7))
def test_a_range_is_rounded_outwards_and_hardly_more(low, length):
    left, right = round_range(low, low + length)

    assert left in (low, 0.0)
    assert low + length <= right <= (low + length) + 0.021 * (low + length - left)


def test_a_range_that_nearly_reaches_a_round_number_reaches_it():
    assert round_range(2048, 998_912, "steps") == (0, 1_000_000)
    assert round_range(0, 930_000, "steps") == (0, 930_000)
    assert round_range(5, 5) == (5, 6)


def test_numbers_are_short():
    assert [value_text(value) for value in (2310.4, 99.96, 999.6, 0.0314159, -475.68, 1.234e7, float("nan"))] == [
        "2,310", "100", "1,000", "0.0314", "-476", "12.3M", "nan",
    ]  # fmt: skip
    assert [steps_text(steps) for steps in (500, 250_000, 1_000_000, 1_234_567)] == ["500", "250k", "1M", "1.23M"]
    assert [spread_text(2310.4, 43.21), spread_text(-3.3, 0.25)] == ["2,310 ± 43", "-3.3 ± 0.25"]
    assert [time_text(seconds) for seconds in (45, 720, 12_600)] == ["45 s", "12 min", "3.5 h"]


@pytest.mark.parametrize(("panels", "columns"), [(1, 1), (3, 3), (4, 2), (6, 3), (8, 4), (9, 3), (12, 4), (57, 6)])
def test_panels_fill_their_rows(panels, columns):
    assert columns_for(panels) == columns


@given(st.integers(1, 57))
def test_a_grid_of_panels_is_neither_a_row_nor_a_column(panels):
    columns = columns_for(panels)
    rows = -(-panels // columns)

    assert columns * rows >= panels
    assert columns * rows - panels < columns
    assert panels <= 3 or 0.4 <= columns / rows <= 2.5


def test_a_note_is_wrapped_at_words():
    assert wrapped("one two three", 7, len) == ["one two", "three"]
    assert wrapped("", 7, len) == []
