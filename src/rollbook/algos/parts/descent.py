"""One step of Adam (Kingma and Ba 2015) with a limit on the norm of the gradient."""

from __future__ import annotations

from typing import TypeVar

import jax
import optax

from rollbook.algos.parts.shares import mean_over_shares

T = TypeVar("T")


def make_optimizer(lr: float, max_grad_norm: float | None, epsilon: float = 1e-8) -> optax.GradientTransformation:
    limit = optax.identity() if max_grad_norm is None else optax.clip_by_global_norm(max_grad_norm)
    return optax.chain(limit, optax.adam(lr, eps=epsilon))


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
