"""The catalogue's tables, and the way of Python rows into DuckDB.

Rows go in as one JSON text, column by column: DuckDB parses it at C++ speed, and a command that only reads the cache
never has to load pyarrow and numpy, which take longer than its question.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.book.summaries import COLUMNS as SUMMARY_COLUMNS

if TYPE_CHECKING:
    import duckdb

Row = Sequence[Any]

_SUMMARY_TYPES = {"name": "VARCHAR", "count": "BIGINT", "nonfinite": "BIGINT", "diverged": "BOOLEAN"}

# Column -> SQL type. A TIMESTAMP is given as seconds since 1970.
SCHEMAS: dict[str, dict[str, str]] = {
    "runs": {
        "run_id": "VARCHAR",
        "name": "VARCHAR",
        "task": "VARCHAR",
        "algo": "VARCHAR",
        "env": "VARCHAR",
        "seed": "BIGINT",
        "status": "VARCHAR",
        "benchmark": "VARCHAR",
        "started_at": "TIMESTAMP",
        "finished_at": "TIMESTAMP",
        "duration_s": "DOUBLE",
        "last_step": "BIGINT",
        "host": "VARCHAR",
        "user": "VARCHAR",
        "command": "VARCHAR",
        "git_commit": "VARCHAR",
        "git_describe": "VARCHAR",
        "git_dirty": "BOOLEAN",
        "pr": "BIGINT",
        "parent": "VARCHAR",
        "notes": "VARCHAR",
        "tags": "VARCHAR[]",
        "config": "VARCHAR",
        "config_key": "VARCHAR",
        "mtime_ns": "BIGINT",
    },
    "params": {"run_id": "VARCHAR", "key": "VARCHAR", "value": "VARCHAR"},
    "summaries": {"run_id": "VARCHAR"} | {name: _SUMMARY_TYPES.get(name, "DOUBLE") for name in SUMMARY_COLUMNS},
    "checkpoints": {"run_id": "VARCHAR", "step": "BIGINT", "time": "TIMESTAMP", "bytes": "BIGINT", "path": "VARCHAR"},
    "media": {
        "run_id": "VARCHAR",
        "name": "VARCHAR",
        "step": "BIGINT",
        "kind": "VARCHAR",
        "bytes": "BIGINT",
        "path": "VARCHAR",
    },
    "problems": {"run_id": "VARCHAR", "problem": "VARCHAR"},
}


def create_table(connection: duckdb.DuckDBPyConnection, name: str, table: str, rows: Sequence[Row]) -> None:
    """One of SCHEMAS. The rows of `summaries` are (run id, JSON of all its figures), which DuckDB takes apart."""
    if table != "summaries":
        create(connection, name, SCHEMAS[table], rows)
        return
    create(connection, name, SCHEMAS[table], [])
    create(connection, "given_figures", {"run_id": "VARCHAR", "figures": "VARCHAR"}, rows)
    figures = {column: kind for column, kind in SCHEMAS[table].items() if column != "run_id"}
    structure = json.dumps({column: [kind] for column, kind in figures.items()})
    unnested = ", ".join(f'unnest(figures."{column}")' for column in figures)
    connection.execute(
        f"insert into {name} select run_id, {unnested} from "
        f"(select run_id, try(from_json(figures, '{structure}')) as figures from given_figures)"
    )
    connection.execute("drop table given_figures")


def create(connection: duckdb.DuckDBPyConnection, name: str, schema: Mapping[str, str], rows: Sequence[Row]) -> None:
    """A table with these rows, whose values are in the order of the schema. What does not fit its column is null."""
    columns = ", ".join(f'"{column}" {kind}' for column, kind in schema.items())
    connection.execute(f"create or replace table {name} ({columns})")
    if rows:
        by_column = dict(zip(schema, zip(*rows, strict=True), strict=True))
        connection.execute(f"insert into {name} {_select(schema)}", [_to_json(by_column)])


def _to_json(columns: dict[str, tuple[Any, ...]]) -> str:
    try:
        return json.dumps(columns, allow_nan=False)
    except ValueError:  # JSON has no word for NaN and infinities, which no column of ours holds
        finite = {
            name: [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
            for name, values in columns.items()
        }
        return json.dumps(finite, allow_nan=False)


def _select(schema: Mapping[str, str]) -> str:
    """A SELECT that turns a parameter, a JSON object with an array for each column, into rows."""
    given = {"TIMESTAMP": "DOUBLE", "VARCHAR[]": ["VARCHAR"]}
    structure = json.dumps({column: [given.get(kind, kind)] for column, kind in schema.items()})
    unnested = ", ".join(f'unnest(given."{column}") as "{column}"' for column in schema)
    columns = ", ".join(
        f'make_timestamp(round("{column}" * 1e6)::BIGINT)' if kind == "TIMESTAMP" else f'"{column}"'
        for column, kind in schema.items()
    )
    return f"select {columns} from (select {unnested} from (select from_json(?, '{structure}') as given))"


def quoted(path: Path) -> str:
    """For use inside an SQL string."""
    return str(path).replace("'", "''")
