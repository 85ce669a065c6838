"""Recurrent layers, LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et al. 2014), with a backward pass by hand.

Several layers of one size of time and batch go through one scan, each with a matrix product of its own a step, so that
XLA uses all cores (10 x 200 x 256 on two cores: five layers as five scans 121 ms, as one 74). The gradient of the
weights is one matrix product after the scan, where autodiff would add up a product a step.

A layer's memory is one array (batch, size): of an LSTM its output and its cell side by side, of a GRU its output.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos.parts.networks import Array, Key, namespace, network

Kind: TypeAlias = Literal["lstm", "gru"]


@network
class LSTM:
    """Gates in the order input, forget, candidate, output."""

    inputs: Array  # (in, 4 * units)
    weight: Array  # (units, 4 * units)
    bias: Array  # (4 * units,)

    @property
    def memory_size(self) -> int:
        return 2 * self.weight.shape[0]

    def step(self, gates: Any, memory: Any) -> tuple[Any, Any]:
        """Output and memory from the inputs' part of the gates (batch, 4 * units) and the memory before."""
        xp, units = namespace(memory), self.weight.shape[0]
        output, cell = memory[..., :units], memory[..., units:]
        gates = gates + output @ self.weight
        entry, forget, candidate, exit_ = (gates[..., n * units : (n + 1) * units] for n in range(4))
        cell = _sigmoid(forget) * cell + _sigmoid(entry) * xp.tanh(candidate)
        output = _sigmoid(exit_) * xp.tanh(cell)
        return output, xp.concatenate([output, cell], axis=-1)

    def _saved(self, gates: Array, memory: Array) -> tuple[Array, tuple[Array, ...]]:
        """A step, and what its backward pass needs: the open gates, and the new cell."""
        units = self.weight.shape[0]
        output, cell = memory[..., :units], memory[..., units:]
        gates = gates + output @ self.weight
        entry, forget, candidate, exit_ = jnp.split(gates, 4, axis=-1)
        entry, forget, exit_ = _sigmoid(entry), _sigmoid(forget), _sigmoid(exit_)
        candidate = jnp.tanh(candidate)
        cell = forget * cell + entry * candidate
        squashed = jnp.tanh(cell)
        memory = jnp.concatenate([exit_ * squashed, cell], axis=-1)
        return memory, (entry, forget, candidate, exit_, squashed)

    def _back(self, slope: Array, before: Array, saved: tuple[Array, ...]) -> tuple[Array, Array, Array]:
        """From the slope of a step's memory to those of the gates (of the inputs, of the weights) and of the memory
        before.
        """
        units = self.weight.shape[0]
        entry, forget, candidate, exit_, squashed = saved
        by_output, by_cell = slope[..., :units], slope[..., units:]
        by_cell = by_cell + by_output * exit_ * (1 - squashed * squashed)
        gates = jnp.concatenate(
            [
                by_cell * candidate * entry * (1 - entry),
                by_cell * before[..., units:] * forget * (1 - forget),
                by_cell * entry * (1 - candidate * candidate),
                by_output * squashed * exit_ * (1 - exit_),
            ],
            axis=-1,
        )
        return gates, gates, jnp.concatenate([gates @ self.weight.T, by_cell * forget], axis=-1)


@network
class GRU:
    """Gates in the order reset, update, candidate; the reset gate acts on the candidate's product with the weights."""

    inputs: Array  # (in, 3 * units)
    weight: Array  # (units, 3 * units)
    bias: Array  # (3 * units,)

    @property
    def memory_size(self) -> int:
        return int(self.weight.shape[0])

    def step(self, gates: Any, memory: Any) -> tuple[Any, Any]:
        """Output and memory, which are the same."""
        xp, units = namespace(memory), self.weight.shape[0]
        past = memory @ self.weight
        reset = _sigmoid(gates[..., :units] + past[..., :units])
        update = _sigmoid(gates[..., units : 2 * units] + past[..., units : 2 * units])
        candidate = xp.tanh(gates[..., 2 * units :] + reset * past[..., 2 * units :])
        output = candidate + update * (memory - candidate)
        return output, output

    def _saved(self, gates: Array, memory: Array) -> tuple[Array, tuple[Array, ...]]:
        past = jnp.split(memory @ self.weight, 3, axis=-1)
        now = jnp.split(gates, 3, axis=-1)
        reset, update = _sigmoid(now[0] + past[0]), _sigmoid(now[1] + past[1])
        candidate = jnp.tanh(now[2] + reset * past[2])
        return candidate + update * (memory - candidate), (reset, update, candidate, past[2])

    def _back(self, slope: Array, before: Array, saved: tuple[Array, ...]) -> tuple[Array, Array, Array]:
        reset, update, candidate, past = saved
        by_candidate = slope * (1 - update) * (1 - candidate * candidate)
        by_update = slope * (before - candidate) * update * (1 - update)
        by_reset = by_candidate * past * reset * (1 - reset)
        by_inputs = jnp.concatenate([by_reset, by_update, by_candidate], axis=-1)
        by_weights = jnp.concatenate([by_reset, by_update, by_candidate * reset], axis=-1)
        return by_inputs, by_weights, by_weights @ self.weight.T + slope * update


Layer: TypeAlias = LSTM | GRU


def make_layer(key: Key, kind: Kind, inputs: int, units: int) -> Layer:
    """Uniform within one over the root of the units, biases too: PyTorch's own."""
    layer, gates = (LSTM, 4) if kind == "lstm" else (GRU, 3)
    limit = 1 / np.sqrt(units)
    # All in one draw: each would be compiled on its own.
    drawn = jax.random.uniform(key, (inputs + units + 1, gates * units), minval=-limit, maxval=limit)
    return layer(drawn[:inputs], drawn[inputs:-1], drawn[-1])


