"""Sequences of past steps for recurrent networks, out of the ring of parts/replay.py.

A sequence is a list of what was seen: an observation with the action and the reward that led to it. An episode of n
steps has n + 1 of them, for its last observation is seen, too, and looked ahead to; then the next episode may begin.
What reads computes in numpy or in JAX, after its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import jax.numpy as jnp

from rollbook.algos.parts.networks import Array, namespace
from rollbook.algos.parts.replay import Replay, Transition, add, empty, write_rows
from rollbook.algos.parts.schedule import ScheduleConfig, check_schedule, replay_rows
from rollbook.algos.parts.shares import mean_over_shares
from rollbook.algos.parts.spaces import Spaces
from rollbook.errors import InvalidConfig

Cut: TypeAlias = Literal["episodes", "segments"]
Start: TypeAlias = Literal["zero", "stored"]


class Seen(NamedTuple):
    """What a recurrent network is told at a step, arrays (..., batch, ...)."""

    observation: Any
    action: Any  # that led to it; 0 where an episode begins
    reward: Any


class Sequences(NamedTuple):
    """What an update learns from, arrays (time, batch, ...): one thing seen more than there are steps."""

    observation: Any  # (time + 1, batch, ...)
    previous_action: Any  # (time + 1, batch, actions)
    previous_reward: Any  # (time + 1, batch)
    begins: Any  # (time + 1, batch): an episode begins here, and the memory of what was before goes
    terminated: Any  # (time, batch): the task ended with this step; a time limit is no end
    real: Any  # (time, batch): no padding, and not the way from one episode's end to the next beginning
    memory: Any  # (batch, size), of what came before the first; without stored ones, size is 0

    @property
    def seen(self) -> Seen:
        return Seen(self.observation, self.previous_action, self.previous_reward)

    @property
    def action(self) -> Any:
        """Of each step: what led to what is seen next."""
        return self.previous_action[1:]

    @property
    def action_padded(self) -> Any:
        """With one more, of 0, for the last thing seen: cutting that off features would copy them."""
        return jnp.concatenate([self.action, jnp.zeros_like(self.previous_action[:1])])

    @property
    def reward(self) -> Any:
        return self.previous_reward[1:]

    def without_first(self, count: int) -> Sequences:
        """What remains to learn from after a burn-in."""
        return Sequences._make([*(x[count:] for x in self[:-1]), self.memory])


def mean_of_real(x: Array, real: Array) -> Array:
    """Over real steps only, (..., time, batch) -> (...). What is not real may be anything but infinite.

    Of a share of a batch: so that the mean over shares, which may have more or fewer real steps, is that of the whole.
    """
    return jnp.where(real, x, 0).sum((-2, -1)) / jnp.maximum(mean_over_shares(real.sum(dtype=jnp.float32)), 1)


def smallest_of_real(x: Array, real: Array) -> Array:
    return jnp.where(real, x, jnp.inf).min()


def largest_of_real(x: Array, real: Array) -> Array:
    return jnp.where(real, x, -jnp.inf).max()


# ---- configuration --------------------------------------------------------------------------------------------------


class SequenceConfig(ScheduleConfig, Protocol):
    @property
    def sequences(self) -> Cut: ...
    @property
    def sequence_length(self) -> int: ...
    @property
    def start(self) -> Start: ...
    @property
    def burn_in(self) -> int: ...


def steps_of_a_sequence(config: SequenceConfig) -> int:
    return config.burn_in + config.sequence_length


def check_sequences(config: SequenceConfig) -> None:
    if config.sequences == "episodes" and config.burn_in:
        raise InvalidConfig(
            f"burn_in is {config.burn_in} and whole episodes have nothing before their first step",
            "sequences=segments, or burn_in=0",
        )
    # One row more: the oldest that is used has the action before it beside it.
    if (rows := replay_rows(config)) <= (steps := steps_of_a_sequence(config)):
        raise InvalidConfig(
            f"buffer_size is {config.buffer_size}: {rows} steps of each environment",
            f"it must hold more than the {steps} of a sequence",
        )
    check_schedule(config)


def check_episodes_are_whole(config: SequenceConfig, limit: int | None) -> None:
    """Where there is no time limit, an episode may be longer than any sequence, and is cut."""
    if config.sequences == "episodes" and limit and config.sequence_length < limit:
        raise InvalidConfig(
            f"sequence_length is {config.sequence_length} and a whole episode may have {limit} steps",
            f"sequence_length={limit}, or sequences=segments",
        )


# ---- the ring -------------------------------------------------------------------------------------------------------


class EpisodicReplay(NamedTuple):
    """A ring of steps that know their place in their episode, and perhaps the memory before them."""

    replay: Replay
    position: Any  # (rows, envs): steps of the episode before this one
    memory: Any  # (rows, envs, size)

    @property
    def added(self) -> Any:
        return self.replay.added

    @property
    def first(self) -> Any:
        return self.replay.first


def empty_episodic(rows: int, envs: int, spaces: Spaces, memory_size: int) -> EpisodicReplay:
    return EpisodicReplay(
        empty(rows, envs, spaces), jnp.zeros((rows, envs), jnp.int32), jnp.zeros((rows, envs, memory_size))
    )


def add_steps(ring: EpisodicReplay, rows: Transition, position: Array, memory: Array) -> EpisodicReplay:
    """More rows, (rows, envs, ...)."""
    own = write_rows((ring.position, ring.memory), (position, memory), ring.added)
    return EpisodicReplay(add(ring.replay, rows), *own)


class Chosen(NamedTuple):
    """Where sequences begin."""

    row: Any  # (..., batch), numbered since the first
    env: Any


def choose_segments(bits: Any, first: Any, end: Any, envs: int, steps: int) -> Chosen:
    """Any row that has so many steps ahead, each as likely as any other; episodes may end on the way."""
    xp = namespace(bits)
    usable = end - first - steps + 1
    flat = (bits % xp.asarray(usable * envs).astype(xp.uint32)).astype(xp.int32)
    return Chosen(first + flat // envs, flat % envs)


def choose_episodes(bits: Any, first: Any, end: Any, position: Any, steps: int) -> Chosen:
    """The beginning of the episode of any row, each row as likely as any other: so an episode is as likely as it is
    long. One that is longer than `steps` is cut into parts of so many, counted from its beginning.

    Of the episodes under way, what there is of them takes part.
    """
    xp = namespace(position)
    rows = position.shape[0]
    # Rows whose beginning was overwritten cannot be used: within so many steps, a part begins.
    ahead = first + xp.arange(steps)
    begins = (position[ahead % rows] % steps == 0) & (ahead < end)[:, None]
    oldest = first + xp.where(begins.any(0), begins.argmax(0), end - first)
    counts = end - oldest
    until = xp.cumsum(counts)
    flat = (bits % xp.asarray(until[-1]).astype(xp.uint32)).astype(xp.int32)
    env = (flat[..., None] >= until).sum(-1)
    row = oldest[env] + flat - (until - counts)[env]
    return Chosen(row - position[row % rows, env] % steps, env)


Look: TypeAlias = Callable[[Any, Any, Any], Any]  # observations of places and environments, before or after the step


def read_sequences(
    chosen: Chosen, end: Any, data: Any, position: Any, memory: Any, look: Look, *, steps: int, cut: Cut
) -> Sequences:
    """From where they begin; `data` has action, reward and terminated, arrays (rows, envs, ...)."""
    xp, rows = namespace(position), position.shape[0]
    start, env = chosen.row[..., None, :], chosen.env[..., None, :]
    step = xp.arange(steps)[:, None]
    row = start + step  # (..., steps, batch)
    missing = row >= end
    breaks = (step > 0) & ((position[row % rows, env] == 0) | missing)
    # At a break, the last observation comes between two rows: from here on, all is seen one later.
    seen_at = step + xp.cumsum(breaks, axis=-2)
    time = xp.arange(steps + 1)[:, None]
    number = (seen_at[..., None, :, :] <= time[..., None, :]).sum(-2) - 1  # of the row that is seen at a time
    last = xp.take_along_axis(seen_at, number, axis=-2) != time  # what that row led to
    at = (start + number) % rows
    begins = ~last & (position[at, env] == 0)
    usable = ~missing
    if cut == "episodes":
        usable = xp.cumsum(breaks, axis=-2) == 0
    real = xp.take_along_axis(usable, number, axis=-2) & ~last
    # What comes after the last real step is seen, too: it is looked ahead to.
    shown = real | xp.concatenate([xp.zeros_like(real[..., :1, :]), real[..., :-1, :]], axis=-2)
    by = xp.where(last, at, (at - 1) % rows)  # the row whose step led here
    told = shown & ~begins
    return Sequences(
        observation=_only(shown, look(at, env, last)),
        previous_action=_only(told, data.action[by, env]),
        previous_reward=_only(told, data.reward[by, env]),
        begins=begins,
        terminated=data.terminated[at, env][..., :-1, :],
        real=real[..., :-1, :],
        memory=memory[chosen.row % rows, chosen.env],
    )


def _only(shown: Any, x: Any) -> Any:
    """Nothing where nothing is shown: what lies in the ring there belongs to others, or to nobody."""
    xp = namespace(x)
    kept: Any = xp.where(shown.reshape(*shown.shape, *[1] * (x.ndim - shown.ndim)), x, xp.zeros((), x.dtype))
    return kept


def sample_sequences(ring: EpisodicReplay, bits: Any, *, steps: int, cut: Cut) -> Sequences:
    """Arrays (..., time, batch, ...) for bits (..., batch)."""
    xp, data = namespace(bits), ring.replay.data
    envs, end = ring.position.shape[1], ring.added
    first = oldest_usable(ring.first)

    def look(place: Any, env: Any, after: Any) -> Any:
        before = data.observation[place, env]
        after = after.reshape(*after.shape, *[1] * (before.ndim - after.ndim))
        return xp.where(after, data.next_observation[place, env], before)

    chosen = (
        choose_segments(bits, first, end, envs, steps)
        if cut == "segments"
        else choose_episodes(bits, first, end, ring.position, steps)
    )
    return read_sequences(chosen, end, data, ring.position, ring.memory, look, steps=steps, cut=cut)


def oldest_usable(first: Any) -> Any:
    """The action before the oldest row is gone, unless that row is the very first."""
    return first + (first > 0)
