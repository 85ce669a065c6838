"""Which files are a project's own: what git would show, or what a walk finds that obeys .gitignore."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rollbook.book.layout import Layout, is_book
from rollbook.book.programs import start_git
from rollbook.book.settings import Settings, git_root
from rollbook.errors import InvalidConfig

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

LONE_SCRIPT_FILES = 500
_LONE_SCRIPT_ENTRIES = 20_000  # a home folder may hold millions
_SOURCE_SUFFIXES = frozenset(
    {".py", ".ipynb", ".sh", ".md", ".txt", ".toml", ".yaml", ".yml", ".json", ".cfg", ".ini", ".gin", ".xml"}
)
_NEVER = frozenset({".git", "__pycache__", "node_modules"})
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")


def project_root(start: Path, settings: Settings) -> Path | None:
    """The git root, else the folder of the configuration, else None."""
    return git_root(start) or settings.root


def project_files(root: Path, settings: Settings, book_root: Path, *, lone_script: Path | None = None) -> list[Path]:
    """The files of a project, relative to its root and sorted.

    With `lone_script` the root is no project but the folder that the script happens to lie in: only files that look
    like source are taken then, the nearest first, up to a number.
    """
    root = root.absolute()
    book = book_paths(root, book_root)
    if lone_script is not None:
        chosen = set(_near(root, lone_script, book))
    else:
        listed = _listed_by_git(root, book)
        chosen = set(_walk(root, book, obey_gitignore=True) if listed is None else listed)
    if settings.include:
        include = _patterns(settings.include, "include")
        chosen.update(path for path in _walk(root, book, obey_gitignore=False) if include.match_file(path))
    if settings.exclude:
        exclude = _patterns(settings.exclude, "exclude")
        chosen = {path for path in chosen if not exclude.match_file(path)}
    return [Path(path) for path in sorted(chosen) if _is_own_file(root, path, book)]


def book_paths(root: Path, book_root: Path) -> tuple[str, ...]:
    """The paths below the root that belong to the book, or to another one beside it, and never to the project.

    Books in deeper folders are not looked for here: a walk finds them on its way, and git's list is looked through.
    """
    book = _below(root, book_root)
    others = [entry.name for entry in _scan(root, "") if entry.is_dir(follow_symlinks=False) and is_book(entry.path)]
    found = dict.fromkeys([*(() if book in (None, ".") else (str(book),)), *others])
    if book != "." and not is_book(root):
        return tuple(found)
    layout = Layout(root)  # book = ".": the project folder is a book too
    parts = (layout.tasks, layout.objects, layout.journal, layout.archive, layout.benchmarks, layout.cache)
    return ("book.toml", *(part.name for part in parts), *found)


def _below(root: Path, place: Path) -> str | None:
    """Where a place lies below the root, with slashes, also when one of them is spelled through a symlink."""
    for base, full in ((root.absolute(), place.absolute()), (_real(root), _real(place))):
        if full.is_relative_to(base):
            return full.relative_to(base).as_posix()
    return None


def _real(path: Path | str) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises on a loop of symlinks


def _patterns(lines: Iterable[str], key: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidConfig(f"{key} has a pattern that .gitignore would not take: {error}") from error


def _listed_by_git(root: Path, book: tuple[str, ...]) -> Iterable[str] | None:
    """None when git cannot say: it is not installed, refuses the folder, or this is no checkout."""
    if not (root / ".git").exists():
        return None
    # The book is excluded for git too, so that it does not list a hundred thousand runs.
    without_book = [f"--exclude={_literal_pattern(path)}" for path in book]
    answer = start_git(root, "ls-files", "-z", "-c", "-o", "--exclude-standard", *without_book).answer()
    if not answer.ok or answer.cut:
        return None
    # A folder's trailing slash marks another repository inside this one.
    names = [os.fsdecode(name) for name in answer.output.split(b"\0") if name and not name.endswith(b"/")]
    folders = (name.removesuffix("/book.toml") for name in names if name.endswith("/book.toml"))
    others = tuple(folder for folder in folders if is_book(root / folder))
    return (name for name in names if not _in_book(name, others))


def _literal_pattern(path: str) -> str:
    return "/" + re.sub(r"([\\*?\[\]])", r"\\\1", path)


def _walk(root: Path, book: tuple[str, ...], *, obey_gitignore: bool) -> Iterator[str]:
    """Every file but those in folders that hold no source; hidden folders only where .gitignore is not asked."""
    pending: list[tuple[str, tuple[tuple[int, GitIgnoreSpec], ...]]] = [("", ())]
    while pending:
        folder, specs = pending.pop()
        entries = _scan(root, folder)
        if obey_gitignore and any(entry.name == ".gitignore" for entry in entries):
            specs = (*specs, (len(folder), _read_gitignore(root / folder / ".gitignore")))
        for entry in entries:
            path = folder + entry.name
            if entry.is_dir(follow_symlinks=False):
                hidden = obey_gitignore and entry.name.startswith(".")
                if not hidden and _may_hold_source(entry, path, book) and not _ignored(path + "/", specs):
                    pending.append((path + "/", specs))
            elif entry.name != ".git" and not _ignored(path, specs):
                yield path


def _near(root: Path, script: Path, book: tuple[str, ...]) -> Iterator[str]:
    """Files with source-like suffixes, the script first and then breadth first; bounded in files and in looking."""
    own = _below(root, script)
    taken = 0
    if own is not None:
        taken += 1
        yield own
    looked_at = 0
    pending = deque([""])
    while pending:
        folder = pending.popleft()
        for entry in sorted(_scan(root, folder), key=lambda entry: entry.name):
            looked_at += 1
            if looked_at > _LONE_SCRIPT_ENTRIES or taken >= LONE_SCRIPT_FILES:
                return
            path = folder + entry.name
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and _may_hold_source(entry, path, book):
                    pending.append(path + "/")
            elif path != own and Path(entry.name).suffix.lower() in _SOURCE_SUFFIXES:
                taken += 1
                yield path


def _scan(root: Path, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root / folder) as entries:
            return list(entries)
    except OSError:  # unreadable, or gone since its parent was listed: nothing of ours can be in it
        return []


def _may_hold_source(entry: os.DirEntry[str], path: str, book: tuple[str, ...]) -> bool:
    if entry.name in _NEVER or path in book:
        return False
    return not (any(os.path.lexists(f"{entry.path}/{mark}") for mark in _ENVIRONMENT_MARKS) or is_book(entry.path))


def _read_gitignore(file: Path) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        lines = file.read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n")
    except OSError:
        lines = []
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:  # git passes over a line that it cannot read, and keeps the others
        return GitIgnoreSpec.from_lines([line for line in lines if _is_pattern(line)])


def _is_pattern(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _ignored(path: str, specs: tuple[tuple[int, GitIgnoreSpec], ...]) -> bool:
    """By the nearest .gitignore that has an opinion."""
    for depth, spec in reversed(specs):
        verdict = spec.check_file(path[depth:]).include
        if verdict is not None:
            return verdict
    return False


def _is_own_file(root: Path, path: str, book: tuple[str, ...]) -> bool:
    """It is there, is no folder or submodule, and leads neither outside the root nor into a book."""
    if _in_book(path, book):
        return False
    full = f"{root}/{path}"
    if os.path.islink(full):  # noqa: PTH114
        target = _below(root, Path(os.path.realpath(full)))
        if target is None or _in_book(target, book) or _in_any_book(root, target):
            return False
    return os.path.isfile(full)  # noqa: PTH113


def _in_any_book(root: Path, path: str) -> bool:
    return any(is_book(root / folder) for folder in Path(path).parents if folder != Path())


def _in_book(path: str, book: tuple[str, ...]) -> bool:
    return any(path == part or path.startswith(part + "/") for part in book)
