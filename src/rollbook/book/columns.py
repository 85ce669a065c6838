"""Arrow columns made straight from buffers.

`pyarrow.array` looks whether its input is a pandas object and imports pandas, where it is installed, to find out: that
costs every training script and every command 0.4 s. The same holds for `pyarrow.compute` and datasets, at 0.1 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


def to_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python values as a column of text, lists of text, numbers, flags or times (whole microseconds); None is null."""
    import numpy as np
    import pyarrow as pa

    valid = _validity(values)
    if kind == pa.string():
        return _text_column(values, valid)
    if kind == pa.list_(pa.string()):
        offsets = _offsets(len(value or ()) for value in values)
        items = _text_column([item for value in values for item in value or ()], None)
        return pa.ListArray.from_buffers(kind, len(values), [valid, pa.py_buffer(offsets)], children=[items])
    if kind == pa.bool_():
        bits = np.packbits(np.fromiter(map(bool, values), np.bool_, len(values)), bitorder="little")
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(bits)])
    dtype = np.float64 if kind == pa.float64() else np.int64
    numbers = np.fromiter((0 if value is None else value for value in values), dtype, len(values))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(numbers)])


def from_numpy(array: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """A column over the memory of a numpy array of the same width, without nulls."""
    import numpy as np
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(np.ascontiguousarray(array))])


def to_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as dicts; a missing key is null."""
    import pyarrow as pa

    arrays = [to_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def read_parquet(path: Any, columns: list[str] | None = None, **options: Any) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, **options) as file:
        return file.read(columns=columns)


def _validity(values: Sequence[Any]) -> Any:
    import numpy as np
    import pyarrow as pa

    if not any(value is None for value in values):
        return None
    there = np.fromiter((value is not None for value in values), np.bool_, len(values))
    return pa.py_buffer(np.packbits(there, bitorder="little"))


def _text_column(values: Sequence[str | None], valid: Any) -> pa.Array:
    import pyarrow as pa

    encoded = [(value or "").encode("utf-8", "replace") for value in values]
    offsets = _offsets(map(len, encoded))
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)), valid)


def _offsets(lengths: Iterable[int]) -> NDArray[Any]:
    import numpy as np

    sizes = np.fromiter(lengths, np.int64)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
