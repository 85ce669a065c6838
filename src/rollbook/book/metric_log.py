"""metrics.log: an append-only file of checksummed, self-contained batches of rows.

A frame is `RBM1`, payload length and CRC-32 (little-endian u32 each), then the payload:

    u32 rows | u32 header bytes | header: JSON [[level, [name, ...]], ...], padded with spaces to 8 bytes
    u32 set id of each row, padded to 8 bytes | i64 step of each row | f64 time of each row
    f64 values, row after row: a row has as many as its set has names

Each batch names its own key sets, so that a damaged batch costs its own rows and nothing else, and writing one is
three copies and a checksum: a background thread that looped over rows in Python would stall training through the GIL.
"""

from __future__ import annotations

import json
import mmap
import struct
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.records import LEVELS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"RBM1"
_HEAD = struct.Struct("<4sII")
_COUNTS = struct.Struct("<II")
_LENGTH = struct.Struct("<I")

KeySet = tuple[str, tuple[str, ...]]  # level, metric names


class RowBuffer:
    """Rows since the last flush, in typed arrays. The caller locks; `Run.log` appends in place."""

    __slots__ = ("ids", "key_sets", "set_ids", "steps", "times", "values")

    def __init__(self) -> None:
        self.key_sets: list[KeySet] = []
        self.ids: dict[str, dict[tuple[str, ...], int]] = {level: {} for level in LEVELS}
        self.set_ids = array("I")
        self.steps = array("q")
        self.times = array("d")
        self.values = array("d")

    def register(self, level: str, names: tuple[str, ...]) -> int:
        set_id = self.ids[level][names] = len(self.key_sets)
        self.key_sets.append((level, names))
        return set_id

    def cut(self, rows: int, values: int) -> None:
        """Forget a row that failed half-way."""
        del self.set_ids[rows:], self.steps[rows:], self.times[rows:], self.values[values:]

    def encode(self) -> bytes:
        """One frame."""
        header = json.dumps(self.key_sets, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        header += b" " * (-len(header) % 8)
        set_ids = self.set_ids.tobytes()
        payload = b"".join(
            (
                _COUNTS.pack(len(self.times), len(header)),
                header,
                set_ids,
                b"\0" * (-len(set_ids) % 8),
                memoryview(self.steps),
                memoryview(self.times),
                memoryview(self.values),
            )
        )
        return _HEAD.pack(MAGIC, len(payload), _checksum(payload)) + payload


def _checksum(payload: bytes | memoryview) -> int:
    # The length is part of it: a flipped length field would otherwise point a reader at the wrong bytes.
    return zlib.crc32(payload, zlib.crc32(_LENGTH.pack(len(payload))))


@dataclass(frozen=True)
class Series:
    """All points of one metric, ordered by step, then by time."""

    steps: NDArray[np.int64]
    times: NDArray[np.float64]
    values: NDArray[np.float64]
    levels: NDArray[np.int8]

    def until(self, time: float) -> Series:
        """The points logged at `time` or before it."""
        kept = self.times <= time
        return Series(self.steps[kept], self.times[kept], self.values[kept], self.levels[kept])


@dataclass
class LogContents:
    series: dict[str, Series] = field(default_factory=dict)
    rows: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)  # (offset, bytes) that are not intact batches
    torn_bytes: int = 0  # an unfinished batch at the end: a writer was killed, or is at work

    def damage_report(self, path: Path | str) -> list[str]:
        return [f"{path}: {size} damaged bytes at offset {offset} were left out" for offset, size in self.damaged]


def read_log(path: Path | str) -> LogContents:
    """All intact batches. Damage is named in the result, a torn tail is cut: neither is an error."""
    contents = LogContents()
    columns: dict[KeySet, list[tuple[Any, Any, Any]]] = {}
    with open(path, "rb") as file:
        file.seek(0, 2)
        size = file.tell()
        if size == 0:
            return contents
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            for payload in _frames(data, view, contents):
                contents.rows += _decode(payload, columns)
                payload.release()
    contents.series = _series(columns)
    return contents


