"""Statistics of a tree of arrays, for `run.watch`."""

from __future__ import annotations

import math
from typing import Any

QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


def statistics(name: str, tree: Any) -> dict[str, float]:
    """`<name>/min`, `max`, `mean`, `std`, quantiles and `norm` over the finite values, and the share of the others."""
    import numpy as np

    from rollbook.book.trees import arrays_of

    parts = [np.asarray(array).ravel() for array in arrays_of(tree)]
    numbers = [part for part in parts if part.dtype.kind in "fiub"]
    flat = np.concatenate(numbers).astype(np.float64) if numbers else np.empty(0)
    finite = flat[np.isfinite(flat)]
    share = 1 - len(finite) / len(flat) if len(flat) else math.nan
    if not len(finite):
        return {f"{name}/nonfinite": share}
    figures = {
        "min": finite.min(),
        "max": finite.max(),
        "mean": finite.mean(),
        "std": finite.std(),
        **dict(zip(QUANTILES, np.quantile(finite, list(QUANTILES.values())), strict=True)),
        "norm": np.linalg.norm(finite),
        "nonfinite": share,
    }
    return {f"{name}/{figure}": float(value) for figure, value in figures.items()}
