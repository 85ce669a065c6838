"""A car in a valley, too weak to climb out without swinging up (Moore 1990), with three forces or any between."""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rollbook.domains.drawing import BLUE, FAINT, GREEN, GREY, INK, SHADE, Array, Canvas, DrawnEnv, Key, moved


class MountainCar(DrawnEnv):
    """State and observation (2,): position and velocity. Each step costs 1 until the flag is reached."""

    power = 0.001
    gravity = 0.0025
    speed_limit = 0.07
    left = -1.2
    right = 0.6
    goal = 0.5

    observation_space = spaces.Box(
        np.array([left, -speed_limit], np.float32), np.array([right, speed_limit], np.float32)
    )
    action_space: spaces.Space[Any] = spaces.Discrete(3)  # back, none, forward

    def push(self, action: Array) -> Array:
        return (action - 1) * self.power

    def initial(self, rng: Key, params: None = None) -> Array:
        return jnp.stack([jax.random.uniform(rng, (), jnp.float32, -0.6, -0.4), jnp.zeros((), jnp.float32)])

    def transition(self, state: Array, action: Array, rng: Key, params: None = None) -> Array:
        position, velocity = state
        velocity = velocity + self.push(action) - self.gravity * jnp.cos(3 * position)
        velocity = jnp.clip(velocity, -self.speed_limit, self.speed_limit)
        position = position + velocity
        # The wall on the left stops the car; the edge on the right only holds it.
        velocity = jnp.where(position <= self.left, jnp.maximum(velocity, 0.0), velocity)
        return jnp.stack([jnp.clip(position, self.left, self.right), velocity])

    def observation(self, state: Array, rng: Key, params: None = None) -> Array:
        return state

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        return -jnp.ones((), jnp.float32)

    def terminal(self, state: Array, rng: Key, params: None = None) -> Array:
        return (state[0] >= self.goal) & (state[1] >= 0.0)

    view_center = (-0.32, 0.66)
    view_width = 2.1

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        position = state[0]
        slope = math.atan(1.35 * math.cos(3 * position))
        wheel = (position, _height(position))
        foot = (self.goal, _height(self.goal))
        ground = [(x, _height(x)) for x in np.linspace(-1.5, 0.9, 121).tolist()]
        wall = self.left - 0.12  # the car's front, not its middle, touches it

        canvas.polygon([(-1.5, -1), *ground, (0.9, -1)], SHADE)
        canvas.line(ground, GREY, 3)
        canvas.polygon([(-1.5, -1), (-1.5, 2), (wall, 2), (wall, -1)], FAINT)
        canvas.line([foot, moved(foot, (0, 0.28))], INK, 3)
        canvas.polygon([moved(foot, offset) for offset in ((0, 0.28), (0.1, 0.235), (0, 0.19))], GREEN)
        canvas.box(moved(wheel, (0, 0.068), slope), (0.18, 0.06), BLUE, slope)
        canvas.box(moved(wheel, (-0.01, 0.11), slope), (0.09, 0.05), BLUE, slope)
        for side in (-0.055, 0.055):
            canvas.circle(moved(wheel, (side, 0.03), slope), 0.028, GREY, INK)


class MountainCarContinuous(MountainCar):
    """The action (1,) is the force, from -1 to 1. The flag is worth 100, and force costs its square."""

    power = 0.0015
    goal = 0.45
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def push(self, action: Array) -> Array:
        return self.power * jnp.clip(action[0], -1.0, 1.0)

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        # As in Gymnasium, an action out of bounds is paid in full although its force is clipped.
        return jnp.where(self.terminal(next_state, rng), 100.0, 0.0) - 0.1 * action[0] * action[0]


def _height(position: float) -> float:
    """Of the road; the dynamics know only its slope."""
    return 0.45 * math.sin(3 * position) + 0.55
