"""Jobs as Slurm array jobs. An element of an array is a cell; Slurm places it, and places it again if its node is lost.

Slurm knows which cells wait or run, the benchmark's marks how they ended. What was submitted is written into the
benchmark's folder, so that a later call finds its jobs again.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollbook.bench.benchmark import Benchmark
from rollbook.bench.executors import Ended
from rollbook.bench.executors.marks import Watched
from rollbook.bench.remote import command_of
from rollbook.book.layout import read_json, write_json
from rollbook.book.programs import Answer, Program
from rollbook.errors import UsageError

_ASK_SECONDS = 2.0  # between questions to the controller
_LOST = 137
_DEFAULT_ARRAY_SIZE = 1001  # Slurm's own, where the configuration does not say
# States in which a job will run, runs, or is just being put away. All others have ended, however they did.
_ALIVE = {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "RESIZING",
          "SIGNALING", "STAGE_OUT", "STOPPED", "REQUEUE_FED", "SPECIAL_EXIT"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Resources:
    cpus: int | None = None
    gpus: int | None = None
    memory_bytes: int | None = None
    time_limit_seconds: float | None = None
    partition: str | None = None

    def arguments(self) -> list[str]:
        chosen = {
            "cpus-per-task": self.cpus,
            "gres": f"gpu:{self.gpus}" if self.gpus else None,
            "mem": f"{-(-self.memory_bytes // 2**20)}M" if self.memory_bytes else None,
            "time": _minutes(self.time_limit_seconds) if self.time_limit_seconds else None,
            "partition": self.partition,
        }
        return [f"--{name}={value}" for name, value in chosen.items() if value is not None]


def _minutes(seconds: float) -> str:
    hours, rest = divmod(int(-(-seconds // 1)), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


class SlurmExecutor:
    def __init__(self, benchmark: Benchmark, workers: int | None, resources: Resources) -> None:
        self._benchmark, self._workers, self._resources = benchmark, workers, resources
        self._folder = benchmark.folder / "slurm"
        self._watched = Watched(benchmark)
        self._queue: list[int] = []
        self._at_work: dict[int, str] = {}  # cell -> its job, as Slurm writes it: 12_3
        self._asked_at = -_ASK_SECONDS
        self._check()
        self._earlier = alive_jobs(benchmark) or {}

    def submit(self, cell: int, number: int) -> None:  # noqa: ARG002 - a cell finds its next try by its marks
        # A job that an earlier call left in the queue is still the cell's.
        if cell in self._earlier:
            self._at_work[cell] = self._earlier.pop(cell)
        else:
            self._queue.append(cell)

    def adopt(self, cell: int, number: int) -> bool:  # noqa: ARG002
        if cell not in self._earlier:
            return False
        self._at_work[cell] = self._earlier.pop(cell)
        return True

    def running(self) -> dict[int, float]:
        return self._watched.begun(self._at_work)

    def wait(self, seconds: float) -> list[Ended]:
        if self._queue:
            cells, self._queue = self._queue, []
            self._submit(cells)
        time.sleep(seconds)
        if time.monotonic() - self._asked_at < _ASK_SECONDS:
            return []
        self._asked_at = time.monotonic()
        alive = _alive({job.partition("_")[0] for job in self._at_work.values()})
        if alive is None:  # the controller is away for a moment: nothing is known, so nothing has ended
            return []
        over = [cell for cell, job in self._at_work.items() if job not in alive]
        for cell in over:
            del self._at_work[cell]
        return [self._watched.ended(cell, _LOST) for cell in over]

    def stop(self, why: str) -> None:
        self._queue.clear()
        self._watched.ask_to_stop(self._at_work, why)
        cancel(list(self._at_work.values()))

    def kill(self) -> None:
        cancel(list(self._at_work.values()), signal="KILL")

    # ---- submitting -----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        answer = _ask("sinfo", "--noheader", "--format=%P")
        if not answer.ok:
            raise UsageError(
                f"Slurm does not answer: {answer.error or 'sinfo failed'}",
                "is this a machine of the cluster? `sinfo` must work; --on local runs the jobs here",
            )

    def _submit(self, cells: Sequence[int]) -> None:
        """An array, or several one after the other where the cluster's limit is smaller."""
        self._folder.mkdir(exist_ok=True)
        before: str | None = None
        for part in _parts(cells, _largest_array()):
            before = self._submit_array(part, before)

    def _submit_array(self, cells: Sequence[int], after: str | None) -> str:
        batch = secrets.token_hex(4)
        write_json(self._folder / f"{batch}.json", {"job": None, "cells": list(cells)}, indent=None)
        throttle = f"%{self._workers}" if self._workers else ""
        arguments = [
            "--parsable",
            f"--job-name={self._benchmark.plan.benchmark}",
            f"--comment={batch}",
            f"--array=0-{len(cells) - 1}{throttle}",
            f"--output={self._folder}/%A_%a.out",
            f"--chdir={self._benchmark.plan.cwd}",
            "--requeue",
            *([f"--dependency=afterany:{after}"] if after else []),
            *self._resources.arguments(),
            self._script(batch, cells),
        ]
        answer = _ask("sbatch", *arguments)
        if not answer.ok or answer.line is None:
            raise UsageError(f"Slurm refuses the jobs: {answer.error}", "see the options --cpus, --memory, --partition")
        job = answer.line.partition(";")[0]
        write_json(self._folder / f"{batch}.json", {"job": job, "cells": list(cells)}, indent=None)
        self._at_work |= {cell: f"{job}_{index}" for index, cell in enumerate(cells)}
        return job

    def _script(self, batch: str, cells: Sequence[int]) -> str:
        """A file with the cell of each element on a line of its own. Slurm keeps a copy of the script."""
        lines = self._folder / f"{batch}.cells"
        lines.write_text("".join(f"{cell}\n" for cell in cells))
        command = shlex.join(command_of(self._benchmark, "CELL"))
        cell = f'"$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {shlex.quote(str(lines))})"'
        script = self._folder / f"{batch}.sh"
        script.write_text(f"#!/bin/sh\nexec {command.removesuffix('CELL')}{cell}\n")
        return str(script)


