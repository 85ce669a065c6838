"""What the marks of a benchmark tell about jobs on other machines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from rollbook.bench.benchmark import Benchmark
from rollbook.bench.executors import Ended
from rollbook.bench.job import settle

_LOOK_SECONDS = 1.0


class Watched:
    """Looks at the marks now and then, for an executor that has cells at work elsewhere."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark
        self._looked_at = -_LOOK_SECONDS
        self._tries = benchmark.tries()
        self._asked: dict[int, str] = {}

    def begun(self, cells: Iterable[int]) -> dict[int, float]:
        """Those whose program was begun and has not ended, with the time of it."""
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._tries, self._looked_at = self._benchmark.tries(), time.monotonic()
        found = {}
        for cell in cells:
            newest = self._tries.get(cell)
            if newest and newest.exit_code is None:
                found[cell] = self._time(cell, newest.number)
        return found

    def ask_to_stop(self, cells: Iterable[int], why: str) -> None:
        """By marks, which the processes on nodes look for; a scheduler that is asked, too, is faster."""
        tries = self._benchmark.tries()
        for cell in cells:
            self._asked[cell] = why
            if (newest := tries.get(cell)) and newest.exit_code is None:
                self._benchmark.mark_stop(cell, newest.number, why)

    def ended(self, cell: int, code: int) -> Ended:
        """The end of a cell's newest try; `code` is what the scheduler says, where no mark does."""
        newest, why = self._benchmark.tries().get(cell), self._asked.pop(cell, None)
        if newest is None:
            return Ended(cell, -1, code, 0.0, why, lost=True)
        if newest.exit_code is None:
            return Ended(cell, newest.number, code, time.time() - self._time(cell, newest.number), why, lost=True)
        if not newest.settled:  # the process on the node was killed, the program was not
            settle(self._benchmark, cell, newest)
        seconds = self._time(cell, newest.number, f"exit.{newest.exit_code}") - self._time(cell, newest.number)
        return Ended(cell, newest.number, newest.exit_code, seconds, why)

    def _time(self, cell: int, number: int, mark: str = "run") -> float:
        return Path(f"{self._benchmark.mark_path(cell, number)}.{mark}").stat().st_mtime
