"""The cart-pole by positions or by velocities alone, and one to swing up whose pole is long or short for an episode."""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rollbook.domains.cartpole import CartPoleContinuous
from rollbook.domains.drawing import BLUE, FAINT, GREY, INK, ORANGE, RED, Array, Canvas, Key, moved
from rollbook.domains.partly_seen import PartlySeen


class PartialCartPole(PartlySeen, CartPoleContinuous):
    """State (4,): position, velocity, angle from upright (clockwise), angular velocity."""

    # Twice the bounds of the task, so that the last observation of an episode is inside.
    limits: ClassVar = {
        "position": 2 * CartPoleContinuous.position_limit,
        "velocity": math.inf,
        "angle": 2 * CartPoleContinuous.angle_limit,
        "spin": math.inf,
    }

    def sights(self, state: Array) -> dict[str, Array]:
        return dict(zip(("position", "velocity", "angle", "spin"), state, strict=True))


class VariableCartPole(PartlySeen):
    """State (6,): position, velocity, angle from upright (counter-clockwise), spin, the last action, the pole's length.

    Lagrange's equations of a cart with friction and a rod on a joint, by semi-implicit Euler steps: explicit ones would
    swing the short pole up by themselves. The ends of the track throw the cart back.
    """

    render_fps = 50
    gravity = 9.82
    cart_mass = 0.5
    pole_mass = 0.5
    lengths = (0.1, 0.6)
    friction = 0.1  # N s / m, of the cart
    force = 10.0
    seconds_per_step = 0.01
    position_limit = 2.4

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    limits: ClassVar = {
        "position": position_limit,
        "velocity": math.inf,
        "cos": 1.0,
        "sin": 1.0,
        "spin": math.inf,
        "action": 1.0,
        "length": 1.0,
    }

    def initial(self, rng: Key, params: None = None) -> Array:
        start_key, length_key = jax.random.split(rng)
        hanging = jnp.array([0.0, 0.0, math.pi, 0.0])
        start = hanging + 0.2 * jax.random.normal(start_key, (4,), jnp.float32)
        length = jnp.where(jax.random.bernoulli(length_key), *self.lengths)
        return jnp.concatenate([start, jnp.stack([jnp.zeros(()), length])])

    def transition(self, state: Array, action: Array, rng: Key, params: None = None) -> Array:
        position, velocity, angle, spin, _, length = state
        action = jnp.clip(action[0], -1.0, 1.0)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        mass = self.cart_mass + self.pole_mass

        push = self.force * action - self.friction * velocity
        swing = self.pole_mass * (0.75 * self.gravity * sin * cos - 0.5 * length * spin * spin * sin)
        acceleration = (push + swing) / (mass - 0.75 * self.pole_mass * cos * cos)
        spin_rate = 1.5 / length * (acceleration * cos + self.gravity * sin)

        step = self.seconds_per_step
        velocity, spin = velocity + step * acceleration, spin + step * spin_rate
        position, angle = position + step * velocity, angle + step * spin
        velocity = jnp.where(jnp.abs(position) > self.position_limit, -velocity, velocity)
        position = jnp.clip(position, -self.position_limit, self.position_limit)
        return jnp.stack([position, velocity, angle, spin, action, length])

    def sights(self, state: Array) -> dict[str, Array]:
        position, velocity, angle, spin, action, length = state
        return {
            "position": position,
            "velocity": velocity,
            "cos": jnp.cos(angle),
            "sin": jnp.sin(angle),
            "spin": spin,
            "action": action,
            "length": length,
        }

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        position, _, angle, spin, _, _ = next_state
        angle = angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))
        return jnp.multiply(-0.1, angle * angle + 0.01 * spin * spin + position * position)

    def terminal(self, state: Array, rng: Key, params: None = None) -> Array:
        return jnp.zeros((), jnp.bool_)

    view_center = (0.0, 0.1)
    view_width = 7.0

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        position, _, angle, _, action, length = state
        joint = (position, 0.0)
        tip = moved(joint, (0, 0.4 + 2 * length), angle)  # longer than it is, and the two lengths well apart

        canvas.line([(-4, -0.4), (4, -0.4)], GREY)
        for limit in (-self.position_limit, self.position_limit):
            canvas.line([(limit, -0.6), (limit, -0.2)], RED, 3)
        canvas.dashes(joint, (position, 1.9), FAINT)
        canvas.box((position, -0.15), (0.8, 0.3), INK)
        for side in (-0.22, 0.22):
            canvas.circle((position + side, -0.3), 0.1, GREY, INK)
        canvas.line([joint, tip], BLUE, 8)
        canvas.circle(tip, 0.09, INK)
        canvas.circle(joint, 0.07, FAINT, INK)
        if abs(action) > 0.02:
            canvas.arrow([(position, -0.8), (position + 0.8 * action, -0.8)], ORANGE, 4)
