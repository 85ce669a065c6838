"""Where jobs run: on this machine, in a Ray cluster, or under Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Ended:
    """A try that is over."""

    cell: int
    number: int
    exit_code: int
    seconds: float
    stopped: str | None = None  # why it was asked to stop
    lost: bool = False  # its node is gone, or its job, and nobody saw it end


class Executor(Protocol):
    def submit(self, cell: int, number: int) -> None:
        """Have a try made as soon as there is room for it."""

    def adopt(self, cell: int, number: int) -> bool:
        """Watch a try that another runner has begun; False when it is not at work any more."""

    def running(self) -> dict[int, float]:
        """Cells at work, with the time at which each was begun."""

    def wait(self, seconds: float) -> list[Ended]:
        """What has ended, at once or within so many seconds."""

    def stop(self, why: str) -> None:
        """Begin nothing more, and ask all that is at work to stop; `wait` tells when they have."""

    def kill(self) -> None:
        """Without asking."""
