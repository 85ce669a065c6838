"""QR-DQN (Dabney et al. 2018, "Distributional reinforcement learning with quantile regression").

In place of the mean return of an action, the network learns some quantiles of it. Unlike C51, it need not know between
which bounds returns lie.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rollbook.algos.parts.continuous import fan_in_linear, fan_in_torso
from rollbook.algos.parts.descent import descend, make_optimizer
from rollbook.algos.parts.distributional import quantile_huber
from rollbook.algos.parts.exploration import best_of, epsilon_greedy
from rollbook.algos.parts.fields import Count, NonNegative, Positive, Share, Sizes, check
from rollbook.algos.parts.networks import (
    Activation,
    Array,
    Key,
    Linear,
    Torso,
    head_of_torso,
    namespace,
    network,
    torso_features,
)
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.schedule import Steps, check_schedule
from rollbook.algos.parts.spaces import Spaces
from rollbook.algos.parts.targets import copy_of, moved_when
from rollbook.algos.parts.value_diagnostics import Part, of_values

LOOP = "off_policy"
SHARES = True
ACTIONS = "discrete"


@dataclass(frozen=True, kw_only=True)
class Config:
    num_envs: Count = 1
    """environments that are stepped side by side"""
    train_every: Count = 10
    """steps of each environment between trainings; 4 in the paper"""
    updates_per_step: Positive = 0.1
    """updates for each step of an environment; all of a training's are one compiled call"""
    learning_starts: Steps = 1_000
    """steps before the first update, with random actions; 50,000 in the paper"""
    hold_random_actions: Count = 1
    """steps that each of those random actions is repeated for"""
    buffer_size: Count = 10_000
    """steps that the replay holds; a million in the paper"""
    batch_size: Count = 128
    """steps that an update learns from; 32 in the paper"""
    n_step: Count = 1
    """rewards that are summed up before the network's estimate takes over"""
    gamma: Share = 0.99
    """discount of future rewards"""
    lr: Positive = 2.5e-4
    """learning rate (Adam)"""
    adam_epsilon: Positive = 1e-8
    """epsilon of Adam"""
    tau: Share = 1.0
    """share by which the target network moves towards the network; 1: it is replaced"""
    target_every: Count = 50
    """updates between moves of the target network; 10,000 in the paper"""
    quantiles: Count = 50
    """quantiles of the return of each action; 200 in the paper"""
    kappa: NonNegative = 1.0
    """error beyond which the loss grows linearly; 0: everywhere"""
    double: bool = False
    """let the network choose the next action, and the target network only value it (van Hasselt et al. 2016)"""
    epsilon_start: Share = 1.0
    """probability of a random action at first"""
    epsilon_end: Share = 0.05
    """probability of a random action in the end; 0.01 in the paper"""
    exploration_fraction: Positive = 0.5
    """part of the training within which that probability falls"""
    max_grad_norm: Positive | None = None
    """limit of the norm of the gradient"""
    hidden_sizes: Sizes = (120, 84)
    """units of each hidden layer; images go through the paper's convolutions instead"""
    activation: Activation = "relu"
    """activation of the hidden layers"""
    log_every: Count = 500
    """steps that logged metrics are means over"""

    def __post_init__(self) -> None:
        check(self)
        check_schedule(self)


@network
class QuantileNetwork:
    """From observations to quantiles of the returns of all actions."""

    torso: Torso
    head: Linear
    count: int = field(metadata={"static": True})

    def quantiles(self, observation: Array) -> Array:  # (..., actions, quantiles)
        output = head_of_torso(self.torso, self.head, observation)
        return output.reshape(*output.shape[:-1], -1, self.count)

    def __call__(self, observation: Array) -> Array:
        """The mean returns, (..., actions)."""
        # By a product: a sum XLA makes anew for each number that depends on which action is best. With 200 quantiles, a
        # double update on 32 of Atari's images took 36 ms (one core), and takes 23.
        quantiles = self.quantiles(observation)
        mean: Array = quantiles @ namespace(quantiles).full(self.count, 1 / self.count, quantiles.dtype)
        return mean


class State(NamedTuple):
    actor: QuantileNetwork  # the policy is to take the action of the largest mean return
    target_actor: QuantileNetwork
    optimizer: optax.OptState
    updates: Array


def init(key: Key, spaces: Spaces, config: Config) -> State:
    torso_key, head_key = jax.random.split(key)
    torso = fan_in_torso(torso_key, spaces.observation, config.hidden_sizes, config.activation)
    head = fan_in_linear(head_key, torso_features(torso), spaces.actions * config.quantiles)
    actor = QuantileNetwork(torso, head, config.quantiles)
    return State(actor, copy_of(actor), _optimizer(config).init(actor), jnp.int32(0))


def explore(key: Key, progress: Array, spaces: Spaces, config: Config) -> Array:
    return epsilon_greedy(key, progress, spaces.actions, config)


def act(actor: QuantileNetwork, observation: Array, noise: Array | None) -> Array:
    action: Array = best_of(actor(observation), noise)
    return action


def value(state: State, observation: Array) -> Array:
    return state.actor(observation).max(-1)


def quantile_target(state: State, batch: Batch, config: Config) -> Array:  # (batch, quantiles)
    """Reward plus each discounted quantile of the return of the best next action (algorithm 1)."""
    quantiles = state.target_actor.quantiles(batch.next_observation)
    values = state.actor(batch.next_observation) if config.double else quantiles.mean(-1)
    following = of_action(quantiles, values.argmax(-1))
    # A time limit is not the end of the task: only termination cuts the future off.
    discount = jnp.where(batch.terminated, 0.0, batch.discount)
    return batch.reward[:, None] + discount[:, None] * following


def of_action(quantiles: Array, action: Array) -> Array:
    """Of each sample, the quantiles of its action: (batch, quantiles) from (batch, actions, quantiles)."""
    # A masked sum instead of a gather: its gradient is no scatter, which is slow on CPU.
    chosen = action[:, None] == jnp.arange(quantiles.shape[-2])
    return jnp.where(chosen[..., None], quantiles, 0.0).sum(-2)


def loss(network: QuantileNetwork, batch: Batch, target: Array, config: Config) -> tuple[Array, Array]:
    """The mean quantile Huber loss; also the mean returns of the actions that were taken."""
    quantiles = of_action(network.quantiles(batch.observation), batch.action)
    return quantile_huber(quantiles, target, config.kappa).mean(), quantiles.mean(-1)


def update(state: State, batch: Batch, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """One step of the network; at every `target_every`-th the target network follows."""
    del key  # nothing in an update is random
    target = quantile_target(state, batch, config)
    (q_loss, q), gradient = jax.value_and_grad(loss, has_aux=True)(state.actor, batch, target, config)
    actor, optimizer = descend(_optimizer(config), state.actor, gradient, state.optimizer)
    updates = state.updates + 1
    slow = moved_when(updates % config.target_every == 0, state.target_actor, actor, config.tau)
    return State(actor, slow, optimizer, updates), {
        "losses/critic": q_loss,
        "losses/q_mean": q.mean(),
        "losses/q_min": q.min(),
        "losses/q_max": q.max(),
        "losses/target_mean": target.mean(),
    }


def inspect(state: State, batch: Batch, key: Key, config: Config) -> dict[str, Array]:
    del key
    target = quantile_target(state, batch, config)
    (_, q), gradient = jax.value_and_grad(loss, has_aux=True)(state.actor, batch, target, config)
    part = Part(state.actor, gradient, state.actor.torso, batch.observation)
    return of_values({"actor": part}, q - target.mean(-1))


def _optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.lr, config.max_grad_norm, config.adam_epsilon)
