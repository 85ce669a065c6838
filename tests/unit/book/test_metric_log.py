import math
import threading

import numpy as np

from rollbook.book.metric_log import MAGIC, KeyRows, encode, read_log


def rows(*points, level="info", names=("a",)):
    key_rows = KeyRows(level, names)
    for step, time, *values in points:
        key_rows.append(step, time, values)
    return key_rows


def log_file(tmp_path, *frames):
    path = tmp_path / "metrics.log"
    path.write_bytes(b"".join(frames))
    return path


def test_a_row_of_ten_metrics_takes_at_most_twelve_bytes_a_point():
    key_rows = KeyRows("info", tuple(f"charts/metric_{number}" for number in range(10)))
    for step in range(1000):
        key_rows.append(step, 1.0, [0.5] * 10)

    assert len(encode([key_rows.take()])) <= 12 * 10 * 1000


def test_nan_and_infinities_are_read_as_they_were_logged(tmp_path):
    path = log_file(tmp_path, encode([rows((0, 1.0, math.nan), (1, 2.0, math.inf), (2, 3.0, -math.inf)).take()]))

    values = read_log(path).series["a"].values

    assert math.isnan(values[0])
    assert values[1:].tolist() == [math.inf, -math.inf]


def test_steps_that_go_backwards_are_ordered_and_repeated_ones_keep_the_order_of_logging(tmp_path):
    path = log_file(tmp_path, encode([rows((5, 1.0, 1.0), (3, 2.0, 2.0), (5, 3.0, 3.0), (3, 4.0, 4.0)).take()]))

    series = read_log(path).series["a"]

    assert series.steps.tolist() == [3, 3, 5, 5]
    assert series.values.tolist() == [2.0, 4.0, 1.0, 3.0]


def test_a_metric_that_is_logged_in_several_key_sets_and_levels_is_one_series(tmp_path):
    alone = rows((1, 1.0, 10.0), level="debug")
    together = rows((0, 0.5, 1.0, 2.0), (2, 2.0, 3.0, 4.0), names=("b", "a"))
    path = log_file(tmp_path, encode([alone.take(), together.take()]))

    contents = read_log(path)

    assert contents.rows == 3
    assert contents.series["a"].values.tolist() == [2.0, 10.0, 4.0]
    assert contents.series["a"].levels.tolist() == [1, 2, 1]
    assert contents.series["b"].values.tolist() == [1.0, 3.0]


def test_a_torn_tail_is_cut_and_no_damage(tmp_path):
    first, second = (encode([rows((step, 1.0, 1.0)).take()]) for step in (0, 1))

    for kept in range(1, len(second)):
        contents = read_log(log_file(tmp_path, first, second[:kept]))

        assert contents.series["a"].steps.tolist() == [0]
        assert contents.torn_bytes == kept
        assert not contents.damaged


def test_a_flipped_byte_costs_its_own_batch_which_is_named(tmp_path):
    frames = [encode([rows((step, 1.0, float(step))).take()]) for step in range(3)]

    for place in range(len(frames[1])):
        damaged = bytearray(frames[1])
        damaged[place] ^= 0x20
        contents = read_log(log_file(tmp_path, frames[0], bytes(damaged), frames[2]))

        assert contents.series["a"].values.tolist() == [0.0, 2.0]
        assert contents.damaged == [(len(frames[0]), len(frames[1]))]
        assert "damaged bytes at offset" in contents.damage_report("metrics.log")[0]


def test_the_magic_inside_values_is_not_taken_for_a_batch(tmp_path):
    looks_like_magic = np.frombuffer(MAGIC * 2, "<f8")[0]
    frames = [encode([rows((step, 1.0, looks_like_magic)).take()]) for step in range(2)]
    damaged = bytearray(frames[0])
    damaged[20] ^= 1

    contents = read_log(log_file(tmp_path, bytes(damaged), frames[1]))

    assert contents.series["a"].steps.tolist() == [1]


def test_an_empty_file_has_no_rows(tmp_path):
    assert read_log(log_file(tmp_path)).rows == 0


def test_rows_appended_while_others_are_taken_are_neither_lost_nor_doubled(tmp_path):
    key_rows = KeyRows("info", ("a",))
    *_, pack, extend = key_rows.appender
    threads = [
        threading.Thread(target=lambda start=start: [extend(pack(s, 0.0, s)) for s in range(start, start + 20_000)])
        for start in (0, 20_000)
    ]
    frames = []

    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or len(key_rows):
        frames.append(encode([key_rows.take()]))

    steps = read_log(log_file(tmp_path, *frames)).series["a"].steps
    assert steps.tolist() == list(range(40_000))


def test_a_length_that_points_beyond_the_file_is_no_reason_to_read_there(tmp_path):
    frame = bytearray(encode([rows((0, 1.0, 1.0)).take()]))
    frame[4:8] = b"\xff\xff\xff\xff"

    contents = read_log(log_file(tmp_path, bytes(frame), encode([rows((1, 1.0, 1.0)).take()])))

    assert contents.series["a"].steps.tolist() == [1]
