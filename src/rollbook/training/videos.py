"""Episodes as frames."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.training.environments import Environment
from rollbook.training.evaluate import play

_MOST_FRAMES = 3_000  # 100 seconds at 30 frames a second; a longer episode is shown in part
_DEFAULT_FPS = 30


def choose_headless_renderer() -> None:
    """MuJoCo without a screen draws by EGL, unless the user chose otherwise. Works only before MuJoCo is imported."""
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")


def record_episode(
    environment: Environment, act: Callable[[Any], Any], seed: int
) -> tuple[NDArray[np.uint8], float, float, int]:
    """Frames of one episode, the frames a second at which it is as fast as life, and its return and length."""
    choose_headless_renderer()
    env = environment.make(render=True, training=False)
    frames: list[Any] = []

    def draw() -> None:
        if len(frames) < _MOST_FRAMES:
            frames.append(env.render())

    try:
        total, length = play(env, act, seed, draw)
        fps = float(env.metadata.get("render_fps") or _DEFAULT_FPS)
    finally:
        env.close()
    return np.stack(frames), fps, total, length
