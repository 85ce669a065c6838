"""What other programs answer: several at once, each with a deadline and a limit, never through a shell."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_SECONDS = 20.0

# Set inside git's own hooks, where they would point every question at the wrong repository.
_MISLEADING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")


@dataclass(frozen=True)
class Answer:
    code: int | None  # None: it did not start, or was stopped at its deadline
    output: bytes = b""
    error: str = ""
    cut: bool = False  # it said more than the limit

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def line(self) -> str | None:
        """The output as one line of text, None where the program failed or said nothing."""
        return self.output.decode(errors="replace").strip() or None if self.ok else None


class Program:
    """A program that has been started and will be asked for its answer."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        import subprocess
        import tempfile

        self._name = " ".join(arguments[:2])
        self._timeout_seconds = timeout_seconds
        self._deadline = time.monotonic() + timeout_seconds
        self._failure: str | None = None
        # A file, not a second pipe: two pipes read one after the other can block each other.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,  # so that its children end with it; and Ctrl-C is for the training alone
            )
        except OSError as error:
            self._failure = f"{arguments[0]}: {error.strerror or error}"
            self._stderr.close()

    def answer(self, limit_bytes: int = 1 << 28) -> Answer:
        """Wait for the end, the deadline or the limit, whichever is first."""
        if self._failure is not None:
            return Answer(None, error=self._failure)
        import threading

        late = threading.Event()

        def stop() -> None:
            late.set()
            self._kill()

        watchdog = threading.Timer(max(0.0, self._deadline - time.monotonic()), stop)
        watchdog.daemon = True
        watchdog.start()
        try:
            with self._process, self._stderr:
                assert self._process.stdout is not None
                output = self._process.stdout.read(limit_bytes + 1)
                cut = len(output) > limit_bytes
                if cut:
                    self._kill()
                self._process.wait()
                self._stderr.seek(0)
                error = self._stderr.read(2000).decode(errors="replace").strip()
        finally:
            watchdog.cancel()
        if cut:
            return Answer(0, output[:limit_bytes], error, cut=True)
        if late.is_set():
            return Answer(None, output, f"{self._name} took longer than {self._timeout_seconds:g} s")
        return Answer(self._process.returncode, output, error)

    def _kill(self) -> None:
        if self._process.returncode is not None:  # reaped: the pid may be another's by now
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (AttributeError, OSError):  # no process groups on this system
            self._process.kill()


def start_git(root: Path, *arguments: str, timeout_seconds: float = TIMEOUT_SECONDS) -> Program:
    env = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    # Looking must not lock the index against a `git commit` beside it.
    env["GIT_OPTIONAL_LOCKS"] = "0"
    # A monitor that git starts here would outlive us.
    return Program(
        ["git", "-c", "core.fsmonitor=false", *arguments], cwd=root, env=env, timeout_seconds=timeout_seconds
    )
