"""The code of a run: each file by its content, and a manifest that names them.

The manifest is an object too, with sorted keys, so equal files have an equal manifest id:
`{"files": {path: {"id": sha256, "mode": "644" | "755"}}, "skipped": {path: reason}}`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rollbook.book.code_diff import Side, file_diff
from rollbook.book.layout import Layout, write_atomically
from rollbook.book.objects import contains, get, is_object_id, put
from rollbook.book.project_files import LONE_SCRIPT_FILES, project_files, project_root
from rollbook.book.settings import Settings
from rollbook.errors import BookUnwritable, CodeNotFound, CorruptFile, DataError, UsageError

__all__ = [
    "CodeFile",
    "CodeManifest",
    "diff",
    "project_files",
    "project_root",
    "read_manifest",
    "referenced_objects",
    "restore",
    "snapshot",
]

# A sweep beside us can take an object once, in the instant before it sees our touch; never five times in a row.
_ATTEMPTS = 5


@dataclass(frozen=True)
class CodeFile:
    id: str
    mode: str  # "644" or "755"


@dataclass(frozen=True)
class CodeManifest:
    files: Mapping[str, CodeFile]
    skipped: Mapping[str, str] = field(default_factory=dict)  # path -> reason

    def to_bytes(self) -> bytes:
        files = {path: {"id": file.id, "mode": file.mode} for path, file in self.files.items()}
        # ASCII, so that a file name that is not valid text survives as an escaped surrogate.
        return json.dumps({"files": files, "skipped": dict(self.skipped)}, sort_keys=True).encode("ascii")


class _Skipped(Exception):
    """A file that stays out of the snapshot, with the reason."""


def snapshot(layout: Layout, root: Path, settings: Settings, *, lone_script: Path | None = None) -> str:
    """Store the project's files and return the id of their manifest; OSError when the book cannot be written.

    A file that is too large, unreadable or gone meanwhile is named in the manifest's `skipped`.
    """
    root = root.absolute()
    todo = [path.as_posix() for path in project_files(root, settings, layout.root, lone_script=lone_script)]
    files: dict[str, CodeFile] = {}
    skipped: dict[str, str] = {}
    if lone_script is not None and len(todo) >= LONE_SCRIPT_FILES:
        skipped["."] = f"only the nearest {LONE_SCRIPT_FILES} source files of a folder that is no project are kept"
    for _ in range(_ATTEMPTS):
        for path in todo:
            files.pop(path, None)
            try:
                files[path] = _store(layout, f"{root}/{path}", settings.max_file_bytes)
            except _Skipped as reason:
                skipped[path] = str(reason)
        manifest_id = put(layout, CodeManifest(files, skipped).to_bytes())
        todo = [path for path, file in files.items() if not contains(layout, file.id)]
        if not todo and contains(layout, manifest_id):
            return manifest_id
    raise BookUnwritable(f"the objects of the book at {layout.root} vanish as they are written")


def read_manifest(layout: Layout, object_id: str) -> CodeManifest:
    data = get(layout, object_id)
    try:
        table = json.loads(data)
        files = {path: CodeFile(id=file["id"], mode=file["mode"]) for path, file in table["files"].items()}
        skipped = {path: str(reason) for path, reason in table.get("skipped", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(f"the object {object_id} is no code manifest: {error!r}") from error
    for path, file in files.items():
        if not is_object_id(file.id) or file.mode not in ("644", "755"):
            raise CorruptFile(f"the code manifest {object_id} has a bad entry for {path!r}: {file}")
    return CodeManifest(files, skipped)


def referenced_objects(layout: Layout, manifest_id: str) -> set[str]:
    """The manifest and all that it names. Raises when it cannot be read: a purge must then keep everything."""
    return {manifest_id, *(file.id for file in read_manifest(layout, manifest_id).files.values())}


def restore(layout: Layout, manifest_id: str, target: Path, *, force: bool = False) -> int:
    """Write the files below `target` and return how many there are. A damaged one does not keep the others back."""
    manifest = read_manifest(layout, manifest_id)
    _refuse_to_overwrite(target, force=force)
    base = Path(os.path.realpath(target))
    for path in manifest.files:  # all of them before the first is written
        _refuse_to_leave(base, path, manifest)
    failures: dict[str, DataError] = {}
    base.mkdir(parents=True, exist_ok=True)
    for path, file in manifest.files.items():
        try:
            data = get(layout, file.id)
        except (CorruptFile, CodeNotFound) as error:
            failures[path] = error
            continue
        _write_file(base / path, data, executable=file.mode == "755")
    if failures:
        path, first = next(iter(failures.items()))
        raise type(first)(
            f"{len(failures)} of {len(manifest.files)} files could not be restored to {target}, "
            f"among them {path!r}: {first.message}",
            first.hint,
        )
    return len(manifest.files)


def diff(layout: Layout, a: str, b: str, *, labels: tuple[str, str]) -> str:
    """What changed between two manifests, sorted by path, as `git apply` takes it."""
    old, new = read_manifest(layout, a).files, read_manifest(layout, b).files
    changed = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return "".join(
        file_diff(path, _side(layout, old.get(path), labels[0]), _side(layout, new.get(path), labels[1]))
        for path in changed
    )


def _side(layout: Layout, file: CodeFile | None, label: str) -> Side:
    if file is None:
        return Side(label=label)
    try:
        return Side(label=label, mode=file.mode, id=file.id, data=get(layout, file.id))
    except (CorruptFile, CodeNotFound) as error:
        return Side(label=label, mode=file.mode, id=file.id, problem=error.message)


def _store(layout: Layout, full: str, max_file_bytes: int) -> CodeFile:
    try:
        # Without O_NONBLOCK, opening what has become a named pipe would wait for its writer for ever.
        descriptor = os.open(full, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _Skipped("not a regular file")
            if status.st_size > max_file_bytes:
                raise _Skipped(f"larger than max_file_bytes = {max_file_bytes}")
            data = file.readall()
    except FileNotFoundError:
        raise _Skipped("vanished while the code was being saved") from None
    except OSError as error:
        raise _Skipped(f"unreadable: {error.strerror or error}") from error
    if len(data) > max_file_bytes:
        raise _Skipped(f"larger than max_file_bytes = {max_file_bytes}")
    return CodeFile(id=put(layout, data), mode="755" if status.st_mode & stat.S_IXUSR else "644")


def _refuse_to_overwrite(target: Path, *, force: bool) -> None:
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file, not a folder", "name a folder that is new or empty")
    if not force and target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty", "name a new folder, or overwrite what is there with --force")


def _refuse_to_leave(base: Path, path: str, manifest: CodeManifest) -> None:
    """A manifest may come from a stranger's book."""
    parts = path.split("/")
    # A .git folder could hold hooks that run at the next git command; no snapshot of ours has one.
    outside = any(part in ("", ".", "..") or part.lower() == ".git" for part in parts) or "\0" in path
    if os.name == "nt":
        outside = outside or "\\" in path or ":" in path
    if not outside:
        try:
            outside = not Path(os.path.realpath(base / path)).is_relative_to(base)
        except ValueError:  # a surrogate that is no byte of a file name
            outside = True
    if outside:
        raise CorruptFile(f"the code manifest names {path!r}, which does not stay inside {base}: nothing was restored")
    if any("/".join(parts[:depth]) in manifest.files for depth in range(1, len(parts))):
        raise CorruptFile(f"the code manifest names {path!r} below a file: nothing was restored")


def _write_file(path: Path, data: bytes, *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
    if executable:
        mode = path.stat().st_mode
        path.chmod(mode | (mode & 0o444) >> 2)  # as git does: whoever may read may run
