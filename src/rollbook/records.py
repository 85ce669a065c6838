"""What a book holds, as frozen dataclasses without I/O. Their JSON forms are the files of a run folder.

Times are seconds since 1970 (UTC) as floats, in the files as here.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

Level = Literal["essential", "info", "debug"]
LEVELS: dict[str, int] = {"essential": 0, "info": 1, "debug": 2}
DEFAULT_VERBOSITY = "info"

State = Literal["running", "finished", "failed", "interrupted", "lost"]
TERMINAL_STATES = frozenset({"finished", "failed", "interrupted"})

LOST_AFTER_SECONDS = 120.0

Record = TypeVar("Record")


def to_json(record: Any) -> dict[str, Any]:
    return dataclasses.asdict(record)


def from_json(kind: type[Record], data: dict[str, Any]) -> Record:
    """Read leniently: a field that a newer version added is ignored, one that it dropped has its default."""
    try:
        return kind(**data)
    except TypeError:
        known = _field_names(cast(Any, kind))
        return kind(**{key: value for key, value in data.items() if key in known})


@functools.cache
def _field_names(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """run.json: who this run is. Written once, before the first metric."""

    run_id: str
    task: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    notes: str = ""
    track: list[str] = field(default_factory=list)
    parent: str | None = None
    parent_step: int | None = None
    benchmark: str | None = None
    started_at: float = 0.0
    host: str = ""
    user: str = ""
    command: list[str] = field(default_factory=list)
    cwd: str = ""
    rollbook_version: str = ""


@dataclass(frozen=True, kw_only=True)
class Process:
    """Enough to ask the process table whether the writer is still alive."""

    host: str
    pid: int
    # A pid is reused after a reboot, by another process later, and inside containers: each of these tells them apart.
    boot_id: str = ""
    pid_namespace: str = ""
    pid_started: int = 0


@dataclass(frozen=True, kw_only=True)
class Git:
    commit: str | None = None
    describe: str | None = None
    dirty: bool = False
    branch: str | None = None
    diff: str | None = None  # object id of the diff of uncommitted work


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What produced the numbers: code, packages, machine. Gathered in the background at the start of an attempt."""

    git: Git | None = None
    pr: int | None = None
    project_root: str | None = None
    code: str | None = None  # object id of the code manifest
    packages: str | None = None  # object id of the list of package versions
    python: str = ""
    platform: str = ""
    ip: str | None = None
    cpu: str = ""
    cpu_count: int = 0
    memory_bytes: int = 0
    gpus: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class GoesOnFrom:
    """The checkpoint that an attempt starts from, and where the earlier attempt is cut."""

    attempt: int
    rows: int  # rows of that attempt that still count
    time: float  # rows logged later than this no longer count
    step: int | None = None  # of the checkpoint; None: there was none, all rows stay


@dataclass(frozen=True, kw_only=True)
class AttemptInfo:
    """attempt.json: one process that worked on the run. Written once, as soon as its provenance is known."""

    number: int
    started_at: float
    process: Process
    command: list[str] = field(default_factory=list)
    cwd: str = ""
    goes_on_from: GoesOnFrom | None = None
    config_changes: dict[str, Any] = field(default_factory=dict)
    provenance: Provenance = field(default_factory=Provenance)

    @classmethod
    def read(cls, data: dict[str, Any]) -> AttemptInfo:
        cut = data.get("goes_on_from")
        provenance = dict(data.get("provenance") or {})
        if provenance.get("git"):
            provenance["git"] = from_json(Git, provenance["git"])
        return from_json(
            cls,
            data
            | {
                "process": from_json(Process, data["process"]),
                "goes_on_from": from_json(GoesOnFrom, cut) if cut else None,
                "provenance": from_json(Provenance, provenance),
            },
        )


@dataclass(frozen=True, kw_only=True)
class Status:
    """status.json: how the attempt is doing. Replaced atomically at every heartbeat and at the end."""

    state: State
    heartbeat: float
    started_at: float
    process: Process
    goes_on_from: GoesOnFrom | None = None
    config_changes: dict[str, Any] = field(default_factory=dict)
    last_step: int | None = None
    rows: int = 0
    verbosity: str = "info"
    ended_at: float | None = None
    at_exit: bool = False  # nobody but the program's end ended it: of a launched one, the exit code may say more
    reason: str | None = None  # the traceback, or the signal
    problems: list[str] = field(default_factory=list)
    summaries: str | None = (
        None  # at the end: JSON as book/summaries.py writes it, which the catalogue passes on unread
    )

    @classmethod
    def read(cls, data: dict[str, Any]) -> Status:
        cut = data.get("goes_on_from")
        return from_json(
            cls,
            data
            | {
                "process": from_json(Process, data["process"]),
                "goes_on_from": from_json(GoesOnFrom, cut) if cut else None,
            },
        )


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A saved state: where it lies and what its manifest says of it. `tensors` are loaded by the book, not here."""

    step: int
    attempt: int
    rows: int
    time: float
    next_step: int
    bytes: int
    path: str
    extra: Any = None


@dataclass(frozen=True, kw_only=True)
class TopEntry:
    """A row of `book.top`: a run, or a configuration with its seeds folded."""

    rank: int
    score: float | None
    n: int
    std: float | None
    min: float | None
    max: float | None
    diverged: int
    task: str
    algo: str | None
    env: str | None
    params: dict[str, Any]
    run_ids: list[str]
