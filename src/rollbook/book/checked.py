"""Small files of the cache that prove themselves whole: a damaged one reads as if it were not there."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from rollbook.book.layout import write_atomically


def write_checked(path: Path, data: Any) -> None:
    text = json.dumps(data).encode()
    write_atomically(path, b"%08x %s" % (zlib.crc32(text), text))


def read_checked(path: Path) -> Any | None:
    """What was written; None when it is not there, or is no longer what was written."""
    try:
        checksum, _, text = path.read_bytes().partition(b" ")
    except OSError:
        return None
    return json.loads(text) if checksum == b"%08x" % zlib.crc32(text) else None


def as_left(path: Path) -> list[int] | None:
    """Size and time of the last change: whoever writes into a file after us changes one of them."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]
