"""Running any program as a tracked run: its console, its exit status, its code, without touching it.

The program finds ROLLBOOK_RUN_ID and may claim the run with its first `rollbook.start`; if it never calls it, what the
launcher writes (launch.json, console.log) is the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO

from rollbook._version import __version__
from rollbook.book import journal
from rollbook.book.layout import Layout, readable_name, touch_run, write_json
from rollbook.book.processes import this_process
from rollbook.book.provenance import gather, script_of
from rollbook.book.run_folder import Launch, read_run
from rollbook.book.settings import Settings
from rollbook.book.writer import create_run_folder
from rollbook.errors import UsageError
from rollbook.records import Provenance, RunInfo
from rollbook.track.config import as_config, tracked

HEARTBEAT_SECONDS = 5.0
PATIENCE_SECONDS = 20.0  # between asking a program to stop and killing it


@dataclass(frozen=True, kw_only=True)
class Job:
    """One program to run."""

    command: list[str]
    task: str
    cwd: Path = field(default_factory=Path.cwd)
    config: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    track: Sequence[str] = ()  # parameters for the readable name
    notes: str = ""
    parent: str | None = None
    benchmark: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    provenance: Provenance | None = None  # known already: the run is made from stored code
    resume: str | None = None  # folder of a run to go on with
    start_over: bool = False  # what the run to go on with has logged no longer counts


@dataclass(frozen=True)
class Done:
    run_id: str
    folder: Path
    exit_code: int


def launch(layout: Layout, settings: Settings, job: Job) -> Done:
    """Run the program to its end; its output passes through and is kept."""
    check_program(job.command, job.cwd)
    layout.create()
    now = time.time()
    if job.resume:
        folder = Path(job.resume)
        run_id = folder.name
    else:
        run_id, folder = create_run_folder(layout, job.task, now)
    provenance = job.provenance or gather(layout, settings, script_of(job.command, job.cwd), save_code=True)
    state = Launch(
        info=read_run(folder).info if job.resume else info_of(run_id, job, settings, now),
        provenance=provenance,
        process=this_process(),
        started_at=now,
        heartbeat=now,
    )
    write_launch(folder, state)
    exit_code = _run(layout, job, run_id, folder, state)
    ended = time.time()
    write_launch(folder, dataclasses.replace(state, heartbeat=ended, exit_code=exit_code, ended_at=ended))
    touch_run(folder)
    return Done(run_id, folder, exit_code)


def check_program(command: Sequence[str], cwd: Path) -> None:
    """Refuse what cannot be run before a run is made for it."""
    if not command:
        raise UsageError("no program was given", "rollbook run -- python train.py --lr 1e-3")
    found = shutil.which(command[0]) or shutil.which(str(cwd / command[0]))
    if not found:
        raise UsageError(f"there is no program {command[0]!r}", "rollbook run -- python train.py --lr 1e-3")


def info_of(run_id: str, job: Job, settings: Settings, now: float) -> RunInfo:
    config = as_config(job.config)
    return RunInfo(
        run_id=run_id,
        task=job.task,
        name=readable_name(run_id, tracked(config, job.track, settings)),
        config=config,
        tags=list(job.tags),
        track=list(job.track),
        notes=job.notes,
        parent=job.parent,
        benchmark=job.benchmark,
        started_at=now,
        host=socket.gethostname(),
        user=journal.user_name(),
        command=list(job.command),
        cwd=str(job.cwd),
        rollbook_version=__version__,
    )


def _run(layout: Layout, job: Job, run_id: str, folder: Path, state: Launch) -> int:
    with open(folder / "console.log", "ab") as console:
        program = subprocess.Popen(
            job.command,
            cwd=job.cwd,
            env=environment_of(layout, job, run_id),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert program.stdout is not None and program.stderr is not None
        streams = {program.stdout: sys.stdout.buffer, program.stderr: sys.stderr.buffer}
        pump = threading.Thread(target=_pump, args=(streams, console), name="rollbook-console", daemon=True)
        pump.start()
        try:
            exit_code = _wait(program, folder, state)
        finally:
            pump.join(timeout=2.0)  # a grandchild may hold the pipe open long after the program has ended
    return exit_code


def environment_of(layout: Layout, job: Job, run_id: str) -> dict[str, str]:
    own = {
        "ROLLBOOK_BOOK": str(layout.root),
        "ROLLBOOK_TASK": job.task,
        "ROLLBOOK_RUN_ID": run_id,
        "PYTHONUNBUFFERED": "1",  # a console that arrives at the end is no console
    }
    if job.resume:
        own = {**own, "ROLLBOOK_RESUME": run_id}
        del own["ROLLBOOK_RUN_ID"]
        if job.start_over:
            own["ROLLBOOK_START_OVER"] = "1"
    if job.tags:
        own["ROLLBOOK_TAGS"] = ",".join(job.tags)
    if job.benchmark:
        own["ROLLBOOK_BENCHMARK"] = job.benchmark
    return {**os.environ, **own, **job.environment}


def _pump(streams: dict[IO[bytes], BinaryIO], console: BinaryIO) -> None:
    """Pass on what the program says, and keep it; where both streams have something, stdout first."""
    with selectors.DefaultSelector() as selector:
        for source in streams:
            selector.register(source, selectors.EVENT_READ)
        while selector.get_map():
            ready = {key.fileobj for key, _ in selector.select()}
            for source, target in streams.items():
                if source not in ready:
                    continue
                chunk = os.read(source.fileno(), 65536)
                if not chunk:
                    selector.unregister(source)
                    source.close()
                    continue
                console.write(chunk)
                console.flush()
                with contextlib.suppress(OSError, ValueError):  # nobody may read us any more; the console is kept
                    target.write(chunk)
                    target.flush()


def _wait(program: subprocess.Popen[bytes], folder: Path, state: Launch) -> int:
    """Until the program ends. Ctrl-C reaches it through the terminal; SIGTERM is passed on."""
    asked_at: list[float] = []

    def stop(number: int, _: Any) -> None:
        asked_at.append(time.monotonic())
        if number == signal.SIGTERM or len(asked_at) > 1:
            program.terminate()

    in_main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)} if in_main else {}
    try:
        while True:
            try:
                return program.wait(timeout=HEARTBEAT_SECONDS if not asked_at else 0.5)
            except subprocess.TimeoutExpired:
                write_launch(folder, dataclasses.replace(state, heartbeat=time.time()))
                if asked_at and time.monotonic() - asked_at[0] > PATIENCE_SECONDS:
                    program.kill()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def write_launch(folder: Path, state: Launch) -> None:
    try:
        write_json(folder / "launch.json", dataclasses.asdict(state))
    except OSError as error:
        print(f"rollbook: cannot write {folder / 'launch.json'}: {error.strerror or error}", file=sys.stderr)
