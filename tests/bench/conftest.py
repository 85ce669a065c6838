from __future__ import annotations

from pathlib import Path

import pytest
from bench_traces import TRACED


@pytest.fixture
def project(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the traced program, which is the working folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "traced.py").write_text(TRACED)
    monkeypatch.chdir(folder)
    return folder
