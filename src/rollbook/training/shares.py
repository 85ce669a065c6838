"""One update on several cores: each learns from a share of every batch, and their gradients are averaged.

XLA's own threads make little of a second core: a product of 256 x 256 x 256 is over before another thread is awake. So
a program runs on one device a core, through all rounds of an iteration, and asks for a batch in each. The thread that
called it answers: environments are stepped where they were made, and an error of theirs is raised there.
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

from rollbook.algos.parts.descent import SHARES
from rollbook.algos.parts.networks import Array
from rollbook.algos.parts.schedule import Schedule
from rollbook.errors import UsageError

Learn = Callable[[Any, Any, Array], tuple[Any, dict[str, Array]]]  # state, batches, keys -> state, metrics (updates,)
Answer = Callable[[int, Any], Any]  # the number of a round and the actor, in numpy -> batches (updates, batch, ...)

_SMALLEST_WORK = 8e6  # steps x numbers of the state: with less, waiting for each other costs more than it saves
# With 32 steps a share, an update of SAC took 31 ms in place of 0.6, also without any averaging: putting the gradients
# into one array is slow then. XLA fuses the sums of bias gradients into it, which is probably why. From 128 on, none
# of the networks that were tried was slower by more than a fifth (ADR 14).
_SMALLEST_SHARE = 128
_ALL, _EACH = PartitionSpec(), PartitionSpec(SHARES)  # type: ignore[no-untyped-call]


def ask_for_devices(shares: int | None, cores: int | None, batch_size: int) -> int:
    """One for each share, or for each core that may be worth it, if JAX has not been used yet; how many there are."""
    count = shares or min(cores or 1, batch_size // _SMALLEST_SHARE)
    if count <= 1:
        return 1
    # Refused once it has been used, by a program of the user's own or by an environment.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", count)  # type: ignore[no-untyped-call]
    return min(count, jax.local_device_count()) if jax.default_backend() == "cpu" else 1


def how_many(devices: int, batch_size: int, numbers: int) -> int:
    """Shares that are worth their while, for a state of so many numbers."""
    return max(
        n for n in range(1, devices + 1)
        if n == 1 or (batch_size % n == 0 and batch_size // n >= _SMALLEST_SHARE
                      and batch_size // n * numbers >= _SMALLEST_WORK)
    )  # fmt: skip


def check_shares(wanted: int, devices: int, batch_size: int) -> None:
    if wanted < 1 or batch_size % wanted:
        raise UsageError(f"shares is {wanted}, and a batch has {batch_size} steps", "choose shares of equal size")
    if wanted > devices:
        raise UsageError(
            f"shares is {wanted}, and JAX has {devices} CPU device{'s' if devices > 1 else ''} here",
            "train in a process of its own, by `rollbook train`, or with shares=1",
        )


class SharedUpdates:
    """The updates of an iteration, on batches that are asked for one after another."""

    def __init__(self, learn: Learn, schedule: Schedule, shares: int, state: Any, batches: Any) -> None:
        """`state` and `batches` are examples, or their shapes."""
        self._learn, self._schedule, self._shares = learn, schedule, shares
        self._mesh = Mesh(np.array(jax.local_devices()[:shares]), (SHARES,))
        self._words = _Words(batches)
        self._actor = jax.tree.structure(state.actor)
        keys = jax.ShapeDtypeStruct((schedule.updates, 2), jnp.uint32)  # type: ignore[no-untyped-call]
        _, metrics = jax.eval_shape(learn, state, batches, keys)
        self.names = sorted(metrics)
        program = jax.shard_map(
            self._iteration, mesh=self._mesh, in_specs=_ALL, out_specs=(_ALL, _EACH), check_vma=False
        )
        self._program = jax.jit(program, donate_argnums=0)
        self._compiled: Any = None
        self._open()

    def _open(self) -> None:
        # What the program asks with: the actor's arrays and the words to be written. None: it has ended.
        self._asked: queue.SimpleQueue[tuple[Any, Any] | None] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._given_up = False

    def compile(self, state: Any, keys: Any) -> None:
        if self._compiled is None:
            self._compiled = self._program.lower(self._on_all(state), keys, np.int32(0)).compile()

    def run(self, state: Any, keys: NDArray[np.uint32], first: int, answer: Answer) -> tuple[Any, NDArray[np.float32]]:
        """The rounds from the `first` on, with keys of all rounds; metrics (rounds, updates, names)."""
        self._open()
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self._run, self._on_all(state), keys, np.int32(first))
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
        return jax.tree.map(lambda x: x.addressable_data(0), state), self._folded(np.asarray(metrics)[:, first:])

    def _run(self, *args: Any) -> Any:
        return jax.block_until_ready((self._compiled or self._program)(*args))  # type: ignore[no-untyped-call]

    def _ask(self, _: Any, words: Any, *actor: Any) -> None:
        """Called by the program, on a thread of its own."""
        if not self._given_up:
            self._asked.put(([np.asarray(leaf) for leaf in actor], np.asarray(words)))
            self._answered.get()

    def _iteration(self, state: Any, keys: Array, first: Array) -> tuple[Any, Array]:
        """Of one device; its metrics are (1, rounds, updates, names)."""
        place = jax.lax.axis_index(SHARES)
        nothing = jax.ShapeDtypeStruct((self._words.count,), jnp.uint32)  # type: ignore[no-untyped-call]
        ask = buffer_callback(self._ask, nothing, has_side_effect=True)

        def one_round(number: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
            state, metrics = carry
            # One device asks, and tells the others: what they have is 0.
            words = jax.lax.cond(
                place == 0, lambda actor: ask(*actor), lambda _: jnp.zeros(nothing.shape, nothing.dtype),
                jax.tree.leaves(state.actor),
            )  # fmt: skip
            batches = self._words.read(jax.lax.psum(words, SHARES))  # type: ignore[no-untyped-call]
            own = jax.vmap(lambda key: jax.random.fold_in(jax.random.wrap_key_data(key), place))(keys[number])
            state, found = self._learn(state, self._share(batches, place), jax.random.key_data(own))
            return state, metrics.at[number].set(jnp.stack([found[name] for name in self.names], axis=-1))

        shape = (self._schedule.rounds, self._schedule.updates, len(self.names))
        state, metrics = jax.lax.fori_loop(first, shape[0], one_round, (state, jnp.zeros(shape)))
        return state, metrics[None]

    def _share(self, batches: Any, place: Array) -> Any:
        def part(x: Array) -> Array:
            size = x.shape[1] // self._shares
            return jax.lax.dynamic_slice_in_dim(x, place * size, size, axis=1)

        return jax.tree.map(part, batches)

    def _on_all(self, state: Any) -> Any:
        return jax.device_put(state, NamedSharding(self._mesh, _ALL))

    def _folded(self, metrics: NDArray[np.float32]) -> NDArray[np.float32]:
        """Over shares: the smallest of minima, the largest of maxima, else means."""
        folded: NDArray[np.float32] = metrics.mean(axis=0)
        for place, name in enumerate(self.names):
            if name.endswith("_min"):
                folded[..., place] = metrics[..., place].min(axis=0)
            elif name.endswith("_max"):
                folded[..., place] = metrics[..., place].max(axis=0)
        return folded


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
