"""Recurrent soft actor-critic: SAC (Haarnoja et al. 2018) for tasks that show only part of their state.

Actor and critics see all of an episode so far, through recurrent encoders, as in RDPG (Heess et al. 2015) and in the
recurrent baselines of Ni et al. 2022 [N] and of Yang and Nguyen 2021 [Y]. [S] marks what is Spinning Up's, [B] what is
Stable-Baselines3's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rollbook.algos.parts.continuous import fan_in_linear
from rollbook.algos.parts.descent import descend, make_optimizer
from rollbook.algos.parts.fields import Count, Positive, Share, Sizes, check
from rollbook.algos.parts.lstm import Kind
from rollbook.algos.parts.networks import Activation, Array, Key, Linear, Torso, namespace, network
from rollbook.algos.parts.recurrent import (
    Critics,
    Depth,
    Encoder,
    Encoders,
    features_of,
    first_features,
    make_actor_encoder,
    make_policy_torso,
    make_recurrent_critics,
    of_sequences,
    one_batch,
    policy_part,
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
from rollbook.algos.parts.squashed import SquashedGaussian
from rollbook.algos.parts.targets import copy_of, moved_towards
from rollbook.algos.parts.value_diagnostics import Part

LOOP = "recurrent"
SHARES = True
ACTIONS = "continuous"

_LOG_STD = (-20.0, 2.0)  # the authors' limits


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
    critic_lr: Positive = 3e-4
    """learning rate of the critics"""
    alpha_lr: Positive = 3e-4
    """learning rate of the temperature's logarithm"""
    tau: Share = 0.005
    """share by which the target critics move towards the critics at each update"""
    alpha: Positive = 1.0
    """temperature: the weight of entropy against reward; where it is learned, where it begins [B]"""
    learn_alpha: bool = True
    """adapt the temperature to the target entropy"""
    target_entropy: float | None = None
    """entropy that the policy is to keep; none: minus the dimensions of the action"""
    max_grad_norm: Positive | None = None
    """limit of the norm of the actor's gradient, and of the critics'"""
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


@network
class Actor:
    """From what was seen so far to a distribution over actions."""

    encoder: Encoder
    torso: Torso
    head: Linear
    log_std_head: Linear
    squashed: ClassVar[bool] = True

    def policy(self, features: Array) -> SquashedGaussian:
        hidden, shape = self.torso(one_batch(features)), (*features.shape[:-1], -1)
        xp = namespace(hidden)
        log_std = xp.minimum(xp.maximum(self.log_std_head(hidden), _LOG_STD[0]), _LOG_STD[1])
        return SquashedGaussian(self.head(hidden).reshape(shape), log_std.reshape(shape))


class State(NamedTuple):
    actor: Actor
    critic: Critics
    target_critic: Critics
    log_alpha: Array
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    alpha_optimizer: optax.OptState


def init(key: Key, spaces: Spaces, config: Config) -> State:
    encoder_key, torso_key, head_key, std_key, critic_key = jax.random.split(key, 5)
    critic = make_recurrent_critics(critic_key, 2, spaces, config)
    actor = Actor(
        make_actor_encoder(encoder_key, spaces, critic, config),
        make_policy_torso(torso_key, config),
        fan_in_linear(head_key, config.hidden_sizes[-1], spaces.actions),
        fan_in_linear(std_key, config.hidden_sizes[-1], spaces.actions),
    )
    log_alpha = jnp.log(jnp.float32(config.alpha))
    return State(
        actor=actor,
        critic=critic,
        target_critic=copy_of(critic),
        log_alpha=log_alpha,
        actor_optimizer=_actor_optimizer(config).init(policy_part(actor, config)),
        critic_optimizer=_critic_optimizer(config).init(critic),
        alpha_optimizer=_alpha_optimizer(config).init(log_alpha),
    )


def explore(key: Key, progress: Array, spaces: Spaces, config: Config) -> Array:
    """The policy is random of itself."""
    del config
    return jax.random.normal(key, (*progress.shape, spaces.actions))


def act(actor: Actor, seen: Seen, memory: Any, noise: Any) -> tuple[Any, Any]:
    """The action, and the memory to act with next."""
    features, memory = actor.encoder.step(seen, memory)
    policy = actor.policy(features)
    return (policy.mode() if noise is None else policy.sample(noise)), memory


def value(state: State, observation: Array) -> Array:
    """What the critics expect of the best action, where an episode begins."""
    actions = state.actor.head.bias.shape[0]
    action = state.actor.policy(first_features(state.actor.encoder, observation, actions)).mode()
    features = [first_features(encoder, observation, actions) for encoder in state.critic.encoders]
    return state.critic(features, action).min(axis=0)


class Features(NamedTuple):
    """What the encoders make of the sequences, arrays (time + 1, batch, units)."""

    actor: Array
    critic: list[Array]
    target: list[Array]


def encode(actor: Actor, critic: Critics, state: State, batch: Sequences, config: Config) -> Features:
    """A shared encoder learns from the critics alone."""
    own, target = critic.encoders, state.target_critic.encoders
    if config.encoders == "shared":
        features, of_target = features_of((*own, *target), (0, 0), batch, config.burn_in)
        return Features(jax.lax.stop_gradient(features), [features], [of_target])
    of_actor, *rest = features_of((actor.encoder, *own, *target), (0, 1, 2, 1, 2), batch, config.burn_in)
    return Features(of_actor, rest[: len(own)], rest[len(own) :])


