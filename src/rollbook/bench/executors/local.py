"""Jobs on this machine: so many at a time, each on cores of its own."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollbook.bench import job
from rollbook.bench.benchmark import Benchmark
from rollbook.bench.conditions import Conditions
from rollbook.bench.executors import Ended
from rollbook.book.programs import Program
from rollbook.errors import UsageError

PATIENCE_SECONDS = 20.0  # between asking a program to stop and killing it
# What numerical libraries look at; a variable that the user has set stays as it is.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")


@dataclass(frozen=True)
class Slot:
    """A worker's share of the machine."""

    cores: frozenset[int]
    gpus: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        own = {name: str(len(self.cores)) for name in _THREADS if name not in os.environ} if self.cores else {}
        return own | ({"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else {})


def share_out(workers: int | None, cpus: int | None, gpus: int | None) -> list[Slot]:
    """One slot a worker. By default as many workers as cores; with fewer, each has several."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    count = len(cores) or os.cpu_count() or 1
    if cpus is not None and not 1 <= cpus <= count:
        raise UsageError(f"--cpus is {cpus}, and this machine has {count} cores", f"--cpus {count}")
    if workers is None:
        workers = max(count // (cpus or 1), 1)
    if workers < 1:
        raise UsageError(f"--workers is {workers}", "--workers 1 runs one job after the other")
    devices = _devices() if gpus else []
    if gpus and len(devices) < gpus:
        raise UsageError(f"--gpus is {gpus}, and this machine has {len(devices)}", "leave --gpus out")
    return [
        Slot(_cores_of(number, workers, cores, cpus), _gpus_of(number, gpus or 0, devices)) for number in range(workers)
    ]


def _cores_of(number: int, workers: int, cores: Sequence[int], cpus: int | None) -> frozenset[int]:
    if not cores:
        return frozenset()
    if cpus is not None or workers > len(cores):
        first, width = number * (cpus or 1), cpus or 1
        return frozenset(cores[(first + more) % len(cores)] for more in range(width))
    return frozenset(cores[number * len(cores) // workers : (number + 1) * len(cores) // workers])


def _gpus_of(number: int, each: int, devices: Sequence[str]) -> tuple[str, ...]:
    return tuple(devices[(number * each + more) % len(devices)] for more in range(each))


def _devices() -> list[str]:
    if chosen := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return [device.strip() for device in chosen.split(",") if device.strip()]
    answer = Program(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]).answer()
    return answer.output.decode().split() if answer.ok else []


class LocalExecutor:
    def __init__(
        self,
        benchmark: Benchmark,
        conditions: Callable[[], Conditions],
        slots: Sequence[Slot],
        time_limit_seconds: float | None = None,
    ) -> None:
        self._benchmark, self._conditions = benchmark, conditions
        self._free = deque(slots)
        self._time_limit = time_limit_seconds
        self._queue: deque[tuple[int, int]] = deque()
        self._at_work: dict[int, tuple[job.Running, Slot | None]] = {}
        self._asked: dict[int, tuple[str, float]] = {}  # cell -> why it was asked to stop, and when

    def submit(self, cell: int, number: int) -> None:
        self._queue.append((cell, number))

    def adopt(self, cell: int, number: int) -> bool:
        found = job.find(self._benchmark, cell, number)
        if found is None:
            return False
        # It holds a worker's place, whichever cores it is on.
        self._at_work[cell] = (found, self._free.popleft() if self._free else None)
        return True

    def running(self) -> dict[int, float]:
        return {cell: running.started_at for cell, (running, _) in self._at_work.items()}

    def wait(self, seconds: float) -> list[Ended]:
        self._fill()
        ended = self._collect()
        if ended or not self._at_work:
            return ended
        self._sleep(seconds)
        return self._collect()

    def stop(self, why: str) -> None:
        self._queue.clear()
        for cell in self._at_work:
            self._ask(cell, why)

    def kill(self) -> None:
        for running, _ in self._at_work.values():
            running.kill()

    def _fill(self) -> None:
        while self._free and self._queue:
            cell, number = self._queue.popleft()
            slot = self._free.popleft()
            running = job.begin(
                self._benchmark, cell, number, self._conditions(), slot.environment(), set(slot.cores) or None
            )
            if running is None:
                self._free.append(slot)
            else:
                self._at_work[cell] = (running, slot)

    def _collect(self) -> list[Ended]:
        ended = []
        for cell, (running, slot) in list(self._at_work.items()):
            code = running.poll()
            if code is None:
                self._mind_the_time(cell, running)
                continue
            del self._at_work[cell]
            if slot:
                self._free.append(slot)
            why, _ = self._asked.pop(cell, (None, 0.0))
            ended.append(Ended(cell, running.number, code, time.time() - running.started_at, why))
        return ended

    def _mind_the_time(self, cell: int, running: job.Running) -> None:
        if cell in self._asked:
            if time.monotonic() - self._asked[cell][1] > PATIENCE_SECONDS:
                running.kill()
        elif self._time_limit is not None and time.time() - running.started_at > self._time_limit:
            self._ask(cell, "time-limit")

    def _ask(self, cell: int, why: str) -> None:
        if cell not in self._asked:
            self._asked[cell] = (why, time.monotonic())
            self._at_work[cell][0].ask_to_stop(why)

    def _sleep(self, seconds: float) -> None:
        """Until any of the programs ends, but not for longer."""
        if not hasattr(os, "pidfd_open"):
            time.sleep(min(seconds, 0.05))
            return
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
            for running, _ in self._at_work.values():
                try:
                    pidfd = os.pidfd_open(running.pid)
                except ProcessLookupError:  # since we looked
                    return
                stack.callback(os.close, pidfd)
                selector.register(pidfd, selectors.EVENT_READ)
            selector.select(seconds)
