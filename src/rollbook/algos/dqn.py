"""Deep Q-network (Mnih et al. 2015), with the double estimate of van Hasselt et al. 2016 as an option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rollbook.algos.parts.continuous import fan_in_linear, fan_in_torso
from rollbook.algos.parts.descent import descend, make_optimizer
from rollbook.algos.parts.exploration import best_of, epsilon_greedy
from rollbook.algos.parts.fields import Count, Positive, Share, Sizes, check
from rollbook.algos.parts.networks import (
    Activation,
    Array,
    Key,
    Linear,
    Torso,
    head_of_torso,
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
    """learning rate (Adam; RMSProp in the paper)"""
    adam_epsilon: Positive = 1e-8
    """epsilon of Adam"""
    tau: Share = 1.0
    """share by which the target network moves towards the network; 1: it is replaced"""
    target_every: Count = 50
    """updates between moves of the target network; 10,000 in the paper"""
    double: bool = False
    """let the network choose the next action, and the target network only value it (van Hasselt et al. 2016)"""
    huber: bool = True
    """beyond an error of 1 the loss grows linearly (the paper's clipped error), else it is the square"""
    epsilon_start: Share = 1.0
    """probability of a random action at first"""
    epsilon_end: Share = 0.05
    """probability of a random action in the end; 0.1 in the paper"""
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
class QNetwork:
    """From observations to the values of all actions."""

    torso: Torso
    head: Linear

    def __call__(self, observation: Array) -> Array:
        return head_of_torso(self.torso, self.head, observation)


class State(NamedTuple):
    actor: QNetwork  # the policy is to take the action of the largest value
    target_actor: QNetwork
    optimizer: optax.OptState
    updates: Array


def init(key: Key, spaces: Spaces, config: Config) -> State:
    torso_key, head_key = jax.random.split(key)
    torso = fan_in_torso(torso_key, spaces.observation, config.hidden_sizes, config.activation)
    actor = QNetwork(torso, fan_in_linear(head_key, torso_features(torso), spaces.actions))
    return State(actor, copy_of(actor), _optimizer(config).init(actor), jnp.int32(0))


def explore(key: Key, progress: Array, spaces: Spaces, config: Config) -> Array:
    return epsilon_greedy(key, progress, spaces.actions, config)


def act(actor: QNetwork, observation: Array, noise: Array | None) -> Array:
    action: Array = best_of(actor(observation), noise)
    return action


def value(state: State, observation: Array) -> Array:
    return state.actor(observation).max(-1)


def bellman_target(state: State, batch: Batch, config: Config) -> Array:  # (batch,)
    """Reward plus the discounted value of the best next action (algorithm 1)."""
    values = state.target_actor(batch.next_observation)
    best = (state.actor(batch.next_observation) if config.double else values).argmax(-1)
    # A time limit is not the end of the task: only termination cuts the future off.
    return batch.reward + batch.discount * jnp.where(batch.terminated, 0.0, of_action(values, best))


def of_action(values: Array, action: Array) -> Array:
    """Of each sample, the value of its action."""
    # A masked sum instead of a gather: its gradient is no scatter, which is slow on CPU.
    chosen = action[:, None] == jnp.arange(values.shape[-1])
    return jnp.where(chosen, values, 0.0).sum(-1)


def loss(network: QNetwork, batch: Batch, target: Array, config: Config) -> tuple[Array, Array]:
    """The mean loss of the errors; also the values of the actions that were taken."""
    q = of_action(network(batch.observation), batch.action)
    error = q - target
    return (optax.huber_loss(error) if config.huber else 0.5 * jnp.square(error)).mean(), q


def update(state: State, batch: Batch, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """One step of the network; at every `target_every`-th the target network follows."""
    del key  # nothing in an update is random
    target = bellman_target(state, batch, config)
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
    target = bellman_target(state, batch, config)
    (_, q), gradient = jax.value_and_grad(loss, has_aux=True)(state.actor, batch, target, config)
    return of_values({"actor": Part(state.actor, gradient, state.actor.torso, batch.observation)}, q - target)


def _optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.lr, config.max_grad_norm, config.adam_epsilon)
