"""SQL over a book: an in-memory DuckDB whose views read the cache and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.book import guard
from rollbook.book.catalog import TABLES, Catalog, Snapshot, cache_folder, rows_to_table
from rollbook.book.columns import to_table
from rollbook.book.entries import Entry
from rollbook.book.layout import Layout
from rollbook.book.packs import PackedMetrics, Packs, metrics_table, unite_metrics
from rollbook.book.run_folder import run_series
from rollbook.book.settings import Settings
from rollbook.book.summaries import summarise
from rollbook.book.views import VIEWS
from rollbook.errors import QueryInvalid, QueryRefused, did_you_mean

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Which views need the points of runs that are at work: reading their logs costs, and most questions do without.
_COLUMNS = "`rollbook sql 'describe runs'` lists the columns; a hyper-parameter is config->>'lr'"
_NEED_LOGS = frozenset({"metrics", "summaries"})


class Engine:
    """Answers SQL. Everything is brought up to date at each question; what has not changed is reused."""

    def __init__(self, layout: Layout, settings: Settings) -> None:
        self.layout = layout
        self.settings = settings
        self.catalog = Catalog(layout, settings.aliases)
        self.packs = Packs(cache_folder(layout) / "metrics")
        self._reusable: tuple[Any, duckdb.DuckDBPyConnection] | None = None
        self._checker: duckdb.DuckDBPyConnection | None = None

    def sql(self, query: str, parameters: list[Any] | None = None) -> duckdb.DuckDBPyRelation:
        import duckdb

        if self._checker is None:
            self._checker = duckdb.connect(":memory:")
        asked = guard.check(self._checker, query)
        connection = self._connect(asked).cursor()
        try:
            return connection.sql(query, params=parameters)
        except duckdb.Error as error:
            raise explain(error) from None

    def _connect(self, asked: set[str]) -> duckdb.DuckDBPyConnection:
        snapshot = self.catalog.refresh()
        needs_metrics = "metrics" in asked
        identity = (snapshot.identity, needs_metrics)
        if self._reusable and snapshot.identity is not None and self._reusable[0] == identity:
            return self._reusable[1]
        packed = PackedMetrics([])
        if needs_metrics:
            packed = self.packs.refresh(snapshot.settled, snapshot.folders, snapshot.problems)
        connection = self._build(snapshot, packed, asked)
        if snapshot.identity is not None:
            self._reusable = (identity, connection)
        return connection

    def _build(self, snapshot: Snapshot, packed: PackedMetrics, asked: set[str]) -> duckdb.DuckDBPyConnection:
        import duckdb

        connection = duckdb.connect(":memory:")
        _unite(connection, snapshot, asked)
        _unite_metrics(connection, snapshot, packed, asked)
        _apply_journal(connection, snapshot)
        for name, view in VIEWS.items():
            connection.execute(f"create view {name} as {view.sql}")
        self._lock_down(connection)
        return connection

    def _lock_down(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Nothing outside the cache can be reached from here on, and nothing of this can be undone."""
        connection.execute("set allowed_directories = [$folder]", {"folder": f"{self.catalog.folder.parent}/"})
        for setting in (
            "python_enable_replacements = false",
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "allow_community_extensions = false",
            f"memory_limit = '{self.settings.memory_limit}'",
            "temp_directory = ''",
        ):
            connection.execute(f"set {setting}")
        connection.execute(f"set global max_execution_time = {int(self.settings.query_seconds * 1000)}")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")


def explain(error: duckdb.Error) -> QueryInvalid | QueryRefused:
    """DuckDB's error in our words, with the nearest name where one was wrong."""
    import duckdb

    message = guard.first_line(error)
    if isinstance(error, duckdb.PermissionException):
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


