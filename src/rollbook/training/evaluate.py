"""The learned policy without exploration, on environments and random numbers of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from rollbook.algos.parts.networks import Key
from rollbook.training.carried import Carried, RememberingPolicy, best_action, carried_at_first, remembers
from rollbook.training.environments import Environment
from rollbook.training.normaliser import Normaliser

LONGEST_EPISODE = 100_000
_EVALUATION = 2**32 - 3  # in place of an iteration's number


@dataclass(frozen=True)
class Evaluation:
    returns: NDArray[Any]
    lengths: NDArray[Any]
    discounted: NDArray[Any]  # returns, as seen from the first observation
    truncated: NDArray[Any]  # whether a time limit ended the episode
    first_observations: NDArray[Any]
    last_observations: NDArray[Any]


class Evaluator:
    """Whole episodes of the best actions; which ones they are depends on the seed and the step alone."""

    def __init__(self, algorithm: Any, environment: Environment, episodes: int, seed: int, gamma: float = 1.0) -> None:
        self.algorithm, self.environment, self.episodes, self.gamma = algorithm, environment, episodes, gamma
        self.reseed(seed)
        self._host: Any = None
        if environment.backend == "device":
            self._envs = environment.on_device(episodes)
            self._on_device = jax.jit(self._device_episodes)

    def reseed(self, seed: int) -> None:
        """Other episodes from the same compiled program."""
        self.seed = seed
        self._key = jax.random.fold_in(jax.random.key(seed), _EVALUATION)

    def __call__(self, actor: Any, normaliser: Normaliser, step: int) -> Evaluation:
        if self.environment.backend == "device":
            found = self._on_device(actor, normaliser, jax.random.fold_in(self._key, step))
            return Evaluation(*map(np.asarray, found))
        return self._host_episodes(actor, normaliser, step)

    def _device_episodes(self, actor: Any, normaliser: Normaliser, key: Key) -> Any:
        """All episodes side by side, each counted until its first end."""
        state = self._envs.reset(key)
        # Where an ended episode would begin again does not matter.
        fresh = self._envs.draw(key, ())
        zeros = jnp.zeros(self.episodes)
        carried = carried_at_first(self.algorithm, actor, self.episodes, self.environment.spaces.actions)
        first, no = state.observation, jnp.zeros(self.episodes, bool)
        nothing = carried, zeros, jnp.zeros(self.episodes, jnp.int32), zeros, no, first, no

        def going(carry: Any) -> Any:
            return ~carry[-1].all()

        def step(carry: Any) -> Any:
            state, key, carried, returns, lengths, discounted, truncated, last, ended = carry
            key, step_key = jax.random.split(key)
            action, memory = best_action(self.algorithm, actor, normaliser.observe(state.observation), carried)
            keys = jax.random.split(step_key, self.episodes)
            state, made = self._envs.step(state, self._scaled(action), keys, fresh)
            if carried is not None:
                carried = Carried(memory, action, made.reward)
            returns = jnp.where(ended, returns, made.episode_return)
            lengths = jnp.where(ended, lengths, made.episode_length)
            weight = jnp.power(self.gamma, (made.episode_length - 1).astype(jnp.float32))
            discounted = jnp.where(ended, discounted, discounted + weight * made.reward)
            truncated = jnp.where(ended, truncated, made.truncated)
            last = jnp.where(ended.reshape(-1, *[1] * (last.ndim - 1)), last, made.next_observation)
            ended = ended | made.terminated | made.truncated
            return state, key, carried, returns, lengths, discounted, truncated, last, ended

        *_, returns, lengths, discounted, truncated, last, _ = jax.lax.while_loop(going, step, (state, key, *nothing))
        return returns, lengths, discounted, truncated, first, last

    def _host_episodes(self, actor: Any, normaliser: Normaliser, step: int) -> Evaluation:
        if self._host is None:
            self._host = self.environment.make(training=False)
        act = host_policy(self.algorithm, self.environment, actor, normaliser)
        seeds = np.random.SeedSequence([self.seed, _EVALUATION, step]).generate_state(self.episodes)
        played = [play_watched(self._host, act, int(seed), self.gamma) for seed in seeds]
        return Evaluation(*(np.array(column) for column in zip(*played, strict=True)))

    def _scaled(self, action: Any) -> Any:
        return self.environment.spaces.to_environment(action)

    def close(self) -> None:
        if self._host is not None:
            self._host.close()


def host_policy(algorithm: Any, environment: Environment, actor: Any, normaliser: Normaliser) -> Callable[[Any], Any]:
    """The best action for one observation, on the environment's scale."""
    spaces = environment.spaces
    if remembers(algorithm):
        return RememberingPolicy(algorithm, actor, spaces)
    if not spaces.image:
        actor, normaliser = jax.device_get((actor, normaliser))
    best = jax.jit(lambda a, n, x: algorithm.act(a, n.observe(x), None)) if spaces.image else None

    def act(observation: Any) -> Any:
        batch = np.asarray(observation, None if spaces.image else np.float32)[None]
        action = best(actor, normaliser, batch) if best else algorithm.act(actor, normaliser.observe(batch), None)
        return spaces.to_environment(np.asarray(action))[0]

    return act


def play_watched(env: Any, act: Callable[[Any], Any], seed: int, gamma: float) -> tuple[Any, ...]:
    """One episode, in the order of an Evaluation."""
    ends: list[Any] = []  # the first observation and the last
    rewards: list[float] = []
    over = False

    def watch(observation: Any, reward: float, terminated: bool) -> None:
        nonlocal over
        if ends:
            rewards.append(reward)
        ends[1:] = [np.array(observation)]
        over = terminated

    total, length = play(env, act, seed, watch=watch)
    return total, length, float(np.dot(rewards, gamma ** np.arange(len(rewards)))), not over, *ends


def play(
    env: Any,
    act: Callable[[Any], Any],
    seed: int,
    each: Callable[[], None] = lambda: None,
    watch: Callable[[Any, float, bool], None] = lambda *_: None,
) -> tuple[float, int]:
    """Return and length of one episode; `each` is called at its beginning and after every step, and so is `watch`, with
    the observation, the reward and whether the task is over.

    An environment without a time limit may never end: of its episode, the first LONGEST_EPISODE steps count.
    """
    observation, _ = env.reset(seed=seed)
    if isinstance(act, RememberingPolicy):
        act.begin()
    total, length, over = 0.0, 0, False
    each()
    watch(observation, 0.0, False)
    while not over and length < LONGEST_EPISODE:
        observation, reward, terminated, truncated, _ = env.step(act(observation))
        each()
        watch(observation, float(reward), terminated)
        if isinstance(act, RememberingPolicy):
            act.hear(float(reward))
        total, length, over = total + float(reward), length + 1, terminated or truncated
    return total, length
