"""The in-memory DuckDB that a question is asked of: views over the cache's files and over runs that are at work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rollbook.book.catalog import Snapshot, rows_of
from rollbook.book.packs import PackedMetrics, metrics_table
from rollbook.book.settings import Settings
from rollbook.book.tables import SCHEMAS, Row, create, create_table, quoted
from rollbook.book.views import VIEWS

if TYPE_CHECKING:
    import duckdb

    from rollbook.book.entries import Entry

_METRICS = {
    "run_id": "VARCHAR",
    "name": "VARCHAR",
    "step": "BIGINT",
    "time": "TIMESTAMP",
    "value": "DOUBLE",
    "level": "VARCHAR",
}
_IDS = {"run_id": "VARCHAR"}
_CHANGES = {"run_id": "VARCHAR", "tags": "VARCHAR[]", "notes": "VARCHAR", "hidden": "VARCHAR"}
_VERDICTS = {"number": "BIGINT", "time": "TIMESTAMP", "user": "VARCHAR", "verdict": "VARCHAR"}


def open_database(snapshot: Snapshot, packed: PackedMetrics, asked: set[str]) -> duckdb.DuckDBPyConnection:
    """`asked` are the views of the question: the logs of runs at work are read only where they are needed."""
    from rollbook.book import duck

    connection = duck.connect(":memory:")
    connection.execute("create schema cached")
    if asked & {"metrics", "summaries"}:
        for entry in snapshot.active:
            entry.tables["summaries"] = _summaries_so_far(entry, snapshot.problems)
    for name in SCHEMAS:
        create_table(connection, f"cached.active_{name}", name, rows_of(name, snapshot.active))
        file = snapshot.files.get(name)
        settled = f"select * from read_parquet('{quoted(file)}') union all by name " if file else ""
        connection.execute(f"create view cached.{name} as {settled} select * from cached.active_{name}")
    _unite_metrics(connection, snapshot.active if "metrics" in asked else [], packed, snapshot.problems)
    _apply_journal(connection, snapshot)
    for name, view in VIEWS.items():
        connection.execute(f"create view {name} as {view.sql}")
    return connection


def lock_down(connection: duckdb.DuckDBPyConnection, cache: Path, settings: Settings) -> None:
    """Nothing outside the cache can be reached from here on, and nothing of this can be undone."""
    connection.execute("set allowed_directories = [$folder]", {"folder": f"{cache}/"})
    for setting in (
        "python_enable_replacements = false",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        f"memory_limit = '{settings.memory_limit}'",
        "temp_directory = ''",
    ):
        connection.execute(f"set {setting}")
    connection.execute(f"set global max_execution_time = {int(settings.query_seconds * 1000)}")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _summaries_so_far(entry: Entry, problems: list[str]) -> list[Row]:
    """Figures of a run that is at work, from what it has flushed so far."""
    from rollbook.book.run_folder import run_series
    from rollbook.book.summaries import summarise, to_text

    return [(entry.run.info.run_id, to_text(summarise(run_series(entry.run, problems))))]


def _unite_metrics(
    connection: duckdb.DuckDBPyConnection, active: list[Entry], packed: PackedMetrics, problems: list[str]
) -> None:
    create(connection, "cached.active_metrics", _METRICS, [])
    for entry in active:
        import duckdb  # noqa: F401 - makes connections take Arrow tables

        from rollbook.book.run_folder import run_series

        # Into a table of the database's own: what is only registered is not seen by its cursors.
        connection.register("points", metrics_table({entry.run.info.run_id: run_series(entry.run, problems)}))
        connection.execute("insert into cached.active_metrics select * from points")
        connection.unregister("points")
    parts = ["select * from cached.active_metrics"]
    for number, (file, left_out) in enumerate(packed.files):
        part = f"select * from read_parquet('{quoted(file)}')"
        if left_out:
            create(connection, f"cached.left_out_{number}", _IDS, [(run_id,) for run_id in left_out])
            part += f" where run_id not in (select run_id from cached.left_out_{number})"
        parts.append(part)
    connection.execute(f"create view cached.metrics as {' union all by name '.join(parts)}")


def _apply_journal(connection: duckdb.DuckDBPyConnection, snapshot: Snapshot) -> None:
    changes = snapshot.changes
    at_start = _tags_at_start(connection, sorted(changes.tags))
    rows = [
        (
            run_id,
            changes.current_tags(run_id, at_start.get(run_id, [])) if run_id in changes.tags else None,
            "\n".join(changes.notes[run_id]) if run_id in changes.notes else None,
            changes.hidden.get(run_id),
        )
        for run_id in sorted({*changes.tags, *changes.notes, *changes.hidden})
    ]
    create(connection, "cached.changes", _CHANGES, rows)
    connection.execute("create view cached.hidden as select run_id from cached.changes where hidden is not null")
    verdicts = [(one["number"], one["time"], one["user"], json.dumps(one)) for one in changes.verdicts]
    create(connection, "cached.journal_verdicts", _VERDICTS, verdicts)
    connection.execute(
        "create view cached.verdicts as select * replace (verdict::json as verdict) from cached.journal_verdicts"
    )


def _tags_at_start(connection: duckdb.DuckDBPyConnection, run_ids: list[str]) -> dict[str, list[str]]:
    if not run_ids:
        return {}
    create(connection, "cached.retagged", _IDS, [(run_id,) for run_id in run_ids])
    return dict(
        connection.execute("select run_id, tags from cached.runs semi join cached.retagged using (run_id)").fetchall()
    )
