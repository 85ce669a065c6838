"""run.log: what counts as a number, which step it gets, and what is refused."""

from __future__ import annotations

import decimal
import math
import signal
import threading
import warnings
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from makers import points

import rollbook
from rollbook.errors import InvalidMetric, UsageError


@pytest.fixture
def run(book):
    run = rollbook.start("task", save_code=False)
    yield run
    run.finish()


def logged(run, name="x"):
    run.finish()
    return points(run.book, run.id, name)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        (2.5, 2.5),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.int64(7), 7.0),
        (np.bool_(True), 1.0),
        (np.array(4.0), 4.0),
        (np.array([5.0]), 5.0),
        (np.array([[6]]), 6.0),
        (Fraction(1, 4), 0.25),
        (decimal.Decimal("1.5"), 1.5),
        (np.float16(0.5), 0.5),
        (-0.0, -0.0),
        (5e-324, 5e-324),
        (1.7976931348623157e308, 1.7976931348623157e308),
    ],
)
def test_whatever_holds_one_number_is_logged_as_that_number(run, value, number):
    run.log({"x": value}, step=1)
    run.log({"x": value}, step=2)  # the second row takes the short way

    assert logged(run) == [(1, number), (2, number)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_nan_and_infinities_are_kept_as_they_are(run, value):
    run.log({"x": value}, step=1)

    ((_, kept),) = logged(run)
    assert np.array_equal(kept, float(value), equal_nan=True)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0.5", "str '0.5'"),
        (b"1", "bytes"),
        (None, "NoneType None"),
        (np.zeros(3), "shape (3,)"),
        (np.zeros(0), "shape (0,)"),
        ([1.0], "list [1.0]"),
        ({"a": 1}, "dict"),
        (1j, "complex"),
        (10**400, "too large"),
    ],
)
def test_what_is_not_a_number_is_named_with_its_metric_and_value(run, value, said):
    with pytest.raises(InvalidMetric) as error:
        run.log({"good": 1.0, "losses/bad": value}, step=1)

    assert "'losses/bad'" in error.value.message
    assert said in error.value.message
    assert logged(run, "good") == []


def test_the_hint_for_a_text_names_run_text(run):
    with pytest.raises(InvalidMetric) as error:
        run.log({"note": "hello"}, step=1)

    assert "run.text('note'" in error.value.hint


def test_the_hint_for_an_array_names_watch_and_figure(run):
    with pytest.raises(InvalidMetric) as error:
        run.log({"weights": np.zeros((2, 3))}, step=1)

    assert "run.watch" in error.value.hint
    assert "run.figure" in error.value.hint


def test_a_refused_row_leaves_no_trace_and_the_next_ones_are_whole(run):
    run.log({"x": 1.0, "y": 2.0}, step=1)
    with pytest.raises(InvalidMetric):
        run.log({"x": 3.0, "y": "text"}, step=2)
    run.log({"x": 5.0, "y": 6.0}, step=3)

    assert logged(run) == [(1, 1.0), (3, 5.0)]
    assert points(run.book, run.id, "y") == [(1, 2.0), (3, 6.0)]


@pytest.mark.parametrize("step", [1.5, "3", None.__class__, np.array([1, 2]), 2**63, -(2**63) - 1, math.nan, 1e300])
def test_a_wrong_step_is_named(run, step):
    run.log({"x": 0.0}, step=0)  # the first row takes the careful way

    with pytest.raises(InvalidMetric, match="a step must"):
        run.log({"x": 1.0}, step=step)

    assert logged(run) == [(0, 0.0)]


@pytest.mark.parametrize("step", [np.int64(4), np.int32(4), np.array(4), 4.0, np.float64(4.0), np.uint8(4)])
def test_a_whole_step_may_come_from_anywhere(run, step):
    run.log({"x": 0.0}, step=0)
    run.log({"x": 1.0}, step=step)
    run.log({"x": 2.0})

    assert logged(run) == [(0, 0.0), (4, 1.0), (5, 2.0)]


def test_without_a_step_rows_count_up_and_go_on_after_an_explicit_one(run):
    run.log({"x": 0.0})
    run.log({"x": 1.0})
    run.log({"x": 2.0}, step=100)
    run.log({"x": 3.0})

    assert [step for step, _ in logged(run)] == [0, 1, 100, 101]


def test_steps_may_go_backwards_and_repeat_and_nothing_is_dropped(run):
    for step, value in [(10, 1.0), (5, 2.0), (10, 3.0), (10, 3.0), (-3, 4.0)]:
        run.log({"x": value}, step=step)

    assert logged(run) == [(-3, 4.0), (5, 2.0), (10, 1.0), (10, 3.0), (10, 3.0)]


def test_a_callable_is_not_run_when_its_level_is_off(run):
    calls = []

    run.log(lambda: calls.append(1) or {"x": 1.0}, step=1, level="debug")
    run.log(lambda: {"y": 2.0}, step=1, level="essential")

    assert calls == []
    assert logged(run, "y") == [(1, 2.0)]
    assert points(run.book, run.id, "x") == []


@pytest.mark.parametrize(
    ("verbosity", "kept"), [("essential", ["e"]), ("info", ["e", "i"]), ("debug", ["d", "e", "i"])]
)
def test_each_verbosity_keeps_its_level_and_those_below(book, verbosity, kept):
    run = rollbook.start("task", verbosity=verbosity, save_code=False)
    for name, level in (("e", "essential"), ("i", "info"), ("d", "debug")):
        run.log({name: 1.0}, step=1, level=level)
    run.finish()

    assert rollbook.open(book).run(run.id).metric_names() == kept


