"""Whole distributions instead of one number: performance profiles, and how scores grow with steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from rollbook.errors import InvalidScores
from rollbook.stats.aggregate import batch_iqm
from rollbook.stats.scores import FloatArray, Scores, columns_of


def performance_profile(scores: Scores, thresholds: ArrayLike) -> FloatArray:
    """For each threshold, the share of runs above it; the mean over tasks."""
    limits = np.asarray(thresholds, np.float64)
    shares = [_share_above(column, limits) for column in columns_of(scores)]
    return np.asarray(np.mean(shares, axis=0))


def _share_above(column: FloatArray, limits: FloatArray) -> FloatArray:
    not_above = np.searchsorted(np.sort(column), limits, side="right")
    return np.asarray(1 - not_above / len(column))


def sample_efficiency(
    curves: Mapping[str, ArrayLike],
    statistic: Callable[[Sequence[FloatArray]], FloatArray] = batch_iqm,
) -> FloatArray:
    """An aggregate at every step of a common grid, of curves {task: (runs, steps)}."""
    tables = [np.asarray(curve, np.float64) for curve in curves.values()]
    if not tables or any(table.ndim != 2 or table.shape[1] != tables[0].shape[1] for table in tables):
        raise InvalidScores("curves are arrays (runs, steps) on one grid of steps", "interpolate them onto one grid")
    return np.asarray(statistic([table.T for table in tables]))
