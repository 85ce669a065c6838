"""Deep deterministic policy gradient (Lillicrap et al. 2016).

A critic learns the value of actions from past steps, and the policy follows its slope. The noise is normal and
uncorrelated, which Fujimoto et al. 2018 and Spinning Up [S] found to do as well as the paper's Ornstein-Uhlenbeck
process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rollbook.algos.parts.continuous import Critic, DeterministicActor, make_critic, make_deterministic_actor
from rollbook.algos.parts.descent import descend, make_optimizer
from rollbook.algos.parts.fields import Count, NonNegative, Positive, Share, Sizes, check
from rollbook.algos.parts.networks import Activation, Array, Key, namespace
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.schedule import Steps, check_schedule
from rollbook.algos.parts.spaces import Spaces
from rollbook.algos.parts.targets import copy_of, moved_towards, moved_when
from rollbook.algos.parts.value_diagnostics import Part, of_values

LOOP = "off_policy"
SHARES = True
ACTIONS = "continuous"
IMAGES = False


@dataclass(frozen=True, kw_only=True)
class Config:
    num_envs: Count = 1
    """environments that are stepped side by side"""
    train_every: Count = 1
    """steps of each environment between trainings; 50 in Spinning Up"""
    updates_per_step: Positive = 1.0
    """updates for each step of an environment; all of a training's are one compiled call"""
    learning_starts: Steps = 10_000
    """steps before the first update, with random actions [S]"""
    hold_random_actions: Count = 1
    """steps that each of those random actions is repeated for"""
    buffer_size: Count = 1_000_000
    """steps that the replay holds (section 7)"""
    batch_size: Count = 256
    """steps that an update learns from; 64 in the paper, 100 in [S]"""
    n_step: Count = 1
    """rewards that are summed up before the critic's estimate takes over"""
    gamma: Share = 0.99
    """discount of future rewards (section 7)"""
    lr: Positive = 1e-3
    """learning rate of the actor (Adam) [S]; 1e-4 in the paper"""
    critic_lr: Positive = 1e-3
    """learning rate of the critic (section 7)"""
    tau: Share = 0.005
    """share by which the targets move towards the networks [S]; 0.001 in the paper"""
    target_every: Count = 1
    """updates between moves of the targets; more than 1 delays them"""
    exploration_noise: NonNegative = 0.1
    """standard deviation of the noise on actions, which are from -1 to 1 [S]"""
    max_grad_norm: Positive | None = None
    """limit of the norm of the actor's gradient, and of the critic's"""
    hidden_sizes: Sizes = (256, 256)
    """units of each hidden layer [S]; 400 and 300 in the paper"""
    activation: Activation = "relu"
    """activation of the hidden layers (section 7)"""
    log_every: Count = 200
    """steps that logged metrics are means over"""

    def __post_init__(self) -> None:
        check(self)
        check_schedule(self)


class State(NamedTuple):
    actor: DeterministicActor
    critic: Critic
    target_actor: DeterministicActor
    target_critic: Critic
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    updates: Array


def init(key: Key, spaces: Spaces, config: Config) -> State:
    actor_key, critic_key = jax.random.split(key)
    sizes = spaces.observation[0], spaces.actions, config.hidden_sizes, config.activation
    actor, critic = make_deterministic_actor(actor_key, *sizes), make_critic(critic_key, *sizes)
    return State(
        actor=actor,
        critic=critic,
        target_actor=copy_of(actor),
        target_critic=copy_of(critic),
        actor_optimizer=_actor_optimizer(config).init(actor),
        critic_optimizer=_critic_optimizer(config).init(critic),
        updates=jnp.int32(0),
    )


def explore(key: Key, progress: Array, spaces: Spaces, config: Config) -> Array:
    return config.exploration_noise * jax.random.normal(key, (*progress.shape, spaces.actions))


def act(actor: DeterministicActor, observation: Array, noise: Array | None) -> Array:
    action = actor(observation)
    if noise is None:
        return action
    xp = namespace(action)
    limited: Array = xp.minimum(xp.maximum(action + noise, -1), 1)
    return limited


def value(state: State, observation: Array) -> Array:
    """What the critic expects of the best action."""
    return state.critic(observation, state.actor(observation))


def bellman_target(state: State, batch: Batch) -> Array:  # (batch,)
    """Reward plus the discounted value of the target policy's action, by the target critic (algorithm 1)."""
    value = state.target_critic(batch.next_observation, state.target_actor(batch.next_observation))
    # A time limit is not the end of the task: only termination cuts the future off.
    return batch.reward + batch.discount * jnp.where(batch.terminated, 0.0, value)


def critic_loss(critic: Critic, batch: Batch, target: Array) -> tuple[Array, Array]:
    """Equation 4; also the values."""
    q = critic(batch.observation, batch.action)
    return jnp.square(q - target).mean(), q


def actor_loss(actor: DeterministicActor, critic: Critic, batch: Batch) -> Array:
    """Its gradient is the negated deterministic policy gradient (equation 6)."""
    return -critic(batch.observation, actor(batch.observation)).mean()


def update(state: State, batch: Batch, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """One step of the critic, one of the actor by the new critic; then the targets follow."""
    del key  # nothing in an update is random
    target = bellman_target(state, batch)
    (q_loss, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, batch, target)
    critic, critic_optimizer = descend(_critic_optimizer(config), state.critic, gradient, state.critic_optimizer)
    policy_loss, gradient = jax.value_and_grad(actor_loss)(state.actor, critic, batch)
    actor, actor_optimizer = descend(_actor_optimizer(config), state.actor, gradient, state.actor_optimizer)
    updates = state.updates + 1
    target_actor, target_critic = _moved(state, actor, critic, updates, config)
    return State(actor, critic, target_actor, target_critic, actor_optimizer, critic_optimizer, updates), {
        "losses/critic": q_loss,
        "losses/actor": policy_loss,
        "losses/q_mean": q.mean(),
        "losses/q_min": q.min(),
        "losses/q_max": q.max(),
        "losses/target_mean": target.mean(),
    }


def _moved(
    state: State, actor: DeterministicActor, critic: Critic, updates: Array, config: Config
) -> tuple[DeterministicActor, Critic]:
    targets, networks = (state.target_actor, state.target_critic), (actor, critic)
    if config.target_every == 1:
        return moved_towards(targets, networks, config.tau)
    return moved_when(updates % config.target_every == 0, targets, networks, config.tau)


def inspect(state: State, batch: Batch, key: Key, config: Config) -> dict[str, Array]:
    del key, config
    target = bellman_target(state, batch)
    (_, q), critic_gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, batch, target)
    actor_gradient = jax.grad(actor_loss)(state.actor, state.critic, batch)
    pairs = jnp.concatenate([batch.observation, batch.action], axis=-1)
    parts = {
        "actor": Part(state.actor, actor_gradient, state.actor.torso, batch.observation),
        "critic": Part(state.critic, critic_gradient, state.critic.torso, pairs),
    }
    return of_values(parts, q - target)


def _actor_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.lr, config.max_grad_norm)


def _critic_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.critic_lr, config.max_grad_norm)
