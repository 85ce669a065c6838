"""Two links on a bar, driven only at the elbow, that have to swing their tip up (Sutton 1996).

The equations are the book's, not the NIPS paper's, which lack a term (Sutton and Barto, first edition, 11.3); one
Runge-Kutta step of 0.2 s an action, as in Gymnasium's Acrobot-v1.
"""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rollbook.domains.drawing import BLUE, FAINT, GREEN, GREY, INK, SKY, Array, Canvas, DrawnEnv, Key, moved


class Acrobot(DrawnEnv):
    """State (4,): angle of the upper link from hanging, angle of the lower one from the upper, and their rates.

    Both links are 1 m long, weigh 1 kg with the centre of mass halfway, and have a moment of inertia of 1 kg m².
    """

    render_fps = 15
    gravity = 9.8
    seconds_per_step = 0.2
    upper_rate_limit = 4 * math.pi
    lower_rate_limit = 9 * math.pi

    _high = np.array([1, 1, 1, 1, upper_rate_limit, lower_rate_limit], np.float32)
    observation_space = spaces.Box(-_high, _high)
    action_space = spaces.Discrete(3)  # torque -1, 0 or 1 N m at the elbow

    def initial(self, rng: Key, params: None = None) -> Array:
        return jax.random.uniform(rng, (4,), jnp.float32, -0.1, 0.1)

    def rates(self, state: Array, torque: Array) -> Array:
        """The state's derivative by time."""
        upper, lower, upper_rate, lower_rate = state
        sin, cos = jnp.sin(lower), jnp.cos(lower)
        # Sutton and Barto's letters, with the masses, lengths and moments of inertia put in.
        d1 = 3.5 + cos
        d2 = 1.25 + 0.5 * cos
        phi2 = 0.5 * self.gravity * jnp.sin(upper + lower)
        phi1 = 1.5 * self.gravity * jnp.sin(upper) + phi2 - (0.5 * lower_rate + upper_rate) * lower_rate * sin
        push = torque - 0.5 * upper_rate * upper_rate * sin - phi2
        lower_acceleration = (d1 * push + d2 * phi1) / (1.25 * d1 - d2 * d2)
        upper_acceleration = -(d2 * lower_acceleration + phi1) / d1
        return jnp.stack([upper_rate, lower_rate, upper_acceleration, lower_acceleration])

    def transition(self, state: Array, action: Array, rng: Key, params: None = None) -> Array:
        torque = action - 1.0
        step = self.seconds_per_step
        k1 = self.rates(state, torque)
        k2 = self.rates(state + 0.5 * step * k1, torque)
        k3 = self.rates(state + 0.5 * step * k2, torque)
        k4 = self.rates(state + step * k3, torque)
        upper, lower, upper_rate, lower_rate = state + step / 6 * (k1 + 2 * (k2 + k3) + k4)
        return jnp.stack(
            [
                _wrapped(upper),
                _wrapped(lower),
                jnp.clip(upper_rate, -self.upper_rate_limit, self.upper_rate_limit),
                jnp.clip(lower_rate, -self.lower_rate_limit, self.lower_rate_limit),
            ]
        )

    def observation(self, state: Array, rng: Key, params: None = None) -> Array:
        upper, lower, upper_rate, lower_rate = state
        return jnp.stack([jnp.cos(upper), jnp.sin(upper), jnp.cos(lower), jnp.sin(lower), upper_rate, lower_rate])

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        return jnp.where(self.terminal(next_state, rng), 0.0, -1.0)

    def terminal(self, state: Array, rng: Key, params: None = None) -> Array:
        height = -jnp.cos(state[0]) - jnp.cos(state[0] + state[1])  # of the tip above the bar
        return height > 1.0

    view_width = 6.2

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        upper, lower = state[:2]
        elbow = moved((0, 0), (0, -1), upper)
        tip = moved(elbow, (0, -1), upper + lower)
        reached = tip[1] > 1

        canvas.dashes((-3.1, 1), (3.1, 1), GREEN, 4 if reached else 2)
        canvas.line([(-0.5, 0), (0.5, 0)], FAINT, 6)
        canvas.line([(0, 0), elbow], BLUE, 11)
        canvas.line([elbow, tip], SKY, 11)
        canvas.circle((0, 0), 0.1, GREY, INK)
        canvas.circle(elbow, 0.1, GREY, INK)
        canvas.circle(tip, 0.12, GREEN if reached else INK)


def _wrapped(angle: Array) -> Array:
    """The same angle between -pi and pi."""
    return angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))
