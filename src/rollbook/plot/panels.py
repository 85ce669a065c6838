"""Pictures of curves, by matplotlib's figures alone: no pyplot, no display, nothing global."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedFormatter, FixedLocator

from rollbook.plot.curves import FloatArray, Folded, Over
from rollbook.plot.labels import spread
from rollbook.plot.layout import LABEL_PAD, LEGEND_LINE, MARGIN, MOST_WITH_LABELS, Layout
from rollbook.plot.picture import Group, LineStyle, Panel, Picture, Reference
from rollbook.plot.scales import round_range, round_ticks, tick_labels
from rollbook.plot.style import INK, MUTED, shown, use_style

__all__ = ["Group", "Panel", "Picture", "Reference", "draw_curves", "draw_picture", "grid_of_panels"]

_LONGEST_LABEL = 40  # characters
_MANY = 4  # groups: bands and runs of more are paler
_DASHED: LineStyle = (0.0, (4.0, 3.0))
_X_NAMES: dict[Over, str] = {"steps": "environment steps", "time": "wall time"}


def draw_picture(picture: Picture, *, seeds: bool = True) -> Figure:
    """All panels, with labels at the lines, or a legend above where there are too many panels for them."""
    direct = len(picture.panels) <= MOST_WITH_LABELS
    labelled: list[list[Group | Reference]] = [
        [*(panel.groups if direct else ()), *panel.references] for panel in picture.panels
    ]
    figure, axes = grid_of_panels(
        [panel.title for panel in picture.panels],
        x_name=_X_NAMES[picture.over],
        y_name=picture.metric,
        labels=[item.label for items in labelled for item in items],
        lines=max(map(len, labelled)),
        title=picture.title,
        note=picture.note,
        legend=() if direct else picture.groups,
    )
    for one, panel in zip(axes, picture.panels, strict=True):
        draw_curves(one, panel.groups, seeds=seeds, references=panel.references, over=picture.over, labels=direct)
    return figure


def grid_of_panels(
    titles: Sequence[str],
    *,
    x_name: str = _X_NAMES["steps"],
    y_name: str = "",
    labels: Sequence[str] = (),
    lines: int = 0,
    title: str | None = None,
    note: str | None = None,
    legend: Sequence[Group] = (),
) -> tuple[Figure, list[Axes]]:
    """An axis for each title, in rows. Beside each is room for any of `labels`, in its height for `lines` of them."""
    with use_style():
        layout = Layout(
            len(titles),
            _measure,
            labels=[_short(label) for label in labels],
            lines=lines,
            title=title,
            note=note,
            legend=[_short(group.label) for group in legend],
        )
        figure = Figure(figsize=(layout.width, layout.height))
        axes = [_add_axes(figure, layout, number, text) for number, text in enumerate(titles)]
        text, sizes = _Writer(figure, layout), layout.sizes
        text.write(*layout.name_of_x(), x_name, sizes.text, MUTED, ha="center", va="center")
        text.write(*layout.name_of_y(), shown(y_name), sizes.text, MUTED, ha="center", va="center", rotation=90)
        if title:
            text.write(layout.left, layout.title_top, shown(title), sizes.text + 2, INK, va="top", fontweight="bold")
        for number, line in enumerate(reversed(layout.notes)):
            text.write(layout.left, MARGIN + number * layout.note_line, shown(line), layout.small, MUTED, va="bottom")
        for number, group in enumerate(legend):
            row, column = divmod(number, layout.legend_columns)
            x, y = layout.left + column * layout.legend_width, layout.legend_top - (row + 0.5) * layout.legend_line
            text.line(x, y, LEGEND_LINE, group)
            text.write(x + LEGEND_LINE + 0.08, y, _short(group.label), sizes.text, INK, va="center_baseline")
    return figure, axes


def draw_curves(
    axes: Axes,
    groups: Sequence[Group],
    *,
    seeds: bool = True,
    references: Sequence[Reference] = (),
    over: Over = "steps",
    labels: bool = True,
) -> None:
    """A line and its interval for each group, thin lines for its runs, and a label at the right end of each.

    The axis has to be where it will stay, since labels are placed by its height in inches.
    """
    with use_style():
        _set_limits(axes, groups, references, over)
        for reference in references:
            axes.axhline(reference.value, color=reference.colour, linewidth=0.9, linestyle=_DASHED, zorder=2)
        for number, group in enumerate(groups):
            _draw_group(axes, group, seeds=seeds, zorder=4 - number / 100, pale=len(groups) > _MANY)
        right = axes.get_xlim()[1]
        _label_ends(
            axes,
            [
                *(_End(one.label, *_end_of(one.folded), one.colour, one.style) for one in groups if labels),
                *(_End(one.label, right, one.value, one.colour, "-", 0.8) for one in references),
            ],
        )


def _draw_group(axes: Axes, group: Group, *, seeds: bool, zorder: float, pale: bool) -> None:
    folded, colour = group.folded, group.colour
    with_center = np.isfinite(folded.center)
    if (seeds and len(folded.each) > 1) or not with_center.any():
        for line in folded.each:
            axes.plot(folded.x, line, color=colour, linewidth=0.6, alpha=0.25 if pale else 0.4, zorder=zorder - 1)
    if np.isfinite(folded.low).any():
        alpha = 0.08 if pale else 0.14
        axes.fill_between(folded.x, folded.low, folded.high, color=colour, alpha=alpha, linewidth=0, zorder=zorder - 2)
    marker = "o" if with_center.sum() == 1 else ""
    axes.plot(
        folded.x, folded.center, color=colour, linestyle=group.style, linewidth=1.6, marker=marker, ms=3, zorder=zorder
    )


def _set_limits(axes: Axes, groups: Sequence[Group], references: Sequence[Reference], over: Over) -> None:
    """By the runs themselves: the t interval of two would flatten everything else."""
    x = np.concatenate([np.empty(0), *(group.folded.x for group in groups)])
    axes.set_xlim(*round_range(float(x.min()), float(x.max()), over) if len(x) else (0.0, 1.0))
    values = np.concatenate([[one.value for one in references], *(group.folded.each.ravel() for group in groups)])
    values = values[np.isfinite(values)]
    bottom, top = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    margin = 0.04 * (top - bottom) or 0.04 * abs(top) or 0.04
    axes.set_ylim(bottom - margin, top + margin)
    width, height = _inches(axes)
    x_ticks = round_ticks(*axes.get_xlim(), most=max(int(width / 0.62), 2), kind=over)
    y_ticks = round_ticks(*axes.get_ylim(), most=max(int(height / 0.36), 2))
    axes.xaxis.set_major_locator(FixedLocator(x_ticks))
    axes.xaxis.set_major_formatter(FixedFormatter(tick_labels(x_ticks, over)))
    axes.yaxis.set_major_locator(FixedLocator(y_ticks))
    axes.yaxis.set_major_formatter(FixedFormatter(tick_labels(y_ticks)))


@dataclass(frozen=True)
class _End:
    """Of a line, in its data: what the label beside it points to."""

    label: str
    x: float
    y: float
    colour: str
    style: LineStyle
    width: float = 1.3


def _end_of(folded: Folded) -> tuple[float, float]:
    """The end of the centre, or of the longest run where the runs have no stretch in common."""
    line = folded.center
    if not np.isfinite(line).any():
        line = folded.each[int(np.argmax([_last(one) for one in folded.each]))]
    return float(folded.x[_last(line)]), float(line[_last(line)])


def _last(line: FloatArray) -> int:
    found = np.flatnonzero(np.isfinite(line))
    return int(found[-1]) if len(found) else 0


def _label_ends(axes: Axes, ends: Sequence[_End]) -> None:
    """Beside the axis, spread over its height; a line of the group's look leads from each curve to its label."""
    if not ends:
        return
    width, height = _inches(axes)
    size = float(axes.title.get_fontsize())
    (x_low, x_high), (y_low, y_high) = axes.get_xlim(), axes.get_ylim()
    wanted = [(end.y - y_low) / (y_high - y_low) for end in ends]
    gap = size * 1.35 / 72 / height
    pad = LABEL_PAD / width
    for end, at, place in zip(ends, wanted, spread(wanted, gap, gap / 2, 1 - gap / 2), strict=True):
        x = (end.x - x_low) / (x_high - x_low)
        look: dict[str, Any] = {"color": end.colour, "transform": axes.transAxes, "clip_on": False, "zorder": 2}
        if x < 0.97:  # a curve that ends early has its label at the right all the same
            axes.add_line(Line2D([x, 1], [at, at], linewidth=0.7, linestyle=":", **look))
        leader = [x if x >= 0.97 else 1, 1 + 0.2 * pad, 1 + 0.85 * pad], [at, at, place]
        axes.add_line(Line2D(*leader, linewidth=end.width, linestyle=end.style, **look))
        axes.text(
            1 + pad, place, _short(end.label), transform=axes.transAxes, fontsize=size, color=INK, va="center_baseline"
        )


