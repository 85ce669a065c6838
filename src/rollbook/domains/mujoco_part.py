"""MuJoCo's observations without velocities (`HalfCheetah-v5-p`) or without positions (`HalfCheetah-v5-v`).

Most of Gymnasium's MuJoCo environments tell what their observation is made of. Three do not, and are listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Kept = Literal["p", "v"]

# What tells velocities, and what tells positions. Forces, torques and the rest stay in both.
_LEFT_OUT: Mapping[Kept, tuple[str, ...]] = {
    "p": ("qvel", "cvel", "ten_velocity"),
    "v": ("qpos", "cinert", "ten_length"),
}
# Gymnasium's order of numbers, by the class of the environment.
_STRUCTURES: Mapping[str, tuple[tuple[str, int], ...]] = {
    "InvertedDoublePendulumEnv": (("qpos", 5), ("qvel", 3), ("qfrc_constraint", 1)),  # positions as sines and cosines
    "ReacherEnv": (("qpos", 4), ("goal", 2), ("qvel", 2), ("qpos", 2)),  # the last: from the goal to the fingertip
    "PusherEnv": (("qpos", 7), ("qvel", 7), ("qpos", 6), ("goal", 3)),  # the last positions: fingertip and object
}


class Part(gymnasium.ObservationWrapper[NDArray[Any], Any, NDArray[Any]], gymnasium.utils.RecordConstructorArgs):
    """Only positions ("p") or only velocities ("v"), with whatever else there is."""

    def __init__(self, env: gymnasium.Env[Any, Any], kept: Kept) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, kept=kept)
        super().__init__(env)
        space = env.observation_space
        structure = _structure(env.unwrapped)
        if structure is None or not isinstance(space, spaces.Box) or space.shape != (sum(n for _, n in structure),):
            name = type(env.unwrapped).__name__
            raise TypeError(f"{name} does not tell which of its numbers are positions and velocities")
        self._indices = _indices(structure, kept)
        self.observation_space = spaces.Box(space.low[self._indices], space.high[self._indices], dtype=space.dtype.type)

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        return observation[self._indices]


def _structure(env: Any) -> tuple[tuple[str, int], ...] | None:
    """(name, how many numbers) of the parts of an observation, in their order."""
    told: Mapping[str, int] | None = getattr(env, "observation_structure", None)
    if told is None:
        return next((_STRUCTURES[one.__name__] for one in type(env).__mro__ if one.__name__ in _STRUCTURES), None)
    return tuple((name, count) for name, count in told.items() if name != "skipped_qpos")


def _indices(structure: tuple[tuple[str, int], ...], kept: Kept) -> NDArray[np.intp]:
    names = np.repeat([name for name, _ in structure], [count for _, count in structure])
    return np.flatnonzero(~np.isin(names, _LEFT_OUT[kept]))
