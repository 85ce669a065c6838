"""checkpoints/<step>/: manifest.json, with the structure of the saved tree, and tensors.safetensors, with its arrays.

Beside them lies growing/, the chunks of what only grows (rollbook.book.growing), which manifests name.

A checkpoint is written into a hidden folder beside its place and renamed. One that it replaces is first renamed to
`.<step>.<random>.old`, where readers look too, so that a kill between the two renames loses neither. No pickle is
ever written or loaded.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import re
import secrets
import shutil
import time as clock
import warnings
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollbook.book import tensors as tensor_file
from rollbook.book.growing import FOLDER as GROWING
from rollbook.book.growing import GrowingRows, SavedRows, in_place, remove_unnamed, save_rows, saved_rows
from rollbook.book.trees import Flat, flatten, unflatten, unflatten_like
from rollbook.errors import CheckpointNotFound, CorruptFile, UsageError
from rollbook.records import Checkpoint, from_json

FORMAT_VERSION = 1
MANIFEST, TENSORS = "manifest.json", "tensors.safetensors"
_STEP = re.compile(r"0|[1-9][0-9]*")
_HIDDEN = re.compile(r"\.[0-9]+\..+")
_REPLACED = re.compile(r"\.(0|[1-9][0-9]*)\.[0-9a-f]+\.old")
_NAMED_STEPS = 20
_RETRIES, _RETRY_SECONDS = 5, 0.01
# The hidden folders of saves under way in this process, which another thread's save must not take for leftovers.
_under_way: set[Path] = set()


@dataclass(frozen=True)
class LoadedCheckpoint:
    checkpoint: Checkpoint
    tensors: Any
    growing: Mapping[str, SavedRows] = field(default_factory=dict)  # on disk until they are read

    @property
    def step(self) -> int:
        return self.checkpoint.step

    @property
    def extra(self) -> Any:
        return self.checkpoint.extra


def save_checkpoint(
    run_folder: Path,
    step: int,
    tree: Any,
    *,
    extra: Any,
    attempt: int,
    rows: int,
    time: float,
    next_step: int,
    keep: int | None,
    growing: Mapping[str, GrowingRows] | None = None,
    after: int | None = None,
) -> Checkpoint:
    """Save a tree of arrays. OSError (a full disk) leaves the checkpoints as they were.

    Of `growing`, only what the checkpoint of the step `after`, whose way this one goes on, does not have is written.
    """
    step = check_step(step)
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
        raise UsageError(f"keep must be a whole number of at least 1, got {keep!r}", "leave it out to keep all")
    facts: dict[str, Any] = {"step": step, "attempt": int(attempt), "rows": int(rows), "time": float(time)}
    facts["next_step"] = int(next_step)
    manifest = {"format": FORMAT_VERSION, **facts, "extra": _json_value(extra, "extra")}
    flat = flatten(tree)
    folder = run_folder / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(folder)
    written: set[Path] = set()
    try:
        if growing:
            manifest["growing"] = save_rows(folder, growing, _growing_of(folder, after), written)
        with _aside(folder, step) as aside:
            _write(aside, manifest, flat)
            _put_in_place(aside, folder / str(step))
    finally:
        in_place(written)
    if keep is not None:
        _remove_oldest(run_folder, step, keep)
    _remove_unnamed_chunks(folder)
    place = folder / str(step)
    return Checkpoint(**facts, extra=manifest["extra"], bytes=_size(place), path=str(place))


def list_checkpoints(run_folder: Path) -> list[Checkpoint]:
    """Ascending by step. One whose manifest cannot be read is left out."""
    found = []
    for place in _places(run_folder / "checkpoints").values():
        with contextlib.suppress(CorruptFile, OSError):
            found.append(_describe(place, _read_manifest(place)))
    return found


def load_checkpoint(run_folder: Path, step: int | None = None, *, like: Any = None) -> LoadedCheckpoint:
    """The newest, or the one of `step`. With `like`, in its containers and its frameworks' arrays."""
    step = None if step is None else check_step(step)
    for patience in range(_RETRIES, -1, -1):
        try:
            return _load(run_folder, step, like)
        except (CheckpointNotFound, FileNotFoundError) as error:  # replaced or removed between two reads of ours
            if not patience:
                raise _not_found(run_folder, step) from error
            clock.sleep(_RETRY_SECONDS)
    raise AssertionError("unreachable")


