"""The unified diff of one file, in the form that `git apply` takes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Side:
    """A file before or after; without an id it is not there."""

    label: str
    mode: str = ""
    id: str | None = None
    data: bytes = b""
    problem: str | None = None  # why the content cannot be shown


def file_diff(path: str, old: Side, new: Side) -> str:
    return "".join(_lines(path, old, new))


def _lines(path: str, old: Side, new: Side) -> Iterator[str]:
    before, after = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    yield f"diff --git {before} {after}\n"
    if old.id is None:
        yield f"new file mode 100{new.mode}\n"
    elif new.id is None:
        yield f"deleted file mode 100{old.mode}\n"
    elif old.mode != new.mode:
        yield f"old mode 100{old.mode}\nnew mode 100{new.mode}\n"
    if old.id == new.id:
        return
    problem = old.problem or new.problem
    if problem:
        yield f"Files {before} and {after} cannot be compared: {problem}\n"
        return
    old_text, new_text = _text(old.data), _text(new.data)
    if old_text is None or new_text is None:
        yield f"Binary files {before} and {after} differ\n"
        return
    yield from _unified(
        _split(old_text),
        _split(new_text),
        "/dev/null" if old.id is None else before,
        "/dev/null" if new.id is None else after,
        (_one_line(old.label), _one_line(new.label)),
    )


def _unified(old: list[str], new: list[str], before: str, after: str, labels: tuple[str, str]) -> Iterator[str]:
    # The label stands where diff puts the date: after a tab, where patch and git do not look.
    for line in difflib.unified_diff(old, new, before, after, *labels):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _split(text: str) -> list[str]:
    """Lines with their ends, at newlines alone: str.splitlines also cuts at form feeds and a dozen others."""
    *lines, rest = text.split("\n")
    return [line + "\n" for line in lines] + ([rest] if rest else [])


def _one_line(label: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in label)


def _quoted(path: str) -> str:
    """As git quotes it: plain, or in C quotes where it could break the line or command the terminal."""
    if path.isprintable() and not set(path) & {'"', "\\"}:
        return path
    escaped = (
        char if char.isprintable() and char not in '"\\' else "".join(f"\\{byte:03o}" for byte in _bytes(char))
        for char in path
    )
    return f'"{"".join(escaped)}"'


def _bytes(char: str) -> bytes:
    try:
        return char.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # half of a pair, which no file name can hold
        return char.encode(errors="backslashreplace")
