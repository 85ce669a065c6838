"""One update on several cores: each learns from a share of every batch, and their gradients are averaged.

XLA's own threads make little of a second core: a product of 256 x 256 x 256 is over before another thread is awake. So
a program runs on one device a core: the same on all of them but for what it learns from and the noise that it draws.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rollbook.algos.parts.networks import Array
from rollbook.algos.parts.shares import SHARES, count_shares
from rollbook.errors import UsageError

_SMALLEST_WORK = 8e6  # steps x numbers of the state: with less, waiting for each other costs more than it saves
_SMALLEST_SHARE = 128  # steps; smaller ones make an update hardly faster (ADR 15)
_ALL = PartitionSpec()  # type: ignore[no-untyped-call]


def ask_for_devices(shares: int | None, cores: int | None, config: Any) -> int:
    """One for each share, or for each core that may be worth it, if JAX has not been used yet; how many there are."""
    count = shares or min(cores or 1, steps_of_a_batch(config) // _SMALLEST_SHARE)
    if count <= 1:
        return 1
    # Refused once it has been used, by a program of the user's own or by an environment.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", count)  # type: ignore[no-untyped-call]
    return min(count, jax.local_device_count()) if jax.default_backend() == "cpu" else 1


def steps_of_a_batch(config: Any) -> int:
    return int(config.batch_size * getattr(config, "sequence_length", 1))


def how_many(devices: int, config: Any, state: Any) -> int:
    """Shares that are worth their while, for such a state of an algorithm."""
    steps, numbers = steps_of_a_batch(config), sum(leaf.size for leaf in jax.tree.leaves(state))
    return max(
        n for n in range(1, devices + 1)
        if n == 1 or (config.batch_size % n == 0 and steps // n >= _SMALLEST_SHARE
                      and steps // n * numbers >= _SMALLEST_WORK)
    )  # fmt: skip


def check_shares(wanted: int, devices: int, batch_size: int) -> None:
    if wanted < 1 or batch_size % wanted:
        raise UsageError(f"shares is {wanted}, and batch_size is {batch_size}", "choose shares of equal size")
    if wanted > devices:
        raise UsageError(
            f"shares is {wanted}, and JAX has {devices} CPU device{'s' if devices > 1 else ''} here",
            "train in a process of its own, by `rollbook train`, or with shares=1",
        )


class Cores:
    """The devices that learn together, and what is the same on all of them."""

    def __init__(self, shares: int) -> None:
        self._mesh = Mesh(np.array(jax.local_devices()[:shares]), (SHARES,))

    def run(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """With arguments and results that are the same on all."""
        each: Callable[..., Any] = jax.shard_map(
            program, mesh=self._mesh, in_specs=_ALL, out_specs=_ALL, check_vma=False
        )
        return each

    def put(self, x: Any) -> Any:
        return jax.device_put(x, NamedSharding(self._mesh, _ALL))


def on_one_device(x: Any) -> Any:
    """Of what is the same on all, or not on any yet."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf, x)


def own_share(x: Any, axis: int) -> Any:
    """Of arrays of whole batches, what this device learns from."""
    if (shares := count_shares()) == 1:
        return x
    place = jax.lax.axis_index(SHARES)

    def part(leaf: Array) -> Array:
        size = leaf.shape[axis] // shares
        return jax.lax.dynamic_slice_in_dim(leaf, place * size, size, axis=axis)

    return jax.tree.map(part, x)


def own_keys(keys: Array) -> Array:
    """Of as many updates, as numbers: devices draw noise of their own."""
    if count_shares() == 1:
        return keys
    place = jax.lax.axis_index(SHARES)
    own = jax.vmap(lambda key: jax.random.fold_in(jax.random.wrap_key_data(key), place))(keys)
    data: Array = jax.random.key_data(own)
    return data


def over_shares(metrics: dict[str, Array]) -> dict[str, Array]:
    """The smallest of minima, the largest of maxima, else means. One sum for all of a kind: each has its price."""
    if count_shares() == 1:
        return metrics
    names = sorted(metrics)
    stacked = jnp.stack([metrics[name] for name in names])
    smallest = jax.lax.pmin(stacked, SHARES)  # type: ignore[no-untyped-call]
    largest = jax.lax.pmax(stacked, SHARES)  # type: ignore[no-untyped-call]
    mean = jax.lax.pmean(stacked, SHARES)  # type: ignore[no-untyped-call]
    kinds = {"_min": smallest, "_max": largest}
    return {name: kinds.get(name[-4:], mean)[number] for number, name in enumerate(names)}
