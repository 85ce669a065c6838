"""Actors and critics of DDPG, TD3 and SAC: vectors in, continuous actions from -1 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos.parts.networks import MLP, Activation, Array, Key, Linear, Torso, make_torso, namespace, network


def fan_in_linear(key: Key, inputs: int, outputs: int) -> Linear:
    """Uniform within one over the root of the inputs, biases too: PyTorch's own, with which the published scores of
    these algorithms were made (Spinning Up, the authors of TD3, CleanRL).
    """
    weight_key, bias_key = jax.random.split(key)
    limit = 1 / np.sqrt(inputs)
    weight = jax.random.uniform(weight_key, (inputs, outputs), minval=-limit, maxval=limit)
    return Linear(weight, jax.random.uniform(bias_key, (outputs,), minval=-limit, maxval=limit))


def fan_in_torso(key: Key, observation_shape: tuple[int, ...], hidden: Sequence[int], activation: Activation) -> Torso:
    """An MLP for vectors, the Nature CNN for images."""
    if len(observation_shape) == 3:
        return make_torso(key, observation_shape, hidden, activation)
    sizes = [*observation_shape, *hidden]
    keys = jax.random.split(key, len(hidden))
    layers = [fan_in_linear(key, *ends) for key, *ends in zip(keys, sizes[:-1], sizes[1:], strict=True)]
    return MLP(tuple(layers), activation)


@network
class DeterministicActor:
    """From observations to the best action."""

    torso: Torso
    head: Linear
    squashed: ClassVar[bool] = True  # the head's output goes through tanh

    def __call__(self, observation: Array) -> Array:
        output = self.head.narrow(self.torso(observation))
        action: Array = namespace(output).tanh(output)
        return action


@network
class Critic:
    """From observations and actions to their values."""

    torso: Torso
    head: Linear

    def __call__(self, observation: Array, action: Array) -> Array:
        return self.head(self.torso(jnp.concatenate([observation, action], axis=-1)))[..., 0]


@network
class Critics:
    """Several of them, that differ in their beginnings only. One with stacked weights would be no faster on CPU."""

    members: tuple[Critic, ...]

    def __call__(self, observation: Array, action: Array) -> Array:
        """(critics, batch)"""
        return jnp.stack([critic(observation, action) for critic in self.members])


def make_deterministic_actor(
    key: Key, inputs: int, actions: int, hidden: Sequence[int], activation: Activation
) -> DeterministicActor:
    torso_key, head_key = jax.random.split(key)
    return DeterministicActor(
        fan_in_torso(torso_key, (inputs,), hidden, activation), fan_in_linear(head_key, hidden[-1], actions)
    )


def make_critic(key: Key, inputs: int, actions: int, hidden: Sequence[int], activation: Activation) -> Critic:
    torso_key, head_key = jax.random.split(key)
    return Critic(
        fan_in_torso(torso_key, (inputs + actions,), hidden, activation), fan_in_linear(head_key, hidden[-1], 1)
    )


def make_critics(
    key: Key, count: int, inputs: int, actions: int, hidden: Sequence[int], activation: Activation
) -> Critics:
    return Critics(tuple(make_critic(one, inputs, actions, hidden, activation) for one in jax.random.split(key, count)))
