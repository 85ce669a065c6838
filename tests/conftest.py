"""A book of its own for each test, and the command line in this process or in a real one."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gated_project import git
from hypothesis import settings

from rollbook.cli import main

# Programs that run for a second need not be fast: with little optimisation, they are ready in a third of the time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

# Never a verdict on wall time: a busy machine is no bug.
settings.register_profile("rollbook", deadline=None)
settings.load_profile("rollbook")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test that is skipped proves nothing: in CI, what it needs has to be there."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome, report.longrepr = "failed", f"skipped in CI: {report.longrepr}"
    return report


PROJECT = Path(__file__).parent.parent
_LONG = ("bench", "faults", "training", "algos", "cli/test_gate_adaptive.py", "cli/test_launching.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of long tests first in each half of the list: each of two workers begins with a half, and at the end, when
    they share what is left, there are only short ones.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    tests = Path(__file__).parent
    in_order = sorted(files, key=lambda file: (not str(file.relative_to(tests)).startswith(_LONG), file))
    items[:] = [item for file in in_order[::2] + in_order[1::2] for item in files[file]]


@dataclass(frozen=True)
class Answer:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Answer]


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a book that the environment names; the working folder is the one around it."""
    for name in [name for name in os.environ if name.startswith("ROLLBOOK_")]:
        monkeypatch.delenv(name)
    path = tmp_path / "book"
    monkeypatch.setenv("ROLLBOOK_BOOK", str(path))
    monkeypatch.setenv("ROLLBOOK_QUIET", "1")
    monkeypatch.chdir(tmp_path)
    return path


@pytest.fixture
def git_project(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty git repository, which is the working folder; see gated_project.py."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "--quiet")
    return folder


@pytest.fixture
def cli(book: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`rollbook ARGUMENT...` in this process."""

    def call(*arguments: object, stdin: str = "") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Answer(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture
def process(book: Path) -> Cli:
    """`rollbook ARGUMENT...` as a program of its own."""

    def call(*arguments: object, stdin: str = "", **environment: str) -> Answer:
        done = subprocess.run(
            [sys.executable, "-m", "rollbook", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **environment},
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def program(book: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a Python program to its end, with the test's book and working folder."""

    def run(text: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", text, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **environment},
        )

    return run