def test_the_same_metric_at_two_levels_is_one_metric(run):
    run.log({"x": 1.0}, step=1, level="info")
    run.log({"x": 2.0}, step=2, level="essential")

    assert logged(run) == [(1, 1.0), (2, 2.0)]


def test_an_unknown_level_names_the_nearest(run):
    with pytest.raises(UsageError) as error:
        run.log({"x": 1.0}, level="debgu")

    assert "'debgu'" in error.value.message
    assert error.value.hint == "did you mean 'debug'?"


def test_an_unknown_verbosity_names_the_nearest_and_leaves_no_run(book):
    with pytest.raises(UsageError) as error:
        rollbook.start("task", verbosity="inof", save_code=False)

    assert error.value.hint == "did you mean 'info'?"
    assert not book.exists()


def test_an_empty_dict_logs_nothing_and_fails_nothing(run):
    run.log({}, step=3)
    run.log({"x": 1.0})

    assert logged(run) == [(4, 1.0)]


@pytest.mark.parametrize("data", [3.0, [("x", 1)], "x", None])
def test_data_that_is_no_dict_is_refused_with_an_example(run, data):
    with pytest.raises(InvalidMetric, match="takes a dict") as error:
        run.log(data, step=1)

    assert "run.log({" in error.value.hint


@pytest.mark.parametrize("name", ["", 3, None, ("a",)])
def test_a_metric_name_must_be_text(run, name):
    with pytest.raises(InvalidMetric, match="name must be text"):
        run.log({name: 1.0}, step=1)


@pytest.mark.parametrize("name", ["Ärger/π", "with space", "a" * 5_000, "'; drop table runs; --", "\x1b[31mred", "\n"])
def test_a_metric_name_may_be_any_text(run, name):
    run.log({name: 1.0}, step=1)

    assert logged(run, name) == [(1, 1.0)]


def test_logging_after_the_end_says_how_to_go_on(run):
    run.finish()

    with pytest.raises(UsageError, match="has ended") as error:
        run.log({"x": 1.0})

    assert f"resume={run.id!r}" in error.value.hint


def test_finish_twice_is_finish_once(run):
    run.log({"x": 1.0})
    run.finish()
    run.finish("failed", "too late")

    assert rollbook.open(run.book).run(run.id).status == "finished"


def test_rows_of_several_threads_all_arrive(run):
    def work(name):
        for step in range(2_000):
            run.log({name: step}, step=step)

    threads = [threading.Thread(target=work, args=(f"m{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    run.finish()
    for number in range(4):
        assert points(run.book, run.id, f"m{number}") == [(step, float(step)) for step in range(2_000)]


def test_a_mapping_of_another_kind_is_logged_too(run):
    import collections

    run.log(collections.ChainMap({"x": 1.0}), step=1)

    assert logged(run) == [(1, 1.0)]


def test_names_may_change_their_order_and_their_company_from_row_to_row(run):
    rows = [{"a": 1, "b": 2}, {"b": 3, "a": 4}, {"a": 5, "c": 6}, {"a": 7}, {"c": 8}, {"b": 9, "a": 10}]
    for row in rows:
        run.log(row)
    run.log(defaultdict(float, d=11, a=12))  # must not be asked for the b that it would invent
    run.finish()

    def of(name):
        return points(run.book, run.id, name)

    assert of("a") == [(0, 1.0), (1, 4.0), (2, 5.0), (3, 7.0), (5, 10.0), (6, 12.0)]
    assert of("b") == [(0, 2.0), (1, 3.0), (5, 9.0)]
    assert of("c") == [(2, 6.0), (4, 8.0)]
    assert of("d") == [(6, 11.0)]


def test_what_a_signals_handler_raises_reaches_the_program(run):
    class Timeout(RuntimeError): ...

    def handler(number, frame):
        raise Timeout

    run.log({"x": 0.0, "y": 0.0})
    previous = signal.signal(signal.SIGALRM, handler)
    raised = reached = 0
    try:
        while raised < 50:
            raised += 1
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                while True:
                    run.log({"x": 1.0, "y": 2.0})
            except Timeout:
                reached += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)

    assert reached == raised


@pytest.mark.parametrize("counter", [np.array(5), np.uint8(255)])
def test_the_next_step_follows_the_value_that_the_last_one_had(run, counter):
    run.log({"x": 0.0}, step=counter)
    run.log({"x": 0.0}, step=counter)
    at = int(counter)
    if isinstance(counter, np.ndarray):
        counter += 10
    run.log({"x": 1.0})

    assert [step for step, _ in logged(run)] == [at, at, at + 1]


@pytest.mark.parametrize("level", [None, 2, ["info"]])
def test_a_level_that_is_no_text_is_refused(run, level):
    with pytest.raises(UsageError, match="is no level"):
        run.log({"x": 1.0}, level=level)


@pytest.mark.parametrize("order", [("loss", "x"), ("x", "loss")])
def test_a_tensor_that_is_learned_from_is_logged_without_a_warning(run, order):
    class Tensor:
        """As torch's: warns when it is made a number without being detached."""

        def __init__(self, value, requires_grad=True):
            self.value, self.requires_grad = value, requires_grad

        def detach(self):
            return Tensor(self.value, False)

        def __float__(self):
            if self.requires_grad:
                warnings.warn("Converting a tensor with requires_grad=True to a scalar", stacklevel=2)
            return self.value

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(3):
            values = {"loss": Tensor(step + 0.5), "x": float(step)}
            run.log({name: values[name] for name in (order if step else ("loss", "x"))}, step=step)

    assert logged(run, "loss") == [(0, 0.5), (1, 1.5), (2, 2.5)]
