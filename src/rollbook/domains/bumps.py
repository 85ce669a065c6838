"""A finger with a compliant joint feels for two bumps that it does not see, and has to push the right-hand one.

Soft, the finger bends and slides over a bump; stiff, it pushes the bump that it meets. Only the hand's place and the
finger's bend are felt, so that which bump is which has to be remembered.
"""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rollbook.domains.drawing import BLUE, FAINT, GREEN, GREY, INK, ORANGE, RED, SHADE, Array, Canvas, Key, moved
from rollbook.domains.partly_seen import PartlySeen

_TRIES = 12  # at a place that touches no bump
_THINGS = ("hand", "left", "right", "bend")


class Parts(NamedTuple):
    """Of the state, all (axes,) but the last."""

    hand: Array
    left: Array
    right: Array
    bend: Array  # against the way that the hand took; its length is the bump's height under the finger, at most 1
    first_left: Array  # where the bumps began
    first_right: Array
    stiff: Array  # (1,)


class Bumps(PartlySeen):
    """On a rail. State (7,), as in `Parts`. The action is a step and, above zero, stiffness.

    Success is worth 1. It ends the episode, and so does any other bump moved, or this one moved any other way.
    """

    axes = 1
    half_size: tuple[float, ...] = (1.0,)  # of the rail, whose ends stop the hand
    bump_places: tuple[float, ...] = (0.7,)  # as far from the middle as bumps begin
    radius = 0.12  # of a bump
    stride = 0.1  # less than the radius: no step jumps over a bump
    gaps = (0.5, 1.0)  # from the left bump to the right one
    pushed = 0.05  # as far as it has to be
    touched = 0.01  # as far as a bump may be moved otherwise

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    limits: ClassVar = {f"{thing}_{axis}": 1.0 for thing in _THINGS for axis in "xy"}

    def initial(self, rng: Key, params: None = None) -> Array:
        gap_key, bump_key, hand_key = jax.random.split(rng, 3)
        apart = jnp.zeros(self.axes).at[0].set(jax.random.uniform(gap_key, (), jnp.float32, *self.gaps))
        edge = jnp.array(self.bump_places)
        low, high = jnp.stack([-edge, -edge]), jnp.stack([edge - apart, edge])
        # The second row moves the right bump along the other axis, if there is one.
        places = jax.random.uniform(bump_key, (2, self.axes), jnp.float32, low, high)
        left = places[0]
        right = places[1].at[0].set(left[0] + apart[0])
        hand = self.place_hand(hand_key, left, right)
        return _joined(Parts(hand, left, right, jnp.zeros(self.axes), left, right, jnp.zeros(1)))

    def place_hand(self, key: Key, left: Array, right: Array) -> Array:
        edge = 0.9 * jnp.array(self.half_size)
        tries = jax.random.uniform(key, (_TRIES, self.axes), jnp.float32, -edge, edge)
        free = jnp.minimum(_length(tries - left), _length(tries - right)) > self.radius + 0.02
        return jnp.where(free.any(), tries[jnp.argmax(free)], (left + right) / 2)

    def transition(self, state: Array, action: Array, rng: Key, params: None = None) -> Array:
        hand, left, right, bend, first_left, first_right, _ = self.parts(state)
        edge = jnp.array(self.half_size)
        step = self.stride * jnp.clip(action[:-1], -1.0, 1.0)
        after = jnp.clip(hand + step, -edge, edge)
        stiff = action[-1] > 0.0
        pushes = stiff & (_length(bend) == 0.0)  # a finger that is bent over a bump cannot be straightened
        left, right = (self._pushed_by(after, bump, pushes) for bump in (left, right))

        nearest = jnp.minimum(_length(after - left), _length(after - right))
        height = jnp.sqrt(jnp.maximum(1.0 - (nearest / self.radius) ** 2, 0.0))
        # At rest the finger stays bent the way it was.
        way = jnp.where(_length(step) > 1e-6, -step, bend)
        on_bump = ~pushes & (nearest < self.radius)
        bend = jnp.where(on_bump, height * way / jnp.maximum(_length(way), 1e-6), 0.0)
        parts = Parts(after, left, right, bend, first_left, first_right, stiff[None].astype(jnp.float32))
        return _joined(parts)

    def _pushed_by(self, finger: Array, bump: Array, pushes: Array) -> Array:
        """A bump gives way until the finger is at its edge."""
        away = bump - finger
        distance = _length(away)
        at_edge = finger + self.radius * away / jnp.maximum(distance, 1e-6)
        return jnp.where(pushes & (distance < self.radius), at_edge, bump)

    def parts(self, state: Array) -> Parts:
        return Parts(*jnp.split(state, [number * self.axes for number in range(1, 7)]))

    def sights(self, state: Array) -> dict[str, Array]:
        parts = self.parts(state)
        return {
            f"{thing}_{axis}": getattr(parts, thing)[number]
            for thing in _THINGS
            for number, axis in enumerate("xy"[: self.axes])
        }

    def reward(self, state: Array, action: Array, next_state: Array, rng: Key, params: None = None) -> Array:
        return jnp.where(self._success(next_state), 1.0, 0.0)

    def terminal(self, state: Array, rng: Key, params: None = None) -> Array:
        parts = self.parts(state)
        right_moved = parts.right - parts.first_right
        left_touched = _length(parts.left - parts.first_left) > self.touched
        backwards = right_moved[0] < -self.touched
        sideways = _length(right_moved[1:]) > self.pushed
        return self._success(state) | left_touched | backwards | sideways

    def _success(self, state: Array) -> Array:
        parts = self.parts(state)
        alone = _length(parts.left - parts.first_left) <= self.touched
        return alone & (parts.right[0] - parts.first_right[0] > self.pushed)

    render_fps = 10
    view_center = (0.0, 0.25)
    view_width = 2.3

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        hand, left, right, bend, _, first_right, stiff = state
        for place, color in ((left, RED), (right, GREEN)):
            dome = [moved((place, 0), (self.radius, 0), math.pi * part / 24) for part in range(25)]
            canvas.polygon(dome, color)
        canvas.polygon([(-1.3, 0), (1.3, 0), (1.3, -0.8), (-1.3, -0.8)], SHADE)
        canvas.line([(-1.3, 0), (1.3, 0)], GREY, 3)
        goal = first_right + self.pushed + self.radius  # of the bump's right edge
        canvas.line([(goal, -0.12), (goal, 0)], GREEN, 3)
        canvas.line([(-1.0, 0.7), (1.0, 0.7)], FAINT, 6)

        joint, x = (hand, 0.5), hand + 0.05 * bend
        away = min(abs(x - left), abs(x - right), self.radius)
        tip = (x, math.sqrt(self.radius**2 - away**2))  # on the bump, or beside it on the rail
        knee = (hand - 0.06 * bend, 0.25 + tip[1] / 2)
        canvas.box((hand, 0.64), (0.2, 0.28), INK)
        canvas.line([joint, knee, tip], BLUE if stiff else ORANGE, 10 if stiff else 6)
        canvas.circle(joint, 0.04, FAINT, INK)


