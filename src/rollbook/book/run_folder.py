"""Reading one run folder: who the run is, how it is doing, and its metrics with the attempts joined."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rollbook.book.checkpoints import list_checkpoints
from rollbook.book.layout import attempt_folders, decode_name, read_json
from rollbook.book.metric_log import Series, join, read_log
from rollbook.book.processes import is_alive
from rollbook.book.sealed import read_sealed
from rollbook.errors import CheckpointNotFound, CorruptFile
from rollbook.records import (
    LOST_AFTER_SECONDS,
    TERMINAL_STATES,
    AttemptInfo,
    Checkpoint,
    GoesOnFrom,
    Process,
    Provenance,
    RunInfo,
    State,
    Status,
    from_json,
)

Parsed = TypeVar("Parsed")

_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "dict": (dict,), "list": (list,)
}  # fmt: skip
_RECORDS = ("RunInfo", "Process", "Provenance", "Git", "GoesOnFrom")
_STEPS_SHOWN = 8
_LARGEST = {"int": 2.0**63, "float": 1e11}  # floats are seconds since 1970


@dataclass(frozen=True)
class Attempt:
    number: int
    folder: str
    info: AttemptInfo | None  # None: killed before its provenance was known, or damaged
    status: Status | None

    @property
    def goes_on_from(self) -> GoesOnFrom | None:
        known = self.status or self.info
        return known.goes_on_from if known else None


@dataclass(frozen=True)
class Launch:
    """launch.json: what the launching process knows. `exit_code` is None while the program runs."""

    info: RunInfo
    provenance: Provenance
    process: Process
    started_at: float
    heartbeat: float
    exit_code: int | None = None
    ended_at: float | None = None

    @classmethod
    def read(cls, data: dict[str, Any]) -> Launch:
        provenance = AttemptInfo.read(
            {"number": 0, "started_at": 0.0, "process": data["process"], "provenance": data["provenance"]}
        ).provenance
        fixed = {
            "info": from_json(RunInfo, data["info"]),
            "provenance": provenance,
            "process": from_json(Process, data["process"]),
        }
        return from_json(cls, data | fixed)


@dataclass(frozen=True)
class StoredRun:
    folder: Path
    info: RunInfo
    attempts: list[Attempt]
    launch: Launch | None
    problems: list[str] = field(default_factory=list)

    @property
    def last_status(self) -> Status | None:
        return self.attempts[-1].status if self.attempts else None

    @property
    def config(self) -> dict[str, Any]:
        """As the run started, with what later attempts changed."""
        merged = dict(self.info.config)
        for attempt in self.attempts:
            if attempt.status:
                merged |= attempt.status.config_changes
        return merged

    @property
    def provenance(self) -> Provenance:
        """Of the newest attempt that told."""
        known = [attempt.info.provenance for attempt in self.attempts if attempt.info]
        if known:
            return known[-1]
        return self.launch.provenance if self.launch else Provenance()

    @property
    def ended(self) -> bool:
        """Whether the last attempt said so itself, or its launcher did: nothing more will come of it."""
        status = self.last_status
        return bool(status and status.state in TERMINAL_STATES) or self._exit_code is not None

    @property
    def _exit_code(self) -> int | None:
        """Of the program that made the last attempt, if it was launched and has ended."""
        status, launch = self.last_status, self.launch
        if launch is None or (status and status.started_at < launch.started_at - 1.0):
            return None
        return launch.exit_code

    def state(self, now: float) -> State:
        status, launch, exit_code = self.last_status, self.launch, self._exit_code
        if status and status.state in TERMINAL_STATES:
            return "failed" if status.state == "finished" and status.at_exit and exit_code else status.state
        if exit_code is not None:
            if exit_code == 0:
                return "finished"
            return "interrupted" if exit_code in (-2, -15, 130, 143) else "failed"
        if status:
            return "running" if beats(status.process, status.heartbeat, now) else "lost"
        if launch:
            return "running" if beats(launch.process, launch.heartbeat, now) else "lost"
        return "running" if beats(None, self.info.started_at, now) else "lost"

    def chain(self) -> list[tuple[Attempt, float | None]]:
        """The attempts that count, oldest first, each with the time after which its rows no longer do."""
        by_number = {attempt.number: attempt for attempt in self.attempts}
        chain: list[tuple[Attempt, float | None]] = []
        attempt, cut = (self.attempts[-1] if self.attempts else None), None
        while attempt is not None:
            chain.append((attempt, cut))
            source = attempt.goes_on_from
            if source is None or source.attempt >= attempt.number:
                break
            attempt, cut = by_number.get(source.attempt), source.time
        return chain[::-1]


def beats(process: Process | None, heartbeat: float, now: float) -> bool:
    """The process table is asked where it can answer; the clock decides for other hosts."""
    alive = is_alive(process) if process else None
    if alive is not None:
        return alive
    return now - heartbeat < LOST_AFTER_SECONDS


def read_run(folder: Path, fallback_started_at: float | None = None) -> StoredRun:
    """What the folder says of itself. FileNotFoundError: it holds neither run.json nor launch.json (yet)."""
    problems: list[str] = []
    base = str(folder)  # joining Paths costs as much as reading the files
    launch = _optional(f"{base}/launch.json", Launch.read, problems)
    info = _optional(f"{base}/run.json", lambda data: from_json(RunInfo, data), problems)
    if info is None and launch:
        info = launch.info
    if info is None and problems:
        started = fallback_started_at if fallback_started_at is not None else folder.stat().st_mtime
        info = RunInfo(run_id=folder.name, task=decode_name(folder.parent.name), name=folder.name, started_at=started)
    if info is None:
        raise FileNotFoundError(folder / "run.json")
    if info.run_id != folder.name:  # a folder that was copied, or a damaged letter: where it lies is what it is
        problems.append(f"{folder / 'run.json'} says that it is run {info.run_id!r}")
        info = dataclasses.replace(info, run_id=folder.name)
    attempts = [_read_attempt(number, path, problems) for number, path in attempt_folders(folder)]
    # An attempt that was killed as it opened has written nothing, and hides nothing.
    attempts = [attempt for attempt in attempts if attempt.info or attempt.status]
    return StoredRun(folder, info, attempts, launch, problems)


def _read_attempt(number: int, path: str, problems: list[str]) -> Attempt:
    info = _optional(f"{path}/attempt.json", AttemptInfo.read, problems)
    status = _optional(f"{path}/status.json", Status.read, problems)
    return Attempt(number, path, info, status)


def _optional(path: str, parse: Callable[[dict[str, Any]], Parsed], problems: list[str]) -> Parsed | None:
    """The parsed file, or None: it is not there, or it is damaged and named in `problems`."""
    try:
        return _checked(parse(read_json(path)))
    except FileNotFoundError:
        return None
    except CorruptFile as error:
        problems.append(error.message)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problems.append(f"{path} lacks what it should hold: {error!r}")
    return None


def _checked(record: Parsed) -> Parsed:
    """The record, if each of its values is of the kind that its field says; JSON that was damaged may hold any."""
    kind: Any = type(record)
    values = record.__dict__
    shape = (kind, *map(type, values.values()))
    if shape not in _SOUND_SHAPES:
        for name, allowed in _fields(kind).allowed.items():
            if not isinstance(values[name], allowed):
                raise TypeError(f"{name} = {values[name]!r:.80}")
        _SOUND_SHAPES.add(shape)
    fields = _fields(kind)
    for name, limit in fields.limits.items():
        if values[name] is not None and not abs(values[name]) < limit:
            raise ValueError(f"{name} = {values[name]!r:.80}")
    for name in fields.texts:
        if not all(isinstance(item, str) for item in values[name]):
            raise TypeError(f"{name} = {values[name]!r:.80}")
    for name in fields.records:
        if values[name] is not None:
            _checked(values[name])
    return record


@dataclass(frozen=True)
class _Fields:
    """What the fields of a record may hold, and which of them have to be looked into."""

    allowed: dict[str, Any]
    limits: dict[str, float]
    texts: list[str]
    records: list[str]


# Thousands of runs have records of the same shape: each shape is checked once.
_SOUND_SHAPES: set[tuple[Any, ...]] = set()


@functools.cache
def _fields(kind: Any) -> _Fields:
    found = _Fields({}, {}, [], [])
    for one in dataclasses.fields(kind):
        declared, _, otherwise = str(one.type).partition(" | ")
        types = _KINDS.get(declared.partition("[")[0], (object,))
        found.allowed[one.name] = (*types, type(None)) if otherwise == "None" else types
        if declared in _LARGEST:
            found.limits[one.name] = _LARGEST[declared]
        if declared == "list[str]":
            found.texts.append(one.name)
        if declared in _RECORDS:
            found.records.append(one.name)
    return found


def attempt_series(folder: str, problems: list[str]) -> dict[str, Series]:
    """Metrics of one attempt, sealed or not. A log that is sealed just now is looked for once more."""
    sealed, log = os.path.join(folder, "metrics.parquet"), os.path.join(folder, "metrics.log")  # noqa: PTH118
    for _ in range(2):
        try:
            return read_sealed(sealed)
        except FileNotFoundError:
            pass
        except CorruptFile as error:
            problems.append(error.message)
            if not os.path.exists(log):  # noqa: PTH110
                return {}
        try:
            contents = read_log(log)
        except FileNotFoundError:
            continue
        problems += contents.damage_report(log)
        return contents.series
    return {}


def counting_checkpoints(run: StoredRun) -> list[Checkpoint]:
    """Checkpoints on the way that the run took: not those after a point that a later attempt went back behind."""
    cuts = {attempt.number: cut for attempt, cut in run.chain()}
    return [
        checkpoint
        for checkpoint in list_checkpoints(run.folder)
        if checkpoint.attempt in cuts and checkpoint.time <= (cuts[checkpoint.attempt] or math.inf)
    ]


def check_checkpoint(run: StoredRun, step: int) -> None:
    """CheckpointNotFound, with the steps there are, when the run has none at this step on the way that it took."""
    steps = [checkpoint.step for checkpoint in counting_checkpoints(run)]
    if step in steps:
        return
    nearest = sorted(sorted(steps, key=lambda one: abs(one - step))[:_STEPS_SHOWN])
    more = f" and {len(steps) - len(nearest)} more" if len(steps) > len(nearest) else ""
    hint = f"it has {', '.join(map(str, nearest))}{more}" if steps else "it has none: leave the step out"
    raise CheckpointNotFound(f"run {run.info.run_id} has no checkpoint {step}", hint)


def run_series(run: StoredRun, problems: list[str]) -> dict[str, Series]:
    """Metrics of a run: its attempts joined, each cut at the row from which the next goes on."""
    chain = run.chain()
    if len(chain) == 1 and chain[0][1] is None:
        return attempt_series(chain[0][0].folder, problems)
    parts: dict[str, list[Series]] = {}
    for attempt, cut in chain:
        for name, series in attempt_series(attempt.folder, problems).items():
            kept = series if cut is None else series.where(series.times <= cut)
            if len(kept.steps):
                parts.setdefault(name, []).append(kept)
    return {name: join(parts[name]) for name in sorted(parts)}


def rows_of_attempt(folder: str) -> int:
    """How many rows an attempt logged; of one that was killed, how many can be read."""
    try:
        return read_log(f"{folder}/metrics.log").rows
    except FileNotFoundError:
        return int(read_json(f"{folder}/status.json").get("rows", 0))
