"""Scores of runs, by task.

An array (runs, tasks), or `{task: scores}` where tasks have unequal numbers of runs. The unit is a run, never an
episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollbook.errors import InvalidScores

FloatArray: TypeAlias = NDArray[np.float64]
Scores: TypeAlias = ArrayLike | Mapping[str, ArrayLike]


def columns_of(scores: Scores) -> list[FloatArray]:
    """One array (runs,) for each task; finite numbers, at least one of each."""
    if isinstance(scores, Mapping):
        columns = [_numbers(values, task) for task, values in scores.items()]
    else:
        table = _numbers(scores, "scores")
        if table.ndim != 2:
            raise InvalidScores(
                f"scores have {table.ndim} dimensions", "an array (runs, tasks), or {task: scores} for unequal runs"
            )
        columns = list(table.T)
    for column in columns:
        if column.ndim != 1 or not column.size:
            raise InvalidScores(f"a task has scores of shape {column.shape}", "one number for each of its runs")
    if not columns:
        raise InvalidScores("there is no task", "an array (runs, tasks) with at least one of each")
    return columns


def same_tasks(first: Scores, second: Scores) -> list[tuple[FloatArray, FloatArray]]:
    """The columns of two groups of runs, task by task."""
    if isinstance(first, Mapping) and isinstance(second, Mapping) and first.keys() != second.keys():
        lacking = sorted(first.keys() ^ second.keys())
        raise InvalidScores(f"only one of the two groups has the task {lacking[0]!r}", "compare the tasks of both")
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        second = {task: second[task] for task in first}
    pairs = columns_of(first), columns_of(second)
    if len(pairs[0]) != len(pairs[1]):
        raise InvalidScores(f"{len(pairs[0])} tasks against {len(pairs[1])}", "compare the tasks of both")
    return list(zip(*pairs, strict=True))


def _numbers(values: Any, name: str) -> FloatArray:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidScores(f"{name} are not numbers", "unequal numbers of runs are given as {task: scores}") from None
    if not np.isfinite(numbers).all():
        raise InvalidScores(f"{name} hold NaN or infinity", "a run without a score has failed: leave it out knowingly")
    return numbers
