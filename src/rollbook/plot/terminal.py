"""Curves in a terminal: braille dots, with labels at the right end of each line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollbook.plot.curves import FloatArray, Folded, Over
from rollbook.plot.labels import spread
from rollbook.plot.layout import wrapped
from rollbook.plot.picture import Group, Panel, Picture
from rollbook.plot.scales import round_range, round_ticks, spread_text, tick_labels, value_text
from rollbook.plot.style import shown

_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # of a braille cell, from its top left
_BLANK = 0x2800
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_EVERY = 12  # columns between the letters on a line
_NARROWEST = 56  # columns of a panel: below, two do not stand side by side
_LEAST_WIDTH = 40
_GAP = 3
_OVER: dict[Over, str] = {"steps": "steps", "time": "wall time"}


def draw_terminal(
    picture: Picture, *, width: int = 80, height: int = 14, colour: bool = False, measure: Callable[[str], int] = len
) -> str:
    """The picture as lines of text, `width` columns wide. `measure` says how many columns a text takes.

    Without colour, letters on the lines tell them apart.
    """
    width = max(width, _LEAST_WIDTH)
    columns = max(min((width + _GAP) // (_NARROWEST + _GAP), 3, len(picture.panels)), 1)
    each = (width - _GAP * (columns - 1)) // columns
    without_letters = colour or len(picture.groups) == 1
    letters = {one.label: _LETTERS[number % 26] for number, one in enumerate(picture.groups)}
    pen = _Pen(each, height, colour, {} if without_letters else letters, measure)
    panels = [_draw_panel(panel, picture, pen) for panel in picture.panels]
    lines = [pen.bold(picture.title).text] if picture.title else []
    for first in range(0, len(panels), columns):
        lines += [*_side_by_side(panels[first : first + columns], each), ""]
    return "\n".join([*lines, *wrapped(picture.note or "", width, measure)])


def _side_by_side(panels: Sequence[Sequence[_Text]], width: int) -> list[str]:
    tallest = max(map(len, panels))
    filled = [[*panel, *[_Text("", 0)] * (tallest - len(panel))] for panel in panels]
    return [(" " * _GAP).join(text.padded(width) for text in row).rstrip() for row in zip(*filled, strict=True)]


@dataclass(frozen=True)
class _Text:
    """A piece of text and the columns that it takes: escape sequences take none."""

    text: str
    width: int

    def padded(self, width: int) -> str:
        return self.text + " " * (width - self.width)


@dataclass(frozen=True)
class _Pen:
    """What all panels are drawn with."""

    width: int
    height: int
    colour: bool
    letters: Mapping[str, str]
    measure: Callable[[str], int]

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[38;5;{_of_256(colour)}m{text}\x1b[0m" if self.colour and text else text

    def bold(self, text: str) -> _Text:
        text = self.cut(text, self.width)
        return _Text(f"\x1b[1m{text}\x1b[0m" if self.colour else text, self.measure(text))

    def cut(self, text: str, width: int) -> str:
        text = shown(text)
        if self.measure(text) <= width:
            return text
        while text and self.measure(text) > width - 1:
            text = text[:-1]
        return text + "…"


@dataclass(frozen=True)
class _Line:
    name: str
    """With its letter, where lines have letters."""
    letter: str
    colour: str
    parts: list[FloatArray]  # each (points, 2), finite
    dashed: bool = False

    @property
    def end(self) -> float:
        return float(max(self.parts, key=lambda part: part[-1, 0])[-1, 1])


def _draw_panel(panel: Panel, picture: Picture, pen: _Pen) -> list[_Text]:
    lines = _lines_of(panel, pen)
    x_range, y_range = _limits(lines, picture.over)
    height = max(pen.height, len(lines))
    y_ticks = round_ticks(*y_range, most=max(height // 3, 2))
    numbers = tick_labels(y_ticks)
    margin = max(map(len, numbers))
    beside = max(pen.measure(line.name) for line in lines)
    canvas = _Canvas(pen.width - margin - beside - 3, height, x_range, y_range)
    for number, line in reversed(list(enumerate(lines))):
        canvas.draw(line, number)
    for number, line in enumerate(lines):
        canvas.mark(line, start=_EVERY * number // len(lines))
    places = spread([canvas.row(line.end) for line in lines], 1, 0, height - 1)
    named = {int(np.floor(place + 0.5)): line for place, line in zip(places, lines, strict=True)}
    at = dict(zip(map(canvas.row, y_ticks), numbers, strict=True))
    rows = []
    for row in range(height):
        name, colour = (named[row].name, named[row].colour) if row in named else ("", "")
        left = f"{at.get(row, ''):>{margin}} {'┤' if row in at else '│'}"
        text = f"{left}{canvas.text(row, lines, pen)} {pen.paint(name, colour)}"
        rows.append(_Text(text, margin + 3 + canvas.columns + pen.measure(name)))
    title = pen.bold(f"{panel.title}: {picture.metric} over {_OVER[picture.over]}")
    x_ticks = round_ticks(*x_range, most=max(canvas.columns // 12, 2), kind=picture.over)
    return [title, *rows, *_x_axis(canvas, x_ticks, tick_labels(x_ticks, picture.over), margin), *_ends(panel, pen)]


def _lines_of(panel: Panel, pen: _Pen) -> list[_Line]:
    widest = int(0.4 * pen.width)
    lines = []
    for group in panel.groups:
        letter = pen.letters.get(group.label, "")
        name = pen.cut(f"{letter} {group.label}" if letter else group.label, widest)
        lines.append(_Line(name, letter, group.colour, _parts(group.folded)))
    first = min(float(part[0, 0]) for line in lines for part in line.parts)
    last = max(float(part[-1, 0]) for line in lines for part in line.parts)
    for one in panel.references:
        across = np.array([[first, one.value], [last, one.value]])
        lines.append(_Line(pen.cut(one.label, widest), "", one.colour, [across], dashed=True))
    return lines


def _parts(folded: Folded) -> list[FloatArray]:
    """The centre; the runs where they have no stretch in common."""
    lines = [folded.center] if np.isfinite(folded.center).any() else list(folded.each)
    points = [np.column_stack([folded.x, line])[np.isfinite(line)] for line in lines]
    return [some for some in points if len(some)]


def _limits(lines: Sequence[_Line], over: Over) -> tuple[tuple[float, float], tuple[float, float]]:
    every = np.concatenate([part for line in lines for part in line.parts])
    left, bottom = map(float, every.min(axis=0))
    right, top = map(float, every.max(axis=0))
    return round_range(left, right, over), round_range(bottom, top)


class _Canvas:
    """Cells of two by four dots, each of the colour of the line that was drawn there last."""

    def __init__(self, columns: int, rows: int, x_range: tuple[float, float], y_range: tuple[float, float]) -> None:
        self.columns, self._rows = columns, rows
        self._x_range, self._y_range = x_range, y_range
        self._cells = np.zeros((rows, columns), np.int64)
        self._owners = np.zeros((rows, columns), np.int64)
        self._marks: dict[tuple[int, int], str] = {}

    def column(self, x: float) -> int:
        low, high = self._x_range
        return round((x - low) / (high - low) * (2 * self.columns - 1)) // 2

    def row(self, y: float) -> int:
        low, high = self._y_range
        return round((high - y) / (high - low) * (4 * self._rows - 1)) // 4

    def draw(self, line: _Line, owner: int) -> None:
        for part in line.parts:
            x, y = self._dots(part).T
            if line.dashed:
                dashes = np.arange(0, 2 * self.columns)
                x, y = dashes[dashes % 6 < 4], np.full(np.count_nonzero(dashes % 6 < 4), y[0])
            row, column = y // 4, x // 2
            np.bitwise_or.at(self._cells, (row, column), _DOTS[y % 4, x % 2])
            self._owners[row, column] = owner

    def mark(self, line: _Line, start: int) -> None:
        """Its letter now and then."""
        if not line.letter:
            return
        for part in line.parts:
            cells = {int(x) // 2: int(y) // 4 for x, y in self._dots(part)}
            for column in range(start, self.columns, _EVERY):
                if column in cells:
                    self._marks[cells[column], column] = line.letter

    def text(self, row: int, lines: Sequence[_Line], pen: _Pen) -> str:
        pieces = []
        for column in range(self.columns):
            cell = self._marks.get((row, column)) or (
                chr(_BLANK + dots) if (dots := int(self._cells[row, column])) else " "
            )
            pieces.append(pen.paint(cell, lines[int(self._owners[row, column])].colour) if cell != " " else cell)
        return "".join(pieces)

    def _dots(self, part: FloatArray) -> NDArray[np.int64]:
        """(dots, 2) that the straight lines between points cross; whole numbers from the top left."""
        (left, right), (bottom, top) = self._x_range, self._y_range
        x = (part[:, 0] - left) / (right - left) * (2 * self.columns - 1)
        y = (top - part[:, 1]) / (top - bottom) * (4 * self._rows - 1)
        pieces = [np.array([[x[0], y[0]]])]
        for k in range(len(x) - 1):
            count = int(max(abs(x[k + 1] - x[k]), abs(y[k + 1] - y[k]))) + 2
            pieces.append(np.column_stack([np.linspace(x[k], x[k + 1], count), np.linspace(y[k], y[k + 1], count)]))
        return np.asarray(np.rint(np.concatenate(pieces)), np.int64)


def _x_axis(canvas: _Canvas, ticks: Sequence[float], labels: Sequence[str], margin: int) -> list[_Text]:
    rule, text = ["─"] * canvas.columns, ""
    for tick, label in zip(ticks, labels, strict=True):
        column = canvas.column(tick)
        start = min(max(column - len(label) // 2, 0), canvas.columns + 1 - len(label))
        if start > len(text) or not text:
            rule[column] = "┬"
            text = text.ljust(start) + label
    space = " " * (margin + 1)
    return [
        _Text(f"{space}└{''.join(rule)}", margin + 2 + canvas.columns),
        _Text(f"{space} {text}", margin + 2 + len(text)),
    ]


def _ends(panel: Panel, pen: _Pen) -> list[_Text]:
    """Where each group's centre ends, a line for as many as fit."""
    texts = [(pen.cut(f"{group.label} {_last(group)}", pen.width), group.colour) for group in panel.groups]
    lines: list[list[tuple[str, str]]] = []
    for text, colour in texts:
        used = sum(pen.measure(one) + 3 for one, _ in lines[-1]) if lines else 0
        if lines and used + pen.measure(text) <= pen.width:
            lines[-1].append((text, colour))
        else:
            lines.append([(text, colour)])
    return [
        _Text("   ".join(pen.paint(*one) for one in line), sum(pen.measure(one) + 3 for one, _ in line) - 3)
        for line in lines
    ]


def _last(group: Group) -> str:
    folded = group.folded
    runs = f"({len(folded.each)} runs)" if len(folded.each) > 1 else ""
    found = np.flatnonzero(np.isfinite(folded.center))
    if not len(found):
        return f"no stretch in common {runs}"
    last = found[-1]
    center, half = float(folded.center[last]), float(folded.high[last] - folded.low[last]) / 2
    return f"{spread_text(center, half) if math.isfinite(half) else value_text(center)} {runs}".rstrip()


def _of_256(colour: str) -> int:
    """The nearest of the 6x6x6 colours that nearly every terminal knows."""
    red, green, blue = (round(int(colour[place : place + 2], 16) / 255 * 5) for place in (1, 3, 5))
    return 16 + 36 * red + 6 * green + blue
