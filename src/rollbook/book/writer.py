"""The writing side of one attempt: its folder, its status and a metric log that survives a failing disk."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rollbook.book.layout import Layout, new_run_id, touch_run, write_json
from rollbook.errors import BookUnwritable, RunIsLive
from rollbook.records import AttemptInfo, RunInfo, Status, to_json

KEPT_IN_MEMORY_BYTES = 256 * 2**20


def create_run_folder(layout: Layout, task: str, now: float) -> tuple[str, Path]:
    """A run id that nobody else has, and its folder. mkdir is what decides between two that draw the same."""
    while True:
        run_id = new_run_id(now)
        folder = layout.run_folder(task, run_id)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise _unwritable(folder, error) from error
        return run_id, folder


def _unwritable(folder: Path, error: OSError) -> BookUnwritable:
    return BookUnwritable(
        f"cannot write the run at {folder}: {error.strerror or error}",
        "choose another place with book=..., --book DIR or ROLLBOOK_BOOK=DIR",
    )


class AttemptWriter:
    """One process's part of a run. `number` is taken by mkdir, so two processes never share one."""

    def __init__(self, run_folder: Path, number: int, *, kept_in_memory_bytes: int = KEPT_IN_MEMORY_BYTES) -> None:
        self.run_folder = run_folder
        self.number = number
        self.folder = run_folder / "attempts" / str(number)
        try:
            self.folder.parent.mkdir(exist_ok=True)
            self.folder.mkdir()
            self.log = LogWriter(self.folder / "metrics.log", kept_in_memory_bytes=kept_in_memory_bytes)
        except FileExistsError:
            raise RunIsLive(
                f"another process has just taken attempt {number} of run {run_folder.name}",
                "wait until it has ended, or fork the run instead",
            ) from None
        except OSError as error:
            raise _unwritable(run_folder, error) from error
        if number:
            touch_run(run_folder)

    def write_run(self, info: RunInfo) -> None:
        try:
            write_json(self.run_folder / "run.json", to_json(info))
        except OSError as error:
            raise _unwritable(self.run_folder, error) from error

    def write_attempt(self, info: AttemptInfo) -> None:
        write_json(self.folder / "attempt.json", to_json(info))

    def write_status(self, status: Status, *, sync: bool = False) -> None:
        write_json(self.folder / "status.json", to_json(status), sync=sync, indent=None)

    @property
    def sealed_path(self) -> Path:
        return self.folder / "metrics.parquet"


class LogWriter:
    """Appends frames to metrics.log. What cannot be written now is kept, up to a bound, and tried again later."""

    def __init__(self, path: Path, *, kept_in_memory_bytes: int = KEPT_IN_MEMORY_BYTES) -> None:
        self.path = path
        self.limit = kept_in_memory_bytes
        self.problem: str | None = None  # now
        self.last_problem: str | None = None  # now or earlier
        self.written_rows = 0
        self.dropped_rows = 0
        self._pending: deque[tuple[bytes, int]] = deque()
        self._pending_bytes = 0
        self._good_size = 0
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)

    @property
    def pending_rows(self) -> int:
        return sum(rows for _, rows in self._pending)

    def append(self, frame: bytes, rows: int) -> None:
        """Queue a frame. Beyond the bound the newest rows are dropped and counted: what is kept stays contiguous."""
        if self._pending_bytes + len(frame) > self.limit:
            self.dropped_rows += rows
        else:
            self._pending.append((frame, rows))
            self._pending_bytes += len(frame)

    def flush(self) -> bool:
        """Write what is pending; False (and `problem` set) when that is not possible now."""
        try:
            if self._pending:
                self._check_file()
            while self._pending:
                frame, rows = self._pending[0]
                self._write(frame)
                self._pending.popleft()
                self._pending_bytes -= len(frame)
                self.written_rows += rows
        except OSError as error:
            self.problem = self.last_problem = f"{self.path}: {error.strerror or error}"
            return False
        self.problem = None
        return True

    def _write(self, frame: bytes) -> None:
        written = os.write(self._file, frame)
        if written < len(frame):
            raise OSError(errno.ENOSPC, "no space left on the device")
        self._good_size += written

    def _check_file(self) -> None:
        """A removed file takes writes without a word, and a failed write may have left half a frame."""
        opened = os.fstat(self._file)
        there = self.path.stat()
        if (opened.st_ino, opened.st_dev) != (there.st_ino, there.st_dev):
            raise OSError(errno.ESTALE, "the file was replaced by another")
        if there.st_size > self._good_size:
            os.ftruncate(self._file, self._good_size)

    def close(self, sync: Callable[[int], None] = os.fsync) -> None:
        try:
            sync(self._file)
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror or error}"
        os.close(self._file)
