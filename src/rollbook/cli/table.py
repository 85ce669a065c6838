"""Tables in a terminal, a file or a pipe. By hand, since importing rich takes longer than most questions to a book."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from rollbook.cli.output import cell, printable

_GAP = "  "
_NARROWEST = 6
_NEVER_CUT = ("run", "runs", "run_id")
_COLOURS = {"running": 36, "finished": 32, "failed": 31, "interrupted": 33, "lost": 35}


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Iterable[str] = ()) -> None:
    """As wide as it needs to be in a file or pipe; cut to the window, with colours, in a terminal."""
    terminal = sys.stdout.isatty()
    table = [[printable(column) for column in columns], *([cell(value) for value in row] for row in rows)]
    widths = [max(map(width, texts)) for texts in zip(*table, strict=True)]
    if terminal:
        widths = _fit(columns, widths, shutil.get_terminal_size().columns)
    to_the_right = {place for place, column in enumerate(columns) if column in set(right)}
    for number, texts in enumerate(table):
        parts = [
            _pad(_cut(text, widths[place]), widths[place], place in to_the_right) for place, text in enumerate(texts)
        ]
        if terminal:
            parts = [_paint(part, bold=number == 0) for part in parts]
        print(_GAP.join(parts).rstrip())
        if terminal and number == 0:
            print("─" * (sum(widths) + len(_GAP) * (len(widths) - 1)))


def width(text: str) -> int:
    """Cells that a text takes in a terminal: two for an East Asian character or an emoji, none for an accent."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _fit(columns: Sequence[str], widths: list[int], window: int) -> list[int]:
    """The widest columns give way until the table fits; an id that is cut would be of no use."""
    widths = list(widths)
    flexible = [place for place, column in enumerate(columns) if column not in _NEVER_CUT]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - window
    while excess > 0 and flexible:
        widest = max(flexible, key=lambda place: widths[place])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _cut(text: str, limit: int) -> str:
    if width(text) <= limit:
        return text
    while width(text) > limit - 1:
        text = text[:-1]
    return text + "…"


def _pad(text: str, limit: int, right: bool) -> str:
    space = " " * (limit - width(text))
    return space + text if right else text + space


def _paint(text: str, *, bold: bool) -> str:
    if bold:
        return f"\x1b[1m{text}\x1b[0m"
    colour = _COLOURS.get(text.strip())
    return f"\x1b[{colour}m{text}\x1b[0m" if colour else text
