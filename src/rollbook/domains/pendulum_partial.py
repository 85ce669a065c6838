"""The pendulum by its position or its velocity alone, and one whose length is another in each episode.

Position alone lacks the velocity, which two positions tell. Velocity alone lacks the position, which has to be summed
up from where the pendulum was once recognised. A hidden length shows only in how the pendulum answers to torques.
"""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from rollbook.domains.drawing import Array, Canvas, Key
from rollbook.domains.partly_seen import PartlySeen
from rollbook.domains.pendulum import Pendulum


class PartialPendulum(PartlySeen, Pendulum):
    """State (3,): angle, its rate, and the torque that led here."""

    limits: ClassVar = {"cos": 1.0, "sin": 1.0, "rate": Pendulum.rate_limit, "torque": Pendulum.torque_limit}

    def sights(self, state: Array) -> dict[str, Array]:
        return {"cos": jnp.cos(state[0]), "sin": jnp.sin(state[0]), "rate": state[1], "torque": state[2]}


class VariablePendulum(PartialPendulum):
    """State (4,): angle, its rate, the torque that led here, and the length, one of two.

    Pendulum-v1 in all else: the short one answers 25 times as fast to a torque, five times as fast to its weight.
    """

    lengths = (0.2, 1.0)
    limits: ClassVar = {**PartialPendulum.limits, "length": 1.0}

    def initial(self, rng: Key, params: None = None) -> Array:
        start_key, length_key = jax.random.split(rng)
        length = jnp.where(jax.random.bernoulli(length_key), *self.lengths)
        return jnp.append(super().initial(start_key), length)

    def transition(self, state: Array, action: Array, rng: Key, params: None = None) -> Array:
        angle, rate, _, length = state
        torque = self.torque(action)
        acceleration = 1.5 * self.gravity / length * jnp.sin(angle) + 3.0 / (self.mass * length**2) * torque
        rate = jnp.clip(rate + self.seconds_per_step * acceleration, -self.rate_limit, self.rate_limit)
        return jnp.stack([angle + self.seconds_per_step * rate, rate, torque, length])

    def sights(self, state: Array) -> dict[str, Array]:
        return {**super().sights(state), "length": state[3]}

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        angle, _, torque, length = state
        # The shorter one is drawn longer than it is: its tip is to be seen.
        self.draw_rod(canvas, angle, torque, length=max(length, 0.35), turning_at=0.55)
