"""The loops of algorithms that learn from a replay of past steps: on the device, and with host environments.

An iteration is some rounds, each of some steps of all environments and then some updates. On the host, a round's
batches are drawn before its steps are made, so that both can go on at once (ADR 19). All of an iteration's randomness
comes from the seed and its number, so a run that goes on from a checkpoint makes the same numbers as one that was never
stopped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos.parts.networks import Array, Key
from rollbook.algos.parts.replay import Batch, Replay, Transition, add, empty, sample
from rollbook.algos.parts.schedule import replay_rows, schedule_of
from rollbook.algos.parts.spaces import Spaces
from rollbook.book.growing import GrowingRows, SavedRows
from rollbook.errors import UsageError
from rollbook.training.asking import AskingUpdates
from rollbook.training.atari import AtariGame
from rollbook.training.compiling import compiled
from rollbook.training.device import DeviceEnvs, EnvState
from rollbook.training.host import Episode, HostEnvs
from rollbook.training.host_replay import FrameReplay, HostReplay, VectorReplay
from rollbook.training.normaliser import make_normaliser
from rollbook.training.on_policy import Episodes, Learner, Metrics, Report
from rollbook.training.ring import fill, growing_rows
from rollbook.training.shares import (
    Cores,
    check_shares,
    how_many,
    on_one_device,
    over_shares,
    own_keys,
    own_share,
)

_INIT, _FIRST_EPISODES, _INSPECTION = 2**32 - 1, 2**32 - 2, 2**32 - 4  # in place of an iteration's number
# In one call, which then takes longer to make than a program that runs on takes to ask for a batch.
_FEW_UPDATES = 10
STEPS_AT_ONCE = 131_072  # that a compiled call has buffers for
REPLAY_METRICS = ("charts/replay_size", "charts/replay_age")


class Algorithm(Protocol):
    """The functions of an algorithm's file; see rollbook.algos."""

    def init(self, key: Key, spaces: Spaces, config: Any) -> Any: ...
    def explore(self, key: Key, progress: Array, spaces: Spaces, config: Any) -> Any: ...
    def act(self, actor: Any, observation: Any, noise: Any) -> Any: ...
    def update(self, state: Any, batch: Batch, key: Key, config: Any) -> tuple[Any, dict[str, Array]]: ...


class Drawn(NamedTuple):
    """All the chance of an iteration, arrays (rounds, ...), but for the environments'."""

    noise: Any  # (rounds, rows, envs, ...)
    random: Any  # actions for before learning starts, (rounds, rows, envs, ...)
    random_acting: Any  # whether they are to be taken, (rounds, rows)
    bits: Any  # which steps to learn from, (rounds, updates, batch)
    keys: Any  # of updates, (rounds, updates, 2): as numbers, which a host loop can take one of without a program


def steps_per_iteration(config: Any) -> int:
    return schedule_of(config).steps


