"""The catalogue: every run of the book as tables, kept in cache/ and brought up to date at each question.

A run folder's mtime says whether its cached rows still hold; only runs that are new, changed or at work are read.
The cache is derived: it may be deleted at any time, and several readers may build it at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.book import journal
from rollbook.book.checked import as_left, read_checked, write_checked
from rollbook.book.layout import Layout, write_atomically
from rollbook.book.tables import SCHEMAS, Row, create, create_table, quoted
from rollbook.errors import CorruptFile

if TYPE_CHECKING:
    import duckdb

    from rollbook.book.entries import Entry

CACHE_FORMAT = "1"
KEEP_GENERATIONS_SECONDS = 180.0  # longer than a query may take
JOURNAL_CACHED_EVERY = 200
READ_AT_ONCE = 10_000  # runs, which take about 25 kB each until they are written
LEFT = "left.json"
# What reading values of the wrong kind or size ends in.
DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass
class Snapshot:
    """The book at one moment: settled runs in files, the others in memory, and the journal's changes."""

    files: dict[str, Path]  # table -> Parquet file of settled runs; empty when there are none
    settled: dict[str, int]  # run id -> mtime_ns
    active: list[Entry]
    folders: dict[str, str]  # every run in tasks/ -> its folder
    changes: journal.Changes
    problems: list[str] = field(default_factory=list)
    generation: str = ""

    @property
    def identity(self) -> tuple[Any, ...] | None:
        """Equal for two snapshots that answer every question alike; None when that cannot be known."""
        return None if self.active else (self.generation, len(self.settled), self.changes.number)


def rows_of(name: str, entries: Iterable[Entry]) -> list[Row]:
    return [row for entry in entries for row in entry.tables[name]]