def check_step(step: Any) -> int:
    """A whole number from 0 up, also of numpy; UsageError otherwise."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if isinstance(step, bool) or number < 0:
        raise UsageError(f"a step must be a whole number from 0 up, got {step!r}")
    return number


# --- writing


def _write(aside: Path, manifest: dict[str, Any], flat: Flat) -> None:
    crc = tensor_file.write_tensors(aside / TENSORS, flat.tensors)
    manifest = manifest | {"tensors": {"bytes": (aside / TENSORS).stat().st_size, "crc32": crc}, "tree": flat.structure}
    manifest |= {"crc32": _manifest_crc(manifest)}
    with open(aside / MANIFEST, "w", encoding="ascii") as file:
        json.dump(manifest, file)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(aside)


@contextlib.contextmanager
def _aside(folder: Path, step: int) -> Iterator[Path]:
    aside = folder / f".{step}.{secrets.token_hex(4)}"
    _under_way.add(aside)
    try:
        aside.mkdir()
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        _under_way.discard(aside)


def _put_in_place(aside: Path, place: Path) -> None:
    replaced = aside.with_name(f"{aside.name}.old")
    _under_way.add(replaced)
    try:
        with contextlib.suppress(FileNotFoundError):
            place.rename(replaced)
        try:
            aside.rename(place)
        except OSError:
            if replaced.exists():
                replaced.rename(place)
            raise
        _sync_folder(place.parent)
        # Back to the name aside, which is removed next: a reader finds the replaced one whole or not at all.
        with contextlib.suppress(FileNotFoundError):
            replaced.rename(aside)
    finally:
        _under_way.discard(replaced)


def _clear_leftovers(folder: Path) -> None:
    """Of processes that were killed: put back what was being replaced, remove what was being written."""
    for entry in folder.iterdir():
        if entry in _under_way or not _HIDDEN.fullmatch(entry.name):
            continue
        replaced = _REPLACED.fullmatch(entry.name)
        if replaced and not (folder / replaced[1]).exists():
            entry.rename(folder / replaced[1])
        else:
            shutil.rmtree(entry, ignore_errors=True)


def _remove_oldest(run_folder: Path, new: int, keep: int) -> None:
    # Oldest by when they were saved: after going back, those of the abandoned way have later steps and go first.
    others = [checkpoint for checkpoint in list_checkpoints(run_folder) if checkpoint.step != new]
    others.sort(key=lambda checkpoint: checkpoint.time)
    for checkpoint in others[: max(0, len(others) - (keep - 1))]:
        place = Path(checkpoint.path)
        gone = place.with_name(f".{checkpoint.step}.{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):  # the new one is safe; what is left is removed by the next save
            place.rename(gone)
            shutil.rmtree(gone)


def _growing_of(folder: Path, step: int | None) -> Mapping[str, Any]:
    place = _places(folder).get(-1 if step is None else step)
    if place is None:
        return {}
    try:
        found: Mapping[str, Any] = _read_manifest(place).get("growing", {})
    except (CorruptFile, OSError):
        return {}  # everything is written again
    return found


def _remove_unnamed_chunks(folder: Path) -> None:
    if not (folder / GROWING).exists():
        return
    # What a manifest names that cannot be read just now must stay.
    with contextlib.suppress(CorruptFile, OSError):
        remove_unnamed(folder, [_read_manifest(place) for place in _all_places(folder)])


def _sync_folder(folder: Path) -> None:
    # Some network filesystems refuse to sync a folder; the files in it are synced by then.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _json_value(value: Any, path: str, depth: int = 0) -> Any:
    if depth > 100:
        raise UsageError(f"{path[:80]}... is nested deeper than 100 levels", "does it hold itself?")
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_json_value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        raise UsageError(
            f"{path} is of type {type(value).__name__}, which JSON cannot hold",
            "extra holds numbers, text, lists and dicts; arrays belong in the tree",
        )
    for key in value:
        if not isinstance(key, str):
            raise UsageError(f"{path} has the key {key!r} of type {type(key).__name__}; JSON keys are text")
    return {key: _json_value(item, f"{path}[{key!r}]", depth + 1) for key, item in value.items()}


# --- reading


def _all_places(folder: Path) -> list[Path]:
    """Those that are being replaced included."""
    return [folder / name for name in os.listdir(folder) if _STEP.fullmatch(name) or _REPLACED.fullmatch(name)]


def _places(folder: Path) -> dict[int, Path]:
    """Where each step's checkpoint lies, ascending by step."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return {}
    places = {int(match[1]): folder / name for name in names if (match := _REPLACED.fullmatch(name))}
    places |= {int(name): folder / name for name in names if _STEP.fullmatch(name)}
    return dict(sorted(places.items()))


