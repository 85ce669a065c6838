"""Running a benchmark to its end: what is left of it, again what failed, until nothing is."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from rollbook.bench.benchmark import Benchmark, Standing
from rollbook.bench.executors import Ended, Executor
from rollbook.bench.executors.slurm import alive_jobs
from rollbook.bench.job import settle

_MOST_LOSSES = 5  # of a cell
_LOOK_SECONDS = 0.5  # how often the screen, the keyboard and the cancel file are looked at


@dataclass
class Progress:
    """How far a benchmark has come."""

    benchmark: Benchmark
    standings: list[Standing]
    running: dict[int, float] = field(default_factory=dict)  # cell -> when it was begun
    seconds: list[float] = field(default_factory=list)  # of the jobs that have finished in this call
    workers: int = 1

    def count(self, standing: Standing) -> int:
        return self.standings.count(standing)

    @property
    def complete(self) -> bool:
        return self.count("finished") == len(self.standings)

    @property
    def seconds_left(self) -> float | None:
        """If those to come take as long as those that have been."""
        if not self.seconds:
            return None
        left = self.count("queued") + self.count("running") / 2
        return left * sum(self.seconds) / len(self.seconds) / self.workers


def progress_of(benchmark: Benchmark, workers: int = 1) -> Progress:
    """As marks, the process table and the scheduler tell."""
    tries, scheduled = benchmark.tries(), _scheduled(benchmark)
    standings = [benchmark.standing(cell, tries.get(cell), scheduled) for cell in range(len(benchmark.plan.cells))]
    at_work = {cell: benchmark.launch(cell) for cell, standing in enumerate(standings) if standing == "running"}
    running = {cell: launch.started_at for cell, launch in at_work.items() if launch}
    return Progress(benchmark, standings, running, workers=workers)


def _scheduled(benchmark: Benchmark) -> Collection[int] | None:
    """Cells that a scheduler has, if one has the benchmark. Ray has them as long as the process that submitted them."""
    where = benchmark.where()
    if where == "slurm":
        return alive_jobs(benchmark)
    if where == "ray":
        return range(len(benchmark.plan.cells)) if benchmark.is_being_run() else ()
    return None


class Runner:
    """`tell` hears of every change, `failed` of every try that failed and of how many are left for its cell."""

    def __init__(
        self,
        benchmark: Benchmark,
        executor: Executor,
        *,
        workers: int,
        retries: int = 0,
        tell: Callable[[Progress], None] = lambda _: None,
        failed: Callable[[Ended, int], None] = lambda _ended, _left: None,
    ) -> None:
        self.benchmark, self.executor = benchmark, executor
        self._retries, self._tell, self._failed = retries, tell, failed
        self._retried: Counter[int] = Counter()
        self._losses: Counter[int] = Counter()
        self._signals = 0
        self._stopping: str | None = None
        self._tries = benchmark.tries()
        self.progress = progress_of(benchmark, workers)

    def run(self) -> Progress:
        """Until every cell has finished, or failed as often as it may, or somebody stops it."""
        with self._stop_on_signals():
            left = self._submit_what_is_left()
            while left and not (self._stopping and not self.executor.running()):
                for ended in self.executor.wait(_LOOK_SECONDS):
                    left -= self._settle(ended)
                self._heed_who_wants_it_to_stop()
                self._show()
        return self.progress

    @property
    def stopped(self) -> str | None:
        """Why, if it was."""
        return self._stopping

    def _submit_what_is_left(self) -> int:
        """How many cells have to end yet."""
        left = 0
        for cell, standing in enumerate(self.progress.standings):
            newest = self._tries.get(cell)
            if newest and newest.exit_code is not None and not newest.settled:
                settle(self.benchmark, cell, newest)
            if standing == "finished":
                continue
            left += 1
            if standing == "running" and newest and self.executor.adopt(cell, newest.number):
                continue
            self.progress.standings[cell] = "queued"
            self.executor.submit(cell, newest.number + 1 if newest else 0)
        return left

    def _settle(self, ended: Ended) -> bool:
        """Write down how a try ended; whether its cell is done with."""
        standings = self.progress.standings
        if ended.stopped and ended.stopped != "time-limit":
            standings[ended.cell] = "stopped"
            return True
        if ended.exit_code == 0 and not ended.stopped:
            standings[ended.cell] = "finished"
            self.progress.seconds.append(ended.seconds)
            return True
        # A lost node is no fault of the program: that is no retry, unless it seems to be the program's doing.
        counts, most = (self._losses, _MOST_LOSSES) if ended.lost else (self._retried, self._retries)
        tries_left = most - counts[ended.cell]
        self._failed(ended, tries_left)
        if tries_left <= 0 or self._stopping:
            standings[ended.cell] = "failed"
            return True
        counts[ended.cell] += 1
        standings[ended.cell] = "queued"
        self.executor.submit(ended.cell, ended.number + 1)
        return False

    def _show(self) -> None:
        standings = self.progress.standings
        self.progress.running = self.executor.running()
        for cell in self.progress.running:
            standings[cell] = "running"
        self._tell(self.progress)

    def _heed_who_wants_it_to_stop(self) -> None:
        """The first Ctrl-C or SIGTERM asks the jobs to stop, the second kills them."""
        if self._signals > 1:
            self.executor.kill()
        elif not self._stopping and (self._signals or self.benchmark.cancelled):
            self._stopping = "interrupted" if self._signals else "cancelled"
            self.executor.stop(self._stopping)

    @contextlib.contextmanager
    def _stop_on_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_number: int, _frame: Any) -> None:
            self._signals += 1

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
