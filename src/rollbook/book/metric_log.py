"""metrics.log: an append-only file of checksummed, self-contained batches of rows.

A frame is `RBM1`, payload length and CRC-32 (little-endian u32 each), then the payload:

    u32 header bytes | header: JSON [[level, [name, ...], rows], ...], padded with spaces so that the rows are aligned
    the rows of each key set in turn: i64 step, f64 time, f64 value of each name

Each batch names its own key sets, so that a damaged batch costs its own rows and nothing else, and writing one is
a copy and a checksum: a background thread that looped over rows in Python would stall training through the GIL.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.records import LEVELS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"RBM1"
_HEAD = struct.Struct("<4sII")
_LENGTH = struct.Struct("<I")
# On a little-endian machine, the native order has the same bytes and is packed in less time.
_FASTEST = "@" if sys.byteorder == "little" else "<"

KeySet = tuple[str, tuple[str, ...]]  # level, metric names
Values = Callable[[dict[str, Any]], tuple[Any, ...]]
# What appends a row: how many names it has; the values of a dict with these names, in their order (KeyError where one
# is missing); the packing of (step, time, *values); the appending. A plain tuple is the fastest to take apart.
RowAppender = tuple[int, Values, Callable[..., bytes], Callable[[bytes], None]]


def _values_of(names: tuple[str, ...]) -> Values:
    if len(names) == 1:
        (name,) = names
        return lambda data: (data[name],)
    return itemgetter(*names)


class KeyRows:
    """Rows with the same level and names, since the last flush.

    There is no lock: a row is packed first and appended by one call into C, which no other thread or signal can
    interrupt, and `take` removes exactly what it copied, so what is appended meanwhile stays.
    """

    __slots__ = ("_rows", "_struct", "appender", "level", "names")

    def __init__(self, level: str, names: tuple[str, ...]) -> None:
        self.level = level
        self.names = names
        self._rows = bytearray()
        self._struct = struct.Struct(f"{_FASTEST}qd{len(names)}d")
        self.appender: RowAppender = (len(names), _values_of(names), self._struct.pack, self._rows.extend)

    def __len__(self) -> int:
        return len(self._rows) // self._struct.size

    def append(self, step: int, time: float, values: list[float]) -> None:
        self._rows.extend(self._struct.pack(step, time, *values))

    def take(self) -> Block:
        rows = bytes(self._rows)
        del self._rows[: len(rows)]
        return Block(self.level, self.names, rows, self._struct)


@dataclass(frozen=True)
class Block:
    """Packed rows of one key set."""

    level: str
    names: tuple[str, ...]
    packed: bytes
    layout: struct.Struct

    def __len__(self) -> int:
        return len(self.packed) // self.layout.size

    def last_step(self) -> int:
        """The largest step, read at C speed: this runs while training does."""
        words = memoryview(self.packed).cast("q")
        return max(words[:: self.layout.size // 8])

    def rows(self) -> Iterator[tuple[int, float, dict[str, float]]]:
        """(step, time, values) one by one."""
        for step, time, *values in self.layout.iter_unpack(self.packed):
            yield step, time, dict(zip(self.names, values, strict=True))


def encode(blocks: list[Block]) -> bytes:
    """One frame."""
    table = [[block.level, block.names, len(block)] for block in blocks]
    header = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    header += b" " * (-(len(header) + _LENGTH.size) % 8)
    payload = [_LENGTH.pack(len(header)), header, *(block.packed for block in blocks)]
    size = sum(map(len, payload))
    return b"".join((_HEAD.pack(MAGIC, size, _checksum(size, payload)), *payload))


def _checksum(size: int, payload: Iterable[bytes | memoryview]) -> int:
    # The length is part of it: a flipped length field would otherwise point a reader at the wrong bytes.
    checksum = zlib.crc32(_LENGTH.pack(size))
    for part in payload:
        checksum = zlib.crc32(part, checksum)
    return checksum


@dataclass(frozen=True)
class Series:
    """All points of one metric, ordered by step, then by time."""

    steps: NDArray[np.int64]
    times: NDArray[np.float64]
    values: NDArray[np.float64]
    levels: NDArray[np.int8]

    def columns(self) -> tuple[NDArray[Any], ...]:
        return self.steps, self.times, self.values, self.levels

    def where(self, kept: NDArray[np.bool_]) -> Series:
        return Series(*(column[kept] for column in self.columns()))


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
    # Read, not mapped: a writer on a full disk cuts off half a frame, which would kill a process that has it mapped.
    with open(path, "rb") as file:
        data = file.read()
    for position, payload in _frames(data, contents):
        try:
            contents.rows += _decode(payload, columns)
        except (ValueError, TypeError, struct.error):  # whole, but not written by us as we are
            contents.damaged.append((position, len(payload)))
    contents.series = _series(columns)
    return contents


def _frames(data: bytes, contents: LogContents) -> Iterator[tuple[int, memoryview]]:
    """Place and payload of each intact frame; after damage, the search goes on at the next magic."""
    view = memoryview(data)
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
        start, position = position, position + _HEAD.size + len(payload)
        yield start, payload
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
    return payload if _checksum(length, [payload]) == checksum else None


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

    (header_size,) = _LENGTH.unpack_from(payload)
    start = _LENGTH.size + header_size
    header = bytes(payload[_LENGTH.size : start]).decode("utf-8", "surrogatepass")
    table: list[tuple[str, list[str], int]] = json.loads(header)
    if sum(rows * (len(names) + 2) * 8 for _, names, rows in table) != len(payload) - start:
        raise ValueError("the rows are not those that the header announces")
    for level, names, rows in table:
        width = len(names) + 2
        block = np.frombuffer(payload, "<f8", rows * width, start).reshape(rows, width)
        start += block.nbytes
        steps = np.ascontiguousarray(block[:, 0]).view("<i8")
        columns.setdefault((level, tuple(names)), []).append((steps, block[:, 1], block[:, 2:]))
    return sum(rows for _, _, rows in table)


def _series(columns: dict[KeySet, list[tuple[Any, Any, Any]]]) -> dict[str, Series]:
    import numpy as np

    pieces: dict[str, list[Series]] = {}
    for (level, names), parts in columns.items():
        steps, times, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        by_name = np.ascontiguousarray(values.T)  # once, since everything that follows goes along a metric
        levels = np.full(len(steps), LEVELS[level], np.int8)
        for name, column in zip(names, by_name, strict=True):
            pieces.setdefault(name, []).append(Series(steps, times, column, levels))
    return {name: join(pieces[name]) for name in sorted(pieces)}


def chained(parts: list[Series]) -> Series:
    """Several one after the other, in the order given."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    return Series(*(np.concatenate(column) for column in zip(*(part.columns() for part in parts), strict=True)))


def join(parts: list[Series]) -> Series:
    """One series of several, ordered by step, then by time."""
    import numpy as np

    whole = chained(parts)
    if len(parts) == 1 and not np.any(whole.steps[1:] < whole.steps[:-1]):
        return whole
    order = np.lexsort((whole.times, whole.steps))
    return Series(*(column[order] for column in whole.columns()))
