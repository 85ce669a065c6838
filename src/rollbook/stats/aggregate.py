"""One number for many runs of many tasks, as Agarwal et al. 2021 ("Deep reinforcement learning at the edge of the
statistical precipice") recommend them.

The scores have to be on a common scale across tasks. Each is over the last axis of arrays with any axes before it, so
that ten thousand resamples are one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rollbook.stats.scores import FloatArray, Scores, columns_of, same_tasks

_TRIMMED = 0.25  # at each end


def iqm(scores: Scores) -> float:
    """Interquartile mean: the middle half of all runs of all tasks; whole runs are cut off, as by scipy's trim_mean."""
    return float(batch_iqm(columns_of(scores)))


def mean(scores: Scores) -> float:
    """Over tasks, of their means over runs."""
    return float(batch_mean(columns_of(scores)))


def median(scores: Scores) -> float:
    """Over tasks, of their means over runs."""
    return float(batch_median(columns_of(scores)))


def optimality_gap(scores: Scores, target: float = 1.0) -> float:
    """How far runs stay below the target on average; what is above counts as the target. Small is good."""
    return float(batch_optimality_gap(columns_of(scores), target))


def probability_of_improvement(candidate: Scores, baseline: Scores) -> float:
    """That a run of the candidate beats one of the baseline on a task, ties half; the mean over tasks."""
    return float(np.mean([_beats(ours, theirs) for ours, theirs in same_tasks(candidate, baseline)]))


def _beats(ours: FloatArray, theirs: FloatArray) -> float:
    """Mann and Whitney's U over its largest value, by sorting: exact with ties, and no table of all pairs."""
    ordered = np.sort(theirs)
    below = np.searchsorted(ordered, ours, side="left")
    not_above = np.searchsorted(ordered, ours, side="right")
    return float((below + not_above).sum() / (2 * len(ours) * len(theirs)))


# ---- over the last axis of each column, whatever axes come before it


def batch_iqm(columns: Sequence[FloatArray]) -> FloatArray:
    everything = np.concatenate(columns, axis=-1)
    count = everything.shape[-1]
    cut = trimmed(count)
    if cut == 0:
        return np.asarray(everything.mean(axis=-1))
    middle = np.partition(everything, (cut, count - cut - 1), axis=-1)[..., cut : count - cut]
    return np.asarray(middle.mean(axis=-1))


def trimmed(count: int) -> int:
    """How many of so many runs the interquartile mean leaves out at each end."""
    return int(_TRIMMED * count)


def batch_mean(columns: Sequence[FloatArray]) -> FloatArray:
    return np.asarray(_task_means(columns).mean(axis=-1))


def batch_median(columns: Sequence[FloatArray]) -> FloatArray:
    return np.asarray(np.median(_task_means(columns), axis=-1))


def batch_optimality_gap(columns: Sequence[FloatArray], target: float = 1.0) -> FloatArray:
    return np.asarray(target - _task_means([np.minimum(column, target) for column in columns]).mean(axis=-1))


def _task_means(columns: Sequence[FloatArray]) -> Any:
    return np.stack([column.mean(axis=-1) for column in columns], axis=-1)