def _frames(data: mmap.mmap, view: memoryview, contents: LogContents) -> Iterator[memoryview]:
    """The payload of each intact frame; after damage, the search goes on at the next magic."""
    position, damaged_from = 0, -1
    while position < len(view):
        payload = _intact_frame(view, position)
        if payload is None:
            damaged_from = position if damaged_from < 0 else damaged_from
            following = data.find(MAGIC, position + 1)
            position = following if following >= 0 else len(view)
            continue
        if damaged_from >= 0:
            contents.damaged.append((damaged_from, position - damaged_from))
            damaged_from = -1
        position += _HEAD.size + len(payload)
        yield payload
    if damaged_from >= 0:
        if _is_torn(view, damaged_from):
            contents.torn_bytes = len(view) - damaged_from
        else:
            contents.damaged.append((damaged_from, len(view) - damaged_from))


def _intact_frame(view: memoryview, position: int) -> memoryview | None:
    if len(view) - position < _HEAD.size:
        return None
    magic, length, checksum = _HEAD.unpack_from(view, position)
    start = position + _HEAD.size
    if magic != MAGIC or length > len(view) - start:
        return None
    payload = view[start : start + length]
    return payload if _checksum(payload) == checksum else None


def _is_torn(view: memoryview, position: int) -> bool:
    """Whether what begins here is the start of a frame that was to be longer than the file."""
    left = len(view) - position
    if left < _HEAD.size:
        return bytes(view[position : position + 4]) == MAGIC[: min(left, 4)]
    magic, length, _ = _HEAD.unpack_from(view, position)
    return bool(magic == MAGIC and length > left - _HEAD.size)


def _decode(payload: memoryview, columns: dict[KeySet, list[tuple[Any, Any, Any]]]) -> int:
    """Add a batch's rows to the columns of their key sets: (steps, times, values as rows x names)."""
    import numpy as np

    rows, header_size = _COUNTS.unpack_from(payload)
    start = _COUNTS.size + header_size
    header = bytes(payload[_COUNTS.size : start]).decode("utf-8", "surrogatepass")
    key_sets: list[KeySet] = [(level, tuple(names)) for level, names in json.loads(header)]
    # Copies, since the file is unmapped when reading ends.
    set_ids = np.frombuffer(payload, "<u4", rows, start).copy()
    start += set_ids.nbytes + (-set_ids.nbytes % 8)
    steps = np.frombuffer(payload, "<i8", rows, start).copy()
    times = np.frombuffer(payload, "<f8", rows, start + 8 * rows).copy()
    values = np.frombuffer(payload, "<f8", offset=start + 16 * rows).copy()
    if len(key_sets) == 1:
        columns.setdefault(key_sets[0], []).append((steps, times, values.reshape(rows, -1)))
        return int(rows)
    widths = np.array([len(names) for _, names in key_sets])[set_ids]
    offsets = np.cumsum(widths) - widths
    for set_id, key_set in enumerate(key_sets):
        mine = np.flatnonzero(set_ids == set_id)
        if len(mine):
            cells = offsets[mine][:, None] + np.arange(len(key_set[1]))
            columns.setdefault(key_set, []).append((steps[mine], times[mine], values[cells]))
    return int(rows)


def _series(columns: dict[KeySet, list[tuple[Any, Any, Any]]]) -> dict[str, Series]:
    import numpy as np

    pieces: dict[str, list[Series]] = {}
    for (level, names), parts in columns.items():
        steps, times, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        levels = np.full(len(steps), LEVELS[level], np.int8)
        for column, name in enumerate(names):
            pieces.setdefault(name, []).append(Series(steps, times, values[:, column], levels))
    return {name: join(pieces[name]) for name in sorted(pieces)}


def join(parts: list[Series]) -> Series:
    """One ordered series of several."""
    import numpy as np

    steps, times, values, levels = (
        np.concatenate([getattr(part, column) for part in parts]) if len(parts) > 1 else getattr(parts[0], column)
        for column in ("steps", "times", "values", "levels")
    )
    if len(parts) > 1 or np.any(steps[1:] < steps[:-1]):
        order = np.lexsort((times, steps))
        steps, times, values, levels = steps[order], times[order], values[order], levels[order]
    return Series(steps, times, values, levels)
