"""What a policy says about an action. A sample is a plain function of noise that is drawn elsewhere, many at once."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollbook.algos.parts.networks import Array, Key, namespace
from rollbook.algos.parts.spaces import Spaces

_LOG_2PI = math.log(2 * math.pi)


class Categorical(NamedTuple):
    logits: Array  # (..., actions)

    def sample(self, noise: Array) -> Array:
        """The Gumbel-max trick: with Gumbel noise, the largest sum is a sample."""
        return (self.logits + noise).argmax(-1)

    def mode(self) -> Array:
        return self.logits.argmax(-1)

    def log_prob(self, action: Array) -> Array:
        # A masked sum instead of a gather: its gradient is no scatter, which is slow on CPU.
        chosen = action[..., None] == jnp.arange(self.logits.shape[-1])
        return jnp.where(chosen, self.log_probs, 0.0).sum(-1)

    def entropy(self) -> Array:
        return -(jnp.exp(self.log_probs) * self.log_probs).sum(-1)

    def kl(self, other: Any) -> Array:
        ratio: Array = self.log_probs - other.log_probs
        return (jnp.exp(self.log_probs) * ratio).sum(-1)

    @property
    def log_probs(self) -> Array:
        return jax.nn.log_softmax(self.logits)


class Gaussian(NamedTuple):
    """Independent normal distributions, one for each dimension of the action."""

    mean: Array  # (..., dimensions)
    log_std: Array  # (dimensions,)

    def sample(self, noise: Array) -> Array:
        sample: Array = self.mean + namespace(self.mean).exp(self.log_std) * noise
        return sample

    def mode(self) -> Array:
        return self.mean

    def log_prob(self, action: Array) -> Array:
        scaled = (action - self.mean) * jnp.exp(-self.log_std)
        return -(0.5 * jnp.square(scaled) + self.log_std + 0.5 * _LOG_2PI).sum(-1)

    def entropy(self) -> Array:
        entropy = (self.log_std + 0.5 * (1 + _LOG_2PI)).sum(-1)
        return jnp.broadcast_to(entropy, self.mean.shape[:-1])

    def kl(self, other: Any) -> Array:
        variance_ratio = jnp.exp(2 * (self.log_std - other.log_std))
        shift = jnp.square((self.mean - other.mean) * jnp.exp(-other.log_std))
        terms: Array = 0.5 * (variance_ratio + shift - 1) + other.log_std - self.log_std
        return terms.sum(-1)


Distribution = Categorical | Gaussian


def draw_noise(key: Key, shape: tuple[int, ...], spaces: Spaces) -> Array:
    """The noise that `sample` takes: Gumbel for discrete actions, normal for continuous ones."""
    if spaces.discrete:
        return jax.random.gumbel(key, (*shape, spaces.actions))
    return jax.random.normal(key, (*shape, spaces.actions))
