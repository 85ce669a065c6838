"""Functional environments, many at once, inside a compiled program.

Gymnasium's own functional vector class freezes the other environments when one resets and gives reset steps a reward,
so the batched stepping is ours: every step is a real one, a reset follows within the same step, and the observation
that the step really led to is handed out beside the one that the next step starts from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium.experimental.functional import FuncEnv

from rollbook.algos.parts.networks import Array, Key


class EnvState(NamedTuple):
    """Of all environments; every leaf (envs, ...)."""

    inner: Any
    observation: Array
    elapsed: Array  # steps of the episode so far
    episode_return: Array


class Fresh(NamedTuple):
    """Where episodes begin, drawn ahead of the steps that may need it: one large draw is cheaper than many small."""

    inner: Any
    observation: Array


class Step(NamedTuple):
    """What a step of all environments gave, arrays (envs, ...)."""

    reward: Array
    terminated: Array
    truncated: Array
    next_observation: Array  # before any reset
    episode_return: Array  # so far; whole where the step was the last
    episode_length: Array


@dataclass(frozen=True)
class DeviceEnvs:
    env: FuncEnv[Any, Any, Any, Any, Any, Any, Any]
    count: int
    max_episode_steps: int

    def reset(self, key: Key) -> EnvState:
        fresh = self.draw(key, ())
        zeros = jnp.zeros(self.count)
        return EnvState(fresh.inner, fresh.observation, jnp.zeros(self.count, jnp.int32), zeros)

    def draw(self, key: Key, shape: tuple[int, ...]) -> Fresh:
        """Beginnings of episodes, (*shape, envs, ...)."""
        keys = jax.random.split(key, (*shape, self.count))
        begin: Callable[[Key], Fresh] = self._begin
        for _ in range(keys.ndim):
            begin = jax.vmap(begin)
        return begin(keys)

    def _begin(self, key: Key) -> Fresh:
        state = self.env.initial(key)
        return Fresh(state, self.env.observation(state, key))

    def step(self, state: EnvState, action: Array, keys: Key, fresh: Fresh) -> tuple[EnvState, Step]:
        """`action` is on the environment's scale. Where an episode ends, the next begins at `fresh`."""

        def one(inner: Any, action: Array, key: Key) -> tuple[Any, Array, Array, Array]:
            following = self.env.transition(inner, action, key)
            reward = self.env.reward(inner, action, following, key)
            return following, self.env.observation(following, key), reward, self.env.terminal(following, key)

        inner, observation, reward, terminated = jax.vmap(one)(state.inner, action, keys)
        reward = reward.astype(jnp.float32)
        length = state.elapsed + 1
        truncated = (length >= self.max_episode_steps) & ~terminated
        done = terminated | truncated
        total = state.episode_return + reward
        new = EnvState(
            inner=jax.tree.map(lambda fresh, going: _where(done, fresh, going), fresh.inner, inner),
            observation=_where(done, fresh.observation, observation),
            elapsed=jnp.where(done, 0, length),
            episode_return=jnp.where(done, 0.0, total),
        )
        return new, Step(reward, terminated, truncated, observation, total, length)


def _where(done: Array, fresh: Array, going: Array) -> Array:
    return jnp.where(done.reshape(-1, *[1] * (going.ndim - 1)), fresh, going)
