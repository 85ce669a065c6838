"""Arrow columns made straight from buffers.

`pyarrow.array` looks whether its input is a pandas object and imports pandas, where it is installed, to find out: that
costs every training script and every command 0.4 s. The same holds for `pyarrow.compute` and datasets, at 0.1 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


def from_texts(texts: Sequence[str]) -> pa.Array:
    """A column of text."""
    import numpy as np
    import pyarrow as pa

    encoded = [text.encode("utf-8", "replace") for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def from_numpy(array: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """A column over the memory of a numpy array of the same width, without nulls."""
    import numpy as np
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(np.ascontiguousarray(array))])


def read_parquet(path: Any, **options: Any) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, **options) as file:
        return file.read()