def _unite(connection: duckdb.DuckDBPyConnection, snapshot: Snapshot, asked: set[str]) -> None:
    """all_<table>: what lies in files and what is in memory."""
    tables = snapshot.tables()
    if asked & _NEED_LOGS:
        tables["summaries"] = _active_summaries(snapshot.active, snapshot.problems)
    for name in TABLES:
        _store(connection, f"active_{name}", tables[name])
        file = snapshot.files.get(name)
        settled = f"select * from read_parquet('{_quoted(file)}') union all by name " if file else ""
        connection.execute(f"create view all_{name} as {settled} select * from active_{name}")


def _active_summaries(active: list[Entry], problems: list[str]) -> pa.Table:
    """Figures of runs that are at work, from what they have flushed so far."""
    for entry in active:
        run_id = entry.run.info.run_id
        rows = summarise(run_series(entry.run, problems))
        entry.tables["summaries"] = [{"run_id": run_id, "values": row} for row in rows]
    return rows_to_table("summaries", active)


def _unite_metrics(
    connection: duckdb.DuckDBPyConnection, snapshot: Snapshot, packed: PackedMetrics, asked: set[str]
) -> None:

    tables = []
    if "metrics" in asked:
        for entry in snapshot.active:
            tables.append(metrics_table(entry.run.info.run_id, entry.run.folder, snapshot.problems))
    _store(connection, "active_metrics", unite_metrics(tables))
    parts = ["select * from active_metrics"]
    for number, (file, left_out) in enumerate(packed.files):
        part = f"select * from read_parquet('{_quoted(file)}')"
        if left_out:
            _store(connection, f"left_out_{number}", _ids(left_out))
            part += f" where run_id not in (select run_id from left_out_{number})"
        parts.append(part)
    connection.execute(f"create view all_metrics as {' union all by name '.join(parts)}")


def _apply_journal(connection: duckdb.DuckDBPyConnection, snapshot: Snapshot) -> None:
    import pyarrow as pa

    changes = snapshot.changes
    touched = sorted({*changes.tags, *changes.notes, *changes.hidden})
    at_start = _tags_at_start(connection, sorted(changes.tags))
    rows = [
        {
            "run_id": run_id,
            "tags": changes.current_tags(run_id, at_start.get(run_id, [])) if run_id in changes.tags else None,
            "notes": "\n".join(changes.notes[run_id]) if run_id in changes.notes else None,
            "hidden": changes.hidden.get(run_id),
        }
        for run_id in touched
    ]
    text = pa.string()
    schema = pa.schema({"run_id": text, "tags": pa.list_(text), "notes": text, "hidden": text})
    _store(connection, "changes", to_table(rows, schema))
    connection.execute("create view hidden as select run_id from changes where hidden is not null")
    verdicts = [
        {
            "number": verdict["number"],
            "time": round(verdict["time"] * 1e6),
            "user": verdict["user"],
            "verdict": json.dumps(verdict),
        }
        for verdict in changes.verdicts
    ]
    schema = pa.schema({"number": pa.int64(), "time": pa.timestamp("us"), "user": text, "verdict": text})
    _store(connection, "journal_verdicts", to_table(verdicts, schema))
    connection.execute("create view all_verdicts as select * replace (verdict::json as verdict) from journal_verdicts")


def _tags_at_start(connection: duckdb.DuckDBPyConnection, run_ids: list[str]) -> dict[str, list[str]]:

    if not run_ids:
        return {}
    _store(connection, "retagged", _ids(run_ids))
    rows = connection.execute("select run_id, tags from all_runs semi join retagged using (run_id)").fetchall()
    return dict(rows)


def _ids(run_ids: list[str]) -> pa.Table:
    import pyarrow as pa

    return to_table([{"run_id": run_id} for run_id in run_ids], pa.schema({"run_id": pa.string()}))


def _store(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """A table of the database's own: what is only registered is not seen by its cursors."""
    connection.register("incoming", table)
    connection.execute(f"create table {name} as select * from incoming")
    connection.unregister("incoming")


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
