"""Trust region policy optimization (Schulman et al. 2015).

The policy moves as far along the natural gradient as a limit of the mean KL divergence allows: the direction by
conjugate gradients on Fisher-vector products, the length by a line search (appendix C of the paper).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from rollbook.algos.parts import diagnostics
from rollbook.algos.parts.actor_critic import (
    Actor,
    Batch,
    Critic,
    Networks,
    Rollout,
    explained_variance,
    make_actor,
    make_batch,
    make_critic,
    standardised,
)
from rollbook.algos.parts.fields import Count, Positive, Share, Sizes, check, check_minibatches
from rollbook.algos.parts.networks import Activation, Array, Key
from rollbook.algos.parts.regression import fit_values, value_loss
from rollbook.algos.parts.spaces import Spaces

LOOP = "on_policy"


@dataclass(frozen=True, kw_only=True)
class Config:
    num_envs: Count = 4
    """environments that are stepped side by side"""
    rollout_steps: Count = 512
    """steps of each environment between updates"""
    max_kl: Positive = 0.01
    """how far the policy may move in one update, as a mean KL divergence (the paper's delta)"""
    conjugate_gradient_steps: Count = 10
    """iterations of the conjugate gradient method; the paper uses 10"""
    damping: Positive = 0.1
    """added to the diagonal of the Fisher matrix, so that it can be inverted; Spinning Up's value"""
    backtracks: Count = 10
    """most steps of the line search"""
    backtrack_factor: Share = 0.8
    """how much shorter each step of the line search is than the one before"""
    value_lr: Positive = 1e-3
    """learning rate of the critic (Adam)"""
    value_steps: Count = 80
    """optimizer steps of the critic after each rollout, each on a minibatch"""
    value_minibatches: Count = 1
    """parts that a rollout is shuffled into for the critic; 1: every step sees all of it, as in Spinning Up"""
    gamma: Share = 0.99
    """discount of future rewards"""
    gae_lambda: Share = 0.97
    """weight of long against short looks ahead in the advantages"""
    normalise_advantages: bool = True
    """zero mean and unit variance in each rollout"""
    max_grad_norm: Positive | None = None
    """limit of the norm of the critic's gradient; the policy's step is limited by max_kl"""
    hidden_sizes: Sizes = (64, 64)
    """units of each hidden layer of actor and critic, which share nothing"""
    activation: Activation = "tanh"
    """activation of the hidden layers"""
    initial_log_std: float = -0.5
    """logarithm of the first standard deviation of continuous actions"""
    normalise_observations: bool = False
    """subtract the running mean, divide by the running standard deviation, clip at 10"""
    normalise_rewards: bool = False
    """divide by the running standard deviation of the discounted return, clip at 10"""

    def __post_init__(self) -> None:
        check(self)
        check_minibatches(self.num_envs * self.rollout_steps, self.value_minibatches, "value_minibatches")


class State(NamedTuple):
    actor: Actor
    critic: Critic
    critic_optimizer: optax.OptState


def init(key: Key, spaces: Spaces, config: Config) -> State:
    actor_key, critic_key = jax.random.split(key)
    actor, critic = make_actor(actor_key, spaces, config), make_critic(critic_key, spaces, config)
    return State(actor, critic, _optimizer(config).init(critic))


def act(actor: Actor, observation: Array, noise: Array | None) -> Array:
    policy = actor(observation)
    return policy.mode() if noise is None else policy.sample(noise)


def surrogate(actor: Actor, batch: Batch, config: Config) -> Array:
    """The expected advantage under the new policy, from samples of the old one (equation 14)."""
    ratio = jnp.exp(actor(batch.observation).log_prob(batch.action) - batch.log_prob)
    advantage = standardised(batch.advantage) if config.normalise_advantages else batch.advantage
    return (ratio * advantage).mean()


def mean_kl(old: Actor, new: Actor, observation: Array) -> Array:
    divergence: Array = old(observation).kl(new(observation))
    return divergence.mean()


def natural_direction(actor: Actor, gradient: Array, batch: Batch, config: Config) -> tuple[Array, Array]:
    """The inverse of the Fisher matrix times the gradient, and x F x: how fast the KL divergence grows along it."""
    flat, unflatten = ravel_pytree(actor)

    def fisher_times(vector: Array) -> Array:
        # The Hessian of the KL divergence at no move is the Fisher matrix (appendix C).
        slope = jax.grad(lambda x: mean_kl(actor, unflatten(x), batch.observation))
        product: Array = jax.jvp(slope, (flat,), (vector,))[1]
        return product + config.damping * vector

    direction = conjugate_gradient(fisher_times, gradient, config.conjugate_gradient_steps)
    return direction, direction @ fisher_times(direction)


def conjugate_gradient(times: Callable[[Array], Array], b: Array, steps: int) -> Array:
    """x with A x = b, by products with A alone (Hestenes and Stiefel 1952)."""

    def step(_: int, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        x, residual, direction, square = carry
        product = times(direction)
        length = square / (direction @ product + 1e-10)
        x, residual = x + length * direction, residual - length * product
        new_square = residual @ residual
        # Once solved, it stays: going on would divide rounding errors by each other.
        direction = jnp.where(new_square > 1e-10, residual + new_square / (square + 1e-10) * direction, 0.0)
        return x, residual, direction, new_square

    solution: Array = jax.lax.fori_loop(0, steps, step, (jnp.zeros_like(b), b, b, b @ b))[0]
    return solution


def line_search(actor: Actor, step: Array, batch: Batch, config: Config) -> tuple[Actor, dict[str, Array]]:
    """The longest of ever shorter steps that keeps within the KL limit and gains; else no step at all."""
    flat, unflatten = ravel_pytree(actor)
    before = surrogate(actor, batch, config)

    def fails(carry: tuple[Array, Array, Array, Array]) -> Array:
        number, _, gain, kl = carry
        return (number < config.backtracks) & ~((gain > 0) & (kl <= config.max_kl))

    def shorten(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        number = carry[0] + 1
        return number, *attempt(config.backtrack_factor**number)

    def attempt(share: Array) -> tuple[Array, Array, Array]:
        new = unflatten(flat + share * step)
        return share, surrogate(new, batch, config) - before, mean_kl(actor, new, batch.observation)

    number, share, gain, kl = jax.lax.while_loop(fails, shorten, (jnp.int32(0), *attempt(jnp.float32(1))))
    # A NaN fails both comparisons: a broken step is no step.
    accepted = (gain > 0) & (kl <= config.max_kl)
    share = jnp.where(accepted, share, 0.0)
    moved = jnp.where(accepted, flat + share * step, flat)
    return unflatten(moved), {
        "losses/policy": -(before + jnp.where(accepted, gain, 0.0)),
        "losses/kl": jnp.where(accepted, kl, 0.0),
        "losses/step_accepted": accepted.astype(jnp.float32),
        "losses/backtracks": number.astype(jnp.float32),
    }


def update(state: State, rollout: Rollout, progress: Array, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """One trust-region step of the policy, then `value_steps` of the critic."""
    del progress  # nothing is annealed: the trust region is the step size
    batch = make_batch(Networks(state.actor, state.critic), rollout, config)
    gradient, _ = ravel_pytree(jax.grad(surrogate)(state.actor, batch, config))
    direction, curvature = natural_direction(state.actor, gradient, batch, config)
    longest = jnp.sqrt(2 * config.max_kl / (curvature + 1e-8))
    actor, metrics = line_search(state.actor, longest * direction, batch, config)
    critic, optimizer, fit_loss = fit_values(
        state.critic, state.critic_optimizer, batch, key,
        optimizer=_optimizer(config), lr=config.value_lr,
        steps=config.value_steps, minibatches=config.value_minibatches,
    )  # fmt: skip
    return State(actor, critic, optimizer), metrics | {
        "losses/value": fit_loss,
        "losses/entropy": state.actor(batch.observation).entropy().mean(),
        "losses/explained_variance": explained_variance(batch.value, batch.value_target),
        "losses/value_mean": batch.value.mean(),
        "losses/value_min": batch.value.min(),
        "losses/value_max": batch.value.max(),
        "debug/gradient_norm": jnp.linalg.norm(gradient),
        "debug/proposed_step_norm": jnp.linalg.norm(longest * direction),
    }


def inspect(state: State, rollout: Rollout, config: Config) -> dict[str, Array]:
    batch = make_batch(Networks(state.actor, state.critic), rollout, config)
    gradient = Networks(jax.grad(surrogate)(state.actor, batch, config), jax.grad(value_loss)(state.critic, batch))
    return diagnostics.of_networks(Networks(state.actor, state.critic), gradient, batch)


def _optimizer(config: Config) -> optax.GradientTransformation:
    limit = optax.identity() if config.max_grad_norm is None else optax.clip_by_global_norm(config.max_grad_norm)
    return optax.chain(limit, optax.scale_by_adam())
