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
from rollbook.training.environments import Environment
from rollbook.training.normaliser import Normaliser
from rollbook.training.on_policy import Algorithm

LONGEST_EPISODE = 100_000
_EVALUATION = 2**32 - 3  # in place of an iteration's number


@dataclass(frozen=True)
class Evaluation:
    returns: NDArray[Any]
    lengths: NDArray[Any]


class Evaluator:
    """Whole episodes of the best actions; which ones they are depends on the seed and the step alone."""

    def __init__(self, algorithm: Algorithm, environment: Environment, episodes: int, seed: int) -> None:
        self.algorithm, self.environment, self.episodes = algorithm, environment, episodes
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
            returns, lengths = self._on_device(actor, normaliser, jax.random.fold_in(self._key, step))
            return Evaluation(np.asarray(returns), np.asarray(lengths))
        return self._host_episodes(actor, normaliser, step)

    def _device_episodes(self, actor: Any, normaliser: Normaliser, key: Key) -> Any:
        """All episodes side by side, each counted until its first end."""
        state = self._envs.reset(key)
        # Where an ended episode would begin again does not matter.
        fresh = self._envs.draw(key, ())
        nothing = jnp.zeros(self.episodes), jnp.zeros(self.episodes, jnp.int32), jnp.zeros(self.episodes, bool)

        def going(carry: Any) -> Any:
            return ~carry[-1].all()

        def step(carry: Any) -> Any:
            state, key, returns, lengths, ended = carry
            key, step_key = jax.random.split(key)
            action = self.algorithm.act(actor, normaliser.observe(state.observation), None)
            keys = jax.random.split(step_key, self.episodes)
            state, made = self._envs.step(state, self._scaled(action), keys, fresh)
            returns = jnp.where(ended, returns, made.episode_return)
            lengths = jnp.where(ended, lengths, made.episode_length)
            return state, key, returns, lengths, ended | made.terminated | made.truncated

        _, _, returns, lengths, _ = jax.lax.while_loop(going, step, (state, key, *nothing))
        return returns, lengths

    def _host_episodes(self, actor: Any, normaliser: Normaliser, step: int) -> Evaluation:
        if self._host is None:
            self._host = self.environment.make(training=False)
        act = host_policy(self.algorithm, self.environment, actor, normaliser)
        seeds = np.random.SeedSequence([self.seed, _EVALUATION, step]).generate_state(self.episodes)
        played = [play(self._host, act, int(seed)) for seed in seeds]
        return Evaluation(np.array([one[0] for one in played]), np.array([one[1] for one in played]))

    def _scaled(self, action: Any) -> Any:
        return self.environment.spaces.to_environment(action)

    def close(self) -> None:
        if self._host is not None:
            self._host.close()


def host_policy(
    algorithm: Algorithm, environment: Environment, actor: Any, normaliser: Normaliser
) -> Callable[[Any], Any]:
    """The best action for one observation, on the environment's scale."""
    spaces = environment.spaces
    if not spaces.image:
        actor, normaliser = jax.device_get((actor, normaliser))
    best = jax.jit(lambda a, n, x: algorithm.act(a, n.observe(x), None)) if spaces.image else None

    def act(observation: Any) -> Any:
        batch = np.asarray(observation, None if spaces.image else np.float32)[None]
        action = best(actor, normaliser, batch) if best else algorithm.act(actor, normaliser.observe(batch), None)
        return spaces.to_environment(np.asarray(action))[0]

    return act


def play(env: Any, act: Callable[[Any], Any], seed: int, each: Callable[[], None] = lambda: None) -> tuple[float, int]:
    """Return and length of one episode; `each` is called at its beginning and after every step.

    An environment without a time limit may never end: of its episode, the first LONGEST_EPISODE steps count.
    """
    observation, _ = env.reset(seed=seed)
    total, length, over = 0.0, 0, False
    each()
    while not over and length < LONGEST_EPISODE:
        observation, reward, terminated, truncated, _ = env.step(act(observation))
        each()
        total, length, over = total + float(reward), length + 1, terminated or truncated
    return total, length
