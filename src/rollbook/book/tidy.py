"""Changes after the fact: delete, archive, restore, purge, thin, and how much room things take.

`delete` hides a run and `archive` moves it aside; `restore` undoes either until `purge` removes deleted runs for good.
The journal is written first and the folders follow, so a half-done change can simply be asked for again.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollbook.book import journal
from rollbook.book.code import referenced_objects
from rollbook.book.layout import Layout, decode_name, touch_run, write_json
from rollbook.book.objects import Swept, sweep
from rollbook.book.run_folder import Attempt, StoredRun, attempt_series, read_run, run_series
from rollbook.book.sealed import to_table, write_sealed
from rollbook.book.summaries import last_step, summarise, to_text
from rollbook.errors import DataError, RunIsLive
from rollbook.records import LEVELS, to_json


@dataclass(frozen=True)
class Hidden:
    """A run that is deleted or archived."""

    run_id: str
    name: str
    task: str
    state: str  # "deleted" or "archived"
    folder: Path


def delete(layout: Layout, run_ids: Iterable[str]) -> None:
    journal.append(layout.journal, "delete", run_ids)


def archive(layout: Layout, run_ids: Iterable[str]) -> None:
    """Move runs out of tasks/. A run that is at work is refused: its process would lose its folder."""
    folders = {run_id: folder for run_id, folder in _folders(layout, layout.tasks).items() if run_id in set(run_ids)}
    for run_id, folder in folders.items():
        if read_run(folder).state(time.time()) == "running":
            raise RunIsLive(f"run {run_id} is still at work and cannot be archived", "stop it, or wait for its end")
    journal.append(layout.journal, "archive", folders)
    for run_id, folder in folders.items():
        _move(folder, layout.archive / folder.parent.name / run_id)


def restore(layout: Layout, run_ids: Iterable[str]) -> None:
    ids = list(run_ids)
    journal.append(layout.journal, "restore", ids)
    archived = _folders(layout, layout.archive)
    for run_id in ids:
        if run_id in archived:
            _move(archived[run_id], layout.tasks / archived[run_id].parent.name / run_id)


def hidden_runs(layout: Layout) -> list[Hidden]:
    """Deleted and archived runs, by id."""
    states = journal.replay(layout.journal).hidden
    folders = _folders(layout, layout.tasks) | _folders(layout, layout.archive)
    found = []
    for run_id, state in sorted(states.items()):
        if run_id in folders:
            info = read_run(folders[run_id]).info
            found.append(Hidden(run_id, info.name, info.task, state, folders[run_id]))
    return found


@dataclass(frozen=True)
class Purged:
    runs: int
    bytes: int
    objects: Swept


def purge(layout: Layout, run_ids: Iterable[str]) -> Purged:
    """Remove deleted runs for good, then the code objects that no run names any more."""
    hidden = {run.run_id: run for run in hidden_runs(layout) if run.state == "deleted"}
    chosen = [hidden[run_id] for run_id in run_ids if run_id in hidden]
    for run in chosen:
        if read_run(run.folder).state(time.time()) == "running":
            raise RunIsLive(f"run {run.run_id} is still at work and cannot be purged", "stop it, or wait for its end")
    size = 0
    gone = []
    for run in chosen:
        freed = size_of(run.folder)
        # Renamed first: a half-removed folder must not look like a run.
        doomed = run.folder.with_name(f".purged-{run.run_id}")
        try:
            run.folder.rename(doomed)
        except FileNotFoundError:
            continue  # another purge was first
        shutil.rmtree(doomed)
        gone.append(run.run_id)
        size += freed
    if gone:
        journal.append(layout.journal, "purge", gone)
    return Purged(len(gone), size, sweep_code(layout))


def sweep_code(layout: Layout) -> Swept:
    """Remove the objects that no run refers to; see objects.sweep for why this is safe beside a starting run."""
    scan_started = time.time()
    referenced: set[str] = set()
    for folder in [*_folders(layout, layout.tasks).values(), *_folders(layout, layout.archive).values()]:
        try:
            run = read_run(folder)
            if _is_damaged(run):
                return Swept(0, 0)  # what it names cannot be known, so nothing may go
            referenced |= set(_named_objects(run))
            for manifest in _manifests(run):
                referenced |= referenced_objects(layout, manifest)
        except FileNotFoundError:
            continue  # is being made: what it has stored is too young to be swept
        except DataError:
            return Swept(0, 0)
    return sweep(layout, referenced, scan_started)


def _is_damaged(run: StoredRun) -> bool:
    """Whether a file that names objects is there and cannot be read."""
    unread = [Path(attempt.folder) / "attempt.json" for attempt in run.attempts if attempt.info is None]
    if run.launch is None:
        unread.append(run.folder / "launch.json")
    return any(file.exists() for file in unread)


def _provenances(run: StoredRun) -> Iterator[Any]:
    if run.launch:
        yield run.launch.provenance
    for attempt in run.attempts:
        if attempt.info:
            yield attempt.info.provenance


def _manifests(run: StoredRun) -> Iterator[str]:
    return (provenance.code for provenance in _provenances(run) if provenance.code)


def _named_objects(run: StoredRun) -> Iterator[str]:
    for provenance in _provenances(run):
        if provenance.packages:
            yield provenance.packages
        if provenance.git and provenance.git.diff:
            yield provenance.git.diff


@dataclass(frozen=True)
class Thinned:
    points: int
    bytes: int


def thin(layout: Layout, run_id: str, folder: Path, level: str) -> Thinned:
    """Remove the points of a level and of those above it from a run that is not at work."""
    run = read_run(folder)
    if run.state(time.time()) == "running":
        return Thinned(0, 0)
    run = _with_last_step(run)
    points = freed = 0
    for attempt in run.attempts:
        removed, smaller = _thin_attempt(attempt, LEVELS[level])
        points, freed = points + removed, freed + smaller
    if points:
        touch_run(folder)
        journal.append(layout.journal, "thin", [run_id], level=level, points=points)
    return Thinned(points, freed)


def _with_last_step(run: StoredRun) -> StoredRun:
    """The last step that metrics of all levels give, written down before some of them go.

    The status of a killed process is a heartbeat old, and that of a resumed one knows its own steps alone.
    """
    reached = last_step(run_series(run, []))
    status = run.last_status
    if status is None or reached is None or (status.last_step is not None and status.last_step >= reached):
        return run
    *earlier, last = run.attempts
    status = dataclasses.replace(status, last_step=reached)
    write_json(Path(last.folder) / "status.json", to_json(status), sync=True, indent=None)
    return dataclasses.replace(run, attempts=[*earlier, dataclasses.replace(last, status=status)])


def _thin_attempt(attempt: Attempt, rank: int) -> tuple[int, int]:
    """(points removed, bytes freed). What was killed before it could seal its log is sealed on the way."""
    folder = Path(attempt.folder)
    sealed, log = folder / "metrics.parquet", folder / "metrics.log"
    problems: list[str] = []
    before = attempt_series(attempt.folder, problems)
    kept = {name: series.where(keep) for name, series in before.items() if (keep := series.levels < rank).any()}
    removed = sum(len(one.steps) for one in before.values()) - sum(len(one.steps) for one in kept.values())
    if not removed or problems:  # a damaged file is left as it is: something may still be saved from it
        return 0, 0
    size = size_of(folder)
    write_sealed(sealed, to_table(kept))
    log.unlink(missing_ok=True)
    if attempt.status:
        write_json(
            folder / "status.json",
            to_json(attempt.status) | {"summaries": to_text(summarise(kept))},
            sync=True,
            indent=None,
        )
    return removed, size - size_of(folder)


@dataclass(frozen=True)
class Usage:
    """Bytes of one run, by what they are for."""

    run_id: str
    task: str
    folder: Path
    metrics: int
    checkpoints: int
    media: int
    other: int

    @property
    def total(self) -> int:
        return self.metrics + self.checkpoints + self.media + self.other


def usage(layout: Layout) -> list[Usage]:
    """What each run takes, archived ones too, largest first."""
    found = []
    for base in (layout.tasks, layout.archive):
        for run_id, folder in _folders(layout, base).items():
            parts = {name: size_of(folder / name) for name in ("attempts", "checkpoints", "media", "files")}
            other = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
            found.append(
                Usage(
                    run_id,
                    decode_name(folder.parent.name),
                    folder,
                    parts["attempts"],
                    parts["checkpoints"],
                    parts["media"] + parts["files"],
                    other,
                )
            )
    return sorted(found, key=lambda one: (-one.total, one.run_id))


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; 0 when it is not there."""
    total = 0
    for base, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118
            except FileNotFoundError:
                continue
    return total


def _folders(layout: Layout, base: Path) -> dict[str, Path]:
    return {entry.name: Path(entry.path) for entry in layout.run_folders(base)}


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
