"""The loops of algorithms that learn from a rollout and throw it away: on the device, and with host environments.

An iteration is a rollout and an update on it. All of its randomness comes from the seed and the iteration's number, so
a run that goes on from a checkpoint makes the same numbers as one that was never stopped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos.parts.actor_critic import Rollout
from rollbook.algos.parts.distributions import draw_noise
from rollbook.algos.parts.networks import Array, Key
from rollbook.algos.parts.spaces import Spaces
from rollbook.training.device import DeviceEnvs, EnvState
from rollbook.training.host import Episode, HostEnvs
from rollbook.training.normaliser import Normaliser, make_normaliser

Metrics: TypeAlias = dict[str, Array]

_INIT, _FIRST_EPISODES = 2**32 - 1, 2**32 - 2  # in place of an iteration's number
STEPS_AT_ONCE = 131_072  # that a compiled call has buffers for


class Algorithm(Protocol):
    """The functions of an algorithm's file; see rollbook.algos."""

    def init(self, key: Key, spaces: Spaces, config: Any) -> Any: ...
    def act(self, actor: Any, observation: Any, noise: Any) -> Any: ...
    def update(
        self, state: Any, rollout: Rollout, progress: Array, key: Key, config: Any
    ) -> tuple[Any, dict[str, Array]]: ...


@dataclass(frozen=True)
class Report:
    """What some iterations brought: episodes by the step that they ended at, and each iteration's metrics."""

    episode_steps: np.ndarray[Any, Any]
    episode_returns: np.ndarray[Any, Any]
    episode_lengths: np.ndarray[Any, Any]
    metric_steps: list[int]
    metrics: dict[str, np.ndarray[Any, Any]]


class Learner(NamedTuple):
    """What learns: the algorithm's state, the scale of what it sees, and how many iterations it has behind it."""

    algorithm: Any
    normaliser: Normaliser
    iteration: Array


class Episodes(NamedTuple):
    ended: Any
    returns: Any
    lengths: Any


class _OnPolicy:
    """What both kinds have in common: the size of an iteration, its randomness, and learning from its rollout."""

    def __init__(self, algorithm: Algorithm, config: Any, spaces: Spaces, seed: int, iterations: int) -> None:
        self.algorithm, self.config, self.spaces, self.iterations = algorithm, config, spaces, iterations
        self.steps_per_iteration: int = config.num_envs * config.rollout_steps
        self._key = jax.random.key(seed)
        self._inspect = jax.jit(self._look)
        self._last: Any = None  # the newest rollout, behind the normaliser that it was made with

    def reseed(self, seed: int) -> None:
        """Another seed for the same compiled programs."""
        self._key = jax.random.key(seed)

    def _start(self) -> Learner:
        key = jax.random.fold_in(self._key, _INIT)
        algorithm = jax.jit(self.algorithm.init, static_argnums=(1, 2))(key, self.spaces, self.config)
        return Learner(algorithm, make_normaliser(self.spaces, self.config), jnp.int32(0))

    def _learn(self, learner: Learner, rollout: Rollout, key: Key, iterations: Array) -> tuple[Learner, Metrics]:
        normaliser, seen = learner.normaliser.learn(rollout, self.config.gamma)
        progress = learner.iteration / iterations
        algorithm, metrics = self.algorithm.update(learner.algorithm, seen, progress, key, self.config)
        return Learner(algorithm, normaliser, learner.iteration + 1), metrics

    def inspect(self, learner: Learner) -> dict[str, float]:
        """What is only computed to be looked at, of the newest rollout; the training does not notice."""
        if not hasattr(self.algorithm, "inspect"):
            return {}
        found = jax.device_get(self._inspect(learner, *self._last))
        return {name: float(value) for name, value in found.items()}

    def _look(self, learner: Learner, normaliser: Normaliser, rollout: Rollout) -> Metrics:
        _, seen = normaliser.learn(rollout, self.config.gamma)
        metrics: Metrics = self.algorithm.inspect(learner.algorithm, seen, self.config)  # type: ignore[attr-defined]
        return metrics

    def _keys(self, key: Key, iteration: Array) -> tuple[Key, Key]:
        """For the rollout and for the update of an iteration."""
        rollout_key, update_key = jax.random.split(jax.random.fold_in(key, iteration))
        return rollout_key, update_key


class DeviceState(NamedTuple):
    learner: Learner
    environment: EnvState


