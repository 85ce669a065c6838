"""One line of figures for each metric of a run: the `summaries` view.

Figures are over finite values; `nonfinite` counts the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rollbook.book.metric_log import Series

COLUMNS = ("name", "count", "nonfinite", "first", "last", "min", "max", "mean", "auc", "final", "diverged")
FINAL_SHARE = 0.1


def last_step(series: Mapping[str, Series]) -> int | None:
    """The largest step of any metric."""
    return max((int(one.steps[-1]) for one in series.values() if len(one.steps)), default=None)


def summarise(series: Mapping[str, Series]) -> list[list[Any]]:
    """A row of COLUMNS for each metric, by name."""
    end = last_step(series)
    if end is None:
        return []
    return [[name, *_figures(series[name], end)] for name in sorted(series) if len(series[name].steps)]


def to_text(summaries: list[list[Any]]) -> str:
    """JSON, an array for each of COLUMNS: the form that DuckDB takes in one piece."""
    columns = zip(*summaries, strict=True) if summaries else [()] * len(COLUMNS)
    return json.dumps(dict(zip(COLUMNS, columns, strict=True)))


def _figures(one: Series, end: int) -> list[Any]:
    import numpy as np

    finite = np.isfinite(one.values)
    steps, values = one.steps, one.values
    nonfinite = int(len(finite) - np.count_nonzero(finite))
    if nonfinite:
        steps, values = steps[finite], values[finite]
    if not len(values):
        return [len(one.values), nonfinite, *[None] * 7, True]
    with np.errstate(over="ignore", invalid="ignore"):
        figures = [
            float(values[0]),
            float(values[-1]),
            float(values.min()),
            float(values.max()),
            float(values.mean()),
            _average_over_steps(steps, values, end),
            _mean_of_the_end(steps, values, end),
        ]
    finite_figures = [figure if figure is not None and math.isfinite(figure) else None for figure in figures]
    return [len(one.values), nonfinite, *finite_figures, bool(nonfinite) and _diverged(one.values, finite)]


def _average_over_steps(steps: NDArray[np.int64], values: NDArray[np.float64], end: int) -> float:
    """Each value holds until the next one, the last until the run's last step."""
    import numpy as np

    held = np.diff(steps, append=end).astype(np.float64)
    total = held.sum()
    # No `values @ held`: BLAS would wake threads, whose start costs more than the sum.
    return float(values.mean()) if total <= 0 else float((values * held).sum() / total)


def _mean_of_the_end(steps: NDArray[np.int64], values: NDArray[np.float64], end: int) -> float | None:
    recent = values[steps >= end - abs(end) * FINAL_SHARE]
    return float(recent.mean()) if len(recent) else None


def _diverged(values: NDArray[np.float64], finite: NDArray[np.bool_]) -> bool:
    """An infinity anywhere, or a NaN after the first number (before it, NaN means: nothing to report yet)."""
    import numpy as np

    first = int(np.argmax(finite))
    return bool(np.isinf(values).any() or not finite[first:].all())
