"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018).

Three remedies against the overestimation of DDPG: the smaller of two critics, a target policy that is smoothed with
noise, and a policy that is updated less often than the critics. [F] marks what is in the authors' code and not in the
paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rollbook.algos.parts.continuous import Critics, DeterministicActor, make_critics, make_deterministic_actor
from rollbook.algos.parts.descent import descend, descend_by_mean, make_optimizer
from rollbook.algos.parts.fields import Count, NonNegative, Positive, Share, Sizes, check
from rollbook.algos.parts.networks import Activation, Array, Key, namespace
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.schedule import Steps, check_schedule
from rollbook.algos.parts.shares import mean_over_shares
from rollbook.algos.parts.spaces import Spaces
from rollbook.algos.parts.targets import copy_of, moved_towards
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
    """steps before the first update, with random actions (section 6.1); 25,000 in [F]"""
    hold_random_actions: Count = 1
    """steps that each of those random actions is repeated for"""
    buffer_size: Count = 1_000_000
    """steps that the replay holds"""
    batch_size: Count = 256
    """steps that an update learns from [F]; 100 in the paper"""
    n_step: Count = 1
    """rewards that are summed up before the critic's estimate takes over"""
    gamma: Share = 0.99
    """discount of future rewards"""
    lr: Positive = 3e-4
    """learning rate of the actor (Adam) [F]; 1e-3 in the paper"""
    critic_lr: Positive = 3e-4
    """learning rate of the critics [F]; 1e-3 in the paper"""
    tau: Share = 0.005
    """share by which the targets move towards the networks, whenever the policy is updated (section 6.1)"""
    exploration_noise: NonNegative = 0.1
    """standard deviation of the noise on actions, which are from -1 to 1 (section 6.1)"""
    policy_every: Count = 2
    """updates of the critics for each of the policy and the targets: d of section 5.2"""
    target_noise: NonNegative = 0.2
    """standard deviation of the noise on the target policy's actions (section 5.3)"""
    target_noise_limit: NonNegative = 0.5
    """what that noise is cut off at: c of section 5.3"""
    max_grad_norm: Positive | None = None
    """limit of the norm of the actor's gradient, and of the critics'"""
    hidden_sizes: Sizes = (256, 256)
    """units of each hidden layer [F]; 400 and 300 in the paper"""
    activation: Activation = "relu"
    """activation of the hidden layers"""
    log_every: Count = 200
    """steps that logged metrics are means over"""

    def __post_init__(self) -> None:
        check(self)
        check_schedule(self)


class State(NamedTuple):
    actor: DeterministicActor
    critic: Critics
    target_actor: DeterministicActor
    target_critic: Critics
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    updates: Array
    actor_loss: Array  # of the newest update of the policy, which is not part of every update


def init(key: Key, spaces: Spaces, config: Config) -> State:
    actor_key, critic_key = jax.random.split(key)
    sizes = spaces.observation[0], spaces.actions, config.hidden_sizes, config.activation
    actor = make_deterministic_actor(actor_key, *sizes)
    critic = make_critics(critic_key, 2, *sizes)
    return State(
        actor=actor,
        critic=critic,
        target_actor=copy_of(actor),
        target_critic=copy_of(critic),
        actor_optimizer=_actor_optimizer(config).init(actor),
        critic_optimizer=_critic_optimizer(config).init(critic),
        updates=jnp.int32(0),
        actor_loss=jnp.float32(0),
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
    """What the critics expect of the best action."""
    return state.critic(observation, state.actor(observation)).min(axis=0)


def smoothed_target(state: State, batch: Batch, key: Key, config: Config) -> Array:  # (batch,)
    """Reward plus the discounted value of the target policy's action with noise, by the smaller of both targets
    (equation 14 and algorithm 1).
    """
    action = state.target_actor(batch.next_observation)
    noise = config.target_noise * jax.random.normal(key, action.shape)
    noise = jnp.clip(noise, -config.target_noise_limit, config.target_noise_limit)
    action = jnp.clip(action + noise, -1, 1)
    value = state.target_critic(batch.next_observation, action).min(axis=0)
    # A time limit is not the end of the task: only termination cuts the future off.
    return batch.reward + batch.discount * jnp.where(batch.terminated, 0.0, value)


def critic_loss(critic: Critics, batch: Batch, target: Array) -> tuple[Array, Array]:
    """Summed over both critics; also their values, (2, batch)."""
    q = critic(batch.observation, batch.action)
    return jnp.square(q - target).mean(axis=1).sum(), q


def actor_loss(actor: DeterministicActor, critic: Critics, batch: Batch) -> Array:
    """Its gradient is the negated deterministic policy gradient, by the first critic (algorithm 1)."""
    return -critic.members[0](batch.observation, actor(batch.observation)).mean()


def update(state: State, batch: Batch, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """One step of the critics; at every `policy_every`-th also one of the policy, and the targets follow."""
    target = smoothed_target(state, batch, key, config)
    (q_loss, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, batch, target)
    critic, critic_optimizer = descend(_critic_optimizer(config), state.critic, gradient, state.critic_optimizer)
    state = state._replace(critic=critic, critic_optimizer=critic_optimizer, updates=state.updates + 1)
    if config.policy_every == 1:
        state = _with_policy_update(state, batch, config)
    else:
        due = state.updates % config.policy_every == 0
        state = jax.lax.cond(due, lambda s: _with_policy_update(s, batch, config), lambda s: s, state)
    return state, {
        "losses/critic": q_loss,
        "losses/actor": state.actor_loss,
        "losses/q_mean": q.mean(),
        "losses/q_min": q.min(),
        "losses/q_max": q.max(),
        "losses/target_mean": target.mean(),
    }


def _with_policy_update(state: State, batch: Batch, config: Config) -> State:
    loss, gradient = jax.value_and_grad(actor_loss)(state.actor, state.critic, batch)
    loss, gradient = mean_over_shares((loss, gradient))
    actor, optimizer = descend_by_mean(_actor_optimizer(config), state.actor, gradient, state.actor_optimizer)
    return state._replace(
        actor=actor,
        actor_optimizer=optimizer,
        actor_loss=loss,
        target_actor=moved_towards(state.target_actor, actor, config.tau),
        target_critic=moved_towards(state.target_critic, state.critic, config.tau),
    )


def inspect(state: State, batch: Batch, key: Key, config: Config) -> dict[str, Array]:
    target = smoothed_target(state, batch, key, config)
    (_, q), critic_gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, batch, target)
    actor_gradient = jax.grad(actor_loss)(state.actor, state.critic, batch)
    pairs = jnp.concatenate([batch.observation, batch.action], axis=-1)
    parts = {
        "actor": Part(state.actor, actor_gradient, state.actor.torso, batch.observation),
        "critic": Part(state.critic, critic_gradient, state.critic.members[0].torso, pairs),
    }
    return of_values(parts, q - target)


def _actor_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.lr, config.max_grad_norm)


def _critic_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.critic_lr, config.max_grad_norm)