def alive_jobs(benchmark: Benchmark) -> dict[int, str] | None:
    """Cells that wait or run, with their jobs, whoever submitted them; None when Slurm does not answer."""
    found = {
        cell: job for array, cells in _batches(benchmark.folder / "slurm") for cell, job in _elements(array, cells)
    }
    alive = _alive({job.partition("_")[0] for job in found.values()})
    return None if alive is None else {cell: job for cell, job in found.items() if job in alive}


def _alive(arrays: set[str]) -> set[str] | None:
    """Elements that Slurm has yet to end; None when it does not answer."""
    if not arrays:
        return set()
    states = ("--array", "--states=all", "--format=%i|%T", f"--jobs={','.join(sorted(arrays))}")
    answer = _ask("squeue", "--noheader", *states)
    if not answer.ok:
        return set() if "Invalid job id" in answer.error else None
    rows = (line.partition("|") for line in answer.output.decode().split())
    return {job for job, _, state in rows if state in _ALIVE}


def cancel_jobs(benchmark: Benchmark) -> int:
    """Those of a benchmark that nobody runs; how many arrays."""
    jobs = [job for job, _ in _batches(benchmark.folder / "slurm")]
    cancel(jobs)
    return len(jobs)


def cancel(jobs: Sequence[str], signal: str | None = None) -> None:
    for start in range(0, len(jobs), 500):
        _ask("scancel", *([f"--signal={signal}", "--full"] if signal else []), *jobs[start : start + 500])


def _batches(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """What was submitted, the oldest first."""
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime):
        batch = read_json(path)
        if job := batch["job"] or _job_of_batch(path.stem):
            yield job, batch["cells"]


def _job_of_batch(batch: str) -> str | None:
    """Of a call that was killed before it could write down what Slurm had answered."""
    answer = _ask("squeue", "--noheader", "--states=all", "--format=%F|%k")
    return next((line.split("|")[0] for line in answer.output.decode().split() if line.endswith(f"|{batch}")), None)


def _elements(job: str, cells: Sequence[int]) -> Iterator[tuple[int, str]]:
    return ((cell, f"{job}_{index}") for index, cell in enumerate(cells))


def _parts(cells: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (cells[start : start + size] for start in range(0, len(cells), size))


def _largest_array() -> int:
    """Elements, numbered from 0: the limit is one more than the largest number."""
    answer = _ask("scontrol", "show", "config")
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", answer.output.decode(errors="replace"), re.MULTILINE)
    return max(int(found[1]) if found else _DEFAULT_ARRAY_SIZE, 1)


def _ask(*command: str) -> Answer:
    # The environment of a job we are in ourselves would be taken for options of those that we submit.
    own = ("SLURM_CONF",)
    environment = {
        name: value for name, value in os.environ.items() if name in own or not name.startswith(("SLURM_", "SBATCH_"))
    }
    return Program(command, env=environment).answer()
