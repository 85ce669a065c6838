"""How far a training has come: a line a seed, rewritten in place on a terminal, now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rollbook.cli.output import duration, number

if TYPE_CHECKING:
    from rollbook.training.trainer import Progress

_BAR = 20
_REDRAW_SECONDS = 0.1
_SAY_SECONDS = 10.0


class Board:
    def __init__(self, seeds: Sequence[int]) -> None:
        self._lines = {seed: f"seed {seed:<4} waiting" for seed in seeds}
        self._live = sys.stderr.isatty()
        self._drawn_at = 0.0
        self._drawn_lines = 0
        self._said_at: dict[int, float] = {}
        self._began: dict[int, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live and self._drawn_lines:
            self._draw()

    def tell(self, progress: Progress) -> None:
        now = time.monotonic()
        with self._lock:
            self._lines[progress.seed] = self._line(progress, now)
            over = progress.step >= progress.steps
            if self._live:
                if over or now - self._drawn_at >= _REDRAW_SECONDS:
                    self._drawn_at = now
                    self._draw()
            elif over or progress.compile_seconds or now - self._said_at.get(progress.seed, now - 99) >= _SAY_SECONDS:
                self._said_at[progress.seed] = now
                print(self._lines[progress.seed], file=sys.stderr, flush=True)

    def _line(self, progress: Progress, now: float) -> str:
        head = f"seed {progress.seed:<4}"
        if progress.compiling:
            return f"{head} compiling"
        if progress.compile_seconds is not None:
            self._began[progress.seed] = (now, progress.step)
            return f"{head} compiled in {progress.compile_seconds:.1f} s"
        began, first = self._began.get(progress.seed, (now, 0))
        share = progress.step / progress.steps
        done = progress.step - first
        left = (now - began) * (progress.steps - progress.step) / done if done else None
        bar = "█" * round(_BAR * share) + "░" * (_BAR - round(_BAR * share))
        shown = "-" if progress.episodic_return is None else number(round(progress.episodic_return, 1))
        rate = f"{progress.steps_per_second or 0:,.0f} steps/s"
        when = f"{duration(left)} left" if progress.step < progress.steps else f"done in {duration(now - began)}"
        return f"{head} {bar} {share:4.0%}  step {progress.step:>11,}  return {shown:>8}  {rate:>16}  {when}"

    def _draw(self) -> None:
        up = f"\x1b[{self._drawn_lines}A" if self._drawn_lines else ""
        text = "".join(f"\x1b[2K{line}\n" for line in self._lines.values())
        sys.stderr.write(up + text)
        sys.stderr.flush()
        self._drawn_lines = len(self._lines)
