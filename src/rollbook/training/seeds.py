"""Several seeds at once: a worker process for each core, each seed a run of its own.

A seed that fails ends its own run. A worker that dies takes its seed with it; another takes its place for the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollbook.training.setup import Setup, algorithm_name
from rollbook.training.train import Labels
from rollbook.training.trainer import Progress


@dataclass(frozen=True)
class Outcome:
    """How a seed's training ended."""

    seed: int
    run_id: str | None
    status: str
    error: str | None = None
    details: str | None = None  # a hint, a traceback or the last that a worker said


def train_seeds(
    setups: Sequence[Setup],
    labels: Labels,
    book: str | None,
    tell: Callable[[Progress], None] = lambda _: None,
    workers: int | None = None,
) -> list[Outcome]:
    """All of them, in the order given; at most `workers` at a time, a core each."""
    jobs: queue.SimpleQueue[Setup] = queue.SimpleQueue()
    for setup in setups:
        jobs.put(setup)
    outcomes: dict[int, Outcome] = {}
    cores = len(os.sched_getaffinity(0))
    team = [
        threading.Thread(target=_keep_busy, args=(number, jobs, labels, book, tell, outcomes))
        for number in range(min(len(setups), workers or cores))
    ]
    for member in team:
        member.start()
    for member in team:
        member.join()
    return [outcomes[setup.seed] for setup in setups]


def _keep_busy(
    core: int,
    jobs: queue.SimpleQueue[Setup],
    labels: Labels,
    book: str | None,
    tell: Callable[[Progress], None],
    outcomes: dict[int, Outcome],
) -> None:
    """One worker after another on a core, until there is no job left."""
    worker: _Worker | None = None
    while True:
        try:
            setup = jobs.get_nowait()
        except queue.Empty:
            break
        if worker is None or not worker.alive:
            if worker:
                worker.close()
            worker = _Worker(core)
        outcomes[setup.seed] = worker.train(setup, labels, book, tell)
        if outcomes[setup.seed].status == "interrupted":
            _drop_the_rest(jobs, outcomes)
    if worker:
        worker.close()


def _drop_the_rest(jobs: queue.SimpleQueue[Setup], outcomes: dict[int, Outcome]) -> None:
    while True:
        try:
            setup = jobs.get_nowait()
        except queue.Empty:
            return
        outcomes[setup.seed] = Outcome(setup.seed, None, "interrupted")


class _Worker:
    def __init__(self, core: int) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rollbook.training.worker", str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
            env=os.environ | {"ROLLBOOK_QUIET": "1"},
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def train(self, setup: Setup, labels: Labels, book: str | None, tell: Callable[[Progress], None]) -> Outcome:
        job = {
            "setup": setup.to_record(algorithm_name(setup.algorithm)),
            "labels": dataclasses.asdict(labels),
            "book": book,
        }
        assert self._process.stdin and self._process.stdout
        try:
            print(json.dumps(job), file=self._process.stdin, flush=True)
            for line in self._process.stdout:
                event = json.loads(line)
                kind = event.pop("event")
                if kind == "ended":
                    return Outcome(setup.seed, **event)
                tell(Progress(**event))
        except BrokenPipeError:
            pass
        code = self._process.wait()
        self._errors.seek(0)
        return Outcome(setup.seed, None, "failed", f"its process ended with {code}", self._errors.read()[-2000:])

    def close(self) -> None:
        """It ends once it has no more to read."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()
