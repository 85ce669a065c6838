"""SQL over a book: an in-memory DuckDB whose views read the cache and nothing else."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.book import guard
from rollbook.book.catalog import Catalog, Snapshot, cache_folder
from rollbook.book.database import lock_down, open_database
from rollbook.book.layout import Layout
from rollbook.book.packs import PackedMetrics, Packs
from rollbook.book.settings import Settings
from rollbook.book.views import VIEWS
from rollbook.errors import DataError, QueryInvalid, QueryRefused, did_you_mean

if TYPE_CHECKING:
    import duckdb

_COLUMNS = "`rollbook sql 'describe runs'` lists the columns; a hyper-parameter is config->>'lr'"


class Engine:
    """Answers SQL. Everything is brought up to date at each question; what has not changed is reused.

    With `one_moment`, all questions see the book as the first one did: a command asks several, and looking at a hundred
    thousand folders takes half a second. With `only`, the views hold the runs in these folders and no others.
    """

    def __init__(
        self,
        layout: Layout,
        settings: Settings,
        *,
        tell: Callable[[str], None] | None = None,
        one_moment: bool = False,
        only: Iterable[Path] | None = None,
    ) -> None:
        self.settings = settings
        self._one_moment = one_moment or only is not None
        self.catalog = Catalog(layout, settings.aliases)
        self._snapshot: Snapshot | None = None if only is None else self.catalog.only(only)
        self.packs = Packs(cache_folder(layout) / "metrics", tell)
        self._reusable: tuple[Any, set[str], duckdb.DuckDBPyConnection] | None = None

    def sql(self, query: str, parameters: list[Any] | None = None) -> duckdb.DuckDBPyRelation:
        import duckdb  # noqa: F401 - gives connections their `sql`

        cursor = self._cursor(query)
        with _explained():
            return cursor.sql(query, params=parameters)

    def table(self, query: str, parameters: list[Any] | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns and rows, at once; takes less time than a relation, which loads the whole of DuckDB's package."""
        cursor = self._cursor(query)
        with _explained():
            cursor.execute(query, parameters)
            return [column[0] for column in cursor.description or ()], cursor.fetchall()

    def _cursor(self, query: str) -> duckdb.DuckDBPyConnection:
        asked = guard.check(self.catalog.database(), query)
        return self._connect(asked).cursor()

    def problems(self) -> list[str]:
        """What could not be read, every file of metrics having been read once."""
        snapshot = self._look()
        return [*snapshot.problems, *self._pack(snapshot).problems]

    def folder_of(self, run_id: str) -> Path:
        """Where the last question found the run."""
        return Path((self._snapshot or self._look()).folders[run_id])

    def _look(self) -> Snapshot:
        if self._snapshot is None or not self._one_moment:
            self._snapshot = self.catalog.refresh()
        return self._snapshot

    def _connect(self, asked: set[str]) -> duckdb.DuckDBPyConnection:
        snapshot = self._look()
        # What the question needs besides the catalogue: a database that has it serves for those that need less.
        needed = asked & {"metrics", "summaries"}
        state = id(snapshot) if self._one_moment else snapshot.identity
        if self._reusable and state is not None and self._reusable[0] == state and self._reusable[1] >= needed:
            return self._reusable[2]
        packed = self._pack(snapshot) if "metrics" in asked else PackedMetrics([])
        connection = open_database(snapshot, packed, asked)
        lock_down(connection, self.catalog.folder.parent, self.settings)
        has_summaries = {"summaries"} if needed or not snapshot.active else set()
        self._reusable = (state, needed | has_summaries, connection)
        return connection

    def _pack(self, snapshot: Snapshot) -> PackedMetrics:
        from rollbook.book import duck

        try:
            return self.packs.refresh(snapshot.settled, snapshot.folders)
        except (OSError, duck.Error) as error:
            raise DataError(
                f"the metrics cannot be packed into {self.packs.folder}: {error}", "make room on that disk"
            ) from error


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    from rollbook.book import duck

    try:
        yield
    except duck.Error as error:
        raise _explain(error) from None


def _explain(error: duckdb.Error) -> QueryInvalid | QueryRefused:
    """DuckDB's error in our words, with the nearest name where one was wrong."""
    from rollbook.book import duck

    message = guard.first_line(error)
    if isinstance(error, duck.PermissionException):
        return QueryRefused(message, "a query reads the book's views and nothing else")
    column = re.search(r'column "?([^"\s]+)"? (?:not found|does not exist)', message, re.IGNORECASE)
    table = re.search(r"Table with name (\S+) does not exist", message)
    if column:
        known = {name for view in VIEWS.values() for name in view.columns}
        return QueryInvalid(f"there is no column {column[1]!r}", did_you_mean(column[1], known) or _COLUMNS)
    if table:
        names = ", ".join(VIEWS)
        return QueryInvalid(f"there is no view {table[1]!r}", did_you_mean(table[1], VIEWS) or f"there are: {names}")
    return QueryInvalid(message)
