"""Returns as distributions: fixed atoms with probabilities (C51), or quantiles (QR-DQN)."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos.parts.networks import Array, namespace


class Support(NamedTuple):
    """Equally spaced returns, lowest first."""

    low: float
    high: float
    atoms: int

    @property
    def gap(self) -> float:
        return (self.high - self.low) / (self.atoms - 1)

    @property
    def returns(self) -> Any:
        """In numpy, for both numpy and JAX to compute with."""
        return _returns(self)


@cache
def _returns(support: Support) -> Any:
    return np.linspace(support.low, support.high, support.atoms, dtype=np.float32)


def softmax(logits: Any) -> Any:
    """In numpy as well."""
    xp = namespace(logits)
    powers = xp.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def project(probabilities: Array, reward: Array, discount: Array, support: Support) -> Array:
    """The distribution of `reward + discount * Z` on the atoms of Z, (batch, atoms): Bellemare et al. 2017, equation 7.

    Where the task ended, the discount is to be 0. Each atom's probability goes to the two atoms nearest to where it
    has moved, in proportion; what moves beyond an end stays at that end.
    """
    returns = support.returns
    moved = jnp.clip(reward[:, None] + discount[:, None] * returns, support.low, support.high)  # (batch, from)
    share = jnp.clip(1 - jnp.abs(moved[:, None, :] - returns[:, None]) / support.gap, 0, 1)  # (batch, to, from)
    return (share * probabilities[:, None, :]).sum(-1)


def cross_entropy(target: Array, log_probabilities: Array) -> Array:
    return -(target * log_probabilities).sum(-1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def quantile_huber(quantiles: Array, target: Array, kappa: float) -> Array:
    """(batch,) from (batch, quantiles) and (batch, samples): Dabney et al. 2018, equation 10.

    The sum over quantiles of the mean over samples of the target. `kappa` is where the square becomes a line; with 0
    it is the plain quantile loss. Divided by kappa, as in the authors' next paper (implicit quantile networks): the
    line's slope is then the same for every kappa. The target is a constant: it has no gradient. That of the quantiles
    is by hand, since autodiff keeps every pair of a quantile and a sample for it.
    """
    error, weight = _pairs(quantiles, target)
    size = jnp.abs(error)
    huber = size if kappa == 0 else jnp.where(size <= kappa, 0.5 * jnp.square(error) / kappa, size - 0.5 * kappa)
    return (weight * huber).sum(1).sum(-1) / target.shape[-1]


def _pairs(quantiles: Array, target: Array) -> tuple[Array, Array]:
    """The error of each with each sample, (batch, samples, quantiles), and its weight."""
    count = quantiles.shape[-1]
    middle = (np.arange(count, dtype=np.float32) + 0.5) / count
    error = target[:, :, None] - quantiles[:, None, :]
    return error, jnp.abs(middle - (error < 0))


def _huber_forward(quantiles: Array, target: Array, kappa: float) -> tuple[Array, tuple[Array, Array]]:
    error, weight = _pairs(quantiles, target)
    slope = jnp.sign(error) if kappa == 0 else jnp.clip(error / kappa, -1, 1)
    slopes = -(weight * slope).sum(1) / target.shape[-1]  # (batch, quantiles)
    return quantile_huber(quantiles, target, kappa), (slopes, jnp.zeros_like(target))


def _huber_backward(_: float, slopes: tuple[Array, Array], by_loss: Array) -> tuple[Array, Array]:
    by_quantiles, nothing = slopes
    return by_loss[:, None] * by_quantiles, nothing


quantile_huber.defvjp(_huber_forward, _huber_backward)