class DeviceLoop(_OnPolicy):
    """Acting, stepping and learning as one compiled program."""

    def __init__(self, envs: DeviceEnvs, *args: Any) -> None:
        super().__init__(*args)
        self.envs = envs
        self.most_at_once = max(STEPS_AT_ONCE // self.steps_per_iteration, 1)
        self._advance = jax.jit(self._several, donate_argnums=0)
        self._compiled: Any = None

    def start(self) -> DeviceState:
        key = jax.random.fold_in(self._key, _FIRST_EPISODES)
        return DeviceState(self._start(), jax.jit(self.envs.reset)(key))

    def compile(self, state: DeviceState) -> float:
        """Seconds that it took; nothing the second time."""
        began = time.perf_counter()
        if self._compiled is None:
            self._compiled = self._advance.lower(state, self._key, np.float32(0), np.int32(0)).compile()
        return time.perf_counter() - began

    def learner(self, state: DeviceState) -> Learner:
        return state.learner

    def with_learner(self, state: DeviceState, learner: Learner) -> DeviceState:
        return state._replace(learner=learner)

    def to_tree(self, state: DeviceState) -> Any:
        """All that the training is at the end of an iteration."""
        return state

    def from_tree(self, tree: Any) -> DeviceState:
        return DeviceState(*tree)

    goes_on_within_episodes = True

    def advance(self, state: DeviceState, count: int) -> tuple[DeviceState, Report]:
        first = int(state.learner.iteration)
        advance = self._compiled or self._advance
        state, report, self._last = advance(state, self._key, np.float32(self.iterations), np.int32(count))
        episodes, metrics = jax.device_get(report)
        return state, self._report(episodes, metrics, first, count)

    def _report(self, episodes: Episodes, metrics: dict[str, Any], first: int, count: int) -> Report:
        ended = np.flatnonzero(episodes.ended[:count])  # (iterations, steps, envs), in the order of time
        # The environments step together: a row's step is the number of steps that all of them have made by then.
        rows = ended // self.config.num_envs + 1
        per = self.steps_per_iteration
        return Report(
            episode_steps=first * per + rows * self.config.num_envs,
            episode_returns=episodes.returns.reshape(-1)[ended],
            episode_lengths=episodes.lengths.reshape(-1)[ended],
            metric_steps=[(first + number + 1) * per for number in range(count)],
            metrics={name: values[:count] for name, values in metrics.items()},
        )

    def _several(self, state: DeviceState, key: Key, iterations: Array, count: Array) -> Any:
        """`count` iterations; what they report lies in buffers for the most that one call makes."""
        _, report, last = jax.eval_shape(self._iteration, state, key, iterations)
        buffers = jax.tree.map(lambda x: jnp.zeros((self.most_at_once, *x.shape), x.dtype), report)
        last = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), last)

        def body(number: Array, carry: Any) -> Any:
            state, buffers, _ = carry
            state, report, last = self._iteration(state, key, iterations)
            return state, jax.tree.map(lambda buffer, x: buffer.at[number].set(x), buffers, report), last

        return jax.lax.fori_loop(0, count, body, (state, buffers, last))

    def _iteration(self, state: DeviceState, key: Key, iterations: Array) -> Any:
        rollout_key, update_key = self._keys(key, state.learner.iteration)
        environment, rollout, episodes = self._collect(state, rollout_key)
        learner, metrics = self._learn(state.learner, rollout, update_key, iterations)
        return DeviceState(learner, environment), (episodes, metrics), (state.learner.normaliser, rollout)

    def _collect(self, state: DeviceState, key: Key) -> tuple[EnvState, Rollout, Episodes]:
        shape = (self.config.rollout_steps, self.config.num_envs)
        noise_key, step_key, fresh_key = jax.random.split(key, 3)
        actor, normaliser = state.learner.algorithm.actor, state.learner.normaliser

        def step(environment: EnvState, drawn: Any) -> Any:
            noise, keys, fresh = drawn
            observation = environment.observation
            action = self.algorithm.act(actor, normaliser.observe(observation), noise)
            environment, made = self.envs.step(environment, self.spaces.to_environment(action), keys, fresh)
            rollout = Rollout(observation, action, made.reward, made.terminated, made.truncated, made.next_observation)
            done = made.terminated | made.truncated
            return environment, (rollout, Episodes(done, made.episode_return, made.episode_length))

        drawn = (
            draw_noise(noise_key, shape, self.spaces),
            jax.random.split(step_key, shape),
            self.envs.draw(fresh_key, shape[:1]),
        )
        environment, (rollout, episodes) = jax.lax.scan(step, state.environment, drawn)
        return environment, rollout, episodes


