"""A ring of past steps, and batches of them with n-step returns.

A row is one step of all environments. Rows are numbered from 0 up for ever; row n lies at place n % rows, so a replay
that goes on from a checkpoint has every row where it was. What chooses and looks ahead computes in numpy or in
JAX, after its arguments; `sample` and `add` are JAX's, and host replays have their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from rollbook.algos.parts.networks import Array, namespace
from rollbook.algos.parts.spaces import Spaces

T = TypeVar("T")


class Transition(NamedTuple):
    """Steps of environments, arrays (..., envs, ...)."""

    observation: Any
    action: Any
    reward: Any
    terminated: Any
    begins: Any  # the step is the first of an episode, or of what is known of it: the row before belongs to another
    next_observation: Any  # what the step led to, before any reset


class Batch(NamedTuple):
    """What an update learns from, arrays (batch, ...). The rewards of n steps are summed up, each discounted."""

    observation: Array
    action: Array
    reward: Array
    terminated: Array  # the task ended within the n steps; a time limit is no end
    next_observation: Array  # after the last of the steps
    discount: Array  # of what follows: gamma to the number of steps


class Replay(NamedTuple):
    data: Transition  # arrays (rows, envs, ...)
    added: Array  # rows so far, those that were overwritten included
    known: Array  # the oldest row that it ever had: not 0 where it goes on from a replay that was full

    @property
    def first(self) -> Array:
        """The oldest row that is still there."""
        reward = self.data.reward
        return jnp.maximum(self.known, self.added - reward.shape[0])


def empty(rows: int, envs: int, spaces: Spaces) -> Replay:
    def zeros(*shape: int, dtype: Any = jnp.float32) -> Array:
        return jnp.zeros((rows, envs, *shape), dtype)

    data = Transition(
        observation=zeros(*spaces.observation),
        action=zeros(dtype=jnp.int32) if spaces.discrete else zeros(spaces.actions),
        reward=zeros(),
        terminated=zeros(dtype=jnp.bool_),
        begins=zeros(dtype=jnp.bool_),
        next_observation=zeros(*spaces.observation),
    )
    return Replay(data, jnp.int32(0), jnp.int32(0))


def add(replay: Replay, rows: Transition) -> Replay:
    """More rows, (rows, envs, ...); the oldest go once the ring is full."""
    data = write_rows(replay.data, rows, replay.added)
    return Replay(data, replay.added + rows.reward.shape[0], replay.known)


def write_rows(rings: T, rows: T, added: Array) -> T:
    """To arrays (places, ...) the rows that follow on as many as were `added` before; of more than fit, the last."""

    def write(ring: Array, new: Array) -> Array:
        count, places = new.shape[0], ring.shape[0]
        kept = jnp.arange(max(count - places, 0), count)
        return ring.at[(added + kept) % places].set(new[-places:].astype(ring.dtype))

    written: T = jax.tree.map(write, rings, rows)
    return written


def choose(bits: Any, first: Any, end: Any, rows: int, envs: int, n_step: int) -> tuple[Any, Any]:
    """Places and environments, each step as likely as any other, of the rows `first` to `end` that have n steps ahead.

    `bits` are random 32-bit numbers of any shape. The remainder of a division is not quite uniform: with a million
    steps, the likeliest is chosen 1.0003 times as often as the least.
    """
    xp = namespace(bits)
    usable = end - first - n_step + 1
    flat = (bits % xp.asarray(usable * envs).astype(xp.uint32)).astype(xp.int32)
    return (first + flat // envs) % rows, flat % envs


def steps_at(ring: Any, place: Any, env: Any) -> Any:
    """Of an array (rows, envs, ...) the steps of these environments at these places."""
    if namespace(ring) is jnp:
        return ring[place, env]
    # Numpy takes along one axis three times as fast as it gathers along two.
    return ring.reshape(-1, *ring.shape[2:]).take(place * ring.shape[1] + env, axis=0)


def places_ahead(place: Any, rows: int, n_step: int) -> Any:
    """Of n steps from each place on, (n, ...)."""
    return (place + namespace(place).arange(n_step).reshape(-1, *[1] * place.ndim)) % rows


def look_ahead(reward: Any, terminated: Any, begins: Any, *, gamma: float) -> tuple[Any, Any, Any, Any]:
    """Of n steps in a row, arrays (n, ...): their discounted rewards, whether the task ended, what follows is
    discounted by, and which of them is the last, from 0 on.

    The steps end early with an episode. A time limit is not the end of the task: a truncated episode looks ahead from
    its last observation, with the discount of the steps that there were.
    """
    xp = namespace(reward)
    total, ended, last = reward[0], terminated[0], xp.zeros(reward.shape[1:], xp.int32)
    discount = xp.full(total.shape, gamma, xp.float32)
    going = ~ended
    for number in range(1, reward.shape[0]):
        going = going & ~begins[number]
        total = xp.where(going, total + discount * reward[number], total)
        last = xp.where(going, number, last)
        discount = xp.where(going, discount * xp.float32(gamma), discount)
        ended = ended | (going & terminated[number])
        going = going & ~ended
    return total, ended, discount, last


def sample(replay: Replay, bits: Any, *, n_step: int, gamma: float) -> Batch:
    """Batches in the shape of `bits`."""
    data = replay.data
    rows, envs = data.reward.shape[:2]
    place, env = choose(bits, replay.first, replay.added, rows, envs, n_step)
    ahead = places_ahead(place, rows, n_step)
    steps = (steps_at(column, ahead, env) for column in (data.reward, data.terminated, data.begins))
    reward, terminated, discount, last = look_ahead(*steps, gamma=gamma)
    return Batch(
        observation=steps_at(data.observation, place, env),
        action=steps_at(data.action, place, env),
        reward=reward,
        terminated=terminated,
        next_observation=steps_at(data.next_observation, (place + last) % rows, env),
        discount=discount,
    )
