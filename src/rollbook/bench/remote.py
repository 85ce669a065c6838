"""The process that a scheduler starts on a node: one cell of a benchmark, from whatever became of its last try.

    python -m rollbook.bench.remote <benchmark's folder> <cell>

A scheduler has each cell in one place at a time: a try that was begun and not ended is one whose node was lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rollbook.bench import job
from rollbook.bench.benchmark import Benchmark, open_benchmark
from rollbook.bench.conditions import Conditions
from rollbook.book.layout import Layout, read_json, write_json
from rollbook.book.provenance import gather, script_of
from rollbook.book.settings import load_settings

ALREADY_TAKEN = 75  # EX_TEMPFAIL: another process has begun this try
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 2.0  # between looks for the runner's mark: a thousand jobs share a file system
_PATIENCE_SECONDS = 20.0  # between asking a program to stop and killing it


def write_conditions(benchmark: Benchmark, where: str, tags: Sequence[str], notes: str) -> None:
    """For the processes on nodes, which find nothing else of the call that submitted them."""
    write_json(benchmark.folder / "conditions.json", {"where": where, "tags": list(tags), "notes": notes})


def command_of(benchmark: Benchmark, cell: int | str) -> list[str]:
    return [sys.executable, "-m", "rollbook.bench.remote", str(benchmark.folder), str(cell)]


def run_cell(benchmark: Benchmark, cell: int) -> int:
    """The exit code of its program."""
    newest = benchmark.tries().get(cell)
    if newest and newest.exit_code == 0 and newest.stopped is None:
        return 0
    if newest and newest.exit_code is None:
        _end_what_is_left(benchmark, cell, newest.number)
    said: Mapping[str, Any] = read_json(benchmark.folder / "conditions.json")
    cwd = Path(benchmark.plan.cwd)
    settings = load_settings(cwd)
    provenance = gather(benchmark.layout, settings, script_of(benchmark.plan.cells[cell].command, cwd))
    conditions = Conditions(settings=settings, provenance=provenance, own_tags=said["tags"], notes=said["notes"])
    with _asked_by_signals() as asked:
        running = job.begin(benchmark, cell, newest.number + 1 if newest else 0, conditions, {})
        return ALREADY_TAKEN if running is None else _wait(running, asked)


def _end_what_is_left(benchmark: Benchmark, cell: int, number: int) -> None:
    """A program whose scheduler is gone may still be at work, if this is its machine."""
    left = job.find(benchmark, cell, number)
    if left is None or left.host != socket.gethostname():
        return
    left.ask_to_stop("lost")
    until = time.monotonic() + _PATIENCE_SECONDS
    while left.poll() is None:
        if time.monotonic() > until:
            left.kill()
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _asked_by_signals() -> Iterator[list[int]]:
    """The signals that ask us to stop. They may come while the program is being started, which then is stopped, too."""
    came: list[int] = []
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, lambda number, _: came.append(number)))
        yield came


def _wait(running: job.Running, signals: Sequence[int]) -> int:
    """Until the program ends. It does not outlive its scheduler: when our parent dies, or it is asked to, it stops."""
    parent = os.getppid()
    asked_at, look_at = None, 0.0
    while (code := running.poll()) is None:
        # A scheduler may lose its word to us (Ray does, now and then), so that the runner leaves a mark as well.
        now, marked = time.monotonic(), False
        if now >= look_at:
            marked, look_at = running.is_asked_to_stop(), now + _LOOK_SECONDS
        if asked_at is None and (signals or os.getppid() != parent or marked):
            asked_at = now
            running.ask_to_stop("preempted")
        if asked_at is not None and now - asked_at > _PATIENCE_SECONDS:
            running.kill()
        time.sleep(_POLL_SECONDS)
    return code


def main(arguments: Sequence[str]) -> int:
    folder, cell = Path(arguments[0]), int(arguments[1])
    return run_cell(open_benchmark(Layout(folder.parent.parent), folder.name), cell)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
