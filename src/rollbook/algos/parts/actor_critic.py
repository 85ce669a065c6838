"""The actor, the critic and the rollout that VPG, TRPO and PPO have in common."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from rollbook.algos.parts.distributions import Categorical, Distribution, Gaussian
from rollbook.algos.parts.gae import advantages
from rollbook.algos.parts.networks import (
    Activation,
    Array,
    Key,
    Linear,
    Torso,
    make_torso,
    network,
    orthogonal_linear,
    torso_features,
)
from rollbook.algos.parts.spaces import Spaces


@network
class Actor:
    """From observations to a distribution over actions."""

    torso: Torso
    head: Linear
    log_std: Array | None  # of continuous actions: a parameter that does not depend on the observation

    def __call__(self, observation: Array) -> Distribution:
        return self.policy(self.torso(observation))

    def policy(self, features: Array) -> Distribution:
        output = self.head(features)
        return Categorical(output) if self.log_std is None else Gaussian(output, self.log_std)


@network
class Critic:
    """From observations to their values; without a torso of its own, from the features of the actor's."""

    torso: Torso | None
    head: Linear

    def __call__(self, observation: Array) -> Array:
        return self.head(self.torso(observation) if self.torso else observation)[..., 0]


class Networks(NamedTuple):
    actor: Actor
    critic: Critic

    def __call__(self, observation: Array) -> tuple[Distribution, Array]:
        """The policy and the value."""
        features = self.actor.torso(observation)
        return self.actor.policy(features), self.critic(observation if self.critic.torso else features)


class NetworkConfig(Protocol):
    @property
    def hidden_sizes(self) -> tuple[int, ...]: ...
    @property
    def activation(self) -> Activation: ...
    @property
    def initial_log_std(self) -> float: ...


def make_actor(key: Key, spaces: Spaces, config: NetworkConfig) -> Actor:
    torso_key, head_key = jax.random.split(key)
    torso = make_torso(torso_key, spaces.observation, config.hidden_sizes, config.activation)
    # Small last weights: the first policy is nearly uniform (Andrychowicz et al. 2021, section 3.2).
    head = orthogonal_linear(head_key, torso_features(torso), spaces.actions, 0.01)
    log_std = None if spaces.discrete else jnp.full(spaces.actions, config.initial_log_std, jnp.float32)
    return Actor(torso, head, log_std)


def make_critic(key: Key, spaces: Spaces, config: NetworkConfig) -> Critic:
    torso_key, head_key = jax.random.split(key)
    torso = make_torso(torso_key, spaces.observation, config.hidden_sizes, config.activation)
    return Critic(torso, orthogonal_linear(head_key, torso_features(torso), 1, 1.0))


class Rollout(NamedTuple):
    """Some steps of some environments, arrays (steps, envs, ...) of JAX, or of numpy on their way into a program."""

    observation: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    next_observation: Any  # what the step led to, before any reset


class Batch(NamedTuple):
    """A rollout as losses see it, arrays (samples, ...) or (steps, envs, ...)."""

    observation: Array
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    value_target: Array


class AdvantageConfig(Protocol):
    @property
    def gamma(self) -> float: ...
    @property
    def gae_lambda(self) -> float: ...


def make_batch(networks: Networks, rollout: Rollout, config: AdvantageConfig) -> Batch:
    """Advantages and value targets of a rollout, flattened to samples."""
    policy, value = networks(rollout.observation)
    _, next_value = networks(rollout.next_observation)
    advantage = advantages(
        rollout.reward, value, next_value, rollout.terminated, rollout.truncated,
        gamma=config.gamma, gae_lambda=config.gae_lambda,
    )  # fmt: skip
    batch = Batch(
        observation=rollout.observation,
        action=rollout.action,
        log_prob=policy.log_prob(rollout.action),
        value=value,
        advantage=advantage,
        value_target=advantage + value,
    )
    return Batch(*(x.reshape(-1, *x.shape[2:]) for x in batch))


def standardised(x: Array) -> Array:
    return (x - x.mean()) / (x.std() + 1e-8)


def explained_variance(prediction: Array, target: Array) -> Array:
    """1: the critic explains all differences between targets; 0: no better than a constant; below: worse."""
    return 1 - jnp.var(target - prediction) / (jnp.var(target) + 1e-8)
