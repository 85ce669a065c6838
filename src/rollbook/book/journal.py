"""What was changed after the fact: one small numbered file for each change, never rewritten.

An entry is `{"kind", "time", "user", "host", "runs": [run ids], ...}`. Replaying them in order gives today's state.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollbook.book.layout import read_json
from rollbook.errors import BookUnwritable, CorruptFile, UsageError

_DIGITS = 10
_MAY_BE_MISSED = 10_000
_LATEST_TIME = 1e11  # seconds: a damaged digit must not become a date that nothing can hold


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return str(os.getuid())


def append(journal: Path, kind: str, runs: Iterable[str], **details: Any) -> int:
    """Write one entry and return its number. The file appears whole or not at all, whatever kills us."""
    _refuse_empty(kind, details)
    entry = {
        "kind": kind,
        "time": time.time(),
        "user": user_name(),
        "host": socket.gethostname(),
        "runs": list(runs),
        **details,
    }
    aside = journal / f".{os.getpid()}.{secrets.token_hex(4)}"
    try:
        journal.mkdir(exist_ok=True)  # not its parents: of a book that is away, that would be another in its place
        with open(aside, "wb") as file:
            file.write(json.dumps(entry, ensure_ascii=False).encode("utf-8", "surrogatepass"))
            file.flush()
            os.fsync(file.fileno())
        number = newest(journal) + 1
        while not _take_number(aside, journal / f"{number:0{_DIGITS}d}.json"):
            number += 1
    except OSError as error:
        raise BookUnwritable(f"cannot write to the journal at {journal}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
    return number


def _refuse_empty(kind: str, details: Mapping[str, Any]) -> None:
    """Nothing could be seen of such a tag or note. Removing a tag that is there stays possible."""
    if kind == "tag" and "" in details.get("tags", ()):
        raise UsageError("a tag needs at least one character", "rollbook tag add latest RUN")
    if kind == "note" and not details.get("text"):
        raise UsageError("a note needs at least one character", 'rollbook note RUN "why this run was made"')


def _take_number(aside: Path, path: Path) -> bool:
    """Linking decides between two writers, on network file systems too; where links are unknown, exclusive creation."""
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        try:
            with open(path, "xb") as file:
                file.write(aside.read_bytes())
        except FileExistsError:
            return False
    return True


def newest(journal: Path) -> int:
    return max(_numbers(journal), default=0)


def _numbers(journal: Path) -> list[int]:
    try:
        names = os.listdir(journal)
    except FileNotFoundError:
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal())


def _following(journal: Path, number: int) -> Iterable[int]:
    """The numbers above one. A listing that others add to meanwhile may lack one below its last: that is tried, too."""
    listed = [found for found in _numbers(journal) if found > number]
    missed = listed[-1] - number - len(listed) if listed else 0
    return range(number + 1, listed[-1] + 1) if 0 < missed < _MAY_BE_MISSED else listed


def read_after(journal: Path, number: int, problems: list[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Entries with a larger number, in order. A damaged one is named and passed over."""
    for found in _following(journal, number):
        path = journal / f"{found:0{_DIGITS}d}.json"
        try:
            entry = read_json(path)
            if not _is_entry(entry):
                raise CorruptFile(f"{path} is not a journal entry")
        except FileNotFoundError:
            continue  # a gap, or a file whose name only looks like a number of ours
        except CorruptFile as error:
            if problems is not None:
                problems.append(error.message)
            continue
        yield found, entry


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        return False
    if not isinstance(entry.get("time"), int | float) or not abs(entry["time"]) < _LATEST_TIME:
        return False
    if not isinstance(entry.get("user"), str):
        return False
    return all(_is_text_list(entry.get(key, [])) for key in ("runs", "tags", "removed_from")) and "runs" in entry


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


@dataclass
class Changes:
    """The state that replaying the journal gives, by run."""

    number: int = 0
    tags: dict[str, dict[str, bool]] = field(default_factory=dict)  # run -> tag -> added (True) or removed
    notes: dict[str, list[str]] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)  # run -> "deleted" or "archived"
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)  # entries that could not be read

    def apply(self, number: int, entry: dict[str, Any]) -> None:
        self.number = number
        kind, runs = entry["kind"], entry["runs"]
        if kind in ("tag", "untag"):
            # A tag that moves leaves some runs for others in one step.
            for changed, there in ((runs, kind == "tag"), (entry.get("removed_from", ()), False)):
                for run in changed:
                    self.tags.setdefault(run, {}).update(dict.fromkeys(map(_text, entry.get("tags", ())), there))
        elif kind == "note":
            for run in runs:
                self.notes.setdefault(run, []).append(_text(str(entry.get("text", ""))))
        elif kind in ("delete", "archive"):
            self.hidden.update(dict.fromkeys(runs, "deleted" if kind == "delete" else "archived"))
        elif kind in ("restore", "purge"):
            for run in runs:
                self.hidden.pop(run, None)
        elif kind == "verdict":
            self.verdicts.append({"number": number, **entry})

    def current_tags(self, run_id: str, at_start: Iterable[str]) -> list[str]:
        tags = dict.fromkeys(at_start, True) | self.tags.get(run_id, {})
        return sorted(tag for tag, there in tags.items() if there)


def replay(journal: Path, problems: list[str] | None = None, *, since: Changes | None = None) -> Changes:
    """Today's state; with `since`, that state brought forward."""
    changes = since or Changes()
    damaged: list[str] = []
    for number, entry in read_after(journal, changes.number, damaged):
        changes.apply(number, entry)
    changes.damaged += [problem for problem in damaged if problem not in changes.damaged]
    if problems is not None:
        problems += changes.damaged
    return changes
