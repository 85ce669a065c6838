"""LSTM and GRU against a loop in numpy and against autodiff of a plain version."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollbook.algos.parts.lstm import GRU, LSTM, make_layer, memory_size, one_step, unroll

TIME, BATCH, INPUTS, UNITS = 5, 3, 4, 5


def sigmoid(x: Any) -> Any:
    return 1 / (1 + jnp.exp(-x))


def plain_step(layer: Any, x: Any, memory: Any) -> Any:
    """As the papers write it, for autodiff."""
    units = layer.weight.shape[0]
    gates = x @ layer.inputs + layer.bias
    if isinstance(layer, LSTM):
        output, cell = memory[:, :units], memory[:, units:]
        i, f, g, o = jnp.split(gates + output @ layer.weight, 4, axis=-1)
        cell = sigmoid(f) * cell + sigmoid(i) * jnp.tanh(g)
        return jnp.concatenate([sigmoid(o) * jnp.tanh(cell), cell], axis=-1)
    assert isinstance(layer, GRU)
    past = jnp.split(memory @ layer.weight, 3, axis=-1)
    now = jnp.split(gates, 3, axis=-1)
    r, z = sigmoid(now[0] + past[0]), sigmoid(now[1] + past[1])
    n = jnp.tanh(now[2] + r * past[2])
    return (1 - z) * n + z * memory


def plain_unroll(layers: Any, x: Any, begins: Any, memory: Any) -> Any:
    start, outputs = 0, x
    for layer in layers:
        part = memory[:, start : start + layer.memory_size]
        start += layer.memory_size
        seen = []
        for t in range(len(x)):
            part = plain_step(layer, outputs[t], jnp.where(begins[t][:, None], 0.0, part))
            seen.append(part[:, : layer.weight.shape[0]])
        outputs = jnp.stack(seen)
    return outputs


def stack_of(kind: Any, depth: int, seed: int) -> Any:
    keys = jax.random.split(jax.random.key(seed), depth)
    return tuple(make_layer(key, kind, UNITS if n else INPUTS, UNITS) for n, key in enumerate(keys))


def example(kind: Any, depth: int) -> Any:
    rng = np.random.default_rng(depth)
    layers = stack_of(kind, depth, 0)
    x = jnp.asarray(rng.normal(size=(TIME, BATCH, INPUTS)), jnp.float32)
    begins = jnp.asarray(np.eye(TIME, BATCH, k=-1) > 0)  # each at another time
    memory = jnp.asarray(rng.normal(size=(BATCH, memory_size(layers))), jnp.float32)
    return layers, x, begins, memory


# Compiling takes nearly all of the time: the other two are among the slow tests.
KINDS = pytest.mark.parametrize(
    ("kind", "depth"),
    [("lstm", 1), ("gru", 2), *(pytest.param(*case, marks=pytest.mark.slow) for case in [("lstm", 2), ("gru", 1)])],
)


@KINDS
def test_values_and_gradients_equal_those_of_a_plain_version(kind: str, depth: int) -> None:
    layers, x, begins, memory = example(kind, depth)
    weights = jnp.asarray(np.random.default_rng(9).normal(size=(TIME, BATCH, UNITS)), jnp.float32)

    def ours(layers: Any, x: Any, memory: Any) -> Any:
        return (weights * unroll(layers, x, begins, memory)[0]).sum()

    def plain(layers: Any, x: Any, memory: Any) -> Any:
        return (weights * plain_unroll(layers, x, begins, memory)).sum()

    found, found_slopes = jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2)))(layers, x, memory)
    expected, expected_slopes = jax.jit(jax.value_and_grad(plain, argnums=(0, 1, 2)))(layers, x, memory)

    assert float(found) == pytest.approx(float(expected), abs=1e-5)
    for one, other in zip(jax.tree.leaves(found_slopes), jax.tree.leaves(expected_slopes), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
        assert np.abs(other).max() > 1e-3


@KINDS
def test_a_step_in_numpy_carries_its_memory_to_where_the_scan_arrives(kind: str, depth: int) -> None:
    layers, x, begins, memory = example(kind, depth)

    outputs, last = unroll(layers, x, begins, memory)
    layers, x, begins, memory = jax.device_get((layers, x, begins, memory))
    for t in range(TIME):
        output, memory = one_step(layers, x[t], np.where(begins[t][:, None], np.float32(0), memory))
        assert isinstance(output, np.ndarray)
        np.testing.assert_allclose(output, outputs[t], atol=1e-6)

    np.testing.assert_allclose(memory, last, atol=1e-6)


@KINDS
def test_nothing_of_before_a_beginning_is_remembered(kind: str, depth: int) -> None:
    layers, x, _, memory = example(kind, depth)
    begins = np.zeros((TIME, BATCH), bool)
    begins[3] = True

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def look(x: Any, memory: Any) -> Any:
        outputs, _ = unroll(layers, x, jnp.asarray(begins), memory)
        return outputs[3:].sum(), outputs

    (_, outputs), slopes = look(x, memory)
    (_, other), _ = look(x.at[:3].add(1.0), memory + 1)

    assert not np.allclose(outputs[2], other[2])
    np.testing.assert_array_equal(outputs[3:], other[3:])
    assert float(jnp.abs(slopes[:3]).max()) == 0 < float(jnp.abs(slopes[3:]).max())