def soft_target(
    state: State, policy: SquashedGaussian, target: list[Array], batch: Sequences, key: Key, config: Config
) -> Array:  # (time, batch)
    """Reward plus the discounted soft value of what is seen next."""
    action, log_prob = policy.sample_with_log_prob(jax.random.normal(key, policy.mean.shape))
    value = (state.target_critic(target, action).min(axis=0) - jnp.exp(state.log_alpha) * log_prob)[1:]
    # A time limit is not the end of the task: only termination cuts the future off.
    soft: Array = batch.reward + config.gamma * jnp.where(batch.terminated, 0.0, value)
    return soft


def critic_loss(critic: Critics, features: list[Array], batch: Sequences, target: Array) -> tuple[Array, Array]:
    """Over real steps, summed over both critics; also their values, (2, time, batch)."""
    q = critic(features, batch.action_padded)[:, :-1]
    return 0.5 * mean_of_real(jnp.square(q - target), batch.real).sum(), q


def actor_loss(
    policy: SquashedGaussian, critic: Critics, features: list[Array], alpha: Array, batch: Sequences, key: Key
) -> tuple[Array, Array]:
    """Over real steps, with the smaller of both critics; also the log-probabilities of the actions."""
    action, log_prob = policy.sample_with_log_prob(jax.random.normal(key, policy.mean.shape))
    q = critic(features, action).min(axis=0)
    return mean_of_real((alpha * log_prob - q)[:-1], batch.real), log_prob[:-1]


def alpha_loss(log_alpha: Array, log_prob: Array, real: Array, target_entropy: float) -> Array:
    """Over real steps."""
    return -mean_of_real(jnp.exp(log_alpha) * (log_prob + target_entropy), real)


class Losses(NamedTuple):
    """Of the networks, with what else is looked at."""

    critic: Array
    actor: Array
    q: Array  # (2, time, batch)
    target: Array  # (time, batch)
    log_prob: Array  # (time, batch)


def losses(
    actor: Actor, critic: Critics, state: State, batch: Sequences, key: Key, config: Config
) -> tuple[Array, Losses]:
    """Both at once, for the critics' features serve both: each network has the slope of its own loss, since the other's
    sees it as a constant.
    """
    target_key, actor_key = jax.random.split(key)
    features = encode(actor, critic, state, batch, config)
    batch = batch.without_first(config.burn_in)
    policy = actor.policy(features.actor)
    target = jax.lax.stop_gradient(soft_target(state, policy, features.target, batch, target_key, config))
    q_loss, q = critic_loss(critic, features.critic, batch, target)
    fixed = jax.lax.stop_gradient((critic, features.critic))
    policy_loss, log_prob = actor_loss(policy, *fixed, jnp.exp(state.log_alpha), batch, actor_key)
    return q_loss + policy_loss, Losses(q_loss, policy_loss, q, target, jax.lax.stop_gradient(log_prob))


def update(state: State, batch: Sequences, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """One step of the critics, of the actor by the critics before it, and of the temperature; the targets follow."""
    (actor_slope, critic_slope), found = jax.grad(losses, argnums=(0, 1), has_aux=True)(
        state.actor, state.critic, state, batch, key, config
    )
    critic, critic_optimizer = descend(_critic_optimizer(config), state.critic, critic_slope, state.critic_optimizer)
    part, actor_optimizer = descend(
        _actor_optimizer(config), policy_part(state.actor, config), policy_part(actor_slope, config),
        state.actor_optimizer,
    )  # fmt: skip
    actor = with_shared_encoder(with_policy_part(state.actor, part, config), critic, config)

    real = batch.without_first(config.burn_in).real
    log_alpha, alpha_optimizer, temperature_loss = state.log_alpha, state.alpha_optimizer, jnp.float32(0)
    if config.learn_alpha:
        temperature_loss, slope = jax.value_and_grad(alpha_loss)(
            log_alpha, found.log_prob, real, _target_entropy(state, config)
        )
        log_alpha, alpha_optimizer = descend(_alpha_optimizer(config), log_alpha, slope, alpha_optimizer)

    new = State(
        actor, critic, moved_towards(state.target_critic, critic, config.tau), log_alpha,
        actor_optimizer, critic_optimizer, alpha_optimizer,
    )  # fmt: skip
    return new, {
        "losses/critic": found.critic,
        "losses/actor": found.actor,
        "losses/alpha": temperature_loss,
        "losses/temperature": jnp.exp(state.log_alpha),
        "losses/entropy": -mean_of_real(found.log_prob, real),
        "losses/q_mean": mean_of_real(found.q, real).mean(),
        "losses/q_min": smallest_of_real(found.q, real),
        "losses/q_max": largest_of_real(found.q, real),
        "losses/target_mean": mean_of_real(found.target, real),
        "losses/real_share": real.mean(),
    }


def inspect(state: State, batch: Sequences, key: Key, config: Config) -> dict[str, Array]:
    (actor_slope, critic_slope), found = jax.grad(losses, argnums=(0, 1), has_aux=True)(
        state.actor, state.critic, state, batch, key, config
    )
    features = encode(state.actor, state.critic, state, batch, config)
    batch = batch.without_first(config.burn_in)
    pairs = jnp.concatenate([features.critic[0][:-1], batch.action], axis=-1)
    parts = {
        "actor": Part(state.actor, actor_slope, state.actor.torso, features.actor[:-1]),
        "critic": Part(state.critic, critic_slope, state.critic.members[0].torso, pairs),
    }
    return of_sequences(parts, found.q - found.target, batch.real)


def _target_entropy(state: State, config: Config) -> float:
    dimensions = state.actor.head.bias.shape[0]
    return -float(dimensions) if config.target_entropy is None else config.target_entropy


def _actor_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.lr, config.max_grad_norm)


def _critic_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.critic_lr, config.max_grad_norm)


def _alpha_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.alpha_lr, None)