def _add_axes(figure: Figure, layout: Layout, number: int, title: str) -> Axes:
    x, y = layout.corner(number)
    width, height = layout.panel_width / layout.width, layout.panel_height / layout.height
    axes = figure.add_axes((x / layout.width, y / layout.height, width, height))
    size = layout.sizes.text
    axes.set_title(shown(title), loc="left", fontsize=size, color=INK, pad=0.35 * size)
    axes.title.set_fontsize(size)
    axes.tick_params(labelsize=0.88 * size, pad=2)
    return axes


class _Writer:
    """Puts texts and lines onto a figure by inches from its lower left corner."""

    def __init__(self, figure: Figure, layout: Layout) -> None:
        self._figure, self._layout = figure, layout

    def write(self, x: float, y: float, text: str, size: float, colour: str, **more: Any) -> None:
        self._figure.text(
            x / self._layout.width,
            y / self._layout.height,
            text,
            fontsize=size,
            color=colour,
            **more,
        )

    def line(self, x: float, y: float, length: float, group: Group) -> None:
        ends = [x / self._layout.width, (x + length) / self._layout.width]
        height = [y / self._layout.height] * 2
        self._figure.add_artist(Line2D(ends, height, color=group.colour, linestyle=group.style, linewidth=1.8))


def _inches(axes: Axes) -> tuple[float, float]:
    """Width and height of an axis."""
    figure = axes.figure
    return axes.bbox.width / figure.dpi, axes.bbox.height / figure.dpi


def _measure(text: str, size: float) -> float:
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width) / 72


def _short(label: str) -> str:
    label = shown(label)
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"
