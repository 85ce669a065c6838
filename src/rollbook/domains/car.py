"""A car between heaven and hell, at the two ends of a road, and a sign half-way to one end that says which is which."""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rollbook.domains.drawing import BLUE, FAINT, GREEN, GREY, INK, RED, SHADE, Array, Canvas, Key, moved
from rollbook.domains.partly_seen import PartlySeen


class Car(PartlySeen):
    """State (4,): position, velocity, heaven's side (-1 or 1), steps so far. Heaven is worth 1; both ends end it."""

    power = 0.0015
    speed_limit = 0.2
    goal = 1.0  # on both sides of the middle
    sign = 0.5
    sign_reach = 0.2  # how near the car must be to read it

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    limits: ClassVar = {"position": goal + speed_limit, "velocity": speed_limit, "direction": 1.0}

    def initial(self, rng: Key, params: None = None) -> Array:
        position_key, heaven_key = jax.random.split(rng)
        position = jax.random.uniform(position_key, (), jnp.float32, -0.2, 0.2)
        heaven = jnp.where(jax.random.bernoulli(heaven_key), 1.0, -1.0)
        return jnp.stack([position, jnp.zeros(()), heaven, jnp.zeros(())])

    def transition(self, state: Array, action: Array, rng: Key, params: None = None) -> Array:
        position, velocity, heaven, steps = state
        velocity = velocity + self.power * jnp.clip(action[0], -1.0, 1.0)
        velocity = jnp.clip(velocity, -self.speed_limit, self.speed_limit)
        return jnp.stack([position + velocity, velocity, heaven, steps + 1])

    def sights(self, state: Array) -> dict[str, Array]:
        position, velocity, heaven, _ = state
        readable = jnp.abs(position - self.sign) <= self.sign_reach
        return {"position": position, "velocity": velocity, "direction": jnp.where(readable, heaven, 0.0)}

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        return jnp.where(next_state[0] * next_state[2] >= self.goal, 1.0, 0.0)

    def terminal(self, state: Array, rng: Key, params: None = None) -> Array:
        return jnp.abs(state[0]) >= self.goal

    render_fps = 30
    view_center = (0.0, 0.25)
    view_width = 2.6

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        position, _, heaven, _ = state
        near, far = self.sign - self.sign_reach, self.sign + self.sign_reach
        readable = near <= position <= far

        if self.sign_reach < self.goal:  # else all of the road would be shaded
            canvas.polygon([(near, 0), (far, 0), (far, 0.42), (near, 0.42)], SHADE)
        canvas.polygon([(-1.3, 0), (1.3, 0), (1.3, -0.75), (-1.3, -0.75)], SHADE)
        canvas.line([(-1.4, 0), (1.4, 0)], GREY, 3)
        for side, color in ((heaven, GREEN), (-heaven, RED)):
            pole = (side * self.goal, 0.0)
            canvas.line([pole, moved(pole, (0, 0.55))], INK, 3)
            canvas.polygon([moved(pole, offset) for offset in ((0, 0.55), (0.16, 0.48), (0, 0.41))], color)
        # The sign: all may see it in the picture, the car only from the shaded part of the road.
        canvas.line([(self.sign, 0), (self.sign, 0.5)], GREY, 4)
        canvas.box((self.sign, 0.56), (0.3, 0.15), INK if readable else FAINT)
        canvas.arrow(
            [(self.sign - 0.07 * heaven, 0.56), (self.sign + 0.03 * heaven, 0.56)], GREEN if readable else GREY, 4
        )
        canvas.box((position, 0.085), (0.22, 0.08), BLUE)
        canvas.box((position, 0.15), (0.11, 0.08), BLUE)
        for side in (-0.065, 0.065):
            canvas.circle((position + side, 0.04), 0.035, GREY, INK)


class EpisodicCar(Car):
    """Each step costs 1, and hell all that a whole episode would have cost."""

    whole_episode = 160

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        in_hell = next_state[0] * next_state[2] <= -self.goal
        return jnp.where(in_hell, state[3] - self.whole_episode, -1.0)
