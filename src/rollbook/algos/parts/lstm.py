"""Recurrent layers, LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et al. 2014), with a backward pass by hand.

Every layer has a scan of its own: in shares of a batch that is faster than one for all (ADR 16). Gates are arrays of
their own: where a compiled loop cuts them out of a wide one it is not vectorised (an LSTM's gates, 10 x 256
each: 46 us, apart 12). What the inputs add is part of the same product, for it would fill arrays larger than caches.
On the way back they are one wide array, since there nothing is cut out of it. The gradient of the weights is one
product after the scan, where autodiff would add up one a step.

A layer's memory is one array (batch, size): of an LSTM its output and its cell side by side, of a GRU its output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos.parts.networks import Array, Key, namespace, network

Kind: TypeAlias = Literal["lstm", "gru"]
Parts: TypeAlias = tuple[Any, ...]  # (..., units) each: of gates, or of a memory


@network
class LSTM:
    """Gates in the order input, forget, candidate, output. Its sums are those four."""

    inputs: Array  # (in, 4 * units)
    weight: Array  # (units, 4 * units)
    bias: Array  # (4 * units,)
    gates: ClassVar[int] = 4

    @property
    def memory_size(self) -> int:
        return 2 * self.weight.shape[0]

    @staticmethod
    def sums(now: Parts, past: Parts) -> Parts:
        """From what inputs and output add to the gates."""
        return tuple(one + other for one, other in zip(now, past, strict=True))

    @staticmethod
    def step(sums: Parts, memory: Parts) -> tuple[Parts, Parts]:
        """The memory after a step, and what the way back needs."""
        (_, before), xp = memory, namespace(sums[0])
        entry, forget, exit_ = (_sigmoid(sums[gate]) for gate in (0, 1, 3))
        candidate = xp.tanh(sums[2])
        cell = forget * before + entry * candidate
        return (exit_ * xp.tanh(cell), cell), (before, entry, forget, candidate, exit_)

    @staticmethod
    def back(slopes: Parts, before: Array, saved: Parts) -> tuple[Parts, Parts, Parts]:
        """From the slopes of a step's memory to those of what inputs and output before added to the gates, and to those
        of the memory before, but for what the gates have of it.
        """
        del before
        by_output, by_cell = slopes
        cell, entry, forget, candidate, exit_ = saved
        squashed = jnp.tanh(forget * cell + entry * candidate)
        by_cell = by_cell + by_output * exit_ * (1 - squashed * squashed)
        gates = (
            by_cell * candidate * entry * (1 - entry),
            by_cell * cell * forget * (1 - forget),
            by_cell * entry * (1 - candidate * candidate),
            by_output * squashed * exit_ * (1 - exit_),
        )
        return gates, gates, (jnp.zeros_like(by_output), by_cell * forget)


@network
class GRU:
    """Gates in the order reset, update, candidate; the reset gate acts on the candidate's product with the weights.

    Its sums are those of reset and update, and the two parts of the candidate.
    """

    inputs: Array  # (in, 3 * units)
    weight: Array  # (units, 3 * units)
    bias: Array  # (3 * units,)
    gates: ClassVar[int] = 3

    @property
    def memory_size(self) -> int:
        return int(self.weight.shape[0])

    @staticmethod
    def sums(now: Parts, past: Parts) -> Parts:
        return now[0] + past[0], now[1] + past[1], now[2], past[2]

    @staticmethod
    def step(sums: Parts, memory: Parts) -> tuple[Parts, Parts]:
        xp, reset, update = namespace(sums[0]), _sigmoid(sums[0]), _sigmoid(sums[1])
        candidate = xp.tanh(sums[2] + reset * sums[3])
        return (candidate + update * (memory[0] - candidate),), (reset, update, candidate, sums[3])

    @staticmethod
    def back(slopes: Parts, before: Array, saved: Parts) -> tuple[Parts, Parts, Parts]:
        (slope,), (reset, update, candidate, past) = slopes, saved
        by_candidate = slope * (1 - update) * (1 - candidate * candidate)
        by_update = slope * (before - candidate) * update * (1 - update)
        by_reset = by_candidate * past * reset * (1 - reset)
        now = (by_reset, by_update, by_candidate)
        return now, (by_reset, by_update, by_candidate * reset), (slope * update,)


Layer: TypeAlias = LSTM | GRU


def make_layer(key: Key, kind: Kind, inputs: int, units: int) -> Layer:
    """Uniform within one over the root of the units, biases too: PyTorch's own."""
    layer = LSTM if kind == "lstm" else GRU
    limit = 1 / np.sqrt(units)
    # All in one draw: each would be compiled on its own.
    drawn = jax.random.uniform(key, (inputs + units + 1, layer.gates * units), minval=-limit, maxval=limit)
    return layer(drawn[:inputs], drawn[inputs:-1], drawn[-1])


def by_gate(layer: Layer, x: Any) -> Parts:
    """Columns that belong to each gate."""
    units = layer.weight.shape[0]
    return tuple(x[..., gate * units : (gate + 1) * units] for gate in range(layer.gates))


def by_part(layer: Layer, memory: Any) -> Parts:
    """The output first."""
    units = layer.weight.shape[0]
    return tuple(memory[..., start : start + units] for start in range(0, layer.memory_size, units))


