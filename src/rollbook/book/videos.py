"""Frames into a video file: H.264 by the ffmpeg binary, or an animated GIF by Pillow where there is none.

ffmpeg is fed raw frames through a pipe, so that frames may come from an iterator and are never all in memory.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from rollbook.book.pixels import to_image
from rollbook.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    Frame = np.ndarray[Any, Any]  # (height, width, 3) uint8

_PROBE_TIMEOUT_SECONDS = 20
_FASTEST_GIF_MS = 20  # browsers show a GIF of shorter frames at 10 a second


@functools.cache
def find_ffmpeg() -> str | None:
    """An ffmpeg that writes H.264: the one on PATH, or that of the package imageio-ffmpeg."""
    return next((path for path in _candidates() if _writes_h264(path)), None)


def write_mp4(ffmpeg: str, path: Path, first: Frame, rest: Iterator[Frame], fps: float) -> None:
    height, width, _ = first.shape
    command = [ffmpeg, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", f"{fps:g}", "-i", "-", "-an", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264"]
    command += ["-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(path)]
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=complaints)
        pipe = cast("IO[bytes]", process.stdin)
        try:
            _feed(pipe, first, rest)
        except BaseException:
            process.kill()
            raise
        finally:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
            code = process.wait()
        if code:
            raise _failure(complaints, code)


def write_gif(path: Path, first: Frame, rest: Iterator[Frame], fps: float) -> None:
    images = (to_image(frame) for frame in rest)
    duration = max(_FASTEST_GIF_MS, round(1000 / fps))
    to_image(first).save(path, format="GIF", save_all=True, append_images=images, duration=duration, loop=0)


def _feed(pipe: IO[bytes], first: Frame, rest: Iterator[Frame]) -> None:
    # A broken pipe: ffmpeg has given up, and its exit code and its words say why.
    with contextlib.suppress(BrokenPipeError):
        pipe.write(first.data)
        for frame in rest:
            pipe.write(frame.data)


def _failure(complaints: IO[bytes], code: int) -> Exception:
    complaints.seek(0)
    words = complaints.read().decode(errors="replace").strip()
    if "No space left on device" in words:
        return OSError(errno.ENOSPC, "No space left on device")
    why = words.splitlines()[0] if words else f"exit code {code}"
    return DataError(f"ffmpeg could not write the video: {why}", "write the video yourself and pass the file's path")


def _candidates() -> Iterator[str]:
    if on_path := shutil.which("ffmpeg"):
        yield on_path
    try:
        yield str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # not installed, or without a binary for this machine
        return


def _writes_h264(path: str) -> bool:
    try:
        probe = subprocess.run(
            [path, "-hide_banner", "-encoders"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"libx264" in probe.stdout
