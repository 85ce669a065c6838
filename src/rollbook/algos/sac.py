"""Soft actor-critic (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications").

Two critics and no separate value network, and a temperature that is learned: the second of the two papers of that
year. [S] marks what is Spinning Up's, [B] what is Stable-Baselines3's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rollbook.algos.parts.continuous import Critics, fan_in_linear, fan_in_torso, make_critics
from rollbook.algos.parts.descent import descend, descend_by_mean, make_optimizer
from rollbook.algos.parts.fields import Count, Positive, Share, Sizes, check
from rollbook.algos.parts.networks import Activation, Array, Key, Linear, Torso, namespace, network
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.schedule import Steps, check_schedule
from rollbook.algos.parts.shares import mean_over_shares
from rollbook.algos.parts.spaces import Spaces
from rollbook.algos.parts.squashed import SquashedGaussian
from rollbook.algos.parts.targets import copy_of, moved_towards
from rollbook.algos.parts.value_diagnostics import Part, of_values

LOOP = "off_policy"
SHARES = True
ACTIONS = "continuous"
IMAGES = False

_LOG_STD = (-20.0, 2.0)  # the authors' limits


@dataclass(frozen=True, kw_only=True)
class Config:
    num_envs: Count = 1
    """environments that are stepped side by side"""
    train_every: Count = 1
    """steps of each environment between trainings; 50 in Spinning Up"""
    updates_per_step: Positive = 1.0
    """updates for each step of an environment; all of a training's are one compiled call"""
    learning_starts: Steps = 5_000
    """steps before the first update, with random actions"""
    hold_random_actions: Count = 1
    """steps that each of those random actions is repeated for"""
    buffer_size: Count = 1_000_000
    """steps that the replay holds (table 1)"""
    batch_size: Count = 256
    """steps that an update learns from (table 1)"""
    n_step: Count = 1
    """rewards that are summed up before the critic's estimate takes over"""
    gamma: Share = 0.99
    """discount of future rewards (table 1)"""
    lr: Positive = 3e-4
    """learning rate of the actor (Adam; table 1)"""
    critic_lr: Positive = 3e-4
    """learning rate of the critics (table 1)"""
    alpha_lr: Positive = 3e-4
    """learning rate of the temperature's logarithm (table 1)"""
    tau: Share = 0.005
    """share by which the target critics move towards the critics at each update (table 1)"""
    alpha: Positive = 1.0
    """temperature: the weight of entropy against reward; where it is learned, where it begins [B]"""
    learn_alpha: bool = True
    """adapt the temperature to the target entropy (section 5)"""
    target_entropy: float | None = None
    """entropy that the policy is to keep; none: minus the dimensions of the action (table 1)"""
    max_grad_norm: Positive | None = None
    """limit of the norm of the actor's gradient, and of the critics'"""
    hidden_sizes: Sizes = (256, 256)
    """units of each hidden layer (table 1)"""
    activation: Activation = "relu"
    """activation of the hidden layers (table 1)"""
    log_every: Count = 200
    """steps that logged metrics are means over"""

    def __post_init__(self) -> None:
        check(self)
        check_schedule(self)


@network
class Actor:
    """From observations to a distribution over actions, whose width depends on the observation too."""

    torso: Torso
    heads: Linear  # means, then logarithms of deviations: one product for both makes an update 6% faster
    squashed: ClassVar[bool] = True

    @property
    def head(self) -> Linear:
        """Of the means: what is played when nothing is to be tried."""
        actions = self.heads.bias.shape[0] // 2
        return Linear(self.heads.weight[:, :actions], self.heads.bias[:actions])

    def __call__(self, observation: Array) -> SquashedGaussian:
        output = self.heads.narrow(self.torso(observation))
        xp = namespace(output)
        mean, log_std = xp.split(output, 2, axis=-1)
        return SquashedGaussian(mean, xp.minimum(xp.maximum(log_std, _LOG_STD[0]), _LOG_STD[1]))


class State(NamedTuple):
    actor: Actor
    critic: Critics
    target_critic: Critics
    log_alpha: Array
    actor_optimizer: optax.OptState
    critic_optimizer: optax.OptState
    alpha_optimizer: optax.OptState


def init(key: Key, spaces: Spaces, config: Config) -> State:
    torso_key, heads_key, critic_key = jax.random.split(key, 3)
    inputs, hidden = spaces.observation[0], config.hidden_sizes
    actor = Actor(
        fan_in_torso(torso_key, spaces.observation, hidden, config.activation),
        fan_in_linear(heads_key, hidden[-1], 2 * spaces.actions),
    )
    critic = make_critics(critic_key, 2, inputs, spaces.actions, hidden, config.activation)
    log_alpha = jnp.log(jnp.float32(config.alpha))
    return State(
        actor=actor,
        critic=critic,
        target_critic=copy_of(critic),
        log_alpha=log_alpha,
        actor_optimizer=_actor_optimizer(config).init(actor),
        critic_optimizer=_critic_optimizer(config).init(critic),
        alpha_optimizer=_alpha_optimizer(config).init(log_alpha),
    )


