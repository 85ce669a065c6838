"""Tasks so small that an algorithm solves them in a second, and that a broken one does not solve at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.experimental.functional import FuncEnv

from rollbook.algos.parts.spaces import Spaces
from rollbook.training import off_policy, recurrent
from rollbook.training.device import DeviceEnvs
from rollbook.training.on_policy import DeviceLoop


class Treadmill(FuncEnv):
    """Stay for 0.2 a step, or leave for 1 and the end. With gamma 0.9, staying is worth 2: but only to who knows that
    the time limit, which comes after each step, is not the end of the task. Counted as an end, staying is worth 0.2.
    """

    STAY, LEAVE = 0, 1
    spaces = Spaces(observation=(1,), discrete=True, actions=2)
    limit = 1

    def initial(self, rng, params=None):
        return jnp.zeros((), bool)

    def transition(self, state, action, rng, params=None):
        return action == self.LEAVE

    def observation(self, state, rng, params=None):
        return jnp.ones(1)

    def reward(self, state, action, next_state, rng, params=None):
        return jnp.where(next_state, 1.0, 0.2)

    def terminal(self, state, rng, params=None):
        return state


class Mirror(FuncEnv):
    """Answer the observation x with the action x; one step an episode, the reward is minus the squared error."""

    spaces = Spaces(observation=(1,), discrete=False, actions=1, low=(-1.0,), high=(1.0,))
    limit = 1

    def initial(self, rng, params=None):
        return jax.random.uniform(rng, (1,), minval=-0.8, maxval=0.8)

    def transition(self, state, action, rng, params=None):
        return state

    def observation(self, state, rng, params=None):
        return state

    def reward(self, state, action, next_state, rng, params=None):
        return -jnp.square(action - state).sum()

    def terminal(self, state, rng, params=None):
        return jnp.ones((), bool)


class Rent(FuncEnv):
    """Ask for a rent between -1 and 1, of which 0.5 pays best, 0.2; the time is up after each step, but the task goes
    on for ever: with gamma 0.9 the best is worth 2, or 0.2 to who takes the time limit as the end.
    """

    spaces = Spaces(observation=(1,), discrete=False, actions=1, low=(-1.0,), high=(1.0,))
    limit = 1

    def initial(self, rng, params=None):
        return jnp.zeros(())

    def transition(self, state, action, rng, params=None):
        return state

    def observation(self, state, rng, params=None):
        return jnp.ones(1)

    def reward(self, state, action, next_state, rng, params=None):
        return 0.2 - jnp.square(action - 0.5).sum()

    def terminal(self, state, rng, params=None):
        return jnp.zeros((), bool)


class Sale(Rent):
    """The same, but the task ends with each step: the best is worth 0.2, or 2 to who looks beyond the end."""

    def terminal(self, state, rng, params=None):
        return jnp.ones((), bool)


class Recall(FuncEnv):
    """Remember the first observation, which is -0.8 or 0.8, do nothing for one step, and answer with it. Who remembers
    nothing does best with 0, for -0.64; what the first action tells the second, if it is seen, has to be paid for.
    """

    spaces = Spaces(observation=(2,), discrete=False, actions=1, low=(-1.0,), high=(1.0,))
    limit = 3

    def initial(self, rng, params=None):
        cue = jnp.where(jax.random.bernoulli(rng), 0.8, -0.8)
        return jnp.stack([cue, 0.0])

    def transition(self, state, action, rng, params=None):
        return state + jnp.array([0.0, 1.0])

    def observation(self, state, rng, params=None):
        return jnp.stack([jnp.where(state[1] == 0, state[0], 0.0), state[1] / 3])

    def reward(self, state, action, next_state, rng, params=None):
        wanted = jnp.where(state[1] == 2, state[0], 0.0)
        return -jnp.square(action - wanted).sum()

    def terminal(self, state, rng, params=None):
        return state[1] == 3


class Count(Recall):
    """Answer with how far the episode is: -0.8, 0 or 0.8. It ends after one to three steps, and all observations are
    the same: who counts the steps of the episode before, too, cannot tell.
    """

    spaces = Spaces(observation=(1,), discrete=False, actions=1, low=(-1.0,), high=(1.0,))

    def initial(self, rng, params=None):
        return jnp.stack([jax.random.randint(rng, (), 1, 4).astype(jnp.float32), 0.0])

    def observation(self, state, rng, params=None):
        return jnp.ones(1)

    def reward(self, state, action, next_state, rng, params=None):
        return -jnp.square(action - self.wanted(state[1])).sum()

    def terminal(self, state, rng, params=None):
        return state[1] == state[0]

    @staticmethod
    def wanted(step):
        return 0.8 * step - 0.8


def learn_values(algorithm: Any, task: Any, config: Any, iterations: int, seed: int = 0) -> Any:
    """The state of an off-policy or recurrent algorithm after so many iterations on the device."""
    envs = DeviceEnvs(task(), config.num_envs, task.limit)
    loops = recurrent if algorithm.LOOP == "recurrent" else off_policy
    loop = loops.DeviceLoop(envs, algorithm, config, task.spaces, seed, iterations)
    state = loop.start()
    done = 0
    while done < iterations:
        count = min(loop.most_at_once, iterations - done)
        state, _ = loop.advance(state, count)
        done += count
    return state.learner.algorithm


def learn(algorithm: Any, task: Any, config: Any, iterations: int, seed: int = 0) -> Any:
    """The policy after so many iterations on the device, from observations to distributions."""
    envs = DeviceEnvs(task(), config.num_envs, task.limit)
    loop = DeviceLoop(envs, algorithm, config, task.spaces, seed, iterations)
    state = loop.start()
    done = 0
    while done < iterations:
        count = min(loop.most_at_once, iterations - done)
        state, _ = loop.advance(state, count)
        done += count
    return lambda observation: state.learner.algorithm.actor(state.learner.normaliser.observe(observation))


def probability_to_stay(policy: Any) -> float:
    return float(np.exp(policy(jnp.ones(1)).log_probs)[Treadmill.STAY])


def mirror_error(policy: Any) -> float:
    """Root mean square of what the best action misses."""
    x = jnp.linspace(-0.8, 0.8, 33)[:, None]
    return float(jnp.sqrt(jnp.square(jnp.clip(policy(x).mode(), -1, 1) - x).mean()))


def often(names: Iterable[str], *chosen: str) -> list[Any]:
    """All of them as parameters of a test, but those that are not chosen among the slow tests."""
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.slow) for name in names]
