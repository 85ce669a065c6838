"""Labels beside lines: near where they belong, and never over each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rollbook.plot.curves import FloatArray


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> FloatArray:
    """Places at least `gap` apart, in the order of the wanted ones and as near to them as least squares can.

    They lie between `low` and `high`; where these leave too little room, as far beyond both as is needed.
    """
    places = np.asarray(wanted, np.float64)
    order = np.argsort(places, kind="stable")
    room = gap * np.arange(len(places))
    # Without the gaps, the places have to grow only: isotonic regression. Limits then cut off both ends.
    lowest, highest = low, high - gap * (len(places) - 1)
    if highest < lowest:
        lowest = highest = (lowest + highest) / 2
    found = np.empty_like(places)
    found[order] = np.clip(_growing(places[order] - room), lowest, highest) + room
    return found


def _growing(values: FloatArray) -> FloatArray:
    """The nearest values that never fall, by pooling adjacent violators."""
    blocks: list[tuple[float, int]] = []  # mean, count
    for value in values:
        mean, count = float(value), 1
        while blocks and blocks[-1][0] >= mean:
            other, more = blocks.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        blocks.append((mean, count))
    return np.concatenate([np.empty(0), *(np.full(count, mean) for mean, count in blocks)])
