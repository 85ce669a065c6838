"""How a benchmark is doing: a table that is rewritten in place on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from statistics import fmean, stdev
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rollbook.cli.output import duration, number, printable, relative, say
from rollbook.cli.table import print_table

if TYPE_CHECKING:
    from rollbook.bench.benchmark import Benchmark
    from rollbook.bench.executors import Ended
    from rollbook.bench.runner import Progress

_REDRAW_SECONDS = 0.5
_READ_SECONDS = 5.0  # between looks into the metrics of runs at work
_SAY_SECONDS = 60.0
_RUNNING_SHOWN = 12
_CONSOLE_LINES = 20
_RETURN = "charts/episodic_return"


class Board:
    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark
        self._live = sys.stderr.isatty()
        self._drawn_lines = 0
        self._drawn_at = self._said_at = -_SAY_SECONDS
        self._finished = -1
        self._seen: dict[int, tuple[float, str]] = {}  # cell -> when it was read, what it had reached
        self._finals: dict[int, float | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def begin(self, progress: Progress) -> None:
        plan = self._benchmark.plan
        done, cells = progress.count("finished"), len(plan.cells)
        if progress.complete:
            say(f"{plan.benchmark}: {done} of {cells} finished earlier, nothing to do; --fresh runs all anew")
        elif done:
            say(f"{plan.benchmark}: {done} of {cells} finished earlier")
        else:
            at_once = f", {progress.workers} at a time" if progress.workers < cells else ""
            say(f"{plan.benchmark}: {cells} {'job' if cells == 1 else 'jobs'}{at_once}")

    def tell(self, progress: Progress) -> None:
        now = time.monotonic()
        if self._live:
            if now - self._drawn_at >= _REDRAW_SECONDS:
                self._drawn_at = now
                self._draw(progress)
        elif progress.count("finished") != self._finished and now - self._said_at >= min(
            _SAY_SECONDS, 1.0 + len(progress.seconds)
        ):
            self._said_at = now
            self._finished = progress.count("finished")
            say(_head(progress))

    def failed(self, ended: Ended, tries_left: int) -> None:
        """With the end of what it said."""
        self._clear()
        cell = self._benchmark.plan.cells[ended.cell]
        folder = self._benchmark.run_folder(ended.cell)
        how = "reached its time limit" if ended.stopped else f"failed with exit code {ended.exit_code}"
        how = "was lost with its node" if ended.lost else how
        again = f"; {tries_left} more {'try' if tries_left == 1 else 'tries'}" if tries_left > 0 else ""
        say(f"{printable(cell.label)} {how} after {duration(ended.seconds)}{again}")
        for line in _last_lines(folder / "console.log"):
            say(f"  | {printable(line)}")
        say(f"  its console: {relative(folder / 'console.log')}")

    def _draw(self, progress: Progress) -> None:
        width, height = shutil.get_terminal_size()
        rows = [_head(progress), *self._running(progress), *self._finished_groups(progress)][: height - 2]
        self._clear()
        sys.stderr.write("".join(f"{row[: width - 1]}\n" for row in rows))
        sys.stderr.flush()
        self._drawn_lines = len(rows)

    def _clear(self) -> None:
        if self._drawn_lines:
            sys.stderr.write(f"\x1b[{self._drawn_lines}A\x1b[J")
            self._drawn_lines = 0

    def _running(self, progress: Progress) -> list[str]:
        shown = sorted(progress.running.items())[:_RUNNING_SHOWN]
        labels = [printable(self._benchmark.plan.cells[cell].label) for cell, _ in shown]
        longest = max(map(len, labels), default=0)
        return [
            f"  {label:{longest}}  {duration(time.time() - began):>5}  {self._reached(cell)}"
            for label, (cell, began) in zip(labels, shown, strict=True)
        ]

    def _finished_groups(self, progress: Progress) -> list[str]:
        """What the seeds that have finished have reached."""
        groups: dict[str, list[int]] = {}
        for cell, wanted in enumerate(self._benchmark.plan.cells):
            if progress.standings[cell] == "finished":
                groups.setdefault(wanted.group, []).append(cell)
        lines = []
        for group, cells in groups.items():
            finals = [final for cell in cells if (final := self._final(cell)) is not None]
            if finals:
                seeds = f"{len(finals)} {'seed' if len(finals) == 1 else 'seeds'}"
                lines.append(f"  {printable(group)}: return {number(round(fmean(finals), 1))}, {seeds}")
        return lines

    def _final(self, cell: int) -> float | None:
        if cell not in self._finals:
            self._finals[cell] = _final_return(self._benchmark.run_folder(cell))
        return self._finals[cell]

    def _reached(self, cell: int) -> str:
        """Step and return of a run at work, as of a few seconds ago."""
        when, text = self._seen.get(cell, (-_READ_SECONDS, ""))
        now = time.monotonic()
        if now - when >= (_READ_SECONDS if text else _REDRAW_SECONDS):
            text = _look(self._benchmark.run_folder(cell))
            self._seen[cell] = (now, text)
        return text


def _head(progress: Progress) -> str:
    parts = [f"{progress.count('finished')} of {len(progress.standings)} finished"]
    parts += [
        f"{progress.count(standing)} {standing}"
        for standing in ("running", "queued", "failed", "stopped")
        if progress.count(standing)
    ]
    left = progress.seconds_left
    return ", ".join(parts) + (f", {duration(left)} left" if left else "")


def _look(folder: Path) -> str:
    from rollbook.book.run_folder import read_run, run_series
    from rollbook.book.summaries import last_step

    try:
        series = run_series(read_run(folder), [])
    except FileNotFoundError:
        return ""
    step = last_step(series)
    returns = series.get(_RETURN)
    reached = [] if step is None else [f"step {step:,}"]
    if returns is not None and len(returns.values):
        reached.append(f"return {number(round(float(returns.values[-20:].mean()), 1))}")
    return "  ".join(reached)


def _final_return(folder: Path) -> float | None:
    from rollbook.book.run_folder import read_run

    try:
        status = read_run(folder).last_status
    except FileNotFoundError:
        return None
    summaries = json.loads(status.summaries) if status and status.summaries else {"name": []}
    if _RETURN not in summaries["name"]:
        return None
    final: float | None = summaries["final"][summaries["name"].index(_RETURN)]
    return final


def _last_lines(console: Path) -> list[str]:
    """Of its newest try."""
    from rollbook.bench.job import NEXT_TRY

    try:
        with open(console, "rb") as file:
            file.seek(max(file.seek(0, 2) - 10_000, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    earlier = [number for number, line in enumerate(lines) if line.startswith(NEXT_TRY)]
    return lines[earlier[-1] + 1 if earlier else 0 :][-_CONSOLE_LINES:]


def print_summary(progress: Progress) -> None:
    """A row for each program, environment and grid point: how many seeds have finished, and what they reached."""
    from rollbook.book.book import open_book

    benchmark = progress.benchmark
    say(f"{benchmark.plan.benchmark}: {_head(progress)}")
    quoted = benchmark.plan.benchmark.replace("'", "''")
    rows = open_book(benchmark.layout.root).rows(
        f"select run_id, final from summaries join runs using (run_id) where benchmark = '{quoted}' "
        f"and summaries.name = '{_RETURN}' and status = 'finished'"
    )
    finals = {row["run_id"]: row["final"] for row in rows if row["final"] is not None}
    groups: dict[tuple[str, str], list[int]] = {}
    for cell, wanted in enumerate(benchmark.plan.cells):
        groups.setdefault((wanted.task, wanted.group), []).append(cell)
    table = []
    for (task, group), cells in groups.items():
        done = sum(progress.standings[cell] == "finished" for cell in cells)
        scores = [finals[run_id] for cell in cells if (run_id := benchmark.plan.run_ids[cell]) in finals]
        spread = stdev(scores) if len(scores) > 1 else None
        table.append([task, group, f"{done}/{len(cells)}", fmean(scores) if scores else None, spread])
    print_table(["task", "program", "finished", "return", "std"], table, right=["finished", "return", "std"])
