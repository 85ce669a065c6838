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
    last = support.atoms - 1
    moved = reward[:, None] + discount[:, None] * support.returns
    place = jnp.clip((moved - support.low) / support.gap, 0, last)  # (batch, from), in atoms
    below = jnp.floor(place).astype(jnp.int32)
    above_share = place - below
    rows = jnp.arange(place.shape[0])[:, None]
    # What is at the last atom has none above it: its share of 0 goes to a column that is cut off.
    empty = jnp.zeros((place.shape[0], support.atoms + 1))
    both = (
        empty.at[rows, below]
        .add(probabilities * (1 - above_share))
        .at[rows, below + 1]
        .add(probabilities * above_share)
    )
    return both[:, :-1]


def cross_entropy(target: Array, log_probabilities: Array) -> Array:
    return -(target * log_probabilities).sum(-1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def quantile_huber(quantiles: Array, target: Array, kappa: float) -> Array:
    """(batch,) from (batch, quantiles) and (batch, samples): Dabney et al. 2018, equation 10.

    The sum over quantiles of the mean over samples of the target. `kappa` is where the square becomes a line; with 0
    it is the plain quantile loss. Divided by kappa, as in the authors' next paper (implicit quantile networks): the
    line's slope is then the same for every kappa. The target is a constant: it has no gradient. That of the quantiles
    is by hand, in the same loop: arrays of all pairs of a quantile and a sample took three times as long.
    """
    return _huber_forward(quantiles, target, kappa)[0]


def _huber_forward(quantiles: Array, target: Array, kappa: float) -> tuple[Array, tuple[Array, Array]]:
    count, samples = quantiles.shape[-1], target.shape[-1]
    middle = ((np.arange(count, dtype=np.float32) + 0.5) / count)[:, None]
    # (quantiles, batch) and (samples, batch); as they are, XLA would compute them anew for every sample.
    own, others = jax.lax.optimization_barrier((quantiles.T, target.T))  # type: ignore[no-untyped-call]

    def with_sample(number: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        error = others[number] - own
        slope = jnp.sign(error) if kappa == 0 else jnp.clip(error * (1 / kappa), -1, 1)
        weighted = jnp.where(error < 0, 1 - middle, middle) * slope
        return sums[0] + weighted * (error - 0.5 * kappa * slope), sums[1] + weighted

    nothing = jnp.zeros_like(own)
    loss, slopes = jax.lax.fori_loop(0, samples, with_sample, (nothing, nothing), unroll=5)
    return loss.sum(0) / samples, (-slopes.T / samples, jnp.zeros_like(target))


def _huber_backward(_: float, slopes: tuple[Array, Array], by_loss: Array) -> tuple[Array, Array]:
    by_quantiles, nothing = slopes
    return by_loss[:, None] * by_quantiles, nothing


quantile_huber.defvjp(_huber_forward, _huber_backward)
