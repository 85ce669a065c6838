"""The store of contents: `objects/<2>/<sha256>`. Equal contents are one file, however many runs refer to it.

Nobody holds a lock. A run that stores what is already there freshens its mtime, and a sweep beside it keeps what is
fresh. The sweep renames an object aside before it decides, so a run's touch either came before the rename, and the
sweep sees it, or finds no file, and the run writes the object anew. Each sweep has its own name for what it sets aside,
so that one which comes late never removes what another has just found to be fresh.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rollbook.book.layout import Layout, write_atomically
from rollbook.errors import CodeNotFound, CorruptFile

# A run refers to its objects within this time of storing them, and clocks of machines on one book differ by less.
GRACE_SECONDS = 3600.0

_OBJECT_ID = re.compile(r"[0-9a-f]{64}")
_PURGING = ".purging"

# A sweep sets an object aside for microseconds, but several may do so in turn just where a reader looks.
_LOOKS = 6
_SECONDS_BETWEEN_LOOKS = 0.01


@dataclass(frozen=True)
class Swept:
    count: int
    bytes: int


def is_object_id(text: object) -> bool:
    return isinstance(text, str) and _OBJECT_ID.fullmatch(text) is not None


def put(layout: Layout, data: bytes) -> str:
    """Store the content and return its id; OSError when the book cannot be written."""
    object_id = hashlib.sha256(data).hexdigest()
    path = layout.object_path(object_id)
    if not _freshen(path, len(data)):
        _write(path, data)
    return object_id


def get(layout: Layout, object_id: str) -> bytes:
    path = _path(layout, object_id)
    for look in range(_LOOKS):
        if look:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        for place in (path, *path.parent.glob(f"{object_id}*{_PURGING}")):
            try:
                data = place.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CorruptFile(f"cannot read the object {place}: {error.strerror or error}") from error
            if hashlib.sha256(data).hexdigest() != object_id:
                raise CorruptFile(
                    f"the object {place} is damaged: its {len(data)} bytes are not what its name says",
                    "copy the file of this name from a backup of the book",
                )
            return data
    raise CodeNotFound(f"the book at {layout.root} has no object {object_id}")


def contains(layout: Layout, object_id: str) -> bool:
    return _path(layout, object_id).exists()


def sweep(layout: Layout, referenced: set[str], scan_started: float, grace_seconds: float = GRACE_SECONDS) -> Swept:
    """Remove what nothing refers to. `referenced` is what a scan of the runs found that began at `scan_started`.

    An object younger than the grace stays: the run that stored it may not have been there to be scanned.
    """
    oldest_kept = scan_started - grace_seconds
    sizes = [
        size
        for folder in _fan_out(layout)
        for size in (*_settle_leftovers(folder, referenced, oldest_kept), *_purge(folder, referenced, oldest_kept))
        if size is not None
    ]
    return Swept(count=len(sizes), bytes=sum(sizes))


def _path(layout: Layout, object_id: str) -> Path:
    if not is_object_id(object_id):
        raise CorruptFile(f"{object_id!r} is no object id: those are 64 digits of a sha256 in lower-case hex")
    return layout.object_path(object_id)


def _freshen(path: Path, size: int) -> bool:
    """Touch the object if it is there and whole."""
    try:
        os.utime(path)
        return path.stat().st_size == size
    except (FileNotFoundError, PermissionError):  # the latter: another user's file, which only a rename can replace
        return False


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data)
    except FileNotFoundError:
        # Not its parents: a book that was deleted or unmounted must not come back as a stump.
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, data)


def _fan_out(layout: Layout) -> Iterator[str]:
    try:
        names = os.listdir(layout.objects)
    except FileNotFoundError:
        return
    yield from (str(layout.objects / name) for name in sorted(names) if re.fullmatch(r"[0-9a-f]{2}", name))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.is_file(follow_symlinks=False)]


def _settle_leftovers(folder: str, referenced: set[str], oldest_kept: float) -> Iterator[int | None]:
    """What a killed purge renamed aside, and what killed writers did not finish."""
    for entry in _entries(folder):
        path = Path(entry.path)
        if entry.name.startswith("."):
            if _modified(path) < oldest_kept:
                yield _unlink(path)
        elif entry.name.endswith(_PURGING):
            object_id = entry.name.partition(".")[0]
            # Another purge may be at work on it right now: by the same rule on the same mtime it decides the same.
            if object_id in referenced or _modified(path) >= oldest_kept:
                _put_back(path)
            else:
                yield _unlink(path)


def _purge(folder: str, referenced: set[str], oldest_kept: float) -> Iterator[int | None]:
    for entry in _entries(folder):
        path = Path(entry.path)
        if not is_object_id(entry.name) or entry.name in referenced or _modified(path) >= oldest_kept:
            continue
        aside = path.with_name(f"{entry.name}.{secrets.token_hex(4)}{_PURGING}")
        try:
            path.rename(aside)
        except FileNotFoundError:  # another purge was first
            continue
        if _modified(aside) < oldest_kept:
            yield _unlink(aside)
        else:
            _put_back(aside)


def _modified(path: Path) -> float:
    """The mtime; of a file that has gone meanwhile, one that nobody acts on."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _put_back(aside: Path) -> None:
    """What was set aside is an object again; where there is one by now, that one is as fresh.

    It is linked, not renamed, over nothing: an object that is there may have been touched for a run since.
    """
    path = aside.with_name(aside.name.partition(".")[0])
    while True:
        try:
            os.utime(aside)
            os.link(aside, path)
        except FileExistsError:
            if not _touch(path):  # set aside just now, by one that may not have seen that it is needed
                continue
        except FileNotFoundError:  # another purge has put it back
            return
        except OSError:  # a file system without links
            aside.replace(path)
            return
        _unlink(aside)
        return


def _touch(path: Path) -> bool:
    """Whether it is there; another user's cannot be touched."""
    try:
        os.utime(path)
    except PermissionError:
        return True
    except FileNotFoundError:
        return False
    return True


def _unlink(path: Path) -> int | None:
    """The bytes set free, or None when another purge was first."""
    try:
        size = path.stat().st_size
        path.unlink()
    except FileNotFoundError:
        return None
    return size
