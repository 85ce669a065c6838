"""Rows that only grow at their end, such as a replay: saved once, in chunks that several checkpoints refer to.

checkpoints/growing/<name>-<first>-<end>-<random>.safetensors holds rows `first` to `end` (exclusive), numbered since
the run's start. A checkpoint's manifest lists the chunks that its rows are in, so that keeping three checkpoints of a
large replay costs little more than one. A chunk is written before the manifest that names it, and removed when none
does.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.book.tensors import CODES, Tensor, read_tensors, write_tensors
from rollbook.errors import CorruptFile, UsageError

if TYPE_CHECKING:
    import numpy as np

    Columns = Mapping[str, np.ndarray[Any, Any]]  # all of one length

FOLDER = "growing"
_NAME = re.compile(r"[a-z][a-z_]*")
# Chunks of saves under way in this process, which no manifest names yet.
_under_way: set[Path] = set()


@dataclass(frozen=True)
class GrowingRows:
    """Rows `first` to `end` (exclusive) of something that grows; `read` gives the columns of any part of them."""

    first: int
    end: int
    read: Callable[[int, int], Columns]
    most_at_once: int = 1 << 20  # rows of a chunk, which is in memory whole when it is read
    origin: str = ""  # of their numbers: rows that were numbered anew are others, and share no chunk with those before


@dataclass(frozen=True)
class SavedRows:
    """Rows of a checkpoint, still on disk."""

    first: int
    end: int
    folder: Path
    chunks: list[dict[str, Any]]
    origin: str = ""

    def __iter__(self) -> Iterator[tuple[int, Columns]]:
        """Chunk by chunk, oldest first, the number of each one's first row; CorruptFile when a byte is not as written.

        Rows of the oldest chunk may lie before `first`: they are cut off.
        """
        for chunk in self.chunks:
            path = self.folder / Path(chunk["file"]).name
            try:
                columns = read_tensors(path, chunk["crc32"])
            except OSError as error:
                raise CorruptFile(f"cannot read {path}: {error.strerror or error}") from error
            skipped = max(self.first - chunk["first"], 0)
            yield chunk["first"] + skipped, {name: column[skipped:] for name, column in columns.items()}


def save_rows(
    checkpoints: Path, rows: Mapping[str, GrowingRows], before: Mapping[str, Any], written: set[Path]
) -> dict[str, Any]:
    """What a manifest says of them. `before`, what an older manifest says, names the chunks that are there already;
    the paths of those that are new are added to `written`.
    """
    return {name: _save(checkpoints / FOLDER, name, one, before.get(name), written) for name, one in rows.items()}


def _save(folder: Path, name: str, rows: GrowingRows, before: Any, written: set[Path]) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        raise UsageError(f"rows cannot be called {name!r}", "small letters and _")
    goes_on = before and before.get("origin", "") == rows.origin and before["end"] <= rows.end
    old = before["chunks"] if goes_on else []
    chunks = [chunk for chunk in old if chunk["end"] > rows.first and (folder / chunk["file"]).exists()]
    if len(chunks) < len(old) and any(chunk["end"] > rows.first for chunk in old if chunk not in chunks):
        chunks = []  # one is gone: all of it again
    start = max(chunks[-1]["end"] if chunks else 0, rows.first)
    for first in range(start, rows.end, rows.most_at_once):
        end = min(first + rows.most_at_once, rows.end)
        chunks.append(_write(folder, name, first, end, rows.read(first, end), written))
    return {"first": rows.first, "end": rows.end, "origin": rows.origin, "chunks": chunks}


def _write(folder: Path, name: str, first: int, end: int, columns: Columns, written: set[Path]) -> dict[str, Any]:
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{first}-{end}-{secrets.token_hex(4)}.safetensors"
    written.add(path)
    _under_way.add(path)
    tensors = {}
    for column, array in columns.items():
        whole = np.ascontiguousarray(array)
        tensors[column] = Tensor(CODES[f"{whole.dtype.kind}{whole.dtype.itemsize}"], whole)
    crc = write_tensors(path, tensors)
    return {"file": path.name, "first": first, "end": end, "crc32": crc, "bytes": path.stat().st_size}


def in_place(written: Iterable[Path]) -> None:
    """Their manifest is in place, or will never be."""
    _under_way.difference_update(written)


def remove_unnamed(checkpoints: Path, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Chunks that none of the manifests names, those of saves that were killed included."""
    folder = checkpoints / FOLDER
    if not folder.exists():
        return
    named = {
        chunk["file"]
        for manifest in manifests
        for rows in manifest.get("growing", {}).values()
        for chunk in rows["chunks"]
    }
    for path in folder.iterdir():
        if path.name not in named and path not in _under_way:
            with contextlib.suppress(OSError):
                path.unlink()


def saved_rows(checkpoints: Path, manifest: Mapping[str, Any]) -> dict[str, SavedRows]:
    return {
        name: SavedRows(rows["first"], rows["end"], checkpoints / FOLDER, rows["chunks"], rows.get("origin", ""))
        for name, rows in manifest.get("growing", {}).items()
    }
