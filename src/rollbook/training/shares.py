"""One update on several cores: each learns from a share of every batch, and their gradients are averaged.

XLA's own threads make little of a second core: a product of 256 x 256 x 256 is over before another thread is awake. So
a program runs on one device a core. Where environments are functional, all of them do the same but for learning. Else
the program goes through all rounds of an iteration and asks for a batch in each. The thread that called it answers:
environments are stepped where they were made, and an error of theirs is raised there.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from rollbook.algos.parts.networks import Array
from rollbook.algos.parts.schedule import Schedule
from rollbook.algos.parts.shares import SHARES, count_shares
from rollbook.errors import UsageError
from rollbook.training.compiling import compiled

Learn = Callable[[Any, Any, Array], tuple[Any, dict[str, Array]]]  # state, batches, keys -> state, metrics (updates,)
Answer = Callable[[int, Any], Any]  # the number of a round and the actor, in numpy -> batches (updates, batch, ...)

_SMALLEST_WORK = 8e6  # steps x numbers of the state: with less, waiting for each other costs more than it saves
# With 32 steps a share, an update of SAC took 31 ms in place of 0.6, also without any averaging: putting the gradients
# into one array is slow then. XLA fuses the sums of bias gradients into it, which is probably why. From 128 on, none
# of the networks that were tried was slower by more than a fifth (ADR 14).
_SMALLEST_SHARE = 128
ALL = PartitionSpec()  # type: ignore[no-untyped-call]


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

    def run(self, program: Callable[..., Any], results: Any = ALL) -> Callable[..., Any]:
        each: Callable[..., Any] = jax.shard_map(
            program, mesh=self._mesh, in_specs=ALL, out_specs=results, check_vma=False
        )
        return each

    def put(self, x: Any) -> Any:
        return jax.device_put(x, NamedSharding(self._mesh, ALL))


def on_one_device(x: Any) -> Any:
    """Of what is the same on all."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), x)


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


class AskingUpdates:
    """The updates of an iteration, on batches that are asked for one after another."""

    def __init__(self, learn: Learn, schedule: Schedule, shares: int, state: Any, batches: Any) -> None:
        """`state` and `batches` are examples, or their shapes."""
        self._learn, self._schedule = learn, schedule
        self._cores = Cores(shares)
        self._words = _Words(batches)
        self._actor = jax.tree.structure(state.actor)
        keys = jax.ShapeDtypeStruct((schedule.updates, 2), jnp.uint32)  # type: ignore[no-untyped-call]
        _, metrics = jax.eval_shape(learn, state, batches, keys)
        self._names = sorted(metrics)
        self._program = compiled(self._cores.run(self._iteration))
        self._compiled: Any = None
        self._open()

    def _open(self) -> None:
        # What the program asks with: the actor's arrays and the words to be written. None: it has ended.
        self._asked: queue.SimpleQueue[tuple[Any, Any] | None] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._given_up = False

    def compile(self, state: Any, keys: Any) -> None:
        if self._compiled is None:
            self._compiled = self._program.lower(self._cores.put(state), keys, np.int32(0)).compile()

    def run(self, state: Any, keys: NDArray[np.uint32], first: int, answer: Answer) -> tuple[Any, NDArray[np.float32]]:
        """The rounds from the `first` on, with keys of all rounds; metrics (rounds, names), means over updates."""
        self._open()
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self._run, self._cores.put(state), keys, np.int32(first))
            ended.add_done_callback(lambda _: self._asked.put(None))
            try:
                for number in range(first, self._schedule.rounds):
                    if (asked := self._asked.get()) is None:
                        break
                    actor, words = asked
                    self._words.write(words, answer(number, jax.tree.unflatten(self._actor, actor)))
                    self._answered.put(None)
            finally:
                # Where an answer failed, the program runs to its end on nothing.
                self._given_up = True
                self._answered.put(None)
                ended.exception()  # waits
            state, metrics = ended.result()
        means = np.stack([np.asarray(metrics[name]).mean(axis=1) for name in self._names], axis=-1)
        return on_one_device(state), means[first:]

    def _run(self, *args: Any) -> Any:
        return jax.block_until_ready((self._compiled or self._program)(*args))  # type: ignore[no-untyped-call]

    def _ask(self, _: Any, words: Any, *actor: Any) -> None:
        """Called by the program, on a thread of its own."""
        if not self._given_up:
            self._asked.put(([np.asarray(leaf) for leaf in actor], np.asarray(words)))
            self._answered.get()

    def _iteration(self, state: Any, keys: Array, first: Array) -> tuple[Any, dict[str, Array]]:
        place = jax.lax.axis_index(SHARES)
        nothing = jax.ShapeDtypeStruct((self._words.count,), jnp.uint32)  # type: ignore[no-untyped-call]
        ask = buffer_callback(self._ask, nothing, has_side_effect=True)

        def one_round(number: Array, carry: tuple[Any, dict[str, Array]]) -> Any:
            state, metrics = carry
            # One device asks, and tells the others: what they have is 0.
            words = jax.lax.cond(
                place == 0, lambda actor: ask(*actor), lambda _: jnp.zeros(nothing.shape, nothing.dtype),
                jax.tree.leaves(state.actor),
            )  # fmt: skip
            batches = self._words.read(jax.lax.psum(words, SHARES))  # type: ignore[no-untyped-call]
            state, found = self._learn(state, own_share(batches, axis=1), own_keys(keys[number]))
            return state, jax.tree.map(lambda all_, one: all_.at[number].set(one), metrics, found)

        rounds, updates = self._schedule.rounds, self._schedule.updates
        metrics = {name: jnp.zeros((rounds, updates)) for name in self._names}
        state, metrics = jax.lax.fori_loop(first, rounds, one_round, (state, metrics))
        return state, over_shares(metrics)


class _Words:
    """A tree of arrays as one array of 32-bit words: a device is told all of it in one sum."""

    def __init__(self, example: Any) -> None:
        leaves, self._tree = jax.tree.flatten(example)
        self._kinds = [(leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves]
        sizes = [-(-int(np.prod(shape)) * kind.itemsize // 4) for shape, kind in self._kinds]
        ends = np.cumsum(sizes).tolist()
        self._places = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self.count = ends[-1]

    def write(self, words: NDArray[np.uint32], tree: Any) -> None:
        for place, leaf in zip(self._places, jax.tree.leaves(tree), strict=True):
            words[place].view(leaf.dtype)[: leaf.size] = leaf.ravel()

    def read(self, words: Array) -> Any:
        leaves = []
        for place, (shape, kind) in zip(self._places, self._kinds, strict=True):
            own = words[place]
            if kind.itemsize == 1:
                own = jax.lax.bitcast_convert_type(own, jnp.uint8).reshape(-1)[: int(np.prod(shape))]
                leaves.append((own != 0 if kind == np.bool_ else own).reshape(shape))
            else:
                leaves.append(jax.lax.bitcast_convert_type(own, kind).reshape(shape))
        return jax.tree.unflatten(self._tree, leaves)
