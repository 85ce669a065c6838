"""Recurrent deterministic policy gradient (Heess et al. 2015, "Memory-based control with recurrent neural networks").

DDPG for tasks that show only part of their state: actor and critic see all of an episode so far, through recurrent
encoders. The noise is normal and uncorrelated, as Spinning Up's [S] for DDPG.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rollbook.algos.parts.descent import descend, make_optimizer
from rollbook.algos.parts.fields import Count, NonNegative, Positive, Share, Sizes, check
from rollbook.algos.parts.lstm import Kind
from rollbook.algos.parts.networks import Activation, Array, Key, namespace
from rollbook.algos.parts.recurrent import (
    Critics,
    Depth,
    DeterministicActor,
    Encoders,
    features_of,
    first_features,
    make_deterministic_actor,
    make_recurrent_critics,
    of_sequences,
    policy_part,
    value_of,
    with_policy_part,
    with_shared_encoder,
)
from rollbook.algos.parts.schedule import Steps
from rollbook.algos.parts.sequences import (
    Cut,
    Seen,
    Sequences,
    Start,
    check_sequences,
    largest_of_real,
    mean_of_real,
    smallest_of_real,
    steps_of_a_sequence,
)
from rollbook.algos.parts.spaces import Spaces
from rollbook.algos.parts.targets import copy_of, moved_towards
from rollbook.algos.parts.value_diagnostics import Part

LOOP = "recurrent"
SHARES = True
ACTIONS = "continuous"


@dataclass(frozen=True, kw_only=True)
class Config:
    num_envs: Count = 1
    """environments that are stepped side by side"""
    train_every: Count = 10
    """steps of each environment between trainings"""
    updates_per_step: Positive = 0.1
    """updates for each step of an environment; all of a training's are one compiled call"""
    learning_starts: Steps = 5_000
    """steps before the first update, with random actions"""
    hold_random_actions: Count = 1
    """steps that each of those random actions is repeated for"""
    buffer_size: Count = 1_000_000
    """steps that the replay holds"""
    batch_size: Count = 32
    """sequences that an update learns from"""
    sequences: Cut = "segments"
    """segments of fixed length that go on into the next episode, or whole episodes, padded"""
    sequence_length: Count = 50
    """steps of a segment; or of the longest episode, by the time limit; without one, what is longer is cut"""
    start: Start = "zero"
    """memory that a sequence begins with: none, or the one that was stored when it was acted on"""
    burn_in: Steps = 0
    """steps before each segment that only bring its memory up to date"""
    gamma: Share = 0.99
    """discount of future rewards"""
    lr: Positive = 3e-4
    """learning rate of the actor (Adam)"""
    critic_lr: Positive = 1e-3
    """learning rate of the critic"""
    tau: Share = 0.005
    """share by which the targets move towards the networks at each update [S]"""
    exploration_noise: NonNegative = 0.1
    """standard deviation of the noise on actions, which are from -1 to 1 [S]"""
    max_grad_norm: Positive | None = None
    """limit of the norm of the actor's gradient, and of the critic's"""
    cell: Kind = "lstm"
    """kind of the recurrent layers"""
    units: Count = 128
    """units of each recurrent layer"""
    layers: Depth = 1
    """recurrent layers, one or two"""
    encoders: Encoders = "separate"
    """one for the actor and one for each critic, or one that all share and only the critics teach"""
    see_reward: bool = False
    """show the encoders the reward of the step before, beside its action"""
    hidden_sizes: Sizes = (256,)
    """units of each hidden layer between an encoder and its head"""
    activation: Activation = "relu"
    """activation of the hidden layers"""
    log_every: Count = 200
    """steps that logged metrics are means over"""

    def __post_init__(self) -> None:
        check(self)
        check_sequences(self)

    @property
    def n_step(self) -> int:
        """Steps that the replay must have before it can give a sequence."""
        return steps_of_a_sequence(self)


class State(NamedTuple):
    actor: DeterministicActor
    critic: Critics  # one
    target_actor: DeterministicActor
    target_critic: Critics
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState


def init(key: Key, spaces: Spaces, config: Config) -> State:
    actor_key, critic_key = jax.random.split(key)
    critic = make_recurrent_critics(critic_key, 1, spaces, config)
    actor = make_deterministic_actor(actor_key, spaces, critic, config)
    return State(
        actor=actor,
        critic=critic,
        target_actor=copy_of(actor),
        target_critic=copy_of(critic),
        actor_optimizer=_actor_optimizer(config).init(policy_part(actor, config)),
        critic_optimizer=_critic_optimizer(config).init(critic),
    )


def explore(key: Key, progress: Array, spaces: Spaces, config: Config) -> Array:
    return config.exploration_noise * jax.random.normal(key, (*progress.shape, spaces.actions))


def act(actor: DeterministicActor, seen: Seen, memory: Any, noise: Any) -> tuple[Any, Any]:
    """The action, and the memory to act with next."""
    features, memory = actor.encoder.step(seen, memory)
    action: Any = actor.policy(features)
    if noise is None:
        return action, memory
    xp = namespace(action)
    return xp.minimum(xp.maximum(action + noise, -1), 1), memory


