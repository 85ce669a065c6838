"""Where things lie in a book, and how names become paths that cannot leave it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rollbook.errors import BookNotFound, BookUnwritable, CorruptFile, InvalidName

FORMAT_VERSION = 1
RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9]+-[0-9a-f]{4,}")
_PLAIN = re.compile(r"[A-Za-z0-9_+=-][A-Za-z0-9._+=-]*")
_FORMAT = re.compile(r"^format\s*=\s*(\d+)", re.MULTILINE)
_LONGEST_NAME = 120
_LARGEST_MARKER = 10_000  # bytes


def encode_name(name: str) -> str:
    """A folder name for any text: readable where it is plain, percent-encoded where not, hashed where too long."""
    if not isinstance(name, str) or not name:
        raise InvalidName(f"a name must be text of at least one character, got {name!r}")
    try:
        encoded = name if _PLAIN.fullmatch(name) else urllib.parse.quote(name, safe="+=").replace("~", "%7E")
    except UnicodeEncodeError:
        raise InvalidName(f"the name {name!r} has characters that are not valid text") from None
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        encoded = re.sub(r"%[0-9A-F]?$", "", encoded[: _LONGEST_NAME - 17]) + "~" + digest
    return encoded


def decode_name(encoded: str) -> str:
    """The name behind a folder name; of a hashed one, what is left of it."""
    return urllib.parse.unquote(encoded, errors="replace")


def new_run_id(now: float, random_bytes: int = 2) -> str:
    host = re.sub(r"[^a-z0-9]", "", socket.gethostname().split(".")[0].lower())[:12] or "host"
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{host}-{secrets.token_hex(random_bytes)}"


def readable_name(run_id: str, tracked: Mapping[str, Any]) -> str:
    """The id with the tracked hyper-parameters: `2026...-9f2c&algo=sac&lr=0.0003`."""

    def short(value: Any) -> str:
        return re.sub(r"[\s&=/\\]+", "_", str(value))[:40]

    return "&".join([run_id, *(f"{short(key)}={short(value)}" for key, value in tracked.items())])


class Layout:
    """The paths of one book."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tasks = root / "tasks"
        self.objects = root / "objects"
        self.journal = root / "journal"
        self.archive = root / "archive"
        self.benchmarks = root / "benchmarks"
        self.cache = root / "cache"

    def run_folder(self, task: str, run_id: str) -> Path:
        return self.tasks / encode_name(task) / run_id

    def archived_folder(self, task: str, run_id: str) -> Path:
        return self.archive / encode_name(task) / run_id

    def object_path(self, object_id: str) -> Path:
        return self.objects / object_id[:2] / object_id

    def create(self) -> None:
        """Make the book if it is not there. Safe to call from many processes at once."""
        try:
            for folder in (self.tasks, self.objects, self.journal, self.cache):
                folder.mkdir(parents=True, exist_ok=True)
            marker = self.root / "book.toml"
            if not marker.exists():
                text = f"# A Rollbook book: `rollbook --book {self.root.name} runs` lists what it holds.\n"
                write_atomically(marker, f"{text}format = {FORMAT_VERSION}\n".encode())
        except OSError as error:
            raise BookUnwritable(
                f"cannot write the book at {self.root}: {error.strerror or error}",
                "choose another place with book=..., --book DIR or ROLLBOOK_BOOK=DIR",
            ) from error

    def check(self) -> None:
        """Refuse a folder that is no book, or one written by a newer format."""
        marker = self.root / "book.toml"
        try:
            text = marker.read_text()
        except (FileNotFoundError, NotADirectoryError):
            raise BookNotFound(
                f"{self.root} is a file, and a book is a folder"
                if self.root.is_file()
                else f"there is no book at {self.root}",
                "name one with --book DIR or ROLLBOOK_BOOK=DIR; `rollbook demo` or the first tracked run makes one",
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptFile(f"cannot read {marker}: {error}") from error
        version = _FORMAT.search(text)
        if version is None:
            raise CorruptFile(f"{marker} names no format", f"write the line `format = {FORMAT_VERSION}` into it")
        if int(version[1]) > FORMAT_VERSION:
            raise CorruptFile(
                f"the book at {self.root} has format {version[1]}, this version reads up to {FORMAT_VERSION}",
                "upgrade rollbook",
            )

    def run_folders(self, base: Path | None = None) -> Iterator[os.DirEntry[str]]:
        """Every run folder, in no order."""
        for task in _folders(base or self.tasks):
            yield from _folders(task.path)


def is_book(folder: str | Path) -> bool:
    """Whether a folder has a book.toml of ours; other programs have files of that name, too."""
    try:
        with open(f"{folder}/book.toml", "rb") as file:
            return _FORMAT.search(file.read(_LARGEST_MARKER).decode(errors="replace")) is not None
    except OSError:
        return False


def _folders(path: str | Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_dir():
                    yield entry
    except FileNotFoundError:
        return


def attempt_folders(run_folder: Path | str) -> list[tuple[int, str]]:
    """(number, path) of each attempt, in order."""
    base = f"{run_folder}/attempts"
    try:
        names = os.listdir(base)
    except FileNotFoundError:
        return []
    return sorted((int(name), f"{base}/{name}") for name in names if name.isdecimal())


def touch_run(run_folder: Path) -> None:
    """Tell the catalogue that something inside a finished run has changed: it trusts a run folder's mtime."""
    os.utime(run_folder)


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write aside and rename, so that a reader sees the old file or the new one and nothing between."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any, *, sync: bool = False, indent: int | None = 1) -> None:
    # Arguments and paths that are no text reach Python as lone surrogates; they come back as they went.
    text = json.dumps(data, indent=indent, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode("utf-8", "surrogatepass"), sync=sync)


def read_json(path: Path | str) -> Any:
    """The parsed file; FileNotFoundError when it is not there, CorruptFile when it cannot be read."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return json.loads(data)
    except ValueError as error:
        raise CorruptFile(f"{path} is not valid JSON: {error}") from error
