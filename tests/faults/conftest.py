"""Real processes that write a book, and what a test asks of it afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rollbook

Launch = Callable[..., subprocess.Popen[str]]

PRELUDE = """
import os, signal, sys, threading, time
import rollbook
def start(task="task", **options):
    return rollbook.start(task, book=os.environ["BOOK"], save_code=False, **options)
def ready():
    print("ready", flush=True)
"""


def pytest_configure(config: pytest.Config) -> None:
    # Children end by signals and leave threads behind on purpose; the parents' own warnings stay errors.
    os.environ["ROLLBOOK_QUIET"] = "1"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "home" / "book"


@pytest.fixture
def launch(book: Path, tmp_path: Path) -> Iterator[Launch]:
    """Starts a Python program with the book's path in BOOK; whatever still runs at the end is killed."""
    children: list[subprocess.Popen[str]] = []
    work = tmp_path / "work"
    work.mkdir()

    def launch(
        program: str, *arguments: object, wrapper: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        file = work / f"program_{len(children)}.py"
        file.write_text(PRELUDE + textwrap.dedent(program))
        child = subprocess.Popen(
            [*wrapper, sys.executable, str(file), *map(str, arguments)],
            cwd=work,
            env={**os.environ, "BOOK": str(book), **(env or {})},
            stdin=subprocess.DEVNULL,
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
def complete(launch: Launch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Like `launch`, to the end of the program."""

    def complete(program: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        child = launch(program, *arguments, **options)
        out, err = child.communicate(timeout=120)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)

    return complete


def wait_ready(child: subprocess.Popen[str]) -> None:
    """Until the program has called `ready()`."""
    assert child.stdout is not None
    line = child.stdout.readline()
    if line.strip() != "ready":
        child.kill()
        _, err = child.communicate()
        raise AssertionError(f"the program said {line!r}\n{err}")


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def steps_of(book: Path, name: str = "value") -> list[int]:
    """The steps of a metric over all runs, in order."""
    return [step for (step,) in rollbook.open(book).sql("select step from metrics where name = ? order by step", [name]).fetchall()]


def statuses(book: Path) -> list[str]:
    return [status for (status,) in rollbook.open(book).sql("select status from runs order by run_id").fetchall()]


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
