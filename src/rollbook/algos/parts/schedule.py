"""When an off-policy algorithm acts and when it learns."""

from __future__ import annotations

from typing import Annotated, NamedTuple, Protocol

from rollbook.algos.parts.fields import Range
from rollbook.errors import InvalidConfig

Steps = Annotated[int, Range(at_least=0)]


class ScheduleConfig(Protocol):
    @property
    def num_envs(self) -> int: ...
    @property
    def train_every(self) -> int: ...
    @property
    def updates_per_step(self) -> float: ...
    @property
    def learning_starts(self) -> int: ...
    @property
    def buffer_size(self) -> int: ...
    @property
    def n_step(self) -> int: ...
    @property
    def log_every(self) -> int: ...


class Schedule(NamedTuple):
    """A round is some steps of all environments, then some updates; an iteration is some rounds, logged as one."""

    rows: int  # steps of each environment in a round
    updates: int  # of a round, in one compiled call
    rounds: int  # of an iteration
    steps: int  # of all environments in an iteration


def schedule_of(config: ScheduleConfig) -> Schedule:
    steps = config.num_envs * config.train_every
    rounds = -(-config.log_every // steps)
    return Schedule(config.train_every, round(steps * config.updates_per_step), rounds, rounds * steps)


def replay_rows(config: ScheduleConfig) -> int:
    return max(config.buffer_size // config.num_envs, 1)


def check_schedule(config: ScheduleConfig) -> None:
    """Whole updates a round, and a replay that holds what learning waits for."""
    updates = config.num_envs * config.train_every * config.updates_per_step
    if abs(updates - round(updates)) > 1e-6 or round(updates) < 1:
        raise InvalidConfig(
            f"{config.num_envs} x {config.train_every} steps with {config.updates_per_step:g} updates a step make "
            f"{updates:g} updates",
            "choose train_every and updates_per_step so that num_envs * train_every * updates_per_step is whole",
        )
    rows = replay_rows(config)
    if rows * config.num_envs < config.learning_starts:
        raise InvalidConfig(
            f"buffer_size is {config.buffer_size}: {rows} steps of each environment",
            f"it must hold learning_starts ({config.learning_starts})",
        )
    if rows < config.n_step:
        raise InvalidConfig(
            f"buffer_size is {config.buffer_size}: {rows} steps of each environment",
            f"it must hold n_step ({config.n_step}) of each",
        )
