"""DuckDB's engine without the Python package around it, whose import takes longer than most questions do.

The package knows relations and Arrow tables: `Book.sql`, and questions about the metrics of runs at work, load it.
"""

from __future__ import annotations

from _duckdb import Error, PermissionException, connect

__all__ = ["Error", "PermissionException", "connect"]
