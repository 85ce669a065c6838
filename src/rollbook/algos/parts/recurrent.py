"""Actors and critics with a memory: an encoder turns all that was seen so far into features, heads act and judge on
them.

Encoders are separate, one for the actor and one for each critic, or one is shared by all of them. A shared one learns
from the critics alone, and the actor has a copy of it: so an actor is always all that acting needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

import jax
import jax.numpy as jnp

from rollbook.algos.parts.continuous import Critic, fan_in_linear, fan_in_torso, make_critic
from rollbook.algos.parts.fields import Range
from rollbook.algos.parts.lstm import Kind, Layer, make_layer, memory_size, one_step, unroll
from rollbook.algos.parts.networks import (
    CNN,
    MLP,
    Activation,
    Array,
    Key,
    Linear,
    Torso,
    activate,
    make_torso,
    namespace,
    network,
    torso_features,
)
from rollbook.algos.parts.sequences import Seen, Sequences, Start
from rollbook.algos.parts.spaces import Spaces
from rollbook.algos.parts.targets import copy_of
from rollbook.algos.parts.value_diagnostics import Part, of_values

Encoders: TypeAlias = Literal["separate", "shared"]
Depth = Annotated[int, Range(at_least=1, at_most=2)]


class RecurrentConfig(Protocol):
    @property
    def cell(self) -> Kind: ...
    @property
    def units(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def encoders(self) -> Encoders: ...
    @property
    def see_reward(self) -> bool: ...
    @property
    def hidden_sizes(self) -> tuple[int, ...]: ...
    @property
    def activation(self) -> Activation: ...


@network
class Encoder:
    """What is seen, with the action and perhaps the reward before it, through recurrent layers."""

    torso: CNN | None  # of images
    layers: tuple[Layer, ...]
    see_reward: bool = field(metadata={"static": True})

    @property
    def memory_size(self) -> int:
        return memory_size(self.layers)

    def inputs(self, seen: Seen) -> Any:
        features = seen.observation if self.torso is None else self.torso(seen.observation)
        xp = namespace(features)
        parts = [features, seen.action, *([seen.reward[..., None]] if self.see_reward else [])]
        return xp.concatenate([xp.asarray(part, xp.float32) for part in parts], axis=-1)

    def step(self, seen: Seen, memory: Any) -> tuple[Any, Any]:
        """Features and the new memory, (batch, ...)."""
        return one_step(self.layers, self.inputs(seen), memory)


def one_batch(x: Any) -> Any:
    """All steps of all sequences: the gradient of a product with an array of three dimensions would copy it first."""
    return x.reshape(-1, x.shape[-1])


def value_of(critic: Critic, features: Array, action: Array) -> Array:
    """As if both were put side by side. But so, what a critic makes of features is computed once where it judges
    several actions, and no large array is copied.
    """
    assert isinstance(critic.torso, MLP)
    first, *others = critic.torso.layers
    width = features.shape[-1]
    sums = one_batch(features) @ first.weight[:width] + (one_batch(action) @ first.weight[width:] + first.bias)
    hidden = activate(sums, critic.torso.activation)
    hidden = MLP(tuple(others), critic.torso.activation)(hidden)
    return critic.head(hidden).reshape(action.shape[:-1])


@network
class DeterministicActor:
    """From what was seen so far to the best action."""

    encoder: Encoder
    torso: Torso
    head: Linear
    squashed: ClassVar[bool] = True  # the head's output goes through tanh

    def policy(self, features: Array) -> Array:
        output = self.head(self.torso(one_batch(features)))
        action: Array = namespace(output).tanh(output)
        return action.reshape(*features.shape[:-1], -1)


@network
class Critics:
    """Heads on the features of an encoder each, or all on those of one."""

    encoders: tuple[Encoder, ...]
    members: tuple[Critic, ...]

    def __call__(self, features: Sequence[Array], action: Array) -> Array:
        """(critics, ...)"""
        own = features if len(features) == len(self.members) else [features[0]] * len(self.members)
        return jnp.stack([value_of(critic, one, action) for critic, one in zip(self.members, own, strict=True)])


def make_encoder(key: Key, spaces: Spaces, config: RecurrentConfig) -> Encoder:
    torso_key, *keys = jax.random.split(key, config.layers + 1)
    torso: CNN | None = None
    inputs = spaces.observation[0]
    if spaces.image:
        images = make_torso(torso_key, spaces.observation, (), config.activation)
        assert isinstance(images, CNN)
        torso, inputs = images, torso_features(images)
    sizes = [inputs + spaces.actions + config.see_reward, *[config.units] * (config.layers - 1)]
    layers = [make_layer(one, config.cell, size, config.units) for one, size in zip(keys, sizes, strict=True)]
    return Encoder(torso, tuple(layers), config.see_reward)


def make_recurrent_critics(key: Key, count: int, spaces: Spaces, config: RecurrentConfig) -> Critics:
    encoder_key, head_key = jax.random.split(key)
    encoders = 1 if config.encoders == "shared" else count
    return Critics(
        tuple(make_encoder(one, spaces, config) for one in jax.random.split(encoder_key, encoders)),
        tuple(
            make_critic(one, config.units, spaces.actions, config.hidden_sizes, config.activation)
            for one in jax.random.split(head_key, count)
        ),
    )


def make_actor_encoder(key: Key, spaces: Spaces, critics: Critics, config: RecurrentConfig) -> Encoder:
    return copy_of(critics.encoders[0]) if config.encoders == "shared" else make_encoder(key, spaces, config)


def make_policy_torso(key: Key, config: RecurrentConfig) -> Any:
    return fan_in_torso(key, (config.units,), config.hidden_sizes, config.activation)


def make_deterministic_actor(key: Key, spaces: Spaces, critics: Critics, config: RecurrentConfig) -> DeterministicActor:
    encoder_key, torso_key, head_key = jax.random.split(key, 3)
    return DeterministicActor(
        make_actor_encoder(encoder_key, spaces, critics, config),
        make_policy_torso(torso_key, config),
        fan_in_linear(head_key, config.hidden_sizes[-1], spaces.actions),
    )


def with_shared_encoder(actor: Any, critics: Critics, config: RecurrentConfig) -> Any:
    """The actor with what the critics' encoder has become, if it is theirs, too."""
    return replace(actor, encoder=critics.encoders[0]) if config.encoders == "shared" else actor


