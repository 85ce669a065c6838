"""Generalized advantage estimation (Schulman et al. 2016, equation 16)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rollbook.algos.parts.networks import Array


def advantages(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: float,
    gae_lambda: float,
) -> Array:
    """Of every step of a rollout, all arguments (steps, envs).

    `next_value` is the value of what the step really led to, also where the environment was reset afterwards. A time
    limit is not the end of the task: a truncated step looks ahead by its next value, a terminated one does not. Both
    end the sum, since what follows belongs to another episode.
    """
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    decay = gamma * gae_lambda * (1.0 - (terminated | truncated))

    def backwards(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, decay = step
        advantage = delta + decay * later
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=8)[1]
