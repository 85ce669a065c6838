"""Which SQL may be asked: one SELECT (or EXPLAIN, DESCRIBE, SHOW, SUMMARIZE) over the book's views and nothing else.

DuckDB's settings alone do not make it read-only: a COPY or INSERT inside a CTE has the statement type SELECT, and some
functions run SQL given as text. So the parsed statement is walked, and only known kinds of nodes and functions pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rollbook.errors import QueryInvalid, QueryRefused

if TYPE_CHECKING:
    import duckdb

_QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "RECURSIVE_CTE_NODE"})
# Table functions that read nothing from outside; every other one is refused.
_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row"})
# Functions that run or plan SQL given as text, change something, tell of the process, or outsleep the time limit.
_REFUSED_FUNCTIONS = frozenset(
    {
        "json_execute_serialized_sql", "json_serialize_plan", "getenv", "nextval", "setval", "write_log", "set_config",
        "sleep_ms", "pg_sleep",
    }
)  # fmt: skip
_OTHER_SCHEMAS = ("information_schema", "pg_catalog")  # what there is, by its usual names
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(?=[a-z(])", re.IGNORECASE)
_HINT = "ask with one SELECT; `rollbook sql 'show tables'` lists what there is"


def check(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """Refuse what is not a question; return the names of the tables that it asks."""
    from rollbook.book import duck

    if not isinstance(sql, str) or not sql.strip():
        raise QueryInvalid("the query is empty", _HINT)
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise QueryInvalid("the query has characters that are not valid text", _HINT) from None
    explain = _EXPLAIN.match(sql)
    inner = sql[explain.end() :] if explain else sql
    try:
        statements = connection.extract_statements(inner)
    except duck.Error as error:
        raise QueryInvalid(first_line(error), _HINT) from None
    if len(statements) != 1:
        raise QueryRefused(f"one statement a call, got {len(statements)}", _HINT)
    kind = _kind(statements[0])
    if kind != "SELECT":
        raise QueryRefused(f"a book answers questions; it does not take {kind} statements", _HINT)
    ((text,),) = connection.execute("select json_serialize_sql(?)", [inner]).fetchall()
    try:
        parsed = json.loads(text)
    except RecursionError:
        raise QueryInvalid("the query is nested too deeply", "ask with fewer brackets inside each other") from None
    if parsed.get("error"):
        raise QueryRefused(f"the query cannot be checked: {parsed.get('error_message')}", _HINT)
    return _walk(parsed["statements"])


def _kind(statement: duckdb.Statement) -> str:
    try:
        return str(statement.type.name)
    except ValueError:  # a kind that DuckDB parses and its Python part has no name for
        return "such"


def _walk(tree: Any) -> set[str]:
    tables: set[str] = set()
    for node in _nodes(tree):
        kind = node.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _QUERY_NODES:
            raise QueryRefused(f"a book answers questions; it does not take {kind.removesuffix('_NODE')}", _HINT)
        if kind == "TABLE_FUNCTION":
            name = str(node.get("function", {}).get("function_name", "")).lower()
            if name not in _TABLE_FUNCTIONS:
                raise QueryRefused(f"the table function {name}() may reach outside the book", _HINT)
        if kind == "BASE_TABLE":
            tables.add(_table_name(node))
        function = node.get("function_name")
        if isinstance(function, str) and function.lower() in _REFUSED_FUNCTIONS:
            raise QueryRefused(f"the function {function}() is not available", _HINT)
    return tables


def _table_name(node: dict[str, Any]) -> str:
    name, schema = str(node.get("table_name", "")), str(node.get("schema_name") or "main").lower()
    if schema == "main":
        if re.search(r"[/\\.*:]", name):
            raise QueryRefused(f"{name!r} would read a file", _HINT)
        return name.lower()
    if schema not in _OTHER_SCHEMAS:
        raise QueryRefused(f"{schema}.{name} is not one of the book's views", _HINT)
    return f"{schema}.{name}".lower()


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    stack = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def first_line(error: BaseException) -> str:
    """What DuckDB says, without its kind and its drawing of the query."""
    line = str(error).strip().split("\n")[0]
    return re.sub(r"^(Binder|Catalog|Parser|Conversion|Invalid Input|Permission|IO) Error: ", "", line)
