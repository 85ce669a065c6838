"""Vanilla policy gradient: REINFORCE (Williams 1992) with a fitted value function and generalized advantages.

One step along the gradient of a rollout's expected return, then some steps of regression for the critic, as in
Spinning Up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

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
from rollbook.algos.parts.fields import Count, NonNegative, Positive, Share, Sizes, check, check_minibatches
from rollbook.algos.parts.networks import Activation, Array, Key
from rollbook.algos.parts.regression import fit_values, value_loss
from rollbook.algos.parts.spaces import Spaces

LOOP = "on_policy"


@dataclass(frozen=True, kw_only=True)
class Config:
    num_envs: Count = 4
    """environments that are stepped side by side"""
    rollout_steps: Count = 1000
    """steps of each environment between updates"""
    lr: Positive = 3e-4
    """learning rate of the policy (Adam)"""
    anneal_lr: bool = False
    """let the policy's learning rate fall to zero linearly"""
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
    entropy_coefficient: NonNegative = 0.0
    """weight of the entropy bonus"""
    max_grad_norm: Positive | None = None
    """limit of the norm of the policy's gradient, and of the critic's"""
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
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState


def init(key: Key, spaces: Spaces, config: Config) -> State:
    actor_key, critic_key = jax.random.split(key)
    actor, critic = make_actor(actor_key, spaces, config), make_critic(critic_key, spaces, config)
    optimizer = _optimizer(config)
    return State(actor, critic, optimizer.init(actor), optimizer.init(critic))


def act(actor: Actor, observation: Array, noise: Array | None) -> Array:
    policy = actor(observation)
    return policy.mode() if noise is None else policy.sample(noise)


def policy_loss(actor: Actor, batch: Batch, config: Config) -> tuple[Array, Array]:
    """Its gradient is the negated policy gradient. Also the entropy."""
    policy = actor(batch.observation)
    advantage = standardised(batch.advantage) if config.normalise_advantages else batch.advantage
    entropy = policy.entropy().mean()
    return -(policy.log_prob(batch.action) * advantage).mean() - config.entropy_coefficient * entropy, entropy


def update(state: State, rollout: Rollout, progress: Array, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """One step of the policy, then `value_steps` of the critic. `progress` is the share of the training done."""
    lr = config.lr * (1 - progress) if config.anneal_lr else jnp.float32(config.lr)
    batch = make_batch(Networks(state.actor, state.critic), rollout, config)
    (loss, entropy), gradient = jax.value_and_grad(policy_loss, has_aux=True)(state.actor, batch, config)
    direction, actor_optimizer = _optimizer(config).update(gradient, state.actor_optimizer)
    actor = jax.tree.map(lambda x, d: x - lr * d, state.actor, direction)
    critic, critic_optimizer, fit_loss = fit_values(
        state.critic, state.critic_optimizer, batch, key,
        optimizer=_optimizer(config), lr=config.value_lr,
        steps=config.value_steps, minibatches=config.value_minibatches,
    )  # fmt: skip
    log_ratio = actor(batch.observation).log_prob(batch.action) - batch.log_prob
    return State(actor, critic, actor_optimizer, critic_optimizer), {
        "losses/policy": loss,
        "losses/value": fit_loss,
        "losses/entropy": entropy,
        "losses/approx_kl": (jnp.exp(log_ratio) - 1 - log_ratio).mean(),
        "losses/explained_variance": explained_variance(batch.value, batch.value_target),
        "losses/value_mean": batch.value.mean(),
        "losses/value_min": batch.value.min(),
        "losses/value_max": batch.value.max(),
        "charts/learning_rate": lr,
        "debug/gradient_norm": diagnostics.norm(gradient),
    }


def inspect(state: State, rollout: Rollout, config: Config) -> dict[str, Array]:
    batch = make_batch(Networks(state.actor, state.critic), rollout, config)
    gradient = Networks(
        jax.grad(policy_loss, has_aux=True)(state.actor, batch, config)[0],
        jax.grad(value_loss)(state.critic, batch),
    )
    return diagnostics.of_networks(Networks(state.actor, state.critic), gradient, batch)


def _optimizer(config: Config) -> optax.GradientTransformation:
    limit = optax.identity() if config.max_grad_norm is None else optax.clip_by_global_norm(config.max_grad_norm)
    return optax.chain(limit, optax.scale_by_adam())
