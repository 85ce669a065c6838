"""Where the parts of a picture go, in inches: labels that must not overlap have to know how tall an axis is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST_WITH_LABELS = 9  # panels; of more, one legend above all tells the lines apart
LABEL_PAD = 0.16  # between an axis and its labels, crossed by the lines that lead to them
MARGIN = 0.12
LEGEND_LINE = 0.3
_LEGEND_GAP = 0.25
_LEAST_WIDTH = 4.0
_LINE_HEIGHT = 1.35 / 72  # of a point of text

Measure = Callable[[str, float], float]  # text and its size in points -> inches


@dataclass(frozen=True)
class Sizes:
    """Of one panel: inches, and points of its text."""

    width: float
    height: float
    text: float

    @property
    def line(self) -> float:
        """Inches that a line of text takes."""
        return self.text * _LINE_HEIGHT


def sizes_for(panels: int) -> Sizes:
    if panels == 1:
        return Sizes(5.6, 3.5, 9.5)
    if panels <= 4:
        return Sizes(3.7, 2.6, 9)
    if panels <= MOST_WITH_LABELS:
        return Sizes(2.9, 2.1, 8.5)
    if panels <= 20:
        return Sizes(2.4, 1.7, 8)
    return Sizes(2.0, 1.35, 7.5)


def columns_for(panels: int) -> int:
    """Somewhat more than rows; of those that are near, the one that leaves the fewest places empty."""
    if panels <= 3:
        return max(panels, 1)
    ideal = min(math.sqrt(1.3 * panels), 7.0)
    near = range(max(round(ideal) - 1, 2), round(ideal) + 2)
    return min(near, key=lambda columns: (-panels % columns, abs(columns - ideal)))


class Layout:
    """Panels in rows, each with room for its numbers, title and labels; around them title, legend, names and a note."""

    def __init__(
        self,
        panels: int,
        measure: Measure,
        *,
        labels: Sequence[str] = (),
        lines: int = 0,
        title: str | None = None,
        note: str | None = None,
        legend: Sequence[str] = (),
    ) -> None:
        """`labels` have to fit beside an axis, and `lines` of them into its height."""
        self.sizes = sizes = sizes_for(panels)
        self.columns = columns_for(panels)
        self.rows = math.ceil(panels / self.columns)
        self.panel_width = sizes.width
        self.panel_height = max(sizes.height, (lines + 1) * sizes.line)
        self._numbers = 4.6 * sizes.text / 72
        self._above, self._below = 1.6 * sizes.line, 1.9 * sizes.line
        widest = max((measure(label, sizes.text) for label in labels), default=0.0)
        beside = LABEL_PAD + widest + 0.08 if labels else 0.2
        self._cell_width = self._numbers + self.panel_width + beside
        self._cell_height = self._above + self.panel_height + self._below
        self.left = MARGIN + 1.4 * sizes.line  # the name of the y axis stands before
        self.width = max(self.left + self.columns * self._cell_width + MARGIN, _LEAST_WIDTH)

        entry = max((measure(label, sizes.text) for label in legend), default=0.0)
        self.legend_width = LEGEND_LINE + 0.08 + entry + _LEGEND_GAP
        self.legend_columns = max(int((self.width - self.left) / self.legend_width), 1)
        legend_room = math.ceil(len(legend) / self.legend_columns) * self.legend_line
        self.small = sizes.text * 0.85
        self.notes = wrapped(note or "", self.width - self.left - MARGIN, lambda text: measure(text, self.small))
        self._bottom = MARGIN + len(self.notes) * self.note_line + 1.3 * sizes.line  # and the name of the x axis
        title_room = 1.6 * sizes.line if title else 0.0
        self.legend_top = self._bottom + self.rows * self._cell_height + legend_room
        self.title_top = self.legend_top + title_room
        self.height = self.title_top + MARGIN

    @property
    def legend_line(self) -> float:
        return 1.25 * self.sizes.line

    @property
    def note_line(self) -> float:
        return self.sizes.line

    def corner(self, panel: int) -> tuple[float, float]:
        """The lower left one of a panel's axis."""
        row, column = divmod(panel, self.columns)
        x = self.left + column * self._cell_width + self._numbers
        return x, self._bottom + (self.rows - 1 - row) * self._cell_height + self._below

    def name_of_x(self) -> tuple[float, float]:
        """Its middle."""
        width = (self.columns - 1) * self._cell_width + self.panel_width
        return self.left + self._numbers + width / 2, self._bottom - 0.15 * self.sizes.line

    def name_of_y(self) -> tuple[float, float]:
        """Its middle."""
        height = (self.rows - 1) * self._cell_height + self.panel_height
        return MARGIN + 0.5 * self.sizes.line, self._bottom + self._below + height / 2


def wrapped(text: str, width: float, measure: Callable[[str], float]) -> list[str]:
    """Lines of whole words, each as wide as fits."""
    lines: list[str] = []
    for word in text.split():
        if lines and measure(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
