"""Looking several times at growing numbers of runs without raising more false alarms than promised.

Alpha is spent look by look (Lan and DeMets 1983, the Pocock-type function); the level of each look follows from the
joint distribution of the estimates at all looks, by recursive numerical integration (Armitage, McPherson and Rowe
1969).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from rollbook.stats.scores import FloatArray

LOOKS = (3, 5, 8, 12, 20)  # runs of the candidate
_GRID = 801  # points of the density at each look
_WIDTH = 8.0  # standard deviations that the grid reaches to


def spent(share: float, alpha: float) -> float:
    """Of alpha, when this share of the most runs has been looked at."""
    return alpha * math.log(1 + (math.e - 1) * share)


@functools.cache
def nominal_levels(alpha: float = 0.05, looks: tuple[int, ...] = LOOKS) -> tuple[float, ...]:
    """One-sided level of each look: the chance of a false alarm by the k-th look is then what is spent by it.

    For sums of independent runs, which is on the safe side where the same baseline is compared with at every look.
    """
    from scipy.special import ndtr

    levels: list[float] = []
    grid, density = np.zeros(1), np.ones(1)  # of the sum so far, where no limit has been crossed
    before = 0
    for runs in looks:
        goal = spent(runs / looks[-1], alpha) - spent(before / looks[-1], alpha)
        spread, deviation = math.sqrt(runs - before), math.sqrt(runs)
        crossing = functools.partial(_crossing, grid, density, spread)
        limit = _solve(crossing, goal, 0.0, _WIDTH * deviation)
        levels.append(float(ndtr(-limit / deviation)))
        grid, density = _step(grid, density, spread, -_WIDTH * deviation, limit)
        before = runs
    return tuple(levels)


def _crossing(grid: FloatArray, density: FloatArray, spread: float, limit: float) -> float:
    """The chance to be above the limit now, and below all limits before."""
    from scipy.special import ndtr

    return float((density * ndtr((grid - limit) / spread)).sum())


def _step(
    grid: FloatArray, density: FloatArray, spread: float, low: float, limit: float
) -> tuple[FloatArray, FloatArray]:
    """The density of what stays below the limit, as weights on a new grid."""
    new = np.linspace(low, limit, _GRID)
    kernel = np.exp(-0.5 * np.square((new[:, None] - grid[None, :]) / spread)) / (spread * math.sqrt(2 * math.pi))
    weights = np.full(_GRID, new[1] - new[0])
    weights[[0, -1]] /= 2
    return new, (kernel @ density) * weights


def _solve(decreasing: Callable[[float], float], goal: float, low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if decreasing(middle) > goal else (low, middle)
    return (low + high) / 2
