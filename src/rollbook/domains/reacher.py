"""An arm of two links reaches for a goal, which may be shown once only, at the beginning of the episode.

As Gymnasium's Reacher-v5, whose joints have so much inertia of their own that the links' (a thousandth of it) is left
out here: what remains is solved exactly.
"""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rollbook.domains.drawing import BLUE, FAINT, GREEN, GREY, INK, SHADE, SKY, Array, Canvas, Key, Point, moved
from rollbook.domains.partly_seen import PartlySeen

_ARM = "cos1 cos2 sin1 sin2"


class Reacher(PartlySeen):
    """State (9,): angles of shoulder and elbow (2), their rates (2), goal (2), last action (2), steps so far."""

    seen = f"{_ARM} goal_x goal_y rate1 rate2 gap_x gap_y"  # in Gymnasium's order
    shown_steps = math.inf  # during which the goal can be seen

    links = (0.1, 0.11)
    torque = 200.0  # of a full action, in units of the joints' inertia and damping, which are both 1
    elbow_limit = 3.0
    goal_distance = 0.2
    seconds_per_step = 0.02

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    limits: ClassVar = {
        **dict.fromkeys(_ARM.split(), 1.0),
        **dict.fromkeys(("rate1", "rate2"), torque),
        **dict.fromkeys(("goal_x", "goal_y"), goal_distance),
        **dict.fromkeys(("gap_x", "gap_y"), 0.5),
        **dict.fromkeys(("action1", "action2"), 1.0),
    }

    def initial(self, rng: Key, params: None = None) -> Array:
        angle_key, rate_key, goal_key = jax.random.split(rng, 3)
        angles = jax.random.uniform(angle_key, (2,), jnp.float32, -0.1, 0.1)
        rates = jax.random.uniform(rate_key, (2,), jnp.float32, -0.005, 0.005)
        area, turn = jax.random.uniform(goal_key, (2,))
        goal = self.goal_distance * jnp.sqrt(area) * _direction(math.tau * turn)
        return jnp.concatenate([angles, rates, goal, jnp.zeros(3)])

    def transition(self, state: Array, action: Array, rng: Key, params: None = None) -> Array:
        angles, rates, goal = state[:2], state[2:4], state[4:6]
        action = jnp.clip(action, -1.0, 1.0)
        # rate' = torque - rate, over one step of constant torque
        kept = math.exp(-self.seconds_per_step)
        final = self.torque * action
        angles = angles + self.seconds_per_step * final + (1 - kept) * (rates - final)
        rates = final + kept * (rates - final)
        stopped = jnp.abs(angles[1]) > self.elbow_limit
        angles = angles.at[1].set(jnp.clip(angles[1], -self.elbow_limit, self.elbow_limit))
        rates = rates.at[1].set(jnp.where(stopped, 0.0, rates[1]))
        return jnp.concatenate([angles, rates, goal, action, state[8:] + 1])

    def fingertip(self, state: Array) -> Array:  # (2,)
        return self.links[0] * _direction(state[0]) + self.links[1] * _direction(state[0] + state[1])

    def sights(self, state: Array) -> dict[str, Array]:
        shown = state[8] < self.shown_steps
        goal = jnp.where(shown, state[4:6], 0.0)
        gap = jnp.where(shown, self.fingertip(state) - state[4:6], 0.0)
        numbers = [*jnp.cos(state[:2]), *jnp.sin(state[:2]), *goal, *state[2:4], *gap, *state[6:8]]
        return dict(zip([*Reacher.seen.split(), "action1", "action2"], numbers, strict=True))

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        # As in Gymnasium, an action out of bounds is paid in full although its torque is clipped.
        distance = jnp.linalg.norm(self.fingertip(next_state) - next_state[4:6])
        return jnp.negative(distance + jnp.sum(action * action))

    def terminal(self, state: Array, rng: Key, params: None = None) -> Array:
        return jnp.zeros((), jnp.bool_)

    render_fps = 50
    view_width = 0.6

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        shoulder, elbow_angle, _, _, goal_x, goal_y, _, _, steps = state
        elbow = moved((0, 0), (self.links[0], 0), shoulder)
        tip = moved(elbow, (self.links[1], 0), shoulder + elbow_angle)
        shown = steps < self.shown_steps

        canvas.circle((0, 0), sum(self.links), SHADE)
        _cross(canvas, (goal_x, goal_y), 0.02, GREEN)
        canvas.circle((goal_x, goal_y), 0.012, GREEN if shown else "#a8d8c8", GREEN)
        canvas.line([(0, 0), elbow], BLUE, 12)
        canvas.line([elbow, tip], SKY, 10)
        canvas.circle((0, 0), 0.012, FAINT, INK)
        canvas.circle(elbow, 0.01, GREY, INK)
        canvas.circle(tip, 0.009, INK)


def _direction(angle: Array) -> Array:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def _cross(canvas: Canvas, center: Point, reach: float, color: str) -> None:
    for offset in ((reach, 0), (0, reach)):
        canvas.line([moved(center, offset), moved(center, offset, math.pi)], color, 1.5)
