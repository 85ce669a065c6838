"""Morris' water maze (1984): a swimmer looks for a platform under water, and once carried off it, should find it again.

The platform stays where it is for the episode. Who does not see it has to search, once, and to remember.
"""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rollbook.domains.drawing import BLUE, FAINT, GREEN, GREY, INK, ORANGE, Array, Canvas, Key, moved
from rollbook.domains.partly_seen import PartlySeen

_TRIES = 8  # at a place outside the platform; the worst platform is hit by all of them once in 15,000 times
_WATER, _SHALLOW = "#dcebf3", "#b9e0d3"


class WaterMaze(PartlySeen):
    """State (8,): position (2), velocity (2), platform (2), whether the last step was on it, and how many were.

    Each step on the platform is worth 1; after the fifth the swimmer is carried off to anywhere else.
    """

    radius = 0.3  # of the platform; the pool's is 1
    stride = 0.04  # the longest, along each axis
    steps_on_platform = 5

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    limits: ClassVar = {"x": 1.0, "y": 1.0, "inside": 1.0, "platform_x": 1.0, "platform_y": 1.0}

    def initial(self, rng: Key, params: None = None) -> Array:
        platform_key, swimmer_key = jax.random.split(rng)
        platform = self.place_platform(platform_key)
        return jnp.concatenate([self.place_swimmer(swimmer_key, platform), jnp.zeros(2), platform, jnp.zeros(2)])

    def place_platform(self, key: Key) -> Array:
        return _in_disc(jax.random.uniform(key, (2,)), 1.0 - self.radius)

    def place_swimmer(self, key: Key, platform: Array) -> Array:
        tries = _in_disc(jax.random.uniform(key, (2, _TRIES)), 1.0).T  # (tries, 2)
        outside = ~self.inside(tries, platform)
        opposite = -0.95 * platform / jnp.maximum(jnp.linalg.norm(platform), 1e-6)
        return jnp.where(outside.any(), tries[jnp.argmax(outside)], opposite)

    def inside(self, position: Array, platform: Array) -> Array:
        return jnp.less(jnp.linalg.norm(position - platform, axis=-1), self.radius)

    def swim(self, velocity: Array, action: Array) -> Array:
        """The velocity of the next step."""
        return self.stride * jnp.clip(action, -1.0, 1.0)

    def transition(self, state: Array, action: Array, rng: Key, params: None = None) -> Array:
        position, velocity, platform = state[:2], state[2:4], state[4:6]
        velocity = self.swim(velocity, action)
        in_pool = jnp.linalg.norm(position + velocity) < 1.0  # the wall stops the swimmer
        position = jnp.where(in_pool, position + velocity, position)
        velocity = jnp.where(in_pool, velocity, 0.0)

        inside = self.inside(position, platform)
        count = state[7] + inside
        carried_off = inside & (count >= self.steps_on_platform)
        position = jnp.where(carried_off, self.place_swimmer(rng, platform), position)
        velocity = jnp.where(carried_off, 0.0, velocity)
        counts = jnp.stack([inside.astype(jnp.float32), jnp.where(carried_off, 0.0, count)])
        return jnp.concatenate([position, velocity, platform, counts])

    def sights(self, state: Array) -> dict[str, Array]:
        return {"x": state[0], "y": state[1], "inside": state[6], "platform_x": state[4], "platform_y": state[5]}

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        return next_state[6]

    def terminal(self, state: Array, rng: Key, params: None = None) -> Array:
        return jnp.zeros((), jnp.bool_)

    view_width = 2.9

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        x, y, speed_x, speed_y, platform_x, platform_y, inside, _ = state
        shown = "platform_x" in self.seen.split()

        canvas.circle((0, 0), 1.04, _WATER, FAINT)
        canvas.circle((platform_x, platform_y), self.radius, _SHALLOW, GREEN if inside else None)
        if not shown:  # the dashes say that only we see it
            ring = [moved((platform_x, platform_y), (self.radius, 0), math.tau * part / 48) for part in range(48)]
            for start, end in zip(ring[::2], ring[1::2], strict=True):
                canvas.line([start, end], GREEN, 1.5)
        canvas.circle((x, y), 0.06, ORANGE if inside else BLUE, INK)
        if math.hypot(speed_x, speed_y) > 0.004:
            ahead = moved((x, y), (3 * speed_x, 3 * speed_y))
            canvas.line([(x, y), ahead], GREY, 2.5)


class DenseWaterMaze(WaterMaze):
    """Each step costs the distance to the middle of a smaller platform."""

    radius = 0.2

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        """Of where the step led, before the swimmer is carried off: carrying is no fault."""
        step = self.swim(state[2:4], action)
        position = jnp.where(jnp.linalg.norm(state[:2] + step) < 1.0, state[:2] + step, state[:2])
        return jnp.negative(jnp.linalg.norm(position - state[4:6]))


class SimpleWaterMaze(WaterMaze):
    """The swimmer begins in the middle and is carried back there; the platform is on a circle around it.

    Actions accelerate: there is a velocity, which nobody sees.
    """

    distance = 0.7
    acceleration = 0.03
    speed_limit = 0.1

    def place_platform(self, key: Key) -> Array:
        angle = jax.random.uniform(key, (), jnp.float32, 0.0, math.tau)
        return jnp.stack([self.distance * jnp.cos(angle), self.distance * jnp.sin(angle)])

    def place_swimmer(self, key: Key, platform: Array) -> Array:
        return jnp.zeros(2)

    def swim(self, velocity: Array, action: Array) -> Array:
        faster = velocity + self.acceleration * jnp.clip(action, -1.0, 1.0)
        return jnp.clip(faster, -self.speed_limit, self.speed_limit)


def _in_disc(chance: Array, radius: float) -> Array:
    """Any distance from the middle is as likely as any other, and so is any direction."""
    distance, turn = radius * chance[0], math.tau * chance[1]
    return jnp.stack([distance * jnp.cos(turn), distance * jnp.sin(turn)])
