"""The loops of algorithms with a memory, which learn from sequences of past steps: on the device, and with host
environments.

They are the loops of off_policy.py, but for what is carried from step to step of an episode: what was seen last and the
memory of what was before, both forgotten exactly where an episode begins.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos.parts.networks import Array
from rollbook.algos.parts.recurrent import follow, memory_to_store
from rollbook.algos.parts.replay import Replay, Transition
from rollbook.algos.parts.sequences import (
    EpisodicReplay,
    Sequences,
    add_steps,
    check_episodes_are_whole,
    empty_episodic,
    sample_sequences,
    steps_of_a_sequence,
)
from rollbook.algos.parts.spaces import Spaces
from rollbook.book.growing import GrowingRows, SavedRows
from rollbook.training import off_policy
from rollbook.training.carried import Carried, forgotten_where, nothing_carried
from rollbook.training.device import EnvState
from rollbook.training.host import Episode, HostEnvs
from rollbook.training.host_episodes import HostEpisodes, own_columns
from rollbook.training.off_policy import Drawn
from rollbook.training.on_policy import Episodes, Learner
from rollbook.training.ring import fill, growing_rows

steps_per_iteration = off_policy.steps_per_iteration


class _Remembering:
    """What both kinds have in common beyond the loops without a memory."""

    algorithm: Any
    config: Any
    spaces: Spaces
    _shapes: Any

    def _prepare(self, limit: int | None) -> None:
        config = self.config
        check_episodes_are_whole(config, limit)
        shapes = self._shapes()
        self.sequence = {"steps": steps_of_a_sequence(config), "cut": config.sequences}
        self.memory_size: int = shapes.actor.encoder.memory_size
        self.stored_size = memory_to_store(shapes, config, config.start)
        # Of critics with encoders of their own, memories are carried only to be stored.
        self.critics_follow = self.stored_size > self.memory_size
        self._follow = jax.jit(follow) if self.spaces.image else follow

    def _no_carried(self) -> Carried:
        size = max(self.stored_size, self.memory_size)
        return nothing_carried(self.config.num_envs, size, self.spaces.actions)

    def _acted(self, act: Any, state: Any, observation: Any, carried: Carried, noise: Any) -> tuple[Any, Any]:
        """The action, and all memories after the observation."""
        seen, memory = carried.seen(observation), carried.memory
        own = memory[..., : self.memory_size]
        action, own = act(state.actor, seen, own, noise)
        if not self.critics_follow:
            return action, own
        return action, (own, self._follow(state.critic, seen, memory[..., self.memory_size :]))


class DeviceState(NamedTuple):
    learner: Learner
    environment: Any  # EnvState and Carried
    replay: EpisodicReplay


class DeviceLoop(_Remembering, off_policy.DeviceLoop):
    """Acting, stepping, remembering and learning as one compiled program."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._prepare(self.envs.max_episode_steps)
        # Compiled as a whole: one by one, its many small steps would each be compiled.
        self._sample = jax.jit(lambda ring, bits: sample_sequences(ring, bits, **self.sequence))

    def start(self) -> Any:
        key = jax.random.fold_in(self._key, off_policy._FIRST_EPISODES)
        environment = jax.jit(self.envs.reset)(key), self._no_carried()
        return DeviceState(self._start(), environment, self._empty())

    def _empty(self) -> EpisodicReplay:
        return empty_episodic(self.replay_rows, self.config.num_envs, self.spaces, self.stored_size)

    def from_tree(self, tree: Any) -> Any:
        environment, carried = tree["environment"]
        return DeviceState(Learner(*tree["learner"]), (EnvState(*environment), Carried(*carried)), self._empty())

    def growing(self, state: Any) -> dict[str, GrowingRows]:
        ring: EpisodicReplay = state.replay
        first, added = int(ring.first), int(ring.added)
        steps = {name: np.asarray(column) for name, column in ring.replay.data._asdict().items()}
        own = {name: np.asarray(column) for name, column in own_columns(ring.position, ring.memory).items()}
        return {"replay": growing_rows(steps, first, added), "episodes": growing_rows(own, first, added)}

    def with_growing(self, state: Any, saved: Mapping[str, SavedRows]) -> Any:
        ring: EpisodicReplay = state.replay
        steps = {name: np.array(column) for name, column in ring.replay.data._asdict().items()}
        own = {name: np.array(column) for name, column in own_columns(ring.position, ring.memory).items()}
        fill(steps, saved["replay"])
        fill(own, saved["episodes"])
        data = Transition(**{name: jnp.asarray(column) for name, column in steps.items()})
        memory = jnp.asarray(own["memory"]) if "memory" in own else ring.memory
        replay = Replay(data, jnp.int32(saved["replay"].end), jnp.int32(saved["replay"].first))
        return state._replace(replay=EpisodicReplay(replay, jnp.asarray(own["position"]), memory))

    def _batches(self, replay: Any, bits: Array) -> Any:
        return self._sample(replay, bits)

    def _collect(self, algorithm: Any, environment: Any, replay: Any, chance: Drawn, world: Any) -> Any:
        def step(carry: Any, drawn: Any) -> Any:
            environment, carried = carry
            noise, random, at_random, keys, fresh = drawn
            observation, position = environment.observation, environment.elapsed
            carried = forgotten_where(position == 0, carried)
            action, memory = self._acted(self.algorithm.act, algorithm, observation, carried, noise)
            action = jnp.where(at_random, random, action.astype(random.dtype))
            environment, made = self.envs.step(environment, self.spaces.to_environment(action), keys, fresh)
            row = Transition(observation, action, made.reward, made.terminated, position == 0, made.next_observation)
            before = carried.memory if self.stored_size else carried.memory[:, :0]
            if self.critics_follow:
                memory = jnp.concatenate(memory, axis=-1)
            carried = Carried(memory, action, made.reward)
            done = made.terminated | made.truncated
            episodes = Episodes(done, made.episode_return, made.episode_length)
            return (environment, carried), (row, position, before, episodes)

        drawn = (chance.noise, chance.random, chance.random_acting, *world)
        environment, (*rows, episodes) = jax.lax.scan(step, environment, drawn)
        return environment, add_steps(replay, *rows), episodes