def gates_of(layer: Layer, x: Any) -> Any:
    """What the inputs (..., in) add to the gates."""
    return x @ layer.inputs + layer.bias


def one_step(layers: Sequence[Layer], x: Any, memory: Any) -> tuple[Any, Any]:
    """Through layers that lie one upon another; the memory (batch, sum of sizes) is theirs side by side."""
    xp, start, after = namespace(memory), 0, []
    for layer in layers:
        part = memory[..., start : start + layer.memory_size]
        start += layer.memory_size
        x, part = layer.step(gates_of(layer, x), part)
        after.append(part)
    return x, xp.concatenate(after, axis=-1) if len(after) > 1 else after[0]


def memory_size(layers: Sequence[Layer]) -> int:
    return sum(layer.memory_size for layer in layers)


def unroll(
    stacks: Sequence[Sequence[Layer]], x: Sequence[Array], begins: Array, memories: Sequence[Array], learning: int
) -> tuple[list[Array], list[Array]]:
    """Outputs (time, batch, units) and last memories of several stacks of equally many layers, each on its own inputs
    (time, batch, in), all through one scan a layer.

    A memory is forgotten before each step at which something `begins`, (time, batch). Gradients are those of the first
    `learning` stacks; those of the others are not computed, and are 0.
    """
    keep = (~begins).astype(jnp.float32)[..., None]
    outputs = list(x)
    after: list[list[Array]] = [[] for _ in stacks]
    starts = [0] * len(stacks)
    for depth in range(len(stacks[0])):
        layers = [stack[depth] for stack in stacks]
        gates = [gates_of(layer, one) for layer, one in zip(layers, outputs, strict=True)]
        firsts = []
        for number, layer in enumerate(layers):
            firsts.append(memories[number][..., starts[number] : starts[number] + layer.memory_size])
            starts[number] += layer.memory_size
        all_of_them = _recur(learning, tuple(layers), tuple(gates), keep, tuple(firsts))
        outputs = [one[..., : layer.weight.shape[0]] for layer, one in zip(layers, all_of_them, strict=True)]
        for number, one in enumerate(all_of_them):
            after[number].append(one[-1])
    return outputs, [jnp.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0] for parts in after]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recur(
    learning: int, layers: tuple[Layer, ...], gates: tuple[Array, ...], keep: Array, firsts: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Memories (time, batch, size) of each layer after every step."""
    del learning

    def step(memories: Any, now: Any) -> Any:
        keep, *gates = now
        new = [layer.step(gate, keep * memory)[1] for layer, gate, memory in zip(layers, gates, memories, strict=True)]
        return tuple(new), tuple(new)

    return jax.lax.scan(step, firsts, (keep, *gates))[1]  # type: ignore[no-any-return]


def _forward(learning: int, layers: Any, gates: Any, keep: Array, firsts: Any) -> Any:
    def step(memories: Any, now: Any) -> Any:
        keep, *gates = now
        new, saved = [], []
        for number, (layer, gate, memory) in enumerate(zip(layers, gates, memories, strict=True)):
            if number < learning:
                memory, needed = layer._saved(gate, keep * memory)
                saved.append(needed)
            else:
                memory = layer.step(gate, keep * memory)[1]
            new.append(memory)
        return tuple(new), (tuple(new), tuple(saved))

    _, (memories, saved) = jax.lax.scan(step, firsts, (keep, *gates))
    return memories, (layers, gates, keep, firsts, memories[:learning], saved)


def _backward(learning: int, residuals: Any, slopes: Any) -> Any:
    layers, gates, keep, firsts, memories, saved = residuals
    # What each step began with, as it was after a reset.
    before = [
        keep * jnp.concatenate([first[None], memory[:-1]]) for first, memory in zip(firsts, memories, strict=False)
    ]

    def step(carry: Any, now: Any) -> Any:
        keep, slopes, befores, saved = now
        new, by_inputs, by_weights = [], [], []
        for number in range(learning):
            slope = slopes[number] + carry[number]
            of_inputs, of_weights, past = layers[number]._back(slope, befores[number], saved[number])
            new.append(keep * past)
            by_inputs.append(of_inputs)
            # An LSTM has the same for both: it is kept once.
            by_weights.append(of_weights if of_weights is not of_inputs else None)
        return tuple(new), (tuple(by_inputs), tuple(by_weights))

    zeros = tuple(jnp.zeros_like(first) for first in firsts[:learning])
    carry, (by_inputs, by_weights) = jax.lax.scan(
        step, zeros, (keep, slopes[:learning], tuple(before), saved), reverse=True
    )
    layer_slopes = []
    for number, layer in enumerate(layers):
        nothing = jax.tree.map(jnp.zeros_like, layer)
        if number < learning:
            units = layer.weight.shape[0]
            past = before[number][..., :units].reshape(-1, units)
            slope = by_inputs[number] if by_weights[number] is None else by_weights[number]
            weight = past.T @ slope.reshape(past.shape[0], -1)
            nothing = type(layer)(nothing.inputs, weight, nothing.bias)
        layer_slopes.append(nothing)
    gate_slopes = [*by_inputs, *(jnp.zeros_like(gate) for gate in gates[learning:])]
    first_slopes = [*carry, *(jnp.zeros_like(first) for first in firsts[learning:])]
    return tuple(layer_slopes), tuple(gate_slopes), jnp.zeros_like(keep), tuple(first_slopes)


_recur.defvjp(_forward, _backward)


def _sigmoid(x: Any) -> Any:
    """By the tanh, which cannot overflow."""
    return 0.5 * namespace(x).tanh(0.5 * x) + 0.5
