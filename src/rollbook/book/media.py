"""media/<name>/<step>.<ext> and files/: figures, videos, texts and copies of files.

A name is any text, and becomes one folder inside the run's. Everything is written aside and renamed.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rollbook.book import pixels, videos
from rollbook.book.checkpoints import check_step
from rollbook.book.layout import decode_name, encode_name, write_atomically
from rollbook.errors import InvalidName, UsageError

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["figure", "video", "text", "file"]
VIDEO_SUFFIXES = frozenset({".mp4", ".gif", ".webm", ".mov", ".mkv", ".avi", ".m4v"})
_KINDS: dict[str, Kind] = {".png": "figure", ".txt": "text", **dict.fromkeys(VIDEO_SUFFIXES, "video")}
_FULL_NAME = "name.txt"


@dataclass(frozen=True, kw_only=True)
class MediaItem:
    name: str
    step: int | None  # None of a file
    kind: Kind
    path: str
    bytes: int


def save_figure(run_folder: Path, name: str, figure: Any, step: int) -> Path:
    """A matplotlib figure, a PIL image or an array of pixels, as PNG."""
    path = _media_path(run_folder, name, step, ".png")
    data = _png(figure)
    _make_media_folder(path.parent, name)
    write_atomically(path, data)
    return path


def save_video(run_folder: Path, name: str, frames: Any, step: int, fps: float) -> Path:
    """Frames as mp4 where ffmpeg is found, else as animated GIF; a finished video file is copied."""
    if isinstance(frames, (str, os.PathLike)):
        return _copy_video(run_folder, name, Path(frames), step)
    if isinstance(fps, bool) or not isinstance(fps, (int, float)) or not 0 < fps < math.inf:
        raise UsageError(f"fps must be a number above 0, got {fps!r}")
    ffmpeg = videos.find_ffmpeg()
    path = _media_path(run_folder, name, step, ".mp4" if ffmpeg else ".gif")
    stream = _frames(frames)
    first = next(stream, None)
    if first is None:
        raise UsageError("the video has no frames", "pass at least one frame")
    _make_media_folder(path.parent, name)
    with _aside(path) as aside:
        if ffmpeg:
            videos.write_mp4(ffmpeg, aside, first, stream, fps)
        else:
            videos.write_gif(aside, first, stream, fps)
        aside.replace(path)
    return path


def save_text(run_folder: Path, name: str, text: str, step: int) -> Path:
    if not isinstance(text, str):
        raise UsageError(f"the text {name!r} is of type {type(text).__name__}", "pass str(...) of it")
    path = _media_path(run_folder, name, step, ".txt")
    _make_media_folder(path.parent, name)
    write_atomically(path, text.encode(errors="backslashreplace"))
    return path


def save_file(run_folder: Path, source: Path, name: str | None = None) -> Path:
    """Copy a file or a folder into files/, under its own name or another, which may have slashes."""
    source = Path(source)
    if not source.exists():
        raise UsageError(f"there is no file {source}", f"it was looked for in {Path.cwd()}; give the path from there")
    target = run_folder / "files" / _relative(name if name is not None else source.resolve().name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{name!r} lies below a name under which a file is saved", "choose another name") from error
    if source.is_dir() and run_folder.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"{source} holds the run itself", "save the folders that matter one by one")
    with _aside(target) as aside:
        _copy(source, aside)
        _replace(aside, target)
    return target


def list_media(run_folder: Path) -> list[MediaItem]:
    """By name and step: what is under media/, then the files."""
    items = [item for folder in _entries(run_folder / "media") for item in _media_of(folder)]
    items.sort(key=lambda item: (item.name, item.step or 0, item.path))
    return items + _files(run_folder / "files")


# --- where things go


def _media_path(run_folder: Path, name: str, step: int, suffix: str) -> Path:
    return run_folder / "media" / encode_name(name) / f"{check_step(step)}{suffix}"


def _make_media_folder(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if "~" in folder.name and not (folder / _FULL_NAME).exists():
        write_atomically(folder / _FULL_NAME, name.encode())


def _relative(name: str) -> Path:
    parts = [encode_name(part) for part in name.split("/") if part] if isinstance(name, str) else []
    if not parts:
        raise InvalidName(f"a file's name must be text of at least one character, got {name!r}")
    return Path(*parts)


@contextlib.contextmanager
def _aside(path: Path) -> Iterator[Path]:
    # The name may be as long as a name can be, so the one aside does not contain it.
    aside = path.with_name(f".{os.getpid()}.{secrets.token_hex(4)}{path.suffix[:8]}")
    try:
        yield aside
    finally:
        _remove(aside)


def _replace(aside: Path, target: Path) -> None:
    if not aside.is_dir() and not target.is_dir():
        aside.replace(target)
        return
    with _aside(target) as old:  # a folder cannot be renamed over another
        if target.exists():
            target.rename(old)
        aside.rename(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# --- what goes there


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    if hasattr(figure, "savefig"):
        figure.savefig(buffer, format="png")
    elif hasattr(figure, "save") and hasattr(figure, "size"):
        pixels.as_png_mode(figure).save(buffer, format="PNG")
    else:
        pixels.to_image(pixels.read_pixels(figure, "the figure")).save(buffer, format="PNG")
    return buffer.getvalue()


def _frames(frames: Any) -> Iterator[np.ndarray[Any, Any]]:
    """RGB frames (height, width, 3), all of one size, one at a time."""
    size: tuple[int, ...] | None = None
    for index, frame in enumerate(_each(frames)):
        rgb = pixels.to_rgb(pixels.read_pixels(frame, f"frame {index}"))
        size = size or rgb.shape
        if rgb.shape != size:
            raise UsageError(
                f"frame {index} is {rgb.shape[1]}x{rgb.shape[0]} pixels and frame 0 is {size[1]}x{size[0]}",
                "give all frames one size",
            )
        yield rgb


def _each(frames: Any) -> Iterable[Any]:
    if not hasattr(frames, "shape"):
        if not isinstance(frames, Iterable):
            raise UsageError(f"frames are of type {type(frames).__name__}", "pass a list of arrays, or one array")
        return frames
    shape = tuple(frames.shape)
    if len(shape) == 4 or (len(shape) == 3 and shape[-1] not in pixels.CHANNELS):
        return (frames[index] for index in range(shape[0]))
    hint = (
        "one frame is [frame]; several are an array of shape (time, height, width, channels) or (time, height, width)"
    )
    raise UsageError(f"frames have shape {shape}", hint)


def _copy_video(run_folder: Path, name: str, source: Path, step: int) -> Path:
    if not source.is_file():
        raise UsageError(f"there is no video file {source}", f"it was looked for in {Path.cwd()}")
    suffix = source.suffix.lower()
    if suffix not in VIDEO_SUFFIXES:
        raise UsageError(f"{source} is no video file", f"known are {', '.join(sorted(VIDEO_SUFFIXES))}")
    path = _media_path(run_folder, name, step, suffix)
    _make_media_folder(path.parent, name)
    with _aside(path) as aside:
        shutil.copyfile(source, aside)
        aside.replace(path)
    return path


def _copy(source: Path, aside: Path) -> None:
    if not source.is_dir():
        shutil.copyfile(source, aside)
        return
    aside.mkdir()
    # Links to folders are not followed, so a loop of them ends; pipes and sockets are left out.
    for file in sorted(source.rglob("*")):
        if file.is_file():
            place = aside.joinpath(*(encode_name(part) for part in file.relative_to(source).parts))
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)


# --- listing


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _media_of(folder: Path) -> Iterator[MediaItem]:
    name = _full_name(folder)
    for path in _entries(folder):
        if path.stem.isascii() and path.stem.isdecimal() and path.is_file():
            kind = _KINDS.get(path.suffix, "file")
            yield MediaItem(name=name, step=int(path.stem), kind=kind, path=str(path), bytes=path.stat().st_size)


def _full_name(folder: Path) -> str:
    if "~" in folder.name:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (folder / _FULL_NAME).read_bytes().decode()
    return decode_name(folder.name)


def _files(folder: Path) -> list[MediaItem]:
    items = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(".") for part in parts):
            name = "/".join(decode_name(part) for part in parts)
            items.append(MediaItem(name=name, step=None, kind="file", path=str(path), bytes=path.stat().st_size))
    return items
