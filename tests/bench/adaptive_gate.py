"""An adaptive gate that needs several looks and more seeds of the baseline, on any executor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gated_project import COMMAND, commit

import rollbook


def check_adaptive_gate(book: Path, process: Callable[..., Any], project: Path, *executor: object) -> None:
    commit(project, level=100, spread=6)
    assert process("bench", *COMMAND, "--num-seeds", 8, "--tags", "latest").code == 0
    commit(project, level=98.5, spread=6)

    def gate() -> Any:
        answer = process("gate", "--adaptive", *COMMAND, "--against", "latest", "--margin", 5, "--json", *executor)
        assert answer.code in (0, 1, 3), answer.err
        return answer.json

    first = gate()
    runs = rollbook.open(book).runs()
    assert len(first["adaptive"]["looks"]) > 1
    assert first["cells"][0]["baseline_seeds"] == 10
    assert len(runs) == 10 + first["cells"][0]["candidate_seeds"]
    assert {run.status for run in runs} == {"finished"}
    assert gate() == first
    assert len(rollbook.open(book).runs()) == len(runs)