def value(state: State, observation: Array) -> Array:
    """What the critic expects of the best action, where an episode begins."""
    actions = state.actor.head.bias.shape[0]
    action = state.actor.policy(first_features(state.actor.encoder, observation, actions))
    features = [first_features(encoder, observation, actions) for encoder in state.critic.encoders]
    return state.critic(features, action)[0]


class Features(NamedTuple):
    """What the encoders make of the sequences for the critic to learn, arrays (time + 1, batch, units)."""

    critic: list[Array]
    target_actor: Array
    target_critic: list[Array]


def encode(critic: Critics, state: State, batch: Sequences, config: Config) -> Features:
    own, targets = critic.encoders, state.target_critic.encoders
    if config.encoders == "shared":
        features, target = features_of((*own, *targets), (0, 0), batch, config.burn_in)
        return Features([features], target, [target])
    encoders = (*own, state.target_actor.encoder, *targets)
    found = features_of(encoders, (1, 0, 1), batch, config.burn_in)
    return Features(found[:1], found[1], found[2:])


def bellman_target(state: State, features: Features, batch: Sequences, config: Config) -> Array:
    """Reward plus the discounted value of the target policy's action, by the target critic, of what is seen next
    (algorithm 1); (time, batch).
    """
    action = state.target_actor.policy(features.target_actor)
    value = state.target_critic(features.target_critic, action)[0, 1:]
    # A time limit is not the end of the task: only termination cuts the future off.
    target: Array = batch.reward + config.gamma * jnp.where(batch.terminated, 0.0, value)
    return target


class Judged(NamedTuple):
    """What the critic says of the sequences, and what it reads in them."""

    q: Array  # (1, time, batch)
    target: Array  # (time, batch)
    features: list[Array]  # (time + 1, batch, units)


def critic_loss(critic: Critics, state: State, batch: Sequences, config: Config) -> tuple[Array, Judged]:
    """Over real steps."""
    features = encode(critic, state, batch, config)
    batch = batch.without_first(config.burn_in)
    target = jax.lax.stop_gradient(bellman_target(state, features, batch, config))
    q = critic(features.critic, batch.action_padded)[:, :-1]
    return mean_of_real(jnp.square(q - target), batch.real).sum(), Judged(q, target, features.critic)


def actor_loss(
    actor: DeterministicActor, critic: Critics, features: list[Array], batch: Sequences, config: Config
) -> Array:
    """Over real steps. Its gradient is the negated deterministic policy gradient, by the critic, whose features are
    what a shared encoder gives the actor as well: it learns from the critic alone.
    """
    own = features if config.encoders == "shared" else features_of([actor.encoder], [0], batch, config.burn_in)
    values = value_of(critic.members[0], features[0], actor.policy(own[0]))
    return -mean_of_real(values[:-1], batch.without_first(config.burn_in).real)


def update(state: State, batch: Sequences, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """One step of the critic, and of the actor by the critic before it, for its features are at hand; then the targets
    follow.
    """
    del key  # nothing in an update is random
    (q_loss, found), slope = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, state, batch, config)
    critic, critic_optimizer = descend(_critic_optimizer(config), state.critic, slope, state.critic_optimizer)
    policy_loss, slope = jax.value_and_grad(actor_loss)(state.actor, state.critic, found.features, batch, config)
    part, actor_optimizer = descend(
        _actor_optimizer(config), policy_part(state.actor, config), policy_part(slope, config), state.actor_optimizer
    )
    actor = with_shared_encoder(with_policy_part(state.actor, part, config), critic, config)
    target_actor = moved_towards(state.target_actor, actor, config.tau)
    target_critic = moved_towards(state.target_critic, critic, config.tau)
    real = batch.without_first(config.burn_in).real
    return State(actor, critic, target_actor, target_critic, actor_optimizer, critic_optimizer), {
        "losses/critic": q_loss,
        "losses/actor": policy_loss,
        "losses/q_mean": mean_of_real(found.q, real).mean(),
        "losses/q_min": smallest_of_real(found.q, real),
        "losses/q_max": largest_of_real(found.q, real),
        "losses/target_mean": mean_of_real(found.target, real),
        "losses/real_share": real.mean(),
    }


def inspect(state: State, batch: Sequences, key: Key, config: Config) -> dict[str, Array]:
    del key
    critic_slope, found = jax.grad(critic_loss, has_aux=True)(state.critic, state, batch, config)
    actor_slope = jax.grad(actor_loss)(state.actor, state.critic, found.features, batch, config)
    (own,) = features_of([state.actor.encoder], [0], batch, config.burn_in)
    batch = batch.without_first(config.burn_in)
    pairs = jnp.concatenate([found.features[0][:-1], batch.action], axis=-1)
    parts = {
        "actor": Part(state.actor, actor_slope, state.actor.torso, own[:-1]),
        "critic": Part(state.critic, critic_slope, state.critic.members[0].torso, pairs),
    }
    return of_sequences(parts, found.q - found.target, batch.real)


def _actor_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.lr, config.max_grad_norm)


def _critic_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.critic_lr, config.max_grad_norm)
