"""A normal distribution squashed by tanh into -1 to 1 (Haarnoja et al. 2018, appendix C)."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp

from rollbook.algos.parts.networks import Array, namespace

_LOG_2, _HALF_LOG_2PI = math.log(2), 0.5 * math.log(2 * math.pi)


class SquashedGaussian(NamedTuple):
    mean: Array  # (..., dimensions), before the tanh
    log_std: Array

    def sample(self, noise: Array) -> Array:
        xp = namespace(self.mean)
        action: Array = xp.tanh(self.mean + xp.exp(self.log_std) * noise)
        return action

    def mode(self) -> Array:
        """The squashed mean: the median of each dimension, and what is played when nothing is to be tried."""
        action: Array = namespace(self.mean).tanh(self.mean)
        return action

    def sample_with_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """From normal noise. The logarithm comes from the number before the tanh, not from the action: that of an
        action that is rounded to 1 would be infinite.
        """
        before = self.mean + jnp.exp(self.log_std) * noise
        normal = -(0.5 * jnp.square(noise) + self.log_std + _HALF_LOG_2PI)
        return jnp.tanh(before), (normal - log_slope(before)).sum(-1)


def log_slope(x: Array) -> Array:
    """log(1 - tanh(x)^2), which as written is minus infinity beyond 9 in single precision; this form is exact.

    It is even, so |x| will do: then the exponential is at most 1, and adding it to 1 loses less than the last bit of
    the result. (log1p would lose nothing, but is not vectorised on CPU: with it, this was a fiftieth of an update.)
    """
    distance = jnp.abs(x)
    return 2 * (_LOG_2 - distance - jnp.log(1 + jnp.exp(-2 * distance)))