class _OffPolicy:
    """What both kinds have in common: the size of an iteration, its randomness, and learning from batches."""

    def __init__(self, algorithm: Algorithm, config: Any, spaces: Spaces, seed: int, iterations: int) -> None:
        self.algorithm, self.config, self.spaces, self.iterations = algorithm, config, spaces, iterations
        self.schedule = schedule_of(config)
        self.steps_per_iteration = self.schedule.steps
        self.replay_rows = replay_rows(config)
        # Learning waits for as many steps also where it goes on without the replay that it had.
        self._rows_to_start = max(-(-config.learning_starts // config.num_envs), config.n_step, 1)
        self._key = jax.random.key(seed)
        self._inspect = jax.jit(self._look)

    def reseed(self, seed: int) -> None:
        """Another seed for the same compiled programs."""
        self._key = jax.random.key(seed)

    def _start(self) -> Learner:
        key = jax.random.fold_in(self._key, _INIT)
        algorithm = jax.jit(self.algorithm.init, static_argnums=(1, 2))(key, self.spaces, self.config)
        return Learner(algorithm, make_normaliser(self.spaces, self.config), jnp.int32(0))

    def _chance(self, key: Key, iteration: Array, iterations: Array) -> Drawn:
        config, (rows, updates, rounds, steps) = self.config, self.schedule
        noise_key, random_key, bits_key, update_key = jax.random.split(jax.random.fold_in(key, iteration), 4)
        behind = jnp.arange(rounds * rows) * config.num_envs  # steps of the iteration before each row
        step = iteration * steps + behind
        progress = jnp.broadcast_to((step / (iterations * steps))[:, None], (rounds * rows, config.num_envs))

        def in_rounds(x: Array) -> Array:
            return x.reshape(rounds, rows, *x.shape[1:])

        return Drawn(
            noise=in_rounds(self.algorithm.explore(noise_key, progress, self.spaces, config)),
            random=in_rounds(self._random_actions(random_key, rounds * rows)),
            random_acting=in_rounds(step < config.learning_starts),
            bits=jax.random.bits(bits_key, (rounds, updates, config.batch_size)),
            keys=jax.random.key_data(jax.random.split(update_key, (rounds, updates))),
        )

    def _random_actions(self, key: Key, rows: int) -> Array:
        """Of every row; each is repeated for some rows."""
        held = self.config.hold_random_actions
        shape = (-(-rows // held), self.config.num_envs)
        if self.spaces.discrete:
            actions = jax.random.randint(key, shape, 0, self.spaces.actions)
        else:
            actions = jax.random.uniform(key, (*shape, self.spaces.actions), minval=-1, maxval=1)
        return jnp.repeat(actions, held, axis=0)[:rows]

    def _learn(self, algorithm: Any, batches: Batch, keys: Array) -> tuple[Any, Metrics]:
        """An update on each of the batches (updates, batch, ...); their metrics are means."""
        algorithm, metrics = self._learn_each(algorithm, batches, keys)
        return algorithm, {name: values.mean() for name, values in metrics.items()}

    def _learn_each(self, algorithm: Any, batches: Batch, keys: Array) -> tuple[Any, Metrics]:
        """The same with the metrics of each, (updates,)."""

        def update(state: Any, drawn: tuple[Batch, Array]) -> tuple[Any, Metrics]:
            batch, key = drawn
            return self.algorithm.update(state, batch, jax.random.wrap_key_data(key), self.config)

        if self.schedule.updates == 1:
            algorithm, metrics = update(algorithm, jax.tree.map(lambda x: x[0], (batches, keys)))
            return algorithm, {name: value[None] for name, value in metrics.items()}
        return jax.lax.scan(update, algorithm, (batches, keys))

    def _how_many_shares(self, wanted: int | None, devices: int) -> int:
        """Of every batch: as many as are wanted, else as are worth it, a device each."""
        if wanted is None:
            wanted = how_many(devices, self.config, self._shapes())
        check_shares(wanted, devices, self.config.batch_size)
        return wanted

    def _shapes(self) -> Any:
        return jax.eval_shape(lambda key: self.algorithm.init(key, self.spaces, self.config), self._key)

    def _look(self, learner: Learner, batch: Batch, key: Key) -> Metrics:
        metrics: Metrics = self.algorithm.inspect(learner.algorithm, batch, key, self.config)  # type: ignore[attr-defined]
        return metrics

    def _of_replay(self, added: int, first: int) -> dict[str, float]:
        """Its size, and how many steps ago its steps were made, on average."""
        size = (added - first) * self.config.num_envs
        return dict(zip(REPLAY_METRICS, (float(size), size / 2), strict=True))

    def value(self, learner: Learner, observations: Any) -> Any:
        """What the critics expect from each observation on, if the algorithm says so."""
        if not hasattr(self.algorithm, "value"):
            return None
        return np.asarray(jax.jit(self.algorithm.value)(learner.algorithm, jnp.asarray(observations)))


class DeviceState(NamedTuple):
    learner: Learner
    environment: EnvState
    replay: Replay


class DeviceLoop(_OffPolicy):
    """Acting, stepping, remembering and learning as one compiled program."""

    goes_on_within_episodes = True

    def __init__(self, envs: DeviceEnvs, *args: Any) -> None:
        super().__init__(*args)
        self.envs = envs
        self.most_at_once = max(STEPS_AT_ONCE // self.steps_per_iteration, 1)
        self._advance = compiled(self._several)
        # Both are asked for their shapes first; compiled apart, they are traced once.
        self._one, self._trained = jax.jit(self._iteration), jax.jit(self._train)
        self._compiled: Any = None
        self._newest: Replay | None = None
        self._cores: Cores | None = None

    def learn_in_shares(self, wanted: int | None, devices: int) -> int | None:
        """Of every batch; how many they are."""
        shares = self._how_many_shares(wanted, devices)
        if shares > 1:
            self._cores = Cores(shares)
            self._advance = compiled(self._cores.run(self._several))
        return shares

    def _put(self, x: Any) -> Any:
        return x if self._cores is None else self._cores.put(x)

    def _taken(self, x: Any) -> Any:
        """For programs that run on one device."""
        return x if self._cores is None else on_one_device(x)

    def start(self) -> DeviceState:
        key = jax.random.fold_in(self._key, _FIRST_EPISODES)
        replay = empty(self.replay_rows, self.config.num_envs, self.spaces)
        return DeviceState(self._start(), jax.jit(self.envs.reset)(key), replay)

    def compile(self, state: DeviceState) -> float:
        """Seconds that it took; nothing the second time."""
        began = time.perf_counter()
        if self._compiled is None:
            state, key = self._put((state, self._key))
            self._compiled = self._advance.lower(state, key, np.float32(0), np.int32(0)).compile()
        return time.perf_counter() - began

    def learner(self, state: DeviceState) -> Learner:
        learner: Learner = self._taken(state.learner)
        return learner

    def with_learner(self, state: DeviceState, learner: Learner) -> DeviceState:
        return state._replace(learner=learner)

    def to_tree(self, state: DeviceState) -> Any:
        """All that the training is at the end of an iteration, but the replay."""
        return {"learner": state.learner, "environment": state.environment}

    def from_tree(self, tree: Any) -> DeviceState:
        replay = empty(self.replay_rows, self.config.num_envs, self.spaces)
        return DeviceState(Learner(*tree["learner"]), EnvState(*tree["environment"]), replay)

    def growing(self, state: DeviceState) -> dict[str, GrowingRows]:
        columns = {name: np.asarray(ring) for name, ring in state.replay.data._asdict().items()}
        return {"replay": growing_rows(columns, int(state.replay.first), int(state.replay.added))}

    def with_growing(self, state: DeviceState, saved: Mapping[str, SavedRows]) -> DeviceState:
        columns = {name: np.array(ring) for name, ring in state.replay.data._asdict().items()}
        fill(columns, saved["replay"])
        data = Transition(**{name: jnp.asarray(column) for name, column in columns.items()})
        replay = Replay(data, jnp.int32(saved["replay"].end), jnp.int32(saved["replay"].first))
        return state._replace(replay=replay)

    def inspect(self, learner: Learner) -> dict[str, float]:
        """What is only computed to be looked at, of a batch of its own; the training does not notice."""
        replay = self._newest
        if not hasattr(self.algorithm, "inspect") or replay is None or int(replay.added) < self._rows_to_start:
            return {}
        key = jax.random.fold_in(jax.random.fold_in(self._key, _INSPECTION), learner.iteration)
        bits = jax.random.bits(key, (self.config.batch_size,))
        found = jax.device_get(self._inspect(learner, self._batches(replay, bits), key))
        return {name: float(value) for name, value in found.items()}

    def advance(self, state: DeviceState, count: int) -> tuple[DeviceState, Report]:
        first, rows = int(state.learner.iteration), range(int(state.replay.first), int(state.replay.added))
        self._newest = None  # its memory is about to be written to
        advance = self._compiled or self._advance
        state, key = self._put((state, self._key))
        state, report = advance(state, key, np.float32(self.iterations), np.int32(count))
        self._newest = self._taken(state.replay)
        episodes, metrics, trained = jax.device_get(report)
        return state, self._report(episodes, metrics, trained[:count] > 0, first, rows, count)

    def _report(
        self, episodes: Episodes, metrics: dict[str, Any], trained: Any, first: int, before: range, count: int
    ) -> Report:
        """Of `count` iterations from the `first` on, with the rows that the replay had `before` them."""
        ended = np.flatnonzero(episodes.ended[:count])  # (iterations, rows, envs), in the order of time
        # The environments step together: a row's step is the number of steps that all of them have made by then.
        rows = ended // self.config.num_envs + 1
        per = self.steps_per_iteration
        numbers = np.flatnonzero(trained)  # of iterations in which there was an update
        ends = [before.stop + (number + 1) * per // self.config.num_envs for number in numbers.tolist()]
        of_replay = [self._of_replay(end, max(end - self.replay_rows, before.start)) for end in ends]
        return Report(
            episode_steps=first * per + rows * self.config.num_envs,
            episode_returns=episodes.returns.reshape(-1)[ended],
            episode_lengths=episodes.lengths.reshape(-1)[ended],
            metric_steps=[(first + number + 1) * per for number in numbers.tolist()],
            metrics={name: values[numbers] for name, values in metrics.items()}
            | {name: np.array([one[name] for one in of_replay]) for name in REPLAY_METRICS},
        )

    def _several(self, state: DeviceState, key: Key, iterations: Array, count: Array) -> Any:
        """`count` iterations; what they report lies in buffers for the most that one call makes."""
        _, report = jax.eval_shape(self._one, state, key, iterations)
        buffers = jax.tree.map(lambda x: jnp.zeros((self.most_at_once, *x.shape), x.dtype), report)

        def body(number: Array, carry: Any) -> Any:
            state, buffers = carry
            state, report = self._one(state, key, iterations)
            return state, jax.tree.map(lambda buffer, x: buffer.at[number].set(x), buffers, report)

        return jax.lax.fori_loop(0, count, body, (state, buffers))

    def _iteration(self, state: DeviceState, key: Key, iterations: Array) -> Any:
        learner = state.learner
        drawn = self._chance(key, learner.iteration, iterations)
        world_key = jax.random.fold_in(jax.random.fold_in(key, _FIRST_EPISODES), learner.iteration)
        step_key, fresh_key = jax.random.split(world_key)
        shape = (self.schedule.rounds, self.schedule.rows)
        world = jax.random.split(step_key, (*shape, self.config.num_envs)), self.envs.draw(fresh_key, shape)

        def one_round(carry: Any, drawn: Any) -> Any:
            algorithm, environment, replay = carry
            chance, world = drawn
            environment, replay, episodes = self._collect(algorithm, environment, replay, chance, world)
            ready = replay.added >= self._rows_to_start
            algorithm, metrics = jax.lax.cond(ready, self._trained, self._wait, algorithm, replay, chance)
            return (algorithm, environment, replay), (episodes, metrics, ready)

        (algorithm, environment, replay), (episodes, metrics, ready) = jax.lax.scan(
            one_round, (learner.algorithm, state.environment, state.replay), (drawn, world)
        )
        trained = ready.sum()
        means = {
            name: values.mean(axis=1).sum() / jnp.maximum(trained, 1) for name, values in over_shares(metrics).items()
        }
        learner = Learner(algorithm, learner.normaliser, learner.iteration + 1)
        return state._replace(learner=learner, environment=environment, replay=replay), (episodes, means, trained)

    def _train(self, algorithm: Any, replay: Replay, chance: Drawn) -> tuple[Any, Metrics]:
        """An update on each batch; metrics (updates,)."""
        batches = self._batches(replay, own_share(chance.bits, axis=1))
        return self._learn_each(algorithm, batches, own_keys(chance.keys))

    def _batches(self, replay: Replay, bits: Array) -> Batch:
        return sample(replay, bits, n_step=self.config.n_step, gamma=self.config.gamma)

    def _wait(self, algorithm: Any, replay: Replay, chance: Drawn) -> tuple[Any, Metrics]:
        _, metrics = jax.eval_shape(self._trained, algorithm, replay, chance)
        return algorithm, {name: jnp.zeros(x.shape, x.dtype) for name, x in metrics.items()}

    def _collect(self, algorithm: Any, environment: EnvState, replay: Replay, chance: Drawn, world: Any) -> Any:
        def step(environment: EnvState, drawn: Any) -> Any:
            noise, random, at_random, keys, fresh = drawn
            observation, begins = environment.observation, environment.elapsed == 0
            action = self.algorithm.act(algorithm.actor, observation, noise)
            action = jnp.where(at_random, random, action.astype(random.dtype))
            environment, made = self.envs.step(environment, self.spaces.to_environment(action), keys, fresh)
            row = Transition(observation, action, made.reward, made.terminated, begins, made.next_observation)
            done = made.terminated | made.truncated
            return environment, (row, Episodes(done, made.episode_return, made.episode_length))

        drawn = (chance.noise, chance.random, chance.random_acting, *world)
        environment, (rows, episodes) = jax.lax.scan(step, environment, drawn)
        return environment, add(replay, rows), episodes


class HostLoop(_OffPolicy):
    """Environments step in Python; acting is numpy or a compiled call. Learning is one compiled call a round, or one an
    iteration that asks for its batches.
    """

    most_at_once = 1

    def __init__(self, envs: HostEnvs, *args: Any) -> None:
        super().__init__(*args)
        self.envs = envs
        try:
            self.replay = self._make_replay()
        except MemoryError:
            raise UsageError(
                f"buffer_size is {self.config.buffer_size}: there is no memory for as many observations of the shape "
                f"{self.spaces.observation}",
                f"--buffer-size {self.config.buffer_size // 10}",
            ) from None
        self._begins = np.ones(self.config.num_envs, np.bool_)
        self._draw = jax.jit(self._chance)
        self._update = compiled(self._learn_flat)
        self._compiled: Any = None
        self._asking: AskingUpdates | None = None
        # A convolution is faster compiled than in numpy; a small network is not.
        self._act = jax.jit(self.algorithm.act) if self.spaces.image else self.algorithm.act

    def learn_in_shares(self, wanted: int | None, devices: int) -> int | None:
        """Of every batch; how many they are. None: images are not shared."""
        if self.spaces.image:
            return None
        shares = self._how_many_shares(wanted, devices)
        if shares > 1 or (self.schedule.updates <= _FEW_UPDATES and jax.default_backend() == "cpu"):
            self._ask_for_batches(shares)
        return shares

    def _ask_for_batches(self, shares: int) -> None:
        assert isinstance(self.replay, VectorReplay)
        form, size = self.replay.form, self.config.batch_size
        self._asking = AskingUpdates(self._learn_each, self.schedule, shares, self._shapes(), form, size)

    def _make_replay(self) -> HostReplay:
        rows, envs = self.replay_rows, self.config.num_envs
        if self.spaces.image:
            return FrameReplay(rows, envs, self.spaces, stacked=_stacks_frames(self.envs.envs[0]))
        return VectorReplay(rows, envs, self.spaces, self.envs.observation.dtype)

    def reseed(self, seed: int) -> None:
        super().reseed(seed)
        self.envs.seed = seed

    def start(self) -> Learner:
        self.envs.reset()
        self.replay.clear()
        self._begins[:] = True
        return self._start()

    def compile(self, learner: Learner) -> float:
        """Seconds that it took; nothing the second time."""
        began = time.perf_counter()
        if self._compiled is None:
            chance = jax.device_get(self._draw(self._key, learner.iteration, np.float32(self.iterations)))
            if self._asking:
                self._asking.compile(learner.algorithm, chance.keys)
            else:
                self._compiled = self._update.lower(learner.algorithm, self._example(), chance.keys[0]).compile()
            if self.spaces.image:
                self._act(learner.algorithm.actor, self.envs.observation, chance.noise[0, 0])
        return time.perf_counter() - began

    def _example(self) -> Batch:
        """Batches of a round, by their shapes."""
        shape = (self.schedule.updates, self.config.batch_size)
        observation = np.zeros((*shape, *self.spaces.observation), self.envs.observation.dtype)
        actions = (
            np.zeros(shape, np.int32) if self.spaces.discrete else np.zeros((*shape, self.spaces.actions), np.float32)
        )
        numbers: Any = np.zeros(shape, np.float32)
        return Batch(observation, actions, numbers, np.zeros(shape, np.bool_), observation, numbers)  # type: ignore[arg-type]

    def _learn_flat(self, algorithm: Any, batches: Batch, keys: Array) -> tuple[Any, Array]:
        """Metrics in one array, in the order of their names: each array that leaves a program costs time."""
        algorithm, metrics = self._learn(algorithm, batches, keys)
        return algorithm, jnp.stack([metrics[name] for name in sorted(metrics)])

    def learner(self, state: Learner) -> Learner:
        return state if self._asking is None else state._replace(algorithm=on_one_device(state.algorithm))

    def with_learner(self, _: Learner, learner: Learner) -> Learner:
        return learner

    def to_tree(self, learner: Learner) -> Any:
        """All that the training is at the end of an iteration, but the replay."""
        return {"learner": learner, "environments": self.envs.to_tree(), "begins": self._begins}

    def from_tree(self, tree: Any) -> Learner:
        learner = Learner(*tree["learner"])
        self.envs.from_tree(tree["environments"], int(learner.iteration))
        # Episodes that begin anew do not follow the newest row of the replay.
        self._begins = np.array(tree["begins"]) | (not tree["environments"])
        return learner

    def growing(self, _: Learner) -> dict[str, GrowingRows]:
        return self.replay.growing()

    def with_growing(self, learner: Learner, saved: Mapping[str, SavedRows]) -> Learner:
        self.replay.load(saved)
        return learner

    @property
    def goes_on_within_episodes(self) -> bool:
        return self.envs.can_go_on_within_episodes

    def inspect(self, learner: Learner) -> dict[str, float]:
        """What is only computed to be looked at, of a batch of its own; the training does not notice."""
        if not hasattr(self.algorithm, "inspect") or self.replay.added < self._rows_to_start:
            return {}
        key = jax.random.fold_in(jax.random.fold_in(self._key, _INSPECTION), learner.iteration)
        bits = np.asarray(jax.random.bits(key, (self.config.batch_size,)))
        found = jax.device_get(self._inspect(learner, self._batches(bits), key))
        return {name: float(value) for name, value in found.items()}

    def advance(self, learner: Learner, count: int) -> tuple[Learner, Report]:
        """One iteration: there is nothing to win by more in one call."""
        assert count == 1
        first = int(learner.iteration) * self.steps_per_iteration
        chance = jax.device_get(self._draw(self._key, learner.iteration, np.float32(self.iterations)))
        algorithm = learner.algorithm
        episodes: list[tuple[int, Episode]] = []
        metrics: list[Any] = []

        def collect(number: int, actor: Any) -> None:
            if not self.spaces.image:
                actor = jax.tree.map(np.asarray, actor)
            behind = first + number * self.schedule.rows * self.config.num_envs
            self._collect(actor, chance, number, behind, episodes)

        made, waiting = self._rounds_to_start()
        for number in range(made):
            collect(number, self._acting(algorithm))

        def collect_new(number: int, actor: Any) -> None:
            if number >= made:
                collect(number, actor)

        def draw(number: int) -> Any:
            assert isinstance(self.replay, VectorReplay)
            return self.replay.sample_records(chance.bits[number], **self._looking_ahead)

        if self._asking is None:
            update = self._compiled or self._update
            for number in range(waiting, self.schedule.rounds):
                drawn = self._batches(chance.bits[number])
                collect_new(number, self._acting(algorithm))
                algorithm, values = update(algorithm, drawn, chance.keys[number])
                metrics.append(values)
        elif waiting < self.schedule.rounds:
            algorithm, found = self._asking.run(algorithm, chance.keys, waiting, draw, collect_new)
            metrics = [*found]
        learner = Learner(algorithm, learner.normaliser, learner.iteration + 1)
        return learner, self._report(episodes, metrics, first + self.steps_per_iteration)

    def _rounds_to_start(self) -> tuple[int, int]:
        """Of an iteration, those whose steps are made before anything is learned, since the replay has too little; and
        those that nothing is learned in.
        """
        rounds = self.schedule.rounds
        missing: int = max(-(-(self._rows_to_start - self.replay.added) // self.schedule.rows), 0)
        return min(missing, rounds), min(max(missing - 1, 0), rounds)

    def _acting(self, algorithm: Any) -> Any:
        """The networks that choose actions."""
        return algorithm.actor

    def _batches(self, bits: Any) -> Any:
        return self.replay.sample(bits, **self._looking_ahead)

    @property
    def _looking_ahead(self) -> dict[str, Any]:
        return {"n_step": self.config.n_step, "gamma": self.config.gamma}

    def _collect(
        self, actor: Any, chance: Drawn, number: int, behind: int, episodes: list[tuple[int, Episode]]
    ) -> None:
        envs = self.envs
        for row in range(self.schedule.rows):
            observation = envs.observation.copy()
            if chance.random_acting[number, row]:
                action = chance.random[number, row]
            else:
                action = np.asarray(self._act(actor, observation, chance.noise[number, row]))
            made, ended = envs.step(self.spaces.to_environment(action))
            self.replay.add(
                Transition(observation, action, made.reward, made.terminated, self._begins, made.next_observation)
            )
            self._begins = made.terminated | made.truncated
            episodes += [(behind + (row + 1) * self.config.num_envs, episode) for episode in ended]

    def _report(self, episodes: list[tuple[int, Episode]], metrics: list[Array], step: int) -> Report:
        means: dict[str, Any] = {}
        if metrics:
            values = np.mean(jax.device_get(metrics), axis=0)
            means = dict(zip(self._names, values[:, None], strict=True))
            of_replay = self._of_replay(self.replay.added, self.replay.first)
            means |= {name: np.array([value]) for name, value in of_replay.items()}
        return Report(
            episode_steps=np.array([at for at, _ in episodes], np.int64),
            episode_returns=np.array([episode.total for _, episode in episodes]),
            episode_lengths=np.array([episode.length for _, episode in episodes]),
            metric_steps=[step] if metrics else [],
            metrics=means,
        )

    @property
    def _names(self) -> list[str]:
        """Of the metrics of an update, in the order of `_learn_flat`."""
        if not hasattr(self, "_metric_names"):
            state = jax.eval_shape(lambda key: self.algorithm.init(key, self.spaces, self.config), self._key)
            keys = np.zeros((self.schedule.updates, 2), np.uint32)
            _, metrics = jax.eval_shape(self._learn, state, self._example(), keys)
            self._metric_names = sorted(metrics)
        return self._metric_names


def _stacks_frames(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether an observation is the one before, moved on by one frame."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, AtariGame):
            return True
        env = env.env
    return False