def policy_part(actor: Any, config: RecurrentConfig) -> Any:
    """What the actor's optimizer moves: a shared encoder is the critics' to move."""
    return replace(actor, encoder=None) if config.encoders == "shared" else actor


def with_policy_part(actor: Any, part: Any, config: RecurrentConfig) -> Any:
    return replace(part, encoder=actor.encoder) if config.encoders == "shared" else part


# ---- memories -------------------------------------------------------------------------------------------------------


def no_memory(actor: Any, count: int) -> Array:
    """Of as many environments whose episodes begin."""
    return jnp.zeros((count, actor.encoder.memory_size))


def memory_to_store(state: Any, config: RecurrentConfig, start: Start) -> int:
    """Numbers that a step keeps so that a sequence can begin there."""
    if start == "zero":
        return 0
    others = () if config.encoders == "shared" else state.critic.encoders
    return int(state.actor.encoder.memory_size + sum(encoder.memory_size for encoder in others))


def follow(critic: Critics, seen: Seen, memory: Any) -> Any:
    """The memories of the critics' encoders, side by side, after one thing more."""
    xp, after, start = namespace(memory), [], 0
    for encoder in critic.encoders:
        after.append(encoder.step(seen, memory[..., start : start + encoder.memory_size])[1])
        start += encoder.memory_size
    return xp.concatenate(after, axis=-1)


def first_features(encoder: Encoder, observation: Array, actions: int) -> Array:
    """Of observations (batch, ...) that episodes begin with."""
    count = observation.shape[0]
    seen = Seen(observation, jnp.zeros((count, actions)), jnp.zeros(count))
    features: Array = encoder.step(seen, jnp.zeros((count, encoder.memory_size)))[0]
    return features


def _first_memories(encoders: Sequence[Encoder], places: Sequence[int], batch: Sequences) -> list[Array]:
    """Of each encoder, from its place among those that were stored together; else nothing."""
    sizes = [encoder.memory_size for encoder in encoders]
    if not batch.memory.shape[-1]:
        return [jnp.zeros((batch.memory.shape[0], size)) for size in sizes]
    return [batch.memory[..., place * size : (place + 1) * size] for place, size in zip(places, sizes, strict=True)]


burnt = jax.lax.stop_gradient  # what goes into a burn-in


def features_of(encoders: Sequence[Encoder], places: Sequence[int], batch: Sequences, burn_in: int) -> list[Array]:
    """Features (time + 1, batch, units) of what is seen after the burn-in, by each encoder.

    `places` says for each whose memory it begins with, among the stored ones. Gradients do not reach into the burn-in.
    """
    features = []
    for encoder, memory in zip(encoders, _first_memories(encoders, places, batch), strict=True):
        layers, x = encoder.layers, encoder.inputs(batch.seen)
        if burn_in:
            before = burnt((layers, x[:burn_in], memory))
            _, memory = unroll(before[0], before[1], batch.begins[:burn_in], before[2])
        features.append(unroll(layers, x[burn_in:], batch.begins[burn_in:], memory)[0])
    return features


# ---- what one looks at ----------------------------------------------------------------------------------------------


def of_sequences(parts: Mapping[str, Part], td_error: Array, real: Array) -> dict[str, Array]:
    """As of single steps; shares and quantiles are of real steps."""
    metrics = of_values(parts, jnp.where(real, td_error, 0), real[..., None])
    of_real = jnp.where(real, td_error, jnp.nan)
    for percent in (5, 50, 95):
        metrics[f"debug/td_error_p{percent}"] = jnp.nanquantile(of_real, percent / 100)
    return metrics
