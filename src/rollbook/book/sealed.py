"""metrics.parquet: what becomes of a metric log when its attempt has ended."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.book.columns import from_numpy, from_texts, read_parquet
from rollbook.book.metric_log import Series
from rollbook.errors import CorruptFile
from rollbook.records import LEVELS

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

COLUMNS = ("name", "step", "time", "value", "level")
LEVEL_NAMES = sorted(LEVELS, key=LEVELS.__getitem__)


def to_table(series: Mapping[str, Series]) -> pa.Table:
    """name, step, time, value, level; sorted by name, then step."""
    import numpy as np
    import pyarrow as pa

    names = sorted(series)
    parts = [series[name] for name in names]

    def column(arrays: list[NDArray[Any]], kind: pa.DataType) -> pa.ChunkedArray:
        # A chunk a metric, over the memory that is there: one array of all would be a copy of everything.
        return pa.chunked_array([from_numpy(array, kind) for array in arrays], kind)

    # Metrics that were logged together share one array of times.
    times = {id(part.times): part.times for part in parts}
    micros = {key: np.rint(seconds * 1e6).astype(np.int64) for key, seconds in times.items()}
    name_codes = np.repeat(np.arange(len(names), dtype=np.int32), [len(part.steps) for part in parts])
    level_codes = np.concatenate([np.empty(0, np.int8), *(part.levels for part in parts)])
    columns = {
        "name": pa.DictionaryArray.from_arrays(from_numpy(name_codes, pa.int32()), from_texts(names)),
        "step": column([part.steps for part in parts], pa.int64()),
        "time": column([micros[id(part.times)] for part in parts], pa.timestamp("us")),
        "value": column([part.values for part in parts], pa.float64()),
        "level": pa.DictionaryArray.from_arrays(from_numpy(level_codes, pa.int8()), from_texts(LEVEL_NAMES)),
    }
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


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
                write_batch_size=65_536,  # a fifth less time than with the default of 1,024
                write_statistics=["name"],
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
    """FileNotFoundError when it is not there, CorruptFile when it is not what we wrote."""
    import pyarrow as pa

    try:
        table = read_parquet(path, page_checksum_verification=True, read_dictionary=["name", "level"])
        return _series(table.unify_dictionaries().combine_chunks())
    except FileNotFoundError:
        raise
    # Pages have checksums, but the footer has none: damaged, it may describe any table.
    except (pa.ArrowException, OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptFile(f"{path} cannot be read: {error!r}") from error


def _series(table: pa.Table) -> dict[str, Series]:
    import numpy as np
    import pyarrow as pa

    if not len(table):
        return {}
    name, step, time, value, level = (table.column(column).chunk(0) for column in COLUMNS)
    codes = name.indices.to_numpy()
    ranks = np.array([LEVELS[text] for text in level.dictionary.to_pylist()], np.int8)
    columns = (
        step.to_numpy(),
        time.view(pa.int64()).to_numpy() / 1e6,
        value.to_numpy(),
        ranks[level.indices.to_numpy()],
    )
    borders = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    names = name.dictionary.to_pylist()
    return {
        names[codes[start]]: Series(*(column[start:end] for column in columns))
        for start, end in itertools.pairwise(borders)
    }
