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


def softmax(logits: Any, axis: int = -1) -> Any:
    """In numpy as well."""
    xp = namespace(logits)
    powers = xp.exp(logits - logits.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def project(probabilities: Array, reward: Array, discount: Array, support: Support) -> Array:
    """The distribution of `reward + discount * Z` on the atoms of Z, (atoms, batch): Bellemare et al. 2017, equation 7.

    Where the task ended, the discount is to be 0. Each atom's probability goes to the two atoms nearest to where it
    has moved, in proportion; what moves beyond an end stays at that end.

    Atoms that are moved equally far are next to each other again. So this goes through how far they are moved, in whole
    atoms: 3 turns with a discount of 0.99 and rewards of less than an atom, in 7 us (101 atoms, 128 steps; a scatter
    takes 50), and more with larger rewards and smaller discounts.
    """
    number = np.arange(support.atoms, dtype=np.float32)[:, None]
    wanted = (reward + discount * support.returns[:, None] - support.low) / support.gap
    place = jnp.clip(wanted, 0, support.atoms - 1)  # (atoms, batch), in atoms
    # Without a discount, all atoms meet at one place, which some have a long way to.
    meet = discount == 0
    moved = jnp.where(meet, 0, place - number)
    around = ((support.atoms, support.atoms), (0, 0))
    sources, ways = jnp.pad(jnp.where(meet, 0, probabilities), around), jnp.pad(moved, around)

    def add_moved(by: Array, sums: Array) -> Array:
        here = [jax.lax.dynamic_slice_in_dim(x, support.atoms - by, support.atoms) for x in (sources, ways)]
        return sums + here[0] * _nearness(here[1] - by)

    ends = jnp.where(jnp.isnan(moved), 0, moved)  # a reward that is no number spoils its own sample only
    nearest, farthest = jnp.floor(ends.min()).astype(jnp.int32), jnp.ceil(ends.max()).astype(jnp.int32)
    met = jnp.where(meet, _nearness(place[0] - number), 0)
    projected: Array = jax.lax.fori_loop(nearest, farthest + 1, add_moved, met)
    return projected


def _nearness(distance: Array) -> Array:
    """The share of an atom that is this far away: 1 at its place, 0 from its neighbours on."""
    return jnp.maximum(1 - jnp.abs(distance), 0)


def cross_entropy(target: Array, logits: Array) -> Array:
    """Of distributions as columns, (batch,) from twice (atoms, batch)."""
    return -(target * jax.nn.log_softmax(logits, axis=0)).sum(0)


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
