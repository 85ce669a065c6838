"""DuckDB's engine without the Python package around it, whose import takes longer than most questions do.

Only `Book.sql` needs the package, which knows relations; it loads it then.
"""

from __future__ import annotations

from _duckdb import DuckDBPyConnection, Error, PermissionException, Statement, connect

__all__ = ["DuckDBPyConnection", "Error", "PermissionException", "Statement", "connect"]
