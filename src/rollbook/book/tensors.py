"""A file of named tensors in the safetensors format, with the checksum of its bytes.

Written by hand: the library's own writer reports a full disk as a SafetensorError in place of an OSError, saves
bfloat16 only where ml_dtypes is installed, and would need a second pass over the file for the checksum. Read by the
library, which checks the header of a file that came from elsewhere.
"""

from __future__ import annotations

import importlib
import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.errors import CorruptFile

if TYPE_CHECKING:
    import numpy as np

# numpy's kind and size of an element -> the type's name in a safetensors header
CODES = {
    "b1": "BOOL",
    **{f"{kind}{size}": f"{kind.upper()}{8 * size}" for kind in "iu" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"F{8 * size}" for size in (2, 4, 8)},
    "c8": "C64",
}
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class Tensor:
    """A contiguous, little-endian array and its type in the header; the bits of a bfloat16 are in a uint16 array."""

    code: str
    array: np.ndarray[Any, Any]


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> int:
    """Write and sync the file; its CRC-32."""
    import numpy as np

    # Large elements first, as the format's own writer does: every tensor then starts at a multiple of its element size.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].array.itemsize)
    header = _header(ordered)
    crc = zlib.crc32(header)
    with open(path, "wb") as file:
        file.write(header)
        for _, tensor in ordered:
            data = tensor.array.reshape(-1).view(np.uint8).data
            crc = zlib.crc32(data, crc)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return crc


def _header(ordered: list[tuple[str, Tensor]]) -> bytes:
    entries: dict[str, Any] = {}
    end = 0
    for key, tensor in ordered:
        start, end = end, end + tensor.array.nbytes
        entries[key] = {"dtype": tensor.code, "shape": list(tensor.array.shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def read_tensors(path: Path, crc: int) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays by name; CorruptFile when a byte differs from what was written."""
    from safetensors import SafetensorError, safe_open

    if _checksum(path) != crc:
        raise CorruptFile(f"{path} is damaged: its checksum is not the one in its manifest")
    ml_dtypes()  # importing it is what teaches numpy the name bfloat16
    try:
        with safe_open(path, framework="np") as file:
            keys = list(file.keys())
            if ml_dtypes() is None and any(file.get_slice(key).get_dtype() == "BF16" for key in keys):
                return _read_without_ml_dtypes(path)
            return {key: file.get_tensor(key) for key in keys}
    except (SafetensorError, TypeError, ValueError) as error:
        raise CorruptFile(f"{path} is not a valid safetensors file: {error}") from error


def ml_dtypes() -> Any:
    """The package that gives numpy bfloat16 and its like (it comes with JAX), or None where it is not installed."""
    try:
        return importlib.import_module("ml_dtypes")
    except ImportError:
        return None


def widen_bfloat16(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """uint16 bits -> float32, exactly: a bfloat16 is the upper half of a float32."""
    import numpy as np

    return (bits.astype(np.uint32) << 16).view(np.float32)


def _read_without_ml_dtypes(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    import numpy as np
    from safetensors import deserialize

    numpy_types = {code: np.dtype(kind) for kind, code in CODES.items()} | {"BF16": np.dtype(np.uint16)}
    arrays = {}
    for key, entry in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        array = np.frombuffer(entry["data"], numpy_types[entry["dtype"]]).reshape(entry["shape"])
        arrays[key] = widen_bfloat16(array) if entry["dtype"] == "BF16" else array
    return arrays


def _checksum(path: Path) -> int:
    crc = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc
