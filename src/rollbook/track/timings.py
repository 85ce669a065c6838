"""Where the time of a run goes: `with run.timed("update"):`."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True)
class Timing:
    name: str
    calls: int
    total: float  # seconds
    average: float  # seconds
    share: float  # of the time since the run started


class Timings:
    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._lock = threading.Lock()
        self._totals: dict[str, tuple[int, float]] = {}

    def add(self, name: str, seconds: float) -> None:
        with self._lock:
            calls, total = self._totals.get(name, (0, 0.0))
            self._totals[name] = (calls + 1, total + seconds)

    def table(self) -> list[Timing]:
        """Largest first."""
        elapsed = max(time.perf_counter() - self._started, 1e-9)
        with self._lock:
            rows = [
                Timing(n, calls, total, total / calls, total / elapsed) for n, (calls, total) in self._totals.items()
            ]
        return sorted(rows, key=lambda row: -row.total)


class Timed:
    """Times one block; may be nested and used in several threads, an object each."""

    __slots__ = ("_name", "_started", "_timings")

    def __init__(self, timings: Timings, name: str) -> None:
        self._timings = timings
        self._name = name

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timings.add(self._name, time.perf_counter() - self._started)
