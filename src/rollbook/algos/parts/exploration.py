"""Ways to try something other than the best action, as noise that is drawn ahead, many steps at once."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp

from rollbook.algos.parts.networks import Array, Key


class EpsilonConfig(Protocol):
    @property
    def epsilon_start(self) -> float: ...
    @property
    def epsilon_end(self) -> float: ...
    @property
    def exploration_fraction(self) -> float: ...


def epsilon(progress: Array, config: EpsilonConfig) -> Array:
    """Probability of a random action: linear over the first part of the training, constant afterwards."""
    share = jnp.minimum(progress / config.exploration_fraction, 1.0)
    return config.epsilon_start + share * (config.epsilon_end - config.epsilon_start)


def epsilon_greedy(key: Key, progress: Array, actions: int, config: EpsilonConfig) -> Array:
    """What is added to the values of actions, (*progress.shape, actions): mostly nothing, else infinity for one."""
    when_key, which_key = jax.random.split(key)
    explores = jax.random.uniform(when_key, progress.shape) < epsilon(progress, config)
    which = jax.random.randint(which_key, progress.shape, 0, actions)
    chosen = which[..., None] == jnp.arange(actions)
    return jnp.where(explores[..., None] & chosen, jnp.inf, 0.0)


def best_of(values: Any, noise: Any | None) -> Any:
    """The action of the largest value, or the one that the noise chose."""
    return (values if noise is None else values + noise).argmax(-1)
