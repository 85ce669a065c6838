"""metrics.parquet: what becomes of a metric log when its attempt has ended."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.book.metric_log import Series
from rollbook.errors import CorruptFile
from rollbook.records import LEVELS

if TYPE_CHECKING:
    import pyarrow as pa

LEVEL_NAMES = sorted(LEVELS, key=LEVELS.__getitem__)


def to_table(series: Mapping[str, Series]) -> pa.Table:
    """name, step, time, value, level; sorted by name, then step."""
    import numpy as np
    import pyarrow as pa

    names = sorted(series)
    parts = [series[name] for name in names]

    def column(field: str, dtype: Any) -> Any:
        return np.concatenate([getattr(part, field) for part in parts]) if parts else np.empty(0, dtype)

    counts = [len(part.steps) for part in parts]
    name_index = np.repeat(np.arange(len(names), dtype=np.int32), counts)
    micros = np.round(column("times", np.float64) * 1e6).astype(np.int64)
    safe_names = pa.array([name.encode("utf-8", "replace").decode() for name in names], pa.string())
    return pa.table(
        {
            "name": pa.DictionaryArray.from_arrays(pa.array(name_index), safe_names),
            "step": pa.array(column("steps", np.int64)),
            "time": pa.array(micros).view(pa.timestamp("us")),
            "value": pa.array(column("values", np.float64)),
            "level": pa.DictionaryArray.from_arrays(pa.array(column("levels", np.int8)), pa.array(LEVEL_NAMES)),
        }
    )


def write_sealed(path: Path, table: pa.Table) -> None:
    """Written aside, synced and renamed: the log may be removed once this returns."""
    import pyarrow.parquet as pq

    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        with open(aside, "wb") as file:
            pq.write_table(
                table,
                file,
                compression="zstd",
                write_page_checksum=True,
                use_dictionary=["name", "level"],
                column_encoding={
                    "step": "DELTA_BINARY_PACKED",
                    "time": "DELTA_BINARY_PACKED",
                    "value": "BYTE_STREAM_SPLIT",
                },
            )
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def read_sealed(path: Path | str) -> dict[str, Series]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(
            path, partitioning=None, page_checksum_verification=True, read_dictionary=["name", "level"]
        ).combine_chunks()
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise CorruptFile(f"{path} cannot be read: {error}") from error
    if not len(table):
        return {}
    name, level = (_one_dictionary(table.column(column)) for column in ("name", "level"))
    codes = name.indices.to_numpy(zero_copy_only=False)
    rank = np.array([LEVELS[text] for text in level.dictionary.to_pylist()], np.int8)
    steps = table.column("step").to_numpy()
    times = table.column("time").cast(pa.int64()).to_numpy() / 1e6
    values = table.column("value").to_numpy()
    levels = rank[level.indices.to_numpy(zero_copy_only=False)]
    borders = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    names = name.dictionary.to_pylist()
    return {
        names[codes[start]]: Series(steps[start:end], times[start:end], values[start:end], levels[start:end])
        for start, end in itertools.pairwise(borders)
    }


def _one_dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    import pyarrow as pa

    whole = column.unify_dictionaries().combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
