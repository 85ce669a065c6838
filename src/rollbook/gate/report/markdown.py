"""The verdict as Markdown, short enough for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rollbook.gate.text import COLUMNS, advice, cell_rows, runs_of

_MARKS = {"regression": "❌", "invalid": "⚠️", "inconclusive": "❔"}
_MOST_ROWS = 60
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


def to_markdown(plain: Mapping[str, Any]) -> str:
    rows = cell_rows(plain)
    hidden = len(rows) - _MOST_ROWS
    lines = [
        f"### {_MARKS.get(plain['outcome'], '✅')} {_escaped(plain['sentence'])}",
        "",
        _line(COLUMNS),
        _line(["---", *["---:"] * (len(COLUMNS) - 2), "---"]),
        *(_line(map(_escaped, row)) for row in rows[:_MOST_ROWS]),
    ]
    if hidden > 0:
        lines.append(f"\nand {hidden} more rows in the report")
    if notes := list(advice(plain)):
        lines += ["", *(f"- {_escaped(note)}" for note in notes[:_MOST_ROWS])]
    lines += ["", _escaped(_footer(plain)), ""]
    return "\n".join(lines)


def _footer(plain: Mapping[str, Any]) -> str:
    sides = [f"{who} {plain[who]['name']}: {runs_of(plain[who])}" for who in ("candidate", "baseline")]
    return f"{'; '.join(sides)}. Margin {plain['margin']} ({plain['margin_from']}), alpha {plain['alpha']:g}."


def _line(parts: Any) -> str:
    return f"| {' | '.join(parts)} |"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text.replace("\n", " ").replace("\r", " "))
