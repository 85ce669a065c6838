"""What a picture is made of, however it is drawn: panels of groups of runs, with reference lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rollbook.plot.curves import Folded, Over

LineStyle: TypeAlias = Literal["-"] | tuple[float, tuple[float, ...]]  # as matplotlib takes it


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that are folded into one line."""

    label: str
    folded: Folded
    colour: str
    style: LineStyle = "-"


@dataclass(frozen=True)
class Reference:
    """A score to compare with: a dashed line across the panel."""

    label: str
    value: float
    colour: str


@dataclass(frozen=True)
class Panel:
    title: str
    groups: Sequence[Group]
    references: Sequence[Reference] = ()


@dataclass(frozen=True, kw_only=True)
class Picture:
    panels: Sequence[Panel]
    metric: str
    over: Over = "steps"
    title: str | None = None
    note: str | None = None
    """What the lines and bands are, in small print."""
    groups: Sequence[Group] = field(init=False)
    """One of each label, as a legend lists them."""

    def __post_init__(self) -> None:
        groups = {group.label: group for panel in self.panels for group in reversed(panel.groups)}
        order = list(dict.fromkeys(group.label for panel in self.panels for group in panel.groups))
        object.__setattr__(self, "groups", [groups[label] for label in order])
