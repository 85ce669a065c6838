"""A benchmark in the book: its plan, written once, and a mark for everything that happens to a cell.

    <book>/benchmarks/<id>/
      plan.json                   the cells, each with the id of the run that it will be
      cells/17.0.run              the first try of cell 17 was begun
      cells/17.0.exit.1           it ended with exit code 1
      cells/17.0.settled          its run knows it, too
      cells/17.0.stop.time-limit  it was asked to stop
      runner.json                 the process that runs it
      conditions.json             for processes on the nodes of a cluster
      cancel                      somebody asked all of it to stop

A mark is an empty file that is created exclusively: two runners, on one machine or many, never begin the same try, a
kill leaves nothing half written, and where ten thousand cells stand is one listing of a folder. A cell is one run,
however often it is tried: a retry is another attempt at it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rollbook.bench.matrix import Cell
from rollbook.book.code import read_manifest
from rollbook.book.journal import user_name
from rollbook.book.layout import Layout, encode_name, new_run_id, read_json, write_json
from rollbook.book.processes import is_alive, this_process
from rollbook.book.run_folder import Launch, beats, read_run
from rollbook.errors import BenchmarkNotFound, BookUnwritable, CorruptFile, RunIsLive
from rollbook.records import Process, Provenance, from_json, to_json

_MARK = re.compile(r"(\d+)\.(\d+)\.(run|exit|stop|settled)(?:\.([\w-]+))?")

_SOURCES = (".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".h", ".rs", ".sh", ".toml", ".yaml", ".yml")

Standing = Literal["queued", "running", "finished", "failed", "stopped", "lost"]
STANDINGS: tuple[Standing, ...] = get_args(Standing)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """plan.json."""

    benchmark: str
    key: str  # of the matrix and the code: the same command finds its benchmark again
    created_at: float
    user: str
    cwd: str
    cells: list[Cell]
    run_ids: list[str]


@dataclass
class Try:
    """What became of the newest try of a cell."""

    number: int
    exit_code: int | None = None  # None: it has not ended, or nobody was left to see how
    stopped: str | None = None  # why it was asked to stop
    settled: bool = False  # whether its end is in its run


@dataclass(frozen=True)
class Benchmark:
    layout: Layout
    folder: Path
    plan: Plan

    def run_folder(self, cell: int) -> Path:
        return self.layout.run_folder(self.plan.cells[cell].task, self.plan.run_ids[cell])

    # ---- tries ----------------------------------------------------------------------------------------------------

    def tries(self) -> dict[int, Try]:
        """The newest try of each cell that has any."""
        marks = [match for name in os.listdir(self.folder / "cells") if (match := _MARK.fullmatch(name))]
        found: dict[int, Try] = {}
        for mark in marks:
            cell, number = int(mark[1]), int(mark[2])
            if mark[3] == "run" and (cell not in found or found[cell].number < number):
                found[cell] = Try(number)
        for mark in marks:
            newest = found.get(int(mark[1]))
            if newest is None or newest.number != int(mark[2]):
                continue
            if mark[3] == "exit":
                newest.exit_code = int(mark[4])
            elif mark[3] == "stop":
                newest.stopped = mark[4]
            elif mark[3] == "settled":
                newest.settled = True
        return found

    def mark_begun(self, cell: int, number: int) -> bool:
        """Whether this try is ours: False when another runner was first."""
        return self._mark(f"{cell}.{number}.run")

    def mark_exit(self, cell: int, number: int, code: int) -> None:
        self._mark(f"{cell}.{number}.exit.{shell_code(code)}")

    def mark_settled(self, cell: int, number: int) -> None:
        self._mark(f"{cell}.{number}.settled")

    def mark_stop(self, cell: int, number: int, why: str) -> None:
        self._mark(f"{cell}.{number}.stop.{why}")

    def mark_path(self, cell: int, number: int) -> Path:
        """What the names of a try's marks begin with."""
        return self.folder / "cells" / f"{cell}.{number}"

    def _mark(self, name: str) -> bool:
        try:
            os.close(os.open(self.folder / "cells" / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            return False
        except OSError as error:
            raise BookUnwritable(f"cannot write to {self.folder}: {error.strerror or error}") from error
        return True

    def standing(self, cell: int, newest: Try | None, scheduled: Collection[int] | None = None) -> Standing:
        """Where a cell stands, as marks and the process table tell, or `scheduled`: what a scheduler has not ended."""
        if newest is None:
            return "queued"
        if newest.exit_code == 0 and newest.stopped is None:
            return "finished"
        if newest.stopped is not None:
            return "stopped"
        if newest.exit_code is not None:
            return "failed"
        if scheduled is not None:
            return "running" if cell in scheduled else "lost"
        launch = self.launch(cell)
        # Before its launch is written, a try is as alive as its runner.
        if launch is None:
            return "running" if self.is_being_run() else "lost"
        return "running" if beats(launch.process, launch.heartbeat, time.time()) else "lost"

    def launch(self, cell: int) -> Launch | None:
        try:
            return read_run(self.run_folder(cell)).launch
        except FileNotFoundError:
            return None

    # ---- its runner -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Say that this process runs it; RunIsLive when another one does."""
        if (process := self._runner()) and is_alive(process):
            raise RunIsLive(
                f"{self.plan.benchmark} is being run by process {process.pid} on {process.host}",
                f"rollbook bench status {self.plan.benchmark}",
            )
        (self.folder / "cancel").unlink(missing_ok=True)
        runner = self.folder / "runner.json"
        write_json(runner, to_json(this_process()))
        try:
            yield
        finally:
            runner.unlink(missing_ok=True)

    def where(self) -> str:
        """What it runs on, or ran on last: local, ray or slurm."""
        try:
            return str(read_json(self.folder / "conditions.json")["where"])
        except FileNotFoundError:
            return "local"

    def is_being_run(self) -> bool:
        process = self._runner()
        return process is not None and is_alive(process) is not False

    def _runner(self) -> Process | None:
        try:
            return from_json(Process, read_json(self.folder / "runner.json"))
        except (FileNotFoundError, CorruptFile, TypeError):
            return None

    @property
    def cancelled(self) -> bool:
        return (self.folder / "cancel").exists()

    def cancel(self) -> None:
        (self.folder / "cancel").touch()


def shell_code(code: int) -> int:
    """An exit code as a shell has it: 128 + N for a program that signal N ended."""
    return code if code >= 0 else 128 - code


def find_or_plan(layout: Layout, cells: Sequence[Cell], provenance: Provenance, *, fresh: bool = False) -> Benchmark:
    """The newest benchmark of this matrix and this code, or a new one."""
    key = _key(layout, cells, provenance)
    base = f"{encode_name(cells[0].task)[:40]}-{key[:12]}"
    taken = [number for name in _names(layout) if (number := _number(name, base)) is not None]
    if taken and not fresh:
        return open_benchmark(layout, _name(base, max(taken)))
    number = max(taken, default=0) + 1
    while not _create(layout, _name(base, number), key, cells):
        if not fresh:
            return open_benchmark(layout, _name(base, number))  # another process has just made it
        number += 1
    return open_benchmark(layout, _name(base, number))


def open_benchmark(layout: Layout, name: str) -> Benchmark:
    folder = layout.benchmarks / name
    try:
        table = read_json(folder / "plan.json")
        plan = Plan(**{**table, "cells": [Cell(**cell) for cell in table["cells"]]})
    except FileNotFoundError:
        raise BenchmarkNotFound(f"there is no benchmark {name!r}", "rollbook bench status lists them") from None
    except (TypeError, KeyError) as error:
        raise CorruptFile(f"{folder / 'plan.json'} is no plan of a benchmark: {error!r}") from error
    return Benchmark(layout, folder, plan)


def list_benchmarks(layout: Layout) -> Iterator[Benchmark]:
    """The newest first."""
    folders = [layout.benchmarks / name for name in _names(layout)]
    for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime, reverse=True):
        yield open_benchmark(layout, folder.name)


def _names(layout: Layout) -> list[str]:
    try:
        return [name for name in os.listdir(layout.benchmarks) if not name.startswith(".")]
    except FileNotFoundError:
        return []


def _name(base: str, number: int) -> str:
    return base if number == 1 else f"{base}-{number}"


def _number(name: str, base: str) -> int | None:
    match = re.fullmatch(re.escape(base) + r"(?:-(\d+))?", name)
    return int(match[1] or 1) if match else None


def _key(layout: Layout, cells: Sequence[Cell], provenance: Provenance) -> str:
    """Of what is run, and of the code that runs it: a commit with uncommitted work, or without git the source files."""
    code: list[Any] = []
    if git := provenance.git:
        code = [git.commit, git.diff]
    elif provenance.code:
        files = read_manifest(layout, provenance.code).files
        # Programs leave files of many kinds in their folder: those do not make it another benchmark.
        code = sorted([path, file.id] for path, file in files.items() if path.endswith(_SOURCES))
    matrix = [[cell.command, cell.task] for cell in cells]
    return hashlib.sha256(json.dumps([matrix, code]).encode("utf-8", "surrogatepass")).hexdigest()


def _create(layout: Layout, name: str, key: str, cells: Sequence[Cell]) -> bool:
    """Made aside and renamed: a benchmark is there with its plan or not at all. False: another process was first."""
    now = time.time()
    plan = Plan(
        benchmark=name,
        key=key,
        created_at=now,
        user=user_name(),
        cwd=str(Path.cwd()),
        cells=list(cells),
        run_ids=_new_run_ids(len(cells), now),
    )
    aside = layout.benchmarks / f".{name}.{secrets.token_hex(4)}"
    try:
        (aside / "cells").mkdir(parents=True)
        # dataclasses.asdict would copy every cell in depth, which takes longer than all the rest.
        write_json(aside / "plan.json", {**vars(plan), "cells": [vars(cell) for cell in cells]}, indent=None)
        aside.rename(layout.benchmarks / name)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        if (layout.benchmarks / name).exists():
            return False
        raise BookUnwritable(f"cannot write to {layout.benchmarks}: {error.strerror or error}") from error
    return True


def _new_run_ids(count: int, now: float) -> list[str]:
    """All of one second, so with more random digits than a run that is alone."""
    ids: dict[str, Any] = {}
    while len(ids) < count:
        ids[new_run_id(now, random_bytes=4)] = None
    return list(ids)
