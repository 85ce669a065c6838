"""run.timed: calls, seconds and shares of blocks."""

from __future__ import annotations

import threading
import time

import pytest
from makers import points

import rollbook


@pytest.fixture
def run(book):
    run = rollbook.start("task", save_code=False)
    yield run
    run.finish()


def test_calls_and_seconds_add_up_and_the_largest_comes_first(run):
    for _ in range(3):
        with run.timed("short"):
            time.sleep(0.001)
    with run.timed("long"):
        time.sleep(0.05)

    first, second = run.timings()
    assert (first.name, first.calls) == ("long", 1)
    assert (second.name, second.calls) == ("short", 3)
    assert first.total >= 0.05
    assert second.average == pytest.approx(second.total / 3)
    assert 0 < second.share < first.share <= 1


def test_blocks_may_be_nested_and_fail(run):
    with pytest.raises(ZeroDivisionError), run.timed("outer"), run.timed("inner"):
        raise ZeroDivisionError

    assert {timing.name for timing in run.timings()} == {"inner", "outer"}


def test_threads_time_the_same_name(run):
    def work():
        for _ in range(100):
            with run.timed("step"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert run.timings()[0].calls == 400


def test_timings_are_logged_at_the_end_at_the_last_step(run):
    run.log({"x": 1.0}, step=40)
    with run.timed("update"):
        pass
    run.finish()

    assert points(run.book, run.id, "time/update/calls") == [(40, 1.0)]
    assert rollbook.open(run.book).run(run.id).last_step == 40


def test_log_timings_records_what_there_is_so_far(run):
    with run.timed("update"):
        pass
    run.log_timings(step=7)
    run.finish()

    assert [step for step, _ in points(run.book, run.id, "time/update/total")] == [7, 7]


def test_a_run_without_timed_blocks_logs_no_times(run):
    run.log({"x": 1.0})
    run.finish()

    assert rollbook.open(run.book).run(run.id).metric_names() == ["x"]
