"""Fitting a critic to the value targets of a rollout."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from rollbook.algos.parts.actor_critic import Batch, Critic
from rollbook.algos.parts.networks import Array, Key


def value_loss(critic: Critic, batch: Batch) -> Array:
    return 0.5 * jnp.square(critic(batch.observation) - batch.value_target).mean()


def fit_values(
    critic: Critic,
    optimizer_state: optax.OptState,
    batch: Batch,
    key: Key,
    *,
    optimizer: optax.GradientTransformation,
    lr: float,
    steps: int,
    minibatches: int,
) -> tuple[Critic, optax.OptState, Array]:
    """`steps` optimizer steps, each on the next of the minibatches; also their mean loss."""
    samples = batch.value_target.shape[0]
    size = samples // minibatches

    def step(carry: tuple[Critic, optax.OptState], number: Array) -> tuple[tuple[Critic, optax.OptState], Array]:
        critic, state = carry
        part = batch
        if minibatches > 1:
            # A new order for each pass, from the number of the pass alone.
            order = jax.random.permutation(jax.random.fold_in(key, number // minibatches), samples)
            chosen = jax.lax.dynamic_slice(order, (number % minibatches * size,), (size,))
            part = Batch(*(x[chosen] for x in batch))
        loss, gradient = jax.value_and_grad(value_loss)(critic, part)
        direction, state = optimizer.update(gradient, state)
        return (jax.tree.map(lambda x, d: x - lr * d, critic, direction), state), loss

    (critic, optimizer_state), losses = jax.lax.scan(step, (critic, optimizer_state), jnp.arange(steps))
    return critic, optimizer_state, losses.mean()
