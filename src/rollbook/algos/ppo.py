"""Proximal policy optimization (Schulman et al. 2017), the variant with the clipped objective.

Details beyond the paper that one may want to switch are fields of the configuration. [H] marks those of Huang et al.
2022, "The 37 implementation details of proximal policy optimization"; [A] those that Andrychowicz et al. 2021 measured.
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
from rollbook.algos.parts.spaces import Spaces

LOOP = "on_policy"


@dataclass(frozen=True, kw_only=True)
class Config:
    num_envs: Count = 4
    """environments that are stepped side by side"""
    rollout_steps: Count = 128
    """steps of each environment between updates"""
    epochs: Count = 4
    """passes over a rollout"""
    minibatches: Count = 4
    """parts that a rollout is shuffled into, an optimizer step each"""
    lr: Positive = 2.5e-4
    """learning rate of Adam"""
    anneal_lr: bool = True
    """let the learning rate fall to zero linearly [H 4]"""
    adam_epsilon: Positive = 1e-5
    """epsilon of Adam; 1e-5 instead of the usual 1e-8 [H 3]"""
    gamma: Share = 0.99
    """discount of future rewards"""
    gae_lambda: Share = 0.95
    """weight of long against short looks ahead in the advantages [H 5]"""
    clip: Positive = 0.2
    """how far the ratio of new to old probability may move before its gradient is cut off"""
    normalise_advantages: bool = True
    """zero mean and unit variance in each minibatch [H 7]"""
    clip_values: bool = True
    """clip the value's move as well [H 9]; [A] finds that it hurts on MuJoCo, CartPole-v1 is unstable without it"""
    value_coefficient: NonNegative = 0.5
    """weight of the value loss [H 10]"""
    entropy_coefficient: NonNegative = 0.01
    """weight of the entropy bonus [H 10]"""
    max_grad_norm: Positive = 0.5
    """limit of the norm of the gradient of actor and critic together [H 11]"""
    target_kl: Positive | None = None
    """skip the rest of an update once the policy has moved this far; Spinning Up stops at 1.5 x 0.01"""
    recompute_advantages: bool = False
    """compute the advantages anew before each epoch; [A] section 3.5, Tianshou's default"""
    hidden_sizes: Sizes = (64, 64)
    """units of each hidden layer of actor and critic"""
    share_torso: bool = False
    """one torso for actor and critic, learning from both losses; usual for images [H Atari 8], else worse [H 13]"""
    activation: Activation = "tanh"
    """activation of the hidden layers"""
    initial_log_std: float = 0.0
    """logarithm of the first standard deviation of continuous actions"""
    normalise_observations: bool = False
    """subtract the running mean, divide by the running standard deviation, clip at 10 [H continuous 6, 7]"""
    normalise_rewards: bool = False
    """divide by the running standard deviation of the discounted return, clip at 10 [H continuous 8, 9]"""

    def __post_init__(self) -> None:
        check(self)
        check_minibatches(self.num_envs * self.rollout_steps, self.minibatches, "minibatches")


class State(NamedTuple):
    networks: Networks
    optimizer: optax.OptState

    @property
    def actor(self) -> Actor:
        return self.networks.actor


def init(key: Key, spaces: Spaces, config: Config) -> State:
    actor_key, critic_key = jax.random.split(key)
    networks = Networks(make_actor(actor_key, spaces, config), make_critic(critic_key, spaces, config))
    if config.share_torso:
        networks = networks._replace(critic=Critic(None, networks.critic.head))
    return State(networks, _optimizer(config).init(networks))


def act(actor: Actor, observation: Array, noise: Array | None) -> Array:
    policy = actor(observation)
    return policy.mode() if noise is None else policy.sample(noise)


def loss(networks: Networks, batch: Batch, config: Config) -> tuple[Array, dict[str, Array]]:
    """The clipped objective (equation 7), the value loss and the entropy bonus (equation 9)."""
    policy, value = networks(batch.observation)
    advantage = standardised(batch.advantage) if config.normalise_advantages else batch.advantage
    log_ratio = policy.log_prob(batch.action) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    value_loss = _value_loss(value, batch, config)
    entropy = policy.entropy().mean()
    total = policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * entropy
    return total, {
        "losses/policy": policy_loss,
        "losses/value": value_loss,
        "losses/entropy": entropy,
        # The low-variance, never negative estimate r - 1 - log r (Schulman 2020).
        "losses/approx_kl": (ratio - 1 - log_ratio).mean(),
        "losses/clip_fraction": (jnp.abs(ratio - 1) > config.clip).mean(),
    }


def _value_loss(value: Array, batch: Batch, config: Config) -> Array:
    error = jnp.square(value - batch.value_target)
    if config.clip_values:
        near = batch.value + jnp.clip(value - batch.value, -config.clip, config.clip)
        error = jnp.maximum(error, jnp.square(near - batch.value_target))
    return 0.5 * error.mean()


def update(state: State, rollout: Rollout, progress: Array, key: Key, config: Config) -> tuple[State, dict[str, Array]]:
    """Several epochs of minibatch steps on one rollout. `progress` is the share of the training that is done."""
    lr = config.lr * (1 - progress) if config.anneal_lr else jnp.float32(config.lr)
    first = make_batch(state.networks, rollout, config)

    def step(state: State, batch: Batch) -> tuple[State, dict[str, Array]]:
        gradient, metrics = jax.grad(loss, has_aux=True)(state.networks, batch, config)
        direction, optimizer = _optimizer(config).update(gradient, state.optimizer)
        networks = jax.tree.map(lambda x, d: x - lr * d, state.networks, direction)
        return State(networks, optimizer), metrics | {"debug/gradient_norm": diagnostics.norm(gradient)}

    def epoch(carry: tuple[State, Array], key: Key) -> tuple[tuple[State, Array], dict[str, Array]]:
        state, stopped = carry
        batch = first
        if config.recompute_advantages:
            again = make_batch(state.networks, rollout, config)
            batch = batch._replace(value=again.value, advantage=again.advantage, value_target=again.value_target)
        order = jax.random.permutation(key, batch.advantage.shape[0]).reshape(config.minibatches, -1)

        def minibatch(carry: tuple[State, Array], chosen: Array) -> tuple[tuple[State, Array], dict[str, Array]]:
            state, stopped = carry
            new, metrics = step(state, Batch(*(x[chosen] for x in batch)))
            if config.target_kl is None:
                return (new, stopped), metrics
            stopped = stopped | (metrics["losses/approx_kl"] > config.target_kl)
            return (jax.tree.map(lambda old, new: jnp.where(stopped, old, new), state, new), stopped), metrics

        return jax.lax.scan(minibatch, (state, stopped), order)

    (new, stopped), metrics = jax.lax.scan(epoch, (state, jnp.bool(False)), jax.random.split(key, config.epochs))
    means = {name: values.mean() for name, values in metrics.items()}
    return new, means | {
        "losses/early_stop": stopped.astype(jnp.float32),
        "losses/explained_variance": explained_variance(first.value, first.value_target),
        "losses/value_mean": first.value.mean(),
        "losses/value_min": first.value.min(),
        "losses/value_max": first.value.max(),
        "charts/learning_rate": lr,
    }


def inspect(state: State, rollout: Rollout, config: Config) -> dict[str, Array]:
    batch = make_batch(state.networks, rollout, config)
    gradient, _ = jax.grad(loss, has_aux=True)(state.networks, batch, config)
    return diagnostics.of_networks(state.networks, gradient, batch)


def _optimizer(config: Config) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=config.adam_epsilon))