class TableBumps(Bumps):
    """On a table, seen from above: State (13,), and the action has a step along both axes."""

    axes = 2
    half_size = (1.0, 0.5)
    bump_places = (0.7, 0.25)
    radius = 0.2
    gaps = (0.6, 1.0)

    action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)

    view_center = (0.0, 0.0)

    def draw(self, canvas: Canvas, state: list[float]) -> None:
        places = [(state[number], state[number + 1]) for number in range(0, 12, 2)]
        hand, left, right, bend, first_left, first_right = places

        canvas.box((0, 0), (2 * self.half_size[0] + 0.1, 2 * self.half_size[1] + 0.1), SHADE)
        for first, place, color in ((first_left, left, RED), (first_right, right, GREEN)):
            canvas.circle(first, self.radius, FAINT)
            canvas.circle(place, self.radius, color)
        canvas.arrow(
            [moved(first_right, (self.radius + 0.03, 0)), moved(first_right, (self.radius + 0.08, 0))], GREEN, 3
        )
        tip = moved(hand, (0.25 * bend[0], 0.25 * bend[1]))
        canvas.line([hand, tip], BLUE if state[12] else ORANGE, 8)
        canvas.circle(hand, 0.06, BLUE if state[12] else ORANGE, INK)


def _joined(parts: Parts) -> Array:
    return jnp.concatenate(parts)


def _length(vector: Array) -> Array:
    """Its gradient is not asked for."""
    return jnp.sqrt(jnp.sum(vector * vector, axis=-1))
