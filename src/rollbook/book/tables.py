"""The catalogue's tables, and the way of Python rows into DuckDB.

Rows go in as one JSON text: DuckDB parses it at C++ speed, and a command that only reads the cache never has to load
pyarrow and numpy, which take longer than its question.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.book.summaries import COLUMNS as SUMMARY_COLUMNS

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]

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


def create(connection: duckdb.DuckDBPyConnection, name: str, schema: Mapping[str, str], rows: list[Row]) -> None:
    """A table with these rows. A missing key is null, and so is a value that does not fit its column."""
    columns = ", ".join(f'"{column}" {kind}' for column, kind in schema.items())
    connection.execute(f"create or replace table {name} ({columns})")
    if rows:
        connection.execute(f"insert into {name} {_select(schema)}", [_to_json(rows)])


def _to_json(rows: list[Row]) -> str:
    try:
        return json.dumps(rows, allow_nan=False)
    except ValueError:  # JSON has no word for NaN and infinities, which no column of ours holds
        finite = [
            {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in row.items()
            }
            for row in rows
        ]
        return json.dumps(finite, allow_nan=False)


def _select(schema: Mapping[str, str]) -> str:
    """A SELECT that turns a parameter, a JSON array of objects, into rows."""
    structure = {column: "DOUBLE" if kind == "TIMESTAMP" else kind for column, kind in schema.items()}
    given = json.dumps([{column: kind if kind != "VARCHAR[]" else ["VARCHAR"] for column, kind in structure.items()}])
    columns = ", ".join(
        f'make_timestamp(round(r."{column}" * 1e6)::BIGINT)' if kind == "TIMESTAMP" else f'r."{column}"'
        for column, kind in schema.items()
    )
    return f"select {columns} from (select unnest(from_json(?, '{given}')) as r)"


def quoted(path: Path) -> str:
    """For use inside an SQL string."""
    return str(path).replace("'", "''")
