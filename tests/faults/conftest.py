"""Real processes that write a book."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import PRELUDE, Complete, Launch


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a book will be; the folder around it is not made yet."""
    for name in [name for name in os.environ if name.startswith("ROLLBOOK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ROLLBOOK_QUIET", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home" / "book"


@pytest.fixture
def launch(book: Path, tmp_path: Path) -> Iterator[Launch]:
    """Starts a Python program with the book's path in BOOK; whatever still runs at the end is killed."""
    children: list[subprocess.Popen[str]] = []
    work = tmp_path / "work"
    work.mkdir()

    def launch(program: str, *arguments: object, wrapper: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        file = work / f"program_{len(children)}.py"
        file.write_text(PRELUDE + textwrap.dedent(program))
        child = subprocess.Popen(
            [*wrapper, sys.executable, str(file), *map(str, arguments)],
            cwd=work,
            env={**os.environ, "BOOK": str(book)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield launch
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.communicate()


@pytest.fixture
def complete(launch: Launch) -> Complete:
    """Like `launch`, to the end of the program."""

    def complete(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        child = launch(program, *arguments)
        out, err = child.communicate(timeout=120)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)

    return complete
