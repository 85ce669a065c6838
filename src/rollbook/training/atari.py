"""Atari as agents see it (Machado et al. 2018; Mnih et al. 2015): every fourth frame, grey, 84 x 84, four at a time.

For training only, a lost life ends the episode and rewards are clipped to their sign; what is logged is the whole
game and its score, which `info` carries beside.
"""

from __future__ import annotations

from collections import deque
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray
from PIL import Image

TASK_REWARD, TASK_OVER = "rollbook/task_reward", "rollbook/task_over"  # in `info`

_FRAME_SKIP = 4
_SIZE = 84
_STACK = 4
_MOST_NO_OPS = 30
_LONGEST_STEPS = 27_000  # half an hour of play at 60 frames a second

Frame = NDArray[np.uint8]


def is_atari(env_id: str) -> bool:
    return env_id.startswith("ALE/")


def make(env_id: str, max_episode_steps: int | None, *, training: bool, **options: Any) -> gymnasium.Env[Any, Any]:
    game = gymnasium.make(env_id, frameskip=1, obs_type="grayscale", disable_env_checker=True, **options)
    limited = TimeLimit(AtariGame(game.unwrapped), max_episode_steps or _LONGEST_STEPS)
    return ForTraining(limited) if training else limited


class AtariGame(gymnasium.Wrapper[Frame, int, Frame, int]):
    """Observations (84, 84, 4), oldest frame first; a game begins with up to 30 idle frames, and FIRE if it has it."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0, 255, (_SIZE, _SIZE, _STACK), np.uint8)
        self._frames: deque[Frame] = deque(maxlen=_STACK)
        self._fires = "FIRE" in env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        screen, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.unwrapped.np_random.integers(1, _MOST_NO_OPS + 1))):
            screen, _, over, _, info = self.env.step(0)
            if over:
                screen, info = self.env.reset(options=options)
        if self._fires:
            screen, _, over, _, info = self.env.step(1)
            if over:
                screen, info = self.env.reset(options=options)
        self._frames.extend([_small(screen)] * _STACK)
        return self._observation(), info

    def step(self, action: int) -> tuple[Frame, SupportsFloat, bool, bool, dict[str, Any]]:
        total, over = 0.0, False
        info: dict[str, Any] = {}
        last: list[Frame] = []
        for number in range(_FRAME_SKIP):
            screen, reward, over, _, info = self.env.step(action)
            total += float(reward)
            if number >= _FRAME_SKIP - 2 or over:
                last.append(screen)
            if over:
                break
        # Sprites flicker: some are drawn on every second frame only.
        self._frames.append(_small(np.maximum.reduce(last[-2:])))
        return self._observation(), total, over, False, info

    def _observation(self) -> Frame:
        return np.stack(self._frames, axis=-1)


class ForTraining(gymnasium.Wrapper[Frame, int, Frame, int]):
    """A lost life ends an episode, though the game goes on; rewards are -1, 0 or 1."""

    def __init__(self, env: gymnasium.Env[Frame, int]) -> None:
        super().__init__(env)
        self._lives, self._game_over = 0, True
        self._last: tuple[Frame, dict[str, Any]] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        if self._game_over or self._last is None or seed is not None:
            self._last = self.env.reset(seed=seed, options=options)
        # Else the next life of the same game begins where the last one was lost.
        self._lives, self._game_over = self._last[1].get("lives", 0), False
        return self._last

    def step(self, action: int) -> tuple[Frame, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, over, limit, info = self.env.step(action)
        self._game_over = over or limit
        lives = info.get("lives", 0)
        lost_a_life = lives < self._lives
        self._lives = lives
        self._last = observation, info
        info |= {TASK_REWARD: float(reward), TASK_OVER: self._game_over}
        return observation, float(np.sign(float(reward))), over or (lost_a_life and not limit), limit, info


def _small(screen: Frame) -> Frame:
    return np.asarray(Image.fromarray(screen).resize((_SIZE, _SIZE), Image.Resampling.BOX))
