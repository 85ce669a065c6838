"""Running any program as a tracked run: its console, its exit status, its code, without touching it.

The program finds ROLLBOOK_RUN_ID and may claim the run with its first `rollbook.start`; if it never calls it, what the
launcher writes (launch.json, console.log) is the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
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
from rollbook.book.provenance import gather
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
    notes: str = ""
    parent: str | None = None
    benchmark: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    provenance: Provenance | None = None  # known already: the run is made from stored code
    resume: str | None = None  # folder of a run to go on with


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
    provenance = job.provenance or gather(layout, settings, _script(job), save_code=True)
    state = Launch(
        info=read_run(folder).info if job.resume else _info(run_id, job, settings, now),
        provenance=provenance,
        process=this_process(),
        started_at=now,
        heartbeat=now,
    )
    _write(folder, state)
    exit_code = _run(layout, job, run_id, folder, state)
    ended = time.time()
    _write(folder, dataclasses.replace(state, heartbeat=ended, exit_code=exit_code, ended_at=ended))
    touch_run(folder)
    return Done(run_id, folder, exit_code)


def check_program(command: Sequence[str], cwd: Path) -> None:
    """Refuse what cannot be run before a run is made for it."""
    if not command:
        raise UsageError("no program was given", "rollbook run -- python train.py --lr 1e-3")
    found = shutil.which(command[0]) or shutil.which(str(cwd / command[0]))
    if not found:
        raise UsageError(f"there is no program {command[0]!r}", "rollbook run -- python train.py --lr 1e-3")


def _info(run_id: str, job: Job, settings: Settings, now: float) -> RunInfo:
    config = as_config(job.config)
    return RunInfo(
        run_id=run_id,
        task=job.task,
        name=readable_name(run_id, tracked(config, (), settings)),
        config=config,
        tags=list(job.tags),
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
            env=_environment(layout, job, run_id),
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


def _environment(layout: Layout, job: Job, run_id: str) -> dict[str, str]:
    own = {
        "ROLLBOOK_BOOK": str(layout.root),
        "ROLLBOOK_TASK": job.task,
        "ROLLBOOK_RUN_ID": run_id,
        "PYTHONUNBUFFERED": "1",  # a console that arrives at the end is no console
    }
    if job.resume:
        own = {**own, "ROLLBOOK_RESUME": run_id}
        del own["ROLLBOOK_RUN_ID"]
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
                _write(folder, dataclasses.replace(state, heartbeat=time.time()))
                if asked_at and time.monotonic() - asked_at[0] > PATIENCE_SECONDS:
                    program.kill()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _write(folder: Path, state: Launch) -> None:
    try:
        write_json(folder / "launch.json", dataclasses.asdict(state))
    except OSError as error:
        print(f"rollbook: cannot write {folder / 'launch.json'}: {error.strerror or error}", file=sys.stderr)


def _script(job: Job) -> Path | None:
    """The program's own file, which says where its project is."""
    for part in job.command:
        path = job.cwd / part
        if path.suffix == ".py" and path.is_file():
            return path
    return job.cwd / "program"


def program_arguments(command: Sequence[str]) -> list[str]:
    """What the program itself is given: not the interpreter's own options, nor the script or module that it runs."""
    arguments = list(command[1:])
    if not re.fullmatch(r"python[0-9.]*", Path(command[0]).name):
        return arguments
    for place, argument in enumerate(arguments):
        if argument in ("-m", "-c"):
            return arguments[place + 2 :]
        takes_value = place > 0 and arguments[place - 1] in ("-W", "-X")
        if not argument.startswith("-") and not takes_value:
            return arguments[place + 1 :]
    return []


def parse_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """A config of a command line: `--lr 1e-3`, `--lr=1e-3`, `--flag`, `--sizes 64 64`, `key=value`."""
    config: dict[str, Any] = {}
    values: list[Any] | None = None
    key = ""
    for argument in arguments:
        if argument.startswith("-") and not _is_number(argument) and argument.strip("-"):
            key, equals, value = argument.lstrip("-").partition("=")
            key = key.replace("-", "_")
            values = [parse_value(value)] if equals else []
            config[key] = parse_value(value) if equals else True
        elif values is not None:
            values.append(parse_value(argument))
            config[key] = values[0] if len(values) == 1 else list(values)
        elif "=" in argument:
            name, _, value = argument.partition("=")
            config[name.lstrip("+")] = parse_value(value)
    return config


def parse_value(text: str) -> Any:
    """A number, true, false, null or JSON where it reads as one, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in ("none", "null"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, str) and _is_number(text):
        value = float(text)
    if isinstance(value, float) and value - value != 0:
        return text  # nan and inf have no JSON form
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def with_arguments(command: Sequence[str], changes: Mapping[str, str]) -> list[str]:
    """The command with some arguments set to other values: replaced where they stand, else added at the end."""
    changed = list(command)
    for key, value in changes.items():
        names = {f"--{key}", f"--{key.replace('_', '-')}", f"--{key.replace('-', '_')}"}
        for place, part in enumerate(changed):
            name, equals, _ = part.partition("=")
            if name in names and equals:
                changed[place] = f"{name}={value}"
                break
            if name == key and equals:
                changed[place] = f"{key}={value}"
                break
            if part in names:
                given = changed[place + 1 : place + 2]
                is_flag = not given or (given[0].startswith("-") and not _is_number(given[0]))
                changed[place + 1 : place + 1 if is_flag else place + 2] = [value]
                break
        else:
            changed += [f"--{key.replace('_', '-')}", value]
    return changed
