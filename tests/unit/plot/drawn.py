"""Pictures as the tests of drawing need them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rollbook.plot.curves import Curve, Folded, fold
from rollbook.plot.picture import Group, Panel, Picture, Reference
from rollbook.plot.style import look


def learned(end: float, *, seeds: int = 3, last: float = 1e6, rng_seed: int = 0, points: int = 200) -> Folded:
    """Runs that rise to about `end`."""
    rng = np.random.default_rng(rng_seed)
    x = np.linspace(0, last, 300)
    rise = 1 - np.exp(-4 * x / last)
    runs = [
        Curve(str(seed), x, end * rise * rng.normal(1, 0.08) + rng.normal(0, 0.03 * abs(end) + 1, 300))
        for seed in range(seeds)
    ]
    return fold(runs, smooth=0.05, points=points)


def group(number: int, folded: Folded, label: str | None = None) -> Group:
    return Group(label or f"algo-{number}", folded, *look(number))


def picture(
    ends: Sequence[float] = (1000.0,), titles: Sequence[str] = ("Hopper-v5",), references: Sequence[Reference] = ()
) -> Picture:
    panels = [
        Panel(
            title,
            [group(number, learned(end, rng_seed=10 * place + number)) for number, end in enumerate(ends)],
            references,
        )
        for place, title in enumerate(titles)
    ]
    return Picture(panels=panels, metric="eval/return", note="Mean of 3 runs; 95% t interval.")
