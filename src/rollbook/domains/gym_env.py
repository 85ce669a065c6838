"""A domain as an ordinary Gymnasium environment, for everybody who steps from Python. Importing this registers all.

Gymnasium's own `FunctionalJaxEnv` does the same job without compiling (600 steps/s where this makes 7,000), hands out
JAX arrays, gives one key to four functions, names its render modes wrongly and shares one action space, with its
random state, among all instances. Here one compiled call makes a step, numpy comes out, and all randomness comes from
`np_random`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction

from rollbook.domains import DOMAINS, make, register

if TYPE_CHECKING:
    from rollbook.domains import AnyFuncEnv


class Compiled(NamedTuple):
    func_env: AnyFuncEnv
    reset: Callable[..., Any]  # seed -> state, key, observation, info
    step: Callable[..., Any]  # state, action, key, step number -> state, observation, reward, terminated, info


@functools.cache
def compiled(name: str) -> Compiled:
    """Pure functions hold no state, so all instances of a domain share them and compile once."""
    env = make(DOMAINS[name])

    @jax.jit
    def reset(seed: Any) -> Any:
        key, initial_key, observation_key = jax.random.split(jax.random.key(seed), 3)
        state = env.initial(initial_key)
        return state, key, env.observation(state, observation_key), env.state_info(state)

    @jax.jit
    def step(state: Any, action: Any, key: Any, number: Any) -> Any:
        # A number, not a chain of keys: where nothing is random the compiler drops all of this.
        keys = jax.random.split(jax.random.fold_in(key, number), 4)
        next_state = env.transition(state, action, keys[0])
        return (
            next_state,
            env.observation(next_state, keys[1]),
            env.reward(state, action, next_state, keys[2]),
            env.terminal(next_state, keys[3]),
            env.transition_info(state, action, next_state),
        )

    return Compiled(env, reset, step)


class GymEnv(gymnasium.Env[Any, Any]):
    """The time limit is not here: `gymnasium.make` adds it from the registry."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's type

    def __init__(self, domain: str, render_mode: str | None = None) -> None:
        self.func_env, self._reset, self._step = compiled(domain)
        self.metadata = {**self.metadata, "render_fps": getattr(self.func_env, "render_fps", 30)}
        self.render_mode = render_mode
        # Spaces hold a random generator, which two environments must not share.
        self.observation_space = copy.deepcopy(self.func_env.observation_space)
        self.action_space = copy.deepcopy(self.func_env.action_space)
        self._render_state: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        episode_seed = self.np_random.integers(2**32, dtype=np.uint32)
        self._state, self._key, observation, info = self._reset(episode_seed)
        self._steps = 0
        return _to_numpy(observation), _to_numpy(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        self._state, observation, reward, terminated, info = self._step(
            self._state, self._checked(action), self._key, np.uint32(self._steps)
        )
        return _to_numpy(observation), float(reward), bool(terminated), False, _to_numpy(info)

    @property
    def simulator(self) -> dict[str, Any]:
        """All that the next step depends on, after the first reset, but for `np_random`."""
        return {"state": self._state, "key": self._key, "steps": self._steps}

    @simulator.setter
    def simulator(self, saved: dict[str, Any]) -> None:
        self._state, self._key, self._steps = saved["state"], saved["key"], int(saved["steps"])

    def _checked(self, action: Any) -> Any:
        """The action in the one type that was compiled. Compiled code can't refuse a choice that is not there."""
        if isinstance(self.action_space, spaces.Discrete):
            if not self.action_space.contains(action):
                raise InvalidAction(f"{action!r} is not one of the {self.action_space.n} actions")
            return np.int32(action)
        array = np.asarray(action, dtype=self.action_space.dtype)
        if array.shape != self.action_space.shape:
            raise InvalidAction(f"an action has shape {self.action_space.shape}, this one has {array.shape}")
        return array

    def render(self) -> Any:
        if self.render_mode is None:
            gymnasium.logger.warn('render() needs a render mode: gymnasium.make(..., render_mode="rgb_array")')
            return None
        if self._render_state is None:
            self._render_state = self.func_env.render_init()
        self._render_state, frame = self.func_env.render_image(self._state, self._render_state)
        return frame

    def close(self) -> None:
        if self._render_state is not None:
            self.func_env.render_close(self._render_state)
            self._render_state = None


def _to_numpy(tree: Any) -> Any:
    """Copies: numpy's view of a JAX array can't be written to."""
    return jax.tree.map(np.array, tree)


register()
