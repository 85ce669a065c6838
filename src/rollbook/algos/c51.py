"""C51, the categorical DQN (Bellemare et al. 2017, "A distributional perspective on reinforcement learning").

In place of the mean return of an action, the network learns its distribution: probabilities of equally spaced returns.
[R] marks what Rainbow (Hessel et al. 2018) added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rollbook.algos.parts.continuous import fan_in_linear, fan_in_torso
from rollbook.algos.parts.descent import descend, make_optimizer
from rollbook.algos.parts.distributional import Support, cross_entropy, project, softmax
from rollbook.algos.parts.exploration import best_of, epsilon_greedy
from rollbook.algos.parts.fields import Count, Positive, Range, Share, Sizes, check
from rollbook.algos.parts.networks import (
    Activation,
    Array,
    Key,
    Linear,
    Torso,
    columns_of_torso,
    network,
    torso_features,
)
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.schedule import Steps, check_schedule
from rollbook.algos.parts.spaces import Spaces
from rollbook.algos.parts.targets import copy_of, moved_when
from rollbook.algos.parts.value_diagnostics import Part, of_values
from rollbook.errors import InvalidConfig

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
    atoms: Annotated[int, Range(at_least=2)] = 101
    """returns that have a probability; 51 in the paper"""
    value_min: float = -100.0
    """smallest of these returns; -10 in the paper, whose rewards are clipped"""
    value_max: float = 100.0
    """largest of these returns; 10 in the paper"""
    double: bool = False
    """let the network choose the next action, and the target network only value it [R]"""
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
        if self.value_min >= self.value_max:
            raise InvalidConfig(f"value_min is {self.value_min}", f"it must be below value_max ({self.value_max})")


@network
class ReturnNetwork:
    """From observations to the distributions of the returns of all actions."""

    torso: Torso
    head: Linear
    support: Support = field(metadata={"static": True})

    def __call__(self, observation: Array) -> Array:
        """The mean returns, (..., actions)."""
        output = self.head(self.torso(observation))
        mean: Array = softmax(output.reshape(*output.shape[:-1], -1, self.support.atoms)) @ self.support.returns
        return mean

    def logits(self, observation: Array) -> Array:  # (actions, atoms, batch)
        """As columns: all of them are then computed sooner."""
        output = columns_of_torso(self.torso, self.head, observation)
        return output.reshape(-1, self.support.atoms, output.shape[-1])

    def mean(self, probabilities: Array) -> Array:  # (..., batch) from (..., atoms, batch)
        mean: Array = (probabilities * self.support.returns[:, None]).sum(-2)
        return mean


class State(NamedTuple):
    actor: ReturnNetwork  # the policy is to take the action of the largest mean return
    target_actor: ReturnNetwork
    optimizer: optax.OptState
    updates: Array


def init(key: Key, spaces: Spaces, config: Config) -> State:
    torso_key, head_key = jax.random.split(key)
    torso = fan_in_torso(torso_key, spaces.observation, config.hidden_sizes, config.activation)
    head = fan_in_linear(head_key, torso_features(torso), spaces.actions * config.atoms)
    actor = ReturnNetwork(torso, head, Support(config.value_min, config.value_max, config.atoms))
    return State(actor, copy_of(actor), _optimizer(config).init(actor), jnp.int32(0))


def explore(key: Key, progress: Array, spaces: Spaces, config: Config) -> Array:
    return epsilon_greedy(key, progress, spaces.actions, config)


def act(actor: ReturnNetwork, observation: Array, noise: Array | None) -> Array:
    action: Array = best_of(actor(observation), noise)
    return action


def value(state: State, observation: Array) -> Array:
    return state.actor(observation).max(-1)


def projected_target(state: State, batch: Batch, config: Config) -> Array:  # (atoms, batch)
    """The distribution of the reward plus the discounted return of the best next action (algorithm 1)."""
    probabilities = softmax(state.target_actor.logits(batch.next_observation), axis=1)
    chooser = softmax(state.actor.logits(batch.next_observation), axis=1) if config.double else probabilities
    following = of_action(probabilities, state.actor.mean(chooser).argmax(0))
    # A time limit is not the end of the task: only termination cuts the future off.
    discount = jnp.where(batch.terminated, 0.0, batch.discount)
    return project(following, batch.reward, discount, state.target_actor.support)


def of_action(distributions: Array, action: Array) -> Array:
    """Of each sample, the distribution of its action: (atoms, batch) from (actions, atoms, batch)."""
    # A masked sum instead of a gather: its gradient is no scatter, which is slow on CPU.
    chosen = action == jnp.arange(distributions.shape[0])[:, None]
    return jnp.where(chosen[:, None], distributions, 0.0).sum(0)


def loss(network: ReturnNetwork, batch: Batch, target: Array) -> tuple[Array, Array]:
    """The mean cross-entropy; also the mean returns of the actions that were taken."""
    logits = of_action(network.logits(batch.observation), batch.action)
    return cross_entropy(target, logits).mean(), network.mean(softmax(logits, axis=0))


def update(state: State, batch: Batch, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """One step of the network; at every `target_every`-th the target network follows."""
    del key  # nothing in an update is random
    target = projected_target(state, batch, config)
    (q_loss, q), gradient = jax.value_and_grad(loss, has_aux=True)(state.actor, batch, target)
    actor, optimizer = descend(_optimizer(config), state.actor, gradient, state.optimizer)
    updates = state.updates + 1
    slow = moved_when(updates % config.target_every == 0, state.target_actor, actor, config.tau)
    return State(actor, slow, optimizer, updates), {
        "losses/critic": q_loss,
        "losses/q_mean": q.mean(),
        "losses/q_min": q.min(),
        "losses/q_max": q.max(),
        "losses/target_mean": state.target_actor.mean(target).mean(),
    }


def inspect(state: State, batch: Batch, key: Key, config: Config) -> dict[str, Array]:
    del key
    target = projected_target(state, batch, config)
    (_, q), gradient = jax.value_and_grad(loss, has_aux=True)(state.actor, batch, target)
    part = Part(state.actor, gradient, state.actor.torso, batch.observation)
    return of_values({"actor": part}, q - state.target_actor.mean(target))


def _optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.lr, config.max_grad_norm, config.adam_epsilon)