class HostLoop(_Remembering, off_policy.HostLoop):
    """Environments step in Python; acting is numpy or a compiled call, learning is one compiled call a round."""

    replay: Any

    def learn_in_shares(self, wanted: int | None, devices: int) -> None:
        """Not here."""

    def __init__(self, envs: HostEnvs, *args: Any) -> None:
        super().__init__(envs, *args)
        spec = envs.envs[0].spec
        self._prepare(spec.max_episode_steps if spec else None)
        self.replay = HostEpisodes(self.replay, self.stored_size)
        self._carried: Carried = jax.device_get(self._no_carried())
        self._position = np.zeros(self.config.num_envs, np.int32)

    def start(self) -> Learner:
        self._carried = jax.device_get(self._no_carried())
        self._position = np.zeros(self.config.num_envs, np.int32)
        return super().start()

    def compile(self, learner: Learner) -> float:
        """Seconds that it took; nothing the second time."""
        began = time.perf_counter()
        if self._compiled is None:
            chance = jax.device_get(self._draw(self._key, learner.iteration, np.float32(self.iterations)))
            self._compiled = self._update.lower(learner.algorithm, self._example(), chance.keys[0]).compile()
            if self.spaces.image:
                carried = self._no_carried()
                self._acted(self._act, learner.algorithm, self.envs.observation, carried, chance.noise[0, 0])
        return time.perf_counter() - began

    def _example(self) -> Any:
        """Batches of a round, by their shapes."""
        steps, batch = self.sequence["steps"], (self.config.batch_size,)
        shape, longer = (self.schedule.updates, steps, *batch), (self.schedule.updates, steps + 1, *batch)
        return Sequences(
            observation=np.zeros((*longer, *self.spaces.observation), self.envs.observation.dtype),
            previous_action=np.zeros((*longer, self.spaces.actions), np.float32),
            previous_reward=np.zeros(longer, np.float32),
            begins=np.zeros(longer, np.bool_),
            terminated=np.zeros(shape, np.bool_),
            real=np.zeros(shape, np.bool_),
            memory=np.zeros((self.schedule.updates, *batch, self.stored_size), np.float32),
        )

    def to_tree(self, learner: Learner) -> Any:
        """All that the training is at the end of an iteration, but the replay."""
        return super().to_tree(learner) | {"carried": self._carried, "position": self._position}

    def from_tree(self, tree: Any) -> Learner:
        learner = super().from_tree(tree)
        self._carried = Carried(*map(np.array, tree["carried"]))
        # Where episodes begin anew, so do their steps; what was carried is then forgotten before the next.
        self._position = np.where(self._begins, 0, np.array(tree["position"])).astype(np.int32)
        return learner

    def _acting(self, algorithm: Any) -> Any:
        return _Acting(algorithm.actor, algorithm.critic if self.critics_follow else None)

    def _batches(self, bits: Any) -> Any:
        return self.replay.sample(bits, **self.sequence)

    def _collect(
        self, acting: Any, chance: Drawn, number: int, behind: int, episodes: list[tuple[int, Episode]]
    ) -> None:
        envs = self.envs
        for row in range(self.schedule.rows):
            observation = envs.observation.copy()
            carried = forgotten_where(self._position == 0, self._carried)
            action, memory = self._acted(self._act, acting, observation, carried, chance.noise[number, row])
            if chance.random_acting[number, row]:
                action = chance.random[number, row]
            action = np.asarray(action)
            made, ended = envs.step(self.spaces.to_environment(action))
            step = Transition(
                observation, action, made.reward, made.terminated, self._position == 0, made.next_observation
            )
            self.replay.add(step, self._position, carried.memory)
            if self.critics_follow:
                memory = np.concatenate([np.asarray(one) for one in memory], axis=-1)
            self._carried = Carried(np.asarray(memory), action, made.reward)
            self._begins = made.terminated | made.truncated
            self._position = np.where(self._begins, 0, self._position + 1).astype(np.int32)
            episodes += [(behind + (row + 1) * self.config.num_envs, episode) for episode in ended]


class _Acting(NamedTuple):
    """Of an algorithm's state, what moves from step to step."""

    actor: Any
    critic: Any