class Catalog:
    """Keeps what it has read; `refresh` brings it up to date."""

    def __init__(self, layout: Layout, aliases: Mapping[str, tuple[str, ...]]) -> None:
        self.layout = layout
        self.aliases = aliases
        # Other aliases or another version read the same folders differently, and paths change when the book is moved:
        # each gets a cache of its own.
        names_of = {name: list(names) for name, names in aliases.items()}
        key = json.dumps([CACHE_FORMAT, SCHEMAS, str(layout.root), names_of])
        self.folder = cache_folder(layout) / f"catalog-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        self._generation = ""
        self._settled: dict[str, int] = {}
        self._changes = journal.Changes()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def refresh(self) -> Snapshot:
        problems: list[str] = []
        listing = self._list_runs()
        self._load_generation()
        fresh = {run_id for run_id, mtime in self._settled.items() if listing.get(run_id, ("", -1))[1] == mtime}
        now = time.time()
        active: list[Entry] = []
        todo = [run_id for run_id in listing if run_id not in fresh]
        may_cache = True
        for start in range(0, max(len(todo), 1), READ_AT_ONCE):
            batch = todo[start : start + READ_AT_ONCE]
            entries = [entry for run_id in batch if (entry := self._read(*listing[run_id], now, problems))]
            settled = [entry for entry in entries if entry.settled]
            active += [entry for entry in entries if not entry.settled]
            if may_cache and (settled or len(fresh) < len(self._settled)):
                may_cache = self._try_to_write(fresh, settled)
            if may_cache:
                fresh.update(entry.run.info.run_id for entry in settled)
            else:
                active += settled
        if not may_cache:  # answer without a cache
            self._generation, self._settled = "", {}
            active += [entry for run_id in fresh if (entry := self._read(*listing[run_id], now, problems))]
        return Snapshot(
            files=self._files(),
            settled=dict(self._settled),
            active=active,
            folders={run_id: path for run_id, (path, _) in listing.items()},
            changes=self._replay(problems),
            problems=problems,
            generation=self._generation,
        )

    def only(self, folders: Iterable[Path]) -> Snapshot:
        """The book as if it held these runs alone and hid none: for questions about deleted and archived ones."""
        problems: list[str] = []
        now = time.time()
        active = [
            entry for folder in folders if (entry := self._read(str(folder), folder.stat().st_mtime_ns, now, problems))
        ]
        return Snapshot(
            files={},
            settled={},
            active=active,
            folders={entry.run.info.run_id: str(entry.run.folder) for entry in active},
            changes=dataclasses.replace(self._replay(problems), hidden={}),
            problems=problems,
        )

    def _list_runs(self) -> dict[str, tuple[str, int]]:
        listing = {}
        for entry in self.layout.run_folders():
            try:
                listing[entry.name] = (entry.path, entry.stat().st_mtime_ns)
            except FileNotFoundError:
                continue  # purged or archived while we look
        return listing

    def _try_to_write(self, fresh: set[str], settled: list[Entry]) -> bool:
        """False on a full disk, or where the cache goes away."""
        from rollbook.book import duck

        try:
            self._write_generation(fresh, settled)
        except (OSError, duck.Error):
            return False
        return True

    def _read(self, path: str, mtime: int, now: float, problems: list[str]) -> Entry | None:
        from rollbook.book.entries import read_entry  # loaded when a run has to be read, which is not often

        try:
            return read_entry(Path(path), mtime, self.aliases, now)
        except FileNotFoundError:
            return None  # is being made, or has just gone
        except (OSError, CorruptFile, *DAMAGE) as error:
            problems.append(f"{path} cannot be read: {error!r}")
            return None

    def _files(self) -> dict[str, Path]:
        if not self._generation:
            return {}
        return {name: self.folder / self._generation / f"{name}.parquet" for name in SCHEMAS}

    def _load_generation(self) -> None:
        from rollbook.book import duck

        try:
            current = (self.folder / "current").read_text()
            left = read_checked(self.folder / current / LEFT)
            if left is None or left != self._as_left(current):
                raise FileNotFoundError(current)
            if current == self._generation:
                return
            runs = quoted(self.folder / current / "runs.parquet")
            index = self.database().execute(f"select run_id, mtime_ns from read_parquet('{runs}')").fetchall()
        except (OSError, duck.Error, ValueError):
            self._generation, self._settled = "", {}
            return
        self._generation, self._settled = current, dict(index)

    def database(self) -> duckdb.DuckDBPyConnection:
        """For our own files; questions of users are answered elsewhere."""
        from rollbook.book import duck

        if self._connection is None:
            self._connection = duck.connect(":memory:")
        return self._connection

    def _write_generation(self, fresh: set[str], settled: list[Entry]) -> None:
        """The tables anew, in a folder of their own; `current` then names it. Readers of the old one go on."""
        name = f"{time.time_ns()}-{secrets.token_hex(4)}"
        old = self._files() if fresh else {}
        (self.folder / name).mkdir(parents=True)
        database = self.database().cursor()
        create(database, "fresh", {"run_id": "VARCHAR"}, [(run_id,) for run_id in fresh])
        for table in SCHEMAS:
            create_table(database, "new_rows", table, rows_of(table, settled))
            query = "select * from new_rows"
            if old:
                kept = f"select * from read_parquet('{quoted(old[table])}')"
                if len(fresh) < len(self._settled):
                    kept += " where run_id in (select run_id from fresh)"
                query = f"{kept} union all by name {query}"
            path = quoted(self.folder / name / f"{table}.parquet")
            database.execute(f"copy ({query}) to '{path}' (format parquet, compression zstd)")
        database.execute("drop table new_rows")
        write_checked(self.folder / name / LEFT, self._as_left(name))
        write_atomically(self.folder / "current", name.encode())
        # Ours, even if another reader's is `current` by now: that one may lack what we have just read.
        self._settled = {run_id: self._settled[run_id] for run_id in fresh} | {
            entry.run.info.run_id: entry.mtime_ns for entry in settled
        }
        self._generation, superseded = name, self._generation
        self._remove_old_generations(superseded)

    def _as_left(self, generation: str) -> list[Any]:
        return [as_left(self.folder / generation / f"{name}.parquet") for name in SCHEMAS]

    def _remove_old_generations(self, superseded: str) -> None:
        """Not at once: others may be reading them. Whoever supersedes one starts its last minutes."""
        if superseded:
            with contextlib.suppress(OSError):
                os.utime(self.folder / superseded)
        for entry in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):
                old = time.time() - entry.stat().st_mtime > KEEP_GENERATIONS_SECONDS
                if entry.is_dir() and old and entry.name != self._generation:
                    shutil.rmtree(entry.path, ignore_errors=True)

    def _replay(self, problems: list[str]) -> journal.Changes:
        """The journal's state, going on from the one that an earlier reader left in the cache."""
        file = self.folder / "journal.json"
        if not self._changes.number:
            self._changes = journal.Changes(**(read_checked(file) or {}))
        before = self._changes.number
        if before > journal.newest(self.layout.journal):  # a journal that was put back to an earlier state
            self._changes, before = journal.Changes(), 0
        self._changes = journal.replay(self.layout.journal, since=self._changes)
        problems += self._changes.damaged
        if self._changes.number - before >= JOURNAL_CACHED_EVERY:
            with contextlib.suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
                write_checked(file, dataclasses.asdict(self._changes))
        return self._changes


def cache_folder(layout: Layout) -> Path:
    """cache/ in the book; of a book that we may only read, a folder of the user's own."""
    if os.access(layout.cache if layout.cache.exists() else layout.root, os.W_OK):
        return layout.cache
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "rollbook" / hashlib.sha256(str(layout.root).encode()).hexdigest()[:16]