def explore(key: Key, progress: Array, spaces: Spaces, config: Config) -> Array:
    """The policy is random of itself."""
    del config
    return jax.random.normal(key, (*progress.shape, spaces.actions))


def act(actor: Actor, observation: Array, noise: Array | None) -> Array:
    policy = actor(observation)
    return policy.mode() if noise is None else policy.sample(noise)


def value(state: State, observation: Array) -> Array:
    """What the critics expect of the best action."""
    return state.critic(observation, state.actor(observation).mode()).min(axis=0)


def soft_target(state: State, batch: Batch, noise: Array) -> Array:  # (batch,)
    """Reward plus the discounted soft value of the next state (equations 3 and 5)."""
    action, log_prob = state.actor(batch.next_observation).sample_with_log_prob(noise)
    value = state.target_critic(batch.next_observation, action).min(axis=0) - jnp.exp(state.log_alpha) * log_prob
    # A time limit is not the end of the task: only termination cuts the future off.
    return batch.reward + batch.discount * jnp.where(batch.terminated, 0.0, value)


def critic_loss(critic: Critics, batch: Batch, target: Array) -> tuple[Array, Array]:
    """Equation 5, summed over both critics; also their values, (2, batch)."""
    q = critic(batch.observation, batch.action)
    return 0.5 * jnp.square(q - target).mean(axis=1).sum(), q


def actor_loss(actor: Actor, critic: Critics, alpha: Array, batch: Batch, noise: Array) -> tuple[Array, Array]:
    """Equation 9 with the smaller of both critics; also the log-probabilities of the actions."""
    action, log_prob = actor(batch.observation).sample_with_log_prob(noise)
    q = critic(batch.observation, action).min(axis=0)
    return (alpha * log_prob - q).mean(), log_prob


def alpha_loss(log_alpha: Array, log_prob: Array, target_entropy: float) -> Array:
    """Equation 18."""
    return -(jnp.exp(log_alpha) * (log_prob + target_entropy)).mean()


def update(state: State, batch: Batch, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """One step of the critics, of the actor by the new critics, and of the temperature; then the targets follow."""
    next_noise, noise = jax.random.normal(key, (2, *batch.action.shape))  # in one go, which is faster
    target = soft_target(state, batch, next_noise)
    (q_loss, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, batch, target)
    critic, critic_optimizer = descend(_critic_optimizer(config), state.critic, gradient, state.critic_optimizer)

    alpha = jnp.exp(state.log_alpha)
    (policy_loss, log_prob), gradient = jax.value_and_grad(actor_loss, has_aux=True)(
        state.actor, critic, alpha, batch, noise
    )
    log_alpha, alpha_optimizer, temperature_loss = state.log_alpha, state.alpha_optimizer, jnp.float32(0)
    if config.learn_alpha:
        temperature_loss, slope = jax.value_and_grad(alpha_loss)(log_alpha, log_prob, _target_entropy(state, config))
        gradient, slope = mean_over_shares((gradient, slope))
        log_alpha, alpha_optimizer = descend_by_mean(_alpha_optimizer(config), log_alpha, slope, alpha_optimizer)
    else:
        gradient = mean_over_shares(gradient)
    actor, actor_optimizer = descend_by_mean(_actor_optimizer(config), state.actor, gradient, state.actor_optimizer)

    new = State(
        actor, critic, moved_towards(state.target_critic, critic, config.tau), log_alpha,
        actor_optimizer, critic_optimizer, alpha_optimizer,
    )  # fmt: skip
    return new, {
        "losses/critic": q_loss,
        "losses/actor": policy_loss,
        "losses/alpha": temperature_loss,
        "losses/temperature": alpha,
        "losses/entropy": -log_prob.mean(),
        "losses/q_mean": q.mean(),
        "losses/q_min": q.min(),
        "losses/q_max": q.max(),
        "losses/target_mean": target.mean(),
    }


def inspect(state: State, batch: Batch, key: Key, config: Config) -> dict[str, Array]:
    del config
    next_noise, noise = jax.random.normal(key, (2, *batch.action.shape))  # in one go, which is faster
    target = soft_target(state, batch, next_noise)
    (_, q), critic_gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, batch, target)
    alpha = jnp.exp(state.log_alpha)
    actor_gradient, _ = jax.grad(actor_loss, has_aux=True)(state.actor, state.critic, alpha, batch, noise)
    pairs = jnp.concatenate([batch.observation, batch.action], axis=-1)
    parts = {
        "actor": Part(state.actor, actor_gradient, state.actor.torso, batch.observation),
        "critic": Part(state.critic, critic_gradient, state.critic.members[0].torso, pairs),
    }
    return of_values(parts, q - target)


def _target_entropy(state: State, config: Config) -> float:
    dimensions = state.actor.head.bias.shape[0]
    return -float(dimensions) if config.target_entropy is None else config.target_entropy


def _actor_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.lr, config.max_grad_norm)


def _critic_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.critic_lr, config.max_grad_norm)


def _alpha_optimizer(config: Config) -> optax.GradientTransformation:
    return make_optimizer(config.alpha_lr, None)
