"""What tests ask of the processes that they start, and of the book that these leave."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import rollbook

Launch = Callable[..., subprocess.Popen[str]]
Complete = Callable[..., subprocess.CompletedProcess[str]]

PRELUDE = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where a shell runs the tests in the background
import rollbook
def start(task="task", **options):
    return rollbook.start(task, book=os.environ["BOOK"], save_code=False, **options)
def ready():
    print("ready", flush=True)
"""


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
    return [
        step
        for (step,) in rollbook.open(book)
        .sql("select step from metrics where name = ? order by step", [name])
        .fetchall()
    ]


def statuses(book: Path) -> list[str]:
    return [status for (status,) in rollbook.open(book).sql("select status from runs order by run_id").fetchall()]


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
