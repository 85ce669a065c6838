"""run.watch: statistics of any tree of arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from makers import points

import rollbook
from rollbook.errors import InvalidMetric
from rollbook.track.watch import statistics


def test_the_figures_are_those_of_all_arrays_together():
    figures = statistics("net", {"w": np.array([[1.0, 2.0], [3.0, 4.0]]), "b": [np.array([5.0])]})

    assert figures["net/min"] == 1.0
    assert figures["net/max"] == 5.0
    assert figures["net/mean"] == 3.0
    assert figures["net/median"] == 3.0
    assert figures["net/q25"] == 2.0
    assert figures["net/std"] == pytest.approx(math.sqrt(2))
    assert figures["net/norm"] == pytest.approx(math.sqrt(55))
    assert figures["net/nonfinite"] == 0.0


def test_non_finite_values_are_counted_and_kept_out_of_the_figures():
    figures = statistics("g", np.array([1.0, math.nan, math.inf, 3.0]))

    assert figures["g/nonfinite"] == 0.5
    assert figures["g/mean"] == 2.0


def test_a_tree_of_nothing_but_nan_has_only_its_share():
    assert statistics("g", np.array([math.nan])) == {"g/nonfinite": 1.0}


def test_an_empty_tree_has_no_share_to_speak_of():
    (share,) = statistics("g", {}).values()

    assert math.isnan(share)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "uint8", "bool"])
def test_every_kind_of_number_is_watched(dtype):
    assert statistics("x", np.array([0, 1], dtype=dtype))["x/max"] == 1.0


def test_a_generator_of_arrays_and_what_has_a_state_dict_are_watched_too():
    class Module:
        def state_dict(self):
            return {"weight": np.array([1.0, 3.0])}

    assert statistics("x", iter([np.array([1.0, 3.0])]))["x/mean"] == 2.0
    assert statistics("x", Module())["x/mean"] == 2.0


@pytest.mark.parametrize("tree", [3.0, "weights", object(), [1.0, 2.0]])
def test_a_tree_without_an_array_is_named(tree):
    with pytest.raises(InvalidMetric, match="found no array"):
        statistics("x", tree)


def test_large_half_precision_weights_do_not_overflow():
    figures = statistics("x", np.full(1_000, 60_000, dtype=np.float16))

    assert math.isfinite(figures["x/norm"])
    assert figures["x/mean"] == pytest.approx(60_000, rel=1e-3)


def test_watch_is_off_at_the_usual_verbosity_and_costs_nothing(book):
    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError("looked at although nobody asked")

    with rollbook.start("task", save_code=False) as run:
        run.watch("net", Untouchable(), step=1)

    assert rollbook.open(book).run(run.id).metric_names() == []


def test_watch_logs_at_debug(book):
    with rollbook.start("task", verbosity="debug", save_code=False) as run:
        run.watch("net", {"w": np.ones(4)}, step=3)

    assert points(book, run.id, "net/norm") == [(3, 2.0)]