def one_step(layers: Sequence[Layer], x: Any, memory: Any) -> tuple[Any, Any]:
    """Through layers that lie one upon another; the memory (batch, sum of sizes) is theirs side by side."""
    xp, start = namespace(memory), 0
    after: list[Any] = []
    for layer in layers:
        parts = by_part(layer, memory[..., start : start + layer.memory_size])
        start += layer.memory_size
        now, past = x @ layer.inputs + layer.bias, parts[0] @ layer.weight
        parts, _ = layer.step(layer.sums(by_gate(layer, now), by_gate(layer, past)), parts)
        x = parts[0]
        after += parts
    return x, xp.concatenate(after, axis=-1)


def memory_size(layers: Sequence[Layer]) -> int:
    return sum(layer.memory_size for layer in layers)


def unroll(layers: Sequence[Layer], x: Array, begins: Array, memory: Array) -> tuple[Array, Array]:
    """Outputs (time, batch, units) and the last memory, through layers that lie one upon another, a scan each.

    The memory is forgotten before each step at which something `begins`, (time, batch).
    """
    keep, start = (~begins).astype(jnp.float32)[..., None], 0
    after: list[Array] = []
    for layer in layers:
        first = by_part(layer, memory[..., start : start + layer.memory_size])
        start += layer.memory_size
        x, last = _recur(layer, x, keep, first)
        after += last
    return x, jnp.concatenate(after, axis=-1)


@jax.custom_vjp
def _recur(layer: Layer, x: Array, keep: Array, first: Parts) -> tuple[Array, Parts]:
    """Outputs (time, batch, units) and the last memory."""
    return _scan(layer, x, keep, first, saving=False)[:2]


def _forward(layer: Layer, x: Array, keep: Array, first: Parts) -> Any:
    outputs, last, saved = _scan(layer, x, keep, first, saving=True)
    return (outputs, last), (layer, x, keep, first, outputs, saved)


def _scan(layer: Layer, x: Array, keep: Array, first: Parts, *, saving: bool) -> tuple[Array, Parts, Any]:
    ways = _ways(layer)

    def step(memory: Parts, inputs: tuple[Array, Array]) -> tuple[Parts, tuple[Array, Any]]:
        keep, x = inputs
        memory = tuple(keep * part for part in memory)
        memory, saved = layer.step(_sums(layer, ways, x, memory[0]), memory)
        return memory, (memory[0], saved if saving else None)

    last, (outputs, saved) = jax.lax.scan(step, first, (keep, _with_one(x)))
    return outputs, last, saved


def _with_one(x: Array) -> Array:
    """Biases are the weights of a 1 among the inputs: products add them, and sum up their slopes."""
    return jnp.concatenate([x, jnp.ones_like(x[..., :1])], axis=-1)


def _ways(layer: Layer) -> list[Array]:
    """The weights of each gate, for a product with inputs, 1 and output side by side."""
    rows = jnp.concatenate([layer.inputs, layer.bias[None], layer.weight])
    return list(by_gate(layer, rows))


def _sums(layer: Layer, ways: list[Array], x: Array, output: Array) -> Parts:
    joined, width = jnp.concatenate([x, output], axis=-1), x.shape[-1]
    if isinstance(layer, LSTM):
        return tuple(joined @ way for way in ways)
    reset, update, candidate = ways
    return joined @ reset, joined @ update, x @ candidate[:width], output @ candidate[width:]


def _backward(residuals: Any, slopes: tuple[Array, Parts]) -> Any:
    layer, x, keep, first, outputs, saved = residuals
    before = keep * jnp.concatenate([first[0][None], outputs[:-1]])  # what each step began with
    # Written down once: a product with a transposed view is half as slow again.
    turned = jax.lax.optimization_barrier(layer.weight.T)  # type: ignore[no-untyped-call]

    def step(slopes: Parts, inputs: Any) -> Any:
        keep, by_features, before, saved = inputs
        now, past, (by_output, *others) = layer.back((by_features + slopes[0], *slopes[1:]), before, saved)
        by_past = jnp.concatenate(past, axis=-1)
        slopes = tuple(keep * part for part in (by_output + by_past @ turned, *others))
        by_now = None if now is past else jnp.concatenate(now, axis=-1)  # of an LSTM, both are the same
        return slopes, (by_past, by_now)

    by_features, by_last = slopes
    by_first, (by_past, by_now) = jax.lax.scan(step, by_last, (keep, by_features, before, saved), reverse=True)
    by_now = by_past if by_now is None else by_now
    by_inputs, by_weight = _over_steps(_with_one(x), by_now), _over_steps(before, by_past)
    by_layer = type(layer)(by_inputs[:-1], by_weight, by_inputs[-1])
    return by_layer, by_now @ layer.inputs.T, jnp.zeros_like(keep), by_first


_recur.defvjp(_forward, _backward)


def _over_steps(x: Array, slope: Array) -> Array:
    """One product for all steps; of matrices, since XLA copies arrays of three dimensions first."""
    return x.reshape(-1, x.shape[-1]).T @ slope.reshape(-1, slope.shape[-1])


def _sigmoid(x: Any) -> Any:
    """By the tanh, which cannot overflow."""
    return 0.5 * namespace(x).tanh(0.5 * x) + 0.5