class HostLoop(_OnPolicy):
    """Environments step in Python; acting is numpy or a compiled call, learning is one compiled call a rollout."""

    most_at_once = 1

    def __init__(self, envs: HostEnvs, *args: Any) -> None:
        super().__init__(*args)
        self.envs = envs
        self._draw = jax.jit(self._noise)
        self._update = jax.jit(self._learn, donate_argnums=0)
        self._compiled: Any = None
        # A convolution is faster compiled than in numpy; a small network is not.
        self._act = jax.jit(self._act_on) if self.spaces.image else self._act_on

    def reseed(self, seed: int) -> None:
        super().reseed(seed)
        self.envs.seed = seed

    def start(self) -> Learner:
        self.envs.reset()
        return self._start()

    def compile(self, learner: Learner) -> float:
        """Seconds that it took; nothing the second time."""
        began = time.perf_counter()
        if self._compiled is None:
            self._compiled = self._update.lower(*self._examples(learner)).compile()
            if self.spaces.image:
                noise, _ = self._draw(self._key, learner.iteration)
                self._act(learner.algorithm.actor, learner.normaliser, self.envs.observation, np.asarray(noise)[0])
        return time.perf_counter() - began

    def _examples(self, learner: Learner) -> tuple[Any, ...]:
        """Arguments of an update, by their shapes."""
        shape = (self.config.rollout_steps, self.config.num_envs)
        observation = np.zeros((*shape, *self.spaces.observation), self.envs.observation.dtype)
        actions = (
            np.zeros(shape, np.int32) if self.spaces.discrete else np.zeros((*shape, self.spaces.actions), np.float32)
        )
        flags = np.zeros(shape, np.bool_)
        rollout = Rollout(observation, actions, np.zeros(shape, np.float32), flags, flags, observation)
        _, key = self._draw(self._key, learner.iteration)
        return learner, rollout, key, np.float32(0)

    def learner(self, state: Learner) -> Learner:
        return state

    def with_learner(self, _: Learner, learner: Learner) -> Learner:
        return learner

    def to_tree(self, learner: Learner) -> Any:
        """All that the training is at the end of an iteration."""
        return {"learner": learner, "environments": self.envs.to_tree()}

    def from_tree(self, tree: Any) -> Learner:
        learner = Learner(*tree["learner"])
        self.envs.from_tree(tree["environments"], int(learner.iteration))
        return learner

    @property
    def goes_on_within_episodes(self) -> bool:
        return self.envs.can_go_on_within_episodes

    def advance(self, learner: Learner, count: int) -> tuple[Learner, Report]:
        """One iteration: there is nothing to win by more in one call."""
        assert count == 1
        first = int(learner.iteration) * self.steps_per_iteration
        noise, update_key = self._draw(self._key, learner.iteration)
        acting = (learner.algorithm.actor, learner.normaliser)
        actor, normaliser = acting if self.spaces.image else jax.device_get(acting)
        rollout, episodes = self._collect(actor, normaliser, np.asarray(noise))
        self._last = (jax.device_get(normaliser), rollout)
        update = self._compiled or self._update
        learner, metrics = update(learner, rollout, update_key, np.float32(self.iterations))
        return learner, Report(
            episode_steps=np.array([first + step for step, _ in episodes], np.int64),
            episode_returns=np.array([episode.total for _, episode in episodes]),
            episode_lengths=np.array([episode.length for _, episode in episodes]),
            metric_steps=[first + self.steps_per_iteration],
            metrics={name: np.asarray(value)[None] for name, value in metrics.items()},
        )

    def _noise(self, key: Key, iteration: Array) -> tuple[Array, Key]:
        rollout_key, update_key = self._keys(key, iteration)
        shape = (self.config.rollout_steps, self.config.num_envs)
        return draw_noise(rollout_key, shape, self.spaces), update_key

    def _act_on(self, actor: Any, normaliser: Normaliser, observation: Any, noise: Any) -> Any:
        return self.algorithm.act(actor, normaliser.observe(observation), noise)

    def _collect(self, actor: Any, normaliser: Normaliser, noise: Any) -> tuple[Rollout, list[tuple[int, Episode]]]:
        steps, envs = self.config.rollout_steps, self.envs
        rows, episodes = [], []
        for step in range(steps):
            observation = envs.observation.copy()
            action = np.asarray(self._act(actor, normaliser, observation, noise[step]))
            made, ended = envs.step(self.spaces.to_environment(action))
            rows.append((observation, action, *made))
            episodes += [((step + 1) * self.config.num_envs, episode) for episode in ended]
        return Rollout(*(np.stack(column) for column in zip(*rows, strict=True))), episodes
