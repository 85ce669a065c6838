import math
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollbook.book.metric_log import KeyRows, encode, read_log
from rollbook.book.sealed import read_sealed, to_table, write_sealed
from rollbook.book.summaries import summarise

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
key_sets = st.tuples(
    st.sampled_from(["essential", "info", "debug"]), st.lists(names, min_size=1, max_size=4, unique=True).map(tuple)
)
steps = st.integers(-(2**63), 2**63 - 1)
logged = st.lists(st.tuples(key_sets, steps, st.lists(st.floats(), min_size=4, max_size=4)), max_size=30)


def write(folder, rows):
    """A log of one frame a row, timed by its place, and what it should read as."""
    expected: dict[str, list[tuple[int, float, float]]] = {}
    frames = []
    for place, ((level, names), step, values) in enumerate(rows):
        key_rows = KeyRows(level, names)
        key_rows.append(step, float(place), values[: len(names)])
        frames.append(encode([key_rows.take()]))
        for name, value in zip(names, values, strict=False):
            expected.setdefault(name, []).append((step, float(place), value))
    path = Path(folder) / "metrics.log"
    path.write_bytes(b"".join(frames))
    return path, {name: sorted(points, key=lambda point: point[:2]) for name, points in expected.items()}


def points(series):
    return {
        name: list(zip(one.steps.tolist(), one.times.tolist(), one.values.tolist(), strict=True))
        for name, one in series.items()
    }


@given(logged)
def test_what_is_logged_is_read_and_sealed_bit_for_bit(rows):
    with tempfile.TemporaryDirectory() as folder:
        path, expected = write(folder, rows)

        series = read_log(path).series
        write_sealed(Path(folder) / "metrics.parquet", to_table(series))
        sealed = read_sealed(Path(folder) / "metrics.parquet")

    # NaN is not equal to itself, its text is.
    assert repr(points(series)) == repr(dict(sorted(expected.items())))
    assert repr(points(sealed)) == repr(points(series))


@given(logged)
def test_summaries_count_every_point_and_hold_only_finite_figures(rows):
    with tempfile.TemporaryDirectory() as folder:
        path, expected = write(folder, rows)
        summaries = {row[0]: row for row in summarise(read_log(path).series)}

    assert summaries.keys() == expected.keys()
    for name, (_, count, nonfinite, first, last, low, high, *_) in summaries.items():
        finite = [value for _, _, value in expected[name] if math.isfinite(value)]
        assert (count, nonfinite) == (len(expected[name]), len(expected[name]) - len(finite))
        if finite:
            assert (first, last, low, high) == (finite[0], finite[-1], min(finite), max(finite))
        assert all(figure is None or not np.isnan(figure) for figure in (first, last, low, high))
