"""Jobs as Ray tasks. A task carries a command line and nothing else; Ray places it, and places it again if its node is
lost.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray

from rollbook.bench.benchmark import Benchmark
from rollbook.bench.executors import Ended
from rollbook.bench.executors.marks import Watched
from rollbook.bench.remote import command_of
from rollbook.errors import UsageError

_LOST = 137
_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 10.0


def run_command(command: Sequence[str]) -> int:
    """On a node. The command stops its program when this process dies, or is told to."""
    process = subprocess.Popen(command)
    try:
        # Ray cancels a task by a KeyboardInterrupt that comes between two lines of Python: a wait would not notice.
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        process.terminate()
    return process.wait()


@dataclass(frozen=True, kw_only=True)
class Resources:
    cpus: int | None = None
    gpus: int | None = None
    memory_bytes: int | None = None

    def options(self) -> dict[str, Any]:
        chosen = {"num_cpus": self.cpus or 1, "num_gpus": self.gpus, "memory": self.memory_bytes}
        return {name: value for name, value in chosen.items() if value is not None}


def _connect(address: str | None) -> None:
    try:
        if address and (place := re.fullmatch(r"(?:ray://)?([^:/]+):(\d+)", address)):
            # Ray itself would try for minutes.
            socket.create_connection((place[1], int(place[2])), timeout=_CONNECT_SECONDS).close()
        if not ray.is_initialized():
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, configure_logging=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UsageError(
            f"Ray does not answer{f' at {address}' if address else ''}: {reason}",
            "start it with `ray start --head`, or leave --ray-address out for one on this machine",
        ) from None


class RayExecutor:
    def __init__(self, benchmark: Benchmark, workers: int, resources: Resources, address: str | None) -> None:
        self._benchmark, self._workers = benchmark, workers
        self._watched = Watched(benchmark)
        _connect(address)
        # Without end: what a lost node had is placed again. A program that fails is no failure of the task.
        self._task = ray.remote(max_retries=-1, **resources.options())(run_command)
        self._queue: list[int] = []
        self._at_work: dict[Any, int] = {}  # reference -> cell

    def submit(self, cell: int, number: int) -> None:  # noqa: ARG002 - a cell finds its next try by its marks
        self._queue.append(cell)

    def adopt(self, cell: int, number: int) -> bool:  # noqa: ARG002
        return False  # tasks end with the process that submitted them

    def running(self) -> dict[int, float]:
        return self._watched.begun(self._at_work.values())

    def wait(self, seconds: float) -> list[Ended]:
        while self._queue and len(self._at_work) < self._workers:
            cell = self._queue.pop(0)
            self._at_work[self._task.remote(command_of(self._benchmark, cell))] = cell
        if not self._at_work:
            return []
        ready, _ = ray.wait(list(self._at_work), num_returns=1, timeout=seconds)
        ended = []
        for reference in ready:
            cell = self._at_work.pop(reference)
            try:
                code = ray.get(reference)
            except ray.exceptions.RayError:
                code = _LOST
            ended.append(self._watched.ended(cell, code))
        return ended

    def stop(self, why: str) -> None:
        self._queue.clear()
        self._watched.ask_to_stop(self._at_work.values(), why)
        for reference in self._at_work:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(reference)

    def kill(self) -> None:
        for reference in self._at_work:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(reference, force=True)
