"""Running mean and variance.

The update is that of Chan, Golub and LeVeque (1979) for joining two samples, so a batch counts as its members would.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from rollbook.algos.parts.networks import Array, namespace

_LIMIT = 10.0  # of what is normalised, in standard deviations: as in OpenAI's baselines
_EPSILON = 1e-8


class Statistics(NamedTuple):
    members: Array  # how many it is of
    mean: Array
    std: Array


def no_statistics(shape: tuple[int, ...]) -> Statistics:
    """Of nothing yet: what is normalised by them stays as it is."""
    return Statistics(jnp.float32(0), jnp.zeros(shape), jnp.ones(shape))


def with_batch(statistics: Statistics, batch: Array) -> Statistics:
    """The statistics with another batch (members, ...) in them."""
    members, mean, std = statistics
    size = batch.shape[0]
    total = members + size
    shift = batch.mean(axis=0) - mean
    spread = jnp.square(std) * members + batch.var(axis=0) * size + jnp.square(shift) * (members * size / total)
    return Statistics(total, mean + shift * (size / total), jnp.sqrt(spread / total + _EPSILON))


def normalised(statistics: Statistics, x: Array) -> Array:
    return _limited((x - statistics.mean) / statistics.std)


def scaled(statistics: Statistics, x: Array) -> Array:
    """Divided by the standard deviation; the mean, and with it the sign of a reward, stays."""
    return _limited(x / statistics.std)


def _limited(x: Array) -> Array:
    xp = namespace(x)  # minimum and maximum: np.clip takes four times as long on a small array
    limited: Array = xp.minimum(xp.maximum(x, -_LIMIT), _LIMIT)
    return limited
