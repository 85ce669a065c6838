"""Statistics of a tree of arrays, for `run.watch`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rollbook.errors import InvalidMetric

QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


def statistics(name: str, tree: Any) -> dict[str, float]:
    """`<name>/min`, `max`, `mean`, `std`, quantiles and `norm` over the finite values, and the share of the others."""
    import numpy as np

    from rollbook.book.trees import arrays_of

    if hasattr(tree, "state_dict"):  # a module of torch
        tree = tree.state_dict()
    if isinstance(tree, Iterator):
        tree = list(tree)
    parts = [np.asarray(array).ravel() for array in arrays_of(tree)]
    if not parts and tree not in ({}, [], ()):
        raise InvalidMetric(
            f"run.watch({name!r}, ...) found no array in a {type(tree).__name__}",
            "it takes an array, a state_dict, or a tree of arrays; run.log takes numbers",
        )
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
