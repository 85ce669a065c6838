"""Round numbers for axes, and how they are written: 200k steps, 15 min, 2,500."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["number", "steps", "time"]

_ROUND = (1, 2, 2.5, 5, 10)
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_NEARLY = 0.02
_NEAR_ZERO = 0.15
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def round_ticks(low: float, high: float, most: int, kind: Kind = "number") -> list[float]:
    """As many round numbers from `low` to `high` as there may be."""
    if not low < high:
        return [low]
    distance = _distance((high - low) / (most + 1), kind)
    while True:
        first, last = math.ceil(low / distance - 1e-9), math.floor(high / distance + 1e-9)
        if last - first < most:
            return [number * distance for number in range(first, last + 1)]
        distance = _distance(distance * 1.001, kind)


def round_range(low: float, high: float, kind: Kind = "number") -> tuple[float, float]:
    """From 0 if `low` is near it, to the next round number if `high` is: 998,912 steps were meant to be a million."""
    if 0 < low < _NEAR_ZERO * high:
        low = 0.0
    if not low < high:
        return low, low + 1
    distance = _distance((high - low) / 6, kind)
    above = math.ceil(high / distance) * distance
    return low, above if above - high < _NEARLY * (high - low) else high


def _distance(least: float, kind: Kind) -> float:
    if kind == "time" and 1 <= least <= _SECONDS[-1]:
        return next(seconds for seconds in _SECONDS if seconds >= least)
    if kind == "time" and least > _SECONDS[-1]:
        return _SECONDS[-1] * _distance(least / _SECONDS[-1], "number")
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in _ROUND if factor * power >= least * (1 - 1e-9))


def tick_labels(ticks: Sequence[float], kind: Kind = "number") -> list[str]:
    """All in one unit, that of the largest."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if kind == "time":
        size, unit = _unit_of_time(largest)
        return ["0" if not tick else f"{_plain(tick / size)} {unit}" for tick in ticks]
    size, unit = _unit_of_number(largest, 1e3 if kind == "steps" else 1e4)
    return ["0" if not tick else f"{_plain(tick / size)}{unit}" for tick in ticks]


def steps_text(steps: float) -> str:
    """1M, 250k, 1.23M."""
    size, unit = _unit_of_number(abs(steps), 1e3)
    return f"{_plain(float(f'{steps / size:.3g}'))}{unit}"


def time_text(seconds: float) -> str:
    """45 s, 12 min, 3.5 h."""
    size, unit = _unit_of_time(seconds)
    return f"{_plain(float(f'{seconds / size:.3g}'))} {unit}"


def value_text(value: float) -> str:
    """2,310, 0.0314, 1.2M: three or four digits."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) < 1e6:
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if abs(value) < 1e9:
        return f"{value / 1e6:.3g}M"
    return f"{value:.3g}"


def spread_text(value: float, half: float) -> str:
    """2,310 ± 43: both to the same digit."""
    if 100 <= abs(value) < 1e6:
        return f"{value:,.0f} ± {half:,.0f}"
    return f"{value_text(value)} ± {value_text(half)}"


def _unit_of_number(largest: float, thousands_from: float) -> tuple[float, str]:
    if not 1e15 > largest >= thousands_from:
        return 1.0, ""
    return (1e9, "G") if largest >= 1e9 else (1e6, "M") if largest >= 1e6 else (1e3, "k")


def _unit_of_time(largest: float) -> tuple[float, str]:
    """The largest unit that there are two of, so that 90 minutes are not 1.5 hours."""
    return next(((size, unit) for size, unit in _UNITS if largest >= 2 * size), _UNITS[-1])


def _plain(value: float) -> str:
    text = f"{value:,.6g}"
    return text[:-2] if text.endswith(".0") else text
