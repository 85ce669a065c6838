"""A pendulum that has to be swung up and held there by a torque too weak to lift it, as Gymnasium's Pendulum-v1."""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rollbook.domains.drawing import BLUE, FAINT, GREY, INK, ORANGE, SHADE, Array, Canvas, DrawnEnv, Key, arc, moved


class Pendulum(DrawnEnv):
    """State (3,): angle from upright (counter-clockwise, never wrapped), its rate, and the torque that led here.

    The torque is not part of the physics; the picture shows it.
    """

    gravity = 10.0
    mass = 1.0
    length = 1.0
    torque_limit = 2.0
    rate_limit = 8.0
    seconds_per_step = 0.05

    _high = np.array([1.0, 1.0, rate_limit], np.float32)
    observation_space = spaces.Box(-_high, _high)
    action_space = spaces.Box(-torque_limit, torque_limit, (1,), np.float32)

    def torque(self, action: Array) -> Array:
        return jnp.clip(action[0], -self.torque_limit, self.torque_limit)

    def initial(self, rng: Key, params: None = None) -> Array:
        angle, rate = jax.random.uniform(rng, (2,), jnp.float32, -1.0, 1.0)
        return jnp.stack([math.pi * angle, rate, jnp.zeros((), jnp.float32)])

    def transition(self, state: Array, action: Array, rng: Key, params: None = None) -> Array:
        angle, rate, _ = state
        torque = self.torque(action)
        # A rod turning about its end has the moment of inertia m l² / 3.
        acceleration = 1.5 * self.gravity / self.length * jnp.sin(angle) + 3.0 / (self.mass * self.length**2) * torque
        rate = jnp.clip(rate + self.seconds_per_step * acceleration, -self.rate_limit, self.rate_limit)
        return jnp.stack([angle + self.seconds_per_step * rate, rate, torque])

    def observation(self, state: Array, rng: Key, params: None = None) -> Array:
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        """The cost of where the step started, and of the torque that was applied."""
        angle = state[0] - 2 * math.pi * jnp.round(state[0] / (2 * math.pi))
        torque = self.torque(action)
        return -(angle * angle + 0.1 * state[1] * state[1] + 0.001 * torque * torque)

    def terminal(self, state: Array, rng: Key, params: None = None) -> Array:
        return jnp.zeros((), jnp.bool_)

    view_width = 3.6

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        angle, _, torque = state
        self.draw_rod(canvas, angle, torque, length=1.0, turning_at=0.4)

    def draw_rod(self, canvas: Canvas, angle: float, torque: float, *, length: float, turning_at: float) -> None:
        tip = moved((0, 0), (0, length), angle)

        canvas.circle((0, 0), 1.12, SHADE)
        canvas.dashes((0, 0), (0, 1.12), GREY)
        canvas.line([(0, 0), tip], BLUE, 14)
        canvas.circle(tip, 0.1, INK)
        canvas.circle((0, 0), 0.07, FAINT, INK)
        if abs(torque) > 0.02 * self.torque_limit:
            sweep = 0.75 * math.pi * torque / self.torque_limit
            canvas.arrow(arc((0, 0), turning_at, math.pi / 2, sweep), ORANGE, 5)
