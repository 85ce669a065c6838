"""One try at a cell: its program as a child process, its console in its run, its end as a mark.

The program runs under a shell of one line, which outlives us: whoever is killed, the exit code is kept, and the next
runner finds the program at work or what it ended with.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rollbook.bench.benchmark import Benchmark, Try, shell_code
from rollbook.bench.conditions import Conditions
from rollbook.bench.launch import Job, environment_of, info_of, write_launch
from rollbook.book.layout import attempt_folders, touch_run
from rollbook.book.processes import is_alive, process_of
from rollbook.book.run_folder import Launch, beats

HEARTBEAT_SECONDS = 5.0
NEXT_TRY = "=== rollbook: try"  # a line of the console, between what two tries have said

# $0 is what the try's marks begin with, "$@" the program. It waits until its run is written down; if that never comes,
# since we were killed, nothing has begun. The traps let the shell live until it can say how the program ended; a
# program does not inherit them.
_SHELL = 'read go || exit 1; trap : INT TERM; "$@" </dev/null; code=$?; : >"$0.exit.$code"; exit $code'


class Running:
    """A try at work: ours, or one that a runner left behind."""

    def __init__(self, benchmark: Benchmark, cell: int, number: int, launch: Launch) -> None:
        self.benchmark, self.cell, self.number = benchmark, cell, number
        self.folder = benchmark.run_folder(cell)
        self.child: subprocess.Popen[bytes] | None = None
        self._launch = launch
        self._beat_at = time.monotonic()

    @property
    def started_at(self) -> float:
        return self._launch.started_at

    @property
    def host(self) -> str:
        return self._launch.process.host

    @property
    def pid(self) -> int:
        return self._launch.process.pid

    def poll(self) -> int | None:
        """The exit code of a program that has ended, which is then written down."""
        code = self._code()
        if code is None:
            self._beat()
            return None
        self.benchmark.mark_exit(self.cell, self.number, code)
        _settle(self.benchmark, self.cell, self.number, self._launch, code, time.time())
        return code

    def _code(self) -> int | None:
        if self.child is not None:
            shell = self.child.poll()
            return None if shell is None else shell_code(shell)
        if beats(self._launch.process, self._launch.heartbeat, time.time()):
            return None
        # Not our child: its shell has left the code, or was killed.
        path = self.benchmark.mark_path(self.cell, self.number)
        mark = next(path.parent.glob(f"{path.name}.exit.*"), None)
        return int(mark.suffix[1:]) if mark else shell_code(-signal.SIGKILL)

    def _beat(self) -> None:
        if time.monotonic() - self._beat_at >= HEARTBEAT_SECONDS:
            self._beat_at = time.monotonic()
            self._launch = dataclasses.replace(self._launch, heartbeat=time.time())
            write_launch(self.folder, self._launch)

    def is_asked_to_stop(self) -> bool:
        """Whether its runner, who may be on another machine, has marked it so."""
        path = self.benchmark.mark_path(self.cell, self.number)
        return any(Path(f"{path}.stop.{why}").exists() for why in ("interrupted", "cancelled"))

    def ask_to_stop(self, why: str) -> None:
        self.benchmark.mark_stop(self.cell, self.number, why)
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """To the program and all that it has started: the shell leads a session of its own."""
        if self.child is None and not is_alive(self._launch.process):
            return  # the pid may be another's by now, or belong to another machine
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def begin(
    benchmark: Benchmark,
    cell: int,
    number: int,
    conditions: Conditions,
    environment: Mapping[str, str],
    cores: set[int] | None = None,
) -> Running | None:
    """Start a try; None when another runner has begun it."""
    if not benchmark.mark_begun(cell, number):
        return None
    plan, folder = benchmark.plan, benchmark.run_folder(cell)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = plan.cells[cell]
    # A program that had taken its run goes on with it; one that had not takes it now.
    again = bool(attempt_folders(folder))
    job = Job(
        command=wanted.command,
        task=wanted.task,
        cwd=Path(plan.cwd),
        config=wanted.config,
        tags=list(dict.fromkeys([*wanted.tags, *conditions.tags])),
        track=list(wanted.grid),
        notes=conditions.notes,
        benchmark=plan.benchmark,
        environment=environment,
        resume=str(folder) if again else None,
        start_over=again and not wanted.resumes,
    )
    earlier = benchmark.launch(cell)
    now = time.time()
    info = earlier.info if earlier else info_of(plan.run_ids[cell], job, conditions.settings, now)
    with open(folder / "console.log", "ab") as console, _affinity(cores):
        if number:
            console.write(f"{NEXT_TRY} {number + 1}\n".encode())
            console.flush()
        child = subprocess.Popen(
            ["sh", "-c", _SHELL, str(benchmark.mark_path(cell, number)), *job.command],
            cwd=job.cwd,
            env=environment_of(benchmark.layout, job, info.run_id),
            stdin=subprocess.PIPE,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    launch = Launch(
        info=info, provenance=conditions.provenance, process=process_of(child.pid), started_at=now, heartbeat=now
    )
    write_launch(folder, launch)
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin:
        child.stdin.write(b"go\n")
    running = Running(benchmark, cell, number, launch)
    running.child = child
    return running


def settle(benchmark: Benchmark, cell: int, ended: Try) -> None:
    """Write into its run how a program ended that nobody watched any more."""
    launch = benchmark.launch(cell)
    if launch is not None and ended.exit_code is not None:
        mark = Path(f"{benchmark.mark_path(cell, ended.number)}.exit.{ended.exit_code}")
        _settle(benchmark, cell, ended.number, launch, ended.exit_code, mark.stat().st_mtime)


def _settle(benchmark: Benchmark, cell: int, number: int, launch: Launch, code: int, when: float) -> None:
    folder = benchmark.run_folder(cell)
    write_launch(folder, dataclasses.replace(launch, heartbeat=when, exit_code=code, ended_at=when))
    touch_run(folder)
    benchmark.mark_settled(cell, number)


def find(benchmark: Benchmark, cell: int, number: int) -> Running | None:
    """A try that another runner began, if its program is at work on this machine."""
    launch = benchmark.launch(cell)
    if launch is None or launch.exit_code is not None or not beats(launch.process, launch.heartbeat, time.time()):
        return None
    return Running(benchmark, cell, number, launch)


@contextlib.contextmanager
def _affinity(cores: set[int] | None) -> Iterator[None]:
    """For children that are started meanwhile: they inherit it, and nothing has to run between fork and exec."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
