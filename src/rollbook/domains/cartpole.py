"""A pole on a cart that is pushed left or right (Barto, Sutton and Anderson 1983), with two forces or any between.

The equations are Florian's ("Correct equations for the dynamics of the cart-pole system", 2007) without friction, by
explicit Euler steps, as in Gymnasium's CartPole-v1. Its `phys2d/CartPole-v1` adds mass and length of the pole where
it should multiply them.
"""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rollbook.domains.drawing import BLUE, FAINT, GREY, INK, RED, SHADE, Array, Canvas, DrawnEnv, Key, moved


class CartPole(DrawnEnv):
    """State and observation (4,): position, velocity, angle from upright (clockwise), angular velocity."""

    render_fps = 50
    gravity = 9.8
    cart_mass = 1.0
    pole_mass = 0.1
    half_length = 0.5  # from the joint to the pole's centre of mass
    force = 10.0
    seconds_per_step = 0.02
    position_limit = 2.4
    angle_limit = math.radians(12)

    # Twice the limits, so that the last observation of an episode is inside.
    _high = np.array([2 * position_limit, np.inf, 2 * angle_limit, np.inf], np.float32)
    observation_space = spaces.Box(-_high, _high)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def push(self, action: Array) -> Array:
        return jnp.where(action == 1, self.force, -self.force)

    def initial(self, rng: Key, params: None = None) -> Array:
        return jax.random.uniform(rng, (4,), jnp.float32, -0.05, 0.05)

    def transition(self, state: Array, action: Array, rng: Key, params: None = None) -> Array:
        position, velocity, angle, spin = state
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        mass = self.cart_mass + self.pole_mass
        moment = self.pole_mass * self.half_length

        thrust = (self.push(action) + moment * spin * spin * sin) / mass
        spin_rate = (self.gravity * sin - cos * thrust) / (
            self.half_length * (4 / 3 - self.pole_mass / mass * cos * cos)
        )
        acceleration = thrust - moment / mass * spin_rate * cos

        step = self.seconds_per_step
        return jnp.stack(
            [position + step * velocity, velocity + step * acceleration, angle + step * spin, spin + step * spin_rate]
        )

    def observation(self, state: Array, rng: Key, params: None = None) -> Array:
        return state

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        return jnp.ones((), jnp.float32)  # the step that ends the episode counts too

    def terminal(self, state: Array, rng: Key, params: None = None) -> Array:
        return (jnp.abs(state[0]) > self.position_limit) | (jnp.abs(state[2]) > self.angle_limit)

    view_center = (0.0, 0.9)
    view_width = 6.0

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        position, _, angle, _ = state
        fallen = abs(angle) > self.angle_limit or abs(position) > self.position_limit
        joint = (position, 0.4)
        length = 4 * self.half_length  # twice as long as it is: a few degrees are to be seen

        canvas.polygon([joint, *(moved(joint, (0, 1.1 * length), turn) for turn in _fan(self.angle_limit))], SHADE)
        canvas.dashes(joint, moved(joint, (0, 1.1 * length)), FAINT)
        canvas.line([(-3, 0), (3, 0)], GREY)
        for limit in (-self.position_limit, self.position_limit):
            canvas.line([(limit, -0.2), (limit, 0.2)], RED, 3)
        canvas.box((position, 0.25), (0.8, 0.3), INK)
        for side in (-0.22, 0.22):
            canvas.circle((position + side, 0.1), 0.1, GREY, INK)
        canvas.line([joint, moved(joint, (0, length), -angle)], RED if fallen else BLUE, 8)
        canvas.circle(joint, 0.07, FAINT, INK)


class CartPoleContinuous(CartPole):
    """Any force up to 30 N: the action (1,) is the part of it, from -1 to 1."""

    force = 30.0
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def push(self, action: Array) -> Array:
        return self.force * jnp.clip(action[0], -1.0, 1.0)


def _fan(limit: float) -> list[float]:
    return [limit * step / 6 for step in range(-6, 7)]
