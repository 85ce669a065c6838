"""Programs that run on several devices at once, a core each, of which every one learns from a share of each batch."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")
SHARES = "shares"  # the axis of these devices


def count_shares() -> int:
    """How many there are in the program that is being traced; 1 where batches are whole."""
    try:
        return int(jax.lax.axis_size(SHARES))
    except NameError:
        return 1


def mean_over_shares(x: T) -> T:
    """One sum for all arrays of a tree: each has its price."""
    if count_shares() == 1:
        return x
    leaves, tree = jax.tree.flatten(x)
    # As rows put side by side: vectors XLA would put together in the loop that also sums up biases, element by element,
    # which took milliseconds. Rows it copies as they are, in microseconds.
    row = jnp.concatenate([leaf.reshape(1, -1) for leaf in leaves], axis=1)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1].tolist()
    means = jnp.split(jax.lax.pmean(row, SHARES)[0], ends)  # type: ignore[no-untyped-call]
    mean: T = jax.tree.unflatten(tree, [one.reshape(leaf.shape) for one, leaf in zip(means, leaves, strict=True)])
    return mean
