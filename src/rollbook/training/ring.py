"""Arrays written round and round: row n lies at place n % rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.book.growing import GrowingRows, SavedRows
from rollbook.errors import CorruptFile

_CHUNK_BYTES = 1 << 28


def growing_rows(columns: Mapping[str, NDArray[Any]], first: int, end: int) -> GrowingRows:
    """The rows of a ring as a checkpoint saves them."""
    rows = len(next(iter(columns.values())))
    size = max(sum(column.nbytes for column in columns.values()) // rows, 1)

    def read(first: int, end: int) -> dict[str, NDArray[Any]]:
        return {name: part(column, first, end) for name, column in columns.items()}

    return GrowingRows(first, end, read, most_at_once=max(_CHUNK_BYTES // size, 1))


def part(column: NDArray[Any], first: int, end: int) -> NDArray[Any]:
    """Rows `first` to `end`, which are not more than there are; copied only where they go round the end."""
    start, stop = first % len(column), end % len(column)
    if end == first or start < stop:
        return column[start : start + end - first]
    return np.concatenate([column[start:], column[:stop]]) if stop else column[start:]


def fill(columns: Mapping[str, NDArray[Any]], saved: SavedRows) -> None:
    """Rows from a checkpoint into their places; CorruptFile when they lack a column."""
    for first, chunk in saved:
        if missing := columns.keys() - chunk.keys():
            raise CorruptFile(f"it has no {', '.join(sorted(missing))}")
        for name, column in columns.items():
            places = (first + np.arange(len(chunk[name]))) % len(column)
            column[places] = chunk[name]