def _load(run_folder: Path, step: int | None, like: Any) -> LoadedCheckpoint:
    places = _places(run_folder / "checkpoints")
    if not places or (step is not None and step not in places):
        raise _not_found(run_folder, step)
    if step is not None:
        return _load_place(places[step], like)
    damage: list[CorruptFile] = []
    for place in reversed(places.values()):
        try:
            loaded = _load_place(place, like)
        except CorruptFile as error:
            damage.append(error)
            continue
        for found in damage:
            warnings.warn(f"{found.message}; an older checkpoint is loaded in its place", stacklevel=3)
        return loaded
    raise damage[0]


def _load_place(place: Path, like: Any) -> LoadedCheckpoint:
    before = _identity(place)
    try:
        manifest = _read_manifest(place)
        tree, arrays = _read_tree(place, manifest)
    except CorruptFile as error:
        if _identity(place) != before:  # one file was of the old checkpoint and one of the new
            raise FileNotFoundError(str(place)) from error
        raise
    if like is not None:
        tree = unflatten_like(manifest["tree"], arrays, like)
    return LoadedCheckpoint(_describe(place, manifest), tree, saved_rows(place.parent, manifest))


def _identity(place: Path) -> tuple[int, int]:
    status = place.stat()
    return status.st_ino, status.st_mtime_ns


def _read_tree(place: Path, manifest: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    with _damage_named(place, TENSORS):
        arrays = tensor_file.read_tensors(place / TENSORS, manifest["tensors"]["crc32"])
    try:
        return unflatten(manifest["tree"], arrays), arrays
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CorruptFile(f"{place / MANIFEST} does not describe a tree: {error!r}") from error


@contextlib.contextmanager
def _damage_named(place: Path, name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if place.exists():
            raise CorruptFile(f"{place / name} is missing") from error
        raise
    except OSError as error:
        raise CorruptFile(f"cannot read {place / name}: {error.strerror or error}") from error


def _read_manifest(place: Path) -> dict[str, Any]:
    path = place / MANIFEST
    with _damage_named(place, MANIFEST):
        data = path.read_bytes()
    try:
        manifest: dict[str, Any] = json.loads(data)
        whole = manifest["crc32"] == _manifest_crc(manifest)
        if whole and manifest["format"] > FORMAT_VERSION:
            raise CorruptFile(f"{path} has format {manifest['format']}, above {FORMAT_VERSION}", "upgrade rollbook")
        if not whole or not {"step", "tensors", "tree"} <= manifest.keys():
            raise CorruptFile(f"{path} is damaged: its checksum is not the one written in it")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CorruptFile(f"{path} is not a manifest: {error!r:.200}") from error
    return manifest


def _manifest_crc(manifest: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps({key: value for key, value in manifest.items() if key != "crc32"}).encode())


def _describe(place: Path, manifest: dict[str, Any]) -> Checkpoint:
    try:
        return from_json(Checkpoint, manifest | {"path": str(place), "bytes": _size(place)})
    except TypeError as error:
        raise CorruptFile(f"{place / MANIFEST} is not a manifest: {error}") from error


def _size(place: Path) -> int:
    return sum(file.stat().st_size for file in place.iterdir())


def _not_found(run_folder: Path, step: int | None) -> CheckpointNotFound:
    steps = list(_places(run_folder / "checkpoints"))
    if not steps:
        return CheckpointNotFound(f"{run_folder.name} has no checkpoint", "run.checkpoint(step, tree) makes one")
    known = ("..., " if len(steps) > _NAMED_STEPS else "") + ", ".join(map(str, steps[-_NAMED_STEPS:]))
    wanted = "that could be read" if step is None else f"of step {step}"
    return CheckpointNotFound(f"{run_folder.name} has no checkpoint {wanted}", f"it has {known}")
