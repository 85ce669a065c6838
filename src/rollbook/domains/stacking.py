"""The last observations as one: what a policy without memory can be given instead, on the device and on the host.

Oldest first. What an episode has not come to see yet is zeros.
"""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.experimental.functional import FuncEnv
from numpy.typing import NDArray

from rollbook.domains.drawing import Array, Key


class Seen(NamedTuple):
    state: Any
    window: Array  # (count, *observation)


class Stacked(FuncEnv[Seen, Array, Array, Array, Array, Any, None]):
    """A functional environment, shown by its last `count` observations."""

    def __init__(self, env: FuncEnv[Any, Any, Any, Any, Any, Any, Any], count: int) -> None:
        super().__init__()
        self.env, self.count = env, count
        self.observation_space = stacked_space(env.observation_space, count)
        self.action_space = env.action_space
        self.render_fps = getattr(env, "render_fps", 30)

    def initial(self, rng: Key, params: None = None) -> Seen:
        state = self.env.initial(rng)
        first = self.env.observation(state, rng)
        return Seen(state, jnp.zeros((self.count, *first.shape), first.dtype).at[-1].set(first))

    def transition(self, state: Seen, action: Array, rng: Key, params: None = None) -> Seen:
        following = self.env.transition(state.state, action, rng)
        newest = self.env.observation(following, rng)
        return Seen(following, jnp.concatenate([state.window[1:], newest[None]]))

    def observation(self, state: Seen, rng: Key, params: None = None) -> Array:
        return state.window.reshape(-1)

    def reward(self, state: Seen, action: Array, next_state: Seen, rng: Key, params: None = None) -> Array:
        reward: Array = self.env.reward(state.state, action, next_state.state, rng)
        return reward

    def terminal(self, state: Seen, rng: Key, params: None = None) -> Array:
        terminal: Array = self.env.terminal(state.state, rng)
        return terminal

    def render_init(self, params: None = None, **size: int) -> Any:
        return self.env.render_init(**size)

    def render_image(self, state: Seen, render_state: Any, params: None = None) -> Any:
        return self.env.render_image(state.state, render_state)

    def render_close(self, render_state: Any, params: None = None) -> None:
        self.env.render_close(render_state)


class Concat(gymnasium.Wrapper[NDArray[Any], Any, NDArray[Any], Any], gymnasium.utils.RecordConstructorArgs):
    """The same for any Gymnasium environment whose observations are vectors."""

    def __init__(self, env: gymnasium.Env[Any, Any], count: int) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, count=count)
        super().__init__(env)
        self.observation_space = stacked_space(env.observation_space, count)
        assert env.observation_space.shape is not None
        self.window = np.zeros((count, *env.observation_space.shape), env.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.window[:] = 0
        self.window[-1] = observation
        return self.window.reshape(-1).copy(), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.window[:-1] = self.window[1:]
        self.window[-1] = observation
        return self.window.reshape(-1).copy(), reward, terminated, truncated, info

    def go_on_from(self, observation: NDArray[Any]) -> None:
        """The window is all that this wrapper remembers, and the newest observation shows it."""
        self.window[:] = observation.reshape(self.window.shape)


def stacked_space(space: spaces.Space[Any], count: int) -> spaces.Box:
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise TypeError(f"only vectors can be stacked, not {space}")
    low, high = np.minimum(space.low, 0), np.maximum(space.high, 0)
    return spaces.Box(np.tile(low, count), np.tile(high, count), dtype=space.dtype.type)
