"""One step of Adam (Kingma and Ba 2015) with a limit on the norm of the gradient."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from rollbook.algos.parts.shares import mean_over_shares

T = TypeVar("T")

_MEAN_DECAY, _SQUARE_DECAY = 0.9, 0.999  # beta 1 and beta 2 of the paper


def make_optimizer(lr: float, max_grad_norm: float | None, epsilon: float = 1e-8) -> optax.GradientTransformation:
    limit = optax.identity() if max_grad_norm is None else optax.clip_by_global_norm(max_grad_norm)
    return optax.chain(limit, _adam(lr, epsilon))


def _adam(lr: float, epsilon: float) -> optax.GradientTransformation:
    """optax.adam, with its state, and the same steps but for rounding.

    The corrections for the first updates are in the rate, as the paper recommends (end of section 2), so a parameter
    takes one division in place of three, the slowest thing that is done to it.
    """

    def update(gradient: Any, state: Any, _: Any = None) -> tuple[Any, Any]:
        moments, rest = state
        count = optax.safe_increment(moments.count)
        mean = jax.tree.map(lambda m, g: _MEAN_DECAY * m + (1 - _MEAN_DECAY) * g, moments.mu, gradient)
        square = jax.tree.map(lambda v, g: _SQUARE_DECAY * v + (1 - _SQUARE_DECAY) * g * g, moments.nu, gradient)
        missing = jnp.sqrt(1 - _SQUARE_DECAY**count)
        rate = lr * missing / (1 - _MEAN_DECAY**count)
        step = jax.tree.map(lambda m, v: -rate * m / (jnp.sqrt(v) + epsilon * missing), mean, square)
        return step, (moments._replace(count=count, mu=mean, nu=square), rest)

    return optax.GradientTransformation(optax.adam(lr).init, update)


def descend(
    optimizer: optax.GradientTransformation, parameters: T, gradient: T, state: optax.OptState
) -> tuple[T, optax.OptState]:
    """By the gradient of a share of the batch, which is averaged over all of them."""
    return descend_by_mean(optimizer, parameters, mean_over_shares(gradient), state)


def descend_by_mean(
    optimizer: optax.GradientTransformation, parameters: T, mean_gradient: T, state: optax.OptState
) -> tuple[T, optax.OptState]:
    """The same, where it is averaged already: gradients that can be had together are, for each meeting of cores has its
    price.
    """
    step, state = optimizer.update(mean_gradient, state)
    moved: T = jax.tree.map(lambda x, d: x + d, parameters, step)
    return moved, state
