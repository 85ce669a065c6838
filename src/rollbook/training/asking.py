"""A program that goes through all rounds of an iteration, and asks for a batch in each.

Calling a program costs as much as a small update; on several cores, more. The thread that called it draws the batches
and steps the environments while the program learns: they are stepped where they were made, and an error of theirs is
raised there.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from numpy.typing import NDArray

from rollbook.algos.parts.networks import Array
from rollbook.algos.parts.schedule import Schedule
from rollbook.algos.parts.shares import SHARES
from rollbook.training.compiling import compiled
from rollbook.training.shares import Cores, on_one_device, over_shares, own_keys, own_share

Learn = Callable[[Any, Any, Array], tuple[Any, dict[str, Array]]]  # state, batches, keys -> state, metrics (updates,)
Draw = Callable[[int], Any]  # the number of a round -> batches (updates, batch, ...)
Collect = Callable[[int, Any], None]  # the number of a round and the actor, in numpy


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
        self._drawn: queue.SimpleQueue[Any] = queue.SimpleQueue()  # batches of the next round. None: there are none
        self._actors: queue.SimpleQueue[Any] = queue.SimpleQueue()  # the arrays of this round's. None: all have ended
        self._given_up = False

    def compile(self, state: Any, keys: Any) -> None:
        if self._compiled is None:
            self._compiled = self._program.lower(self._cores.put(state), keys, np.int32(0)).compile()

    def run(
        self, state: Any, keys: NDArray[np.uint32], first: int, draw: Draw, collect: Collect
    ) -> tuple[Any, NDArray[np.float32]]:
        """The rounds from the `first` on, with keys of all rounds; metrics (rounds, names), means over updates.

        While the program learns from a round's batches, `collect` makes the round's steps.
        """
        self._open()
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self._run, self._cores.put(state), keys, np.int32(first))
            ended.add_done_callback(lambda _: self._actors.put(None))
            try:
                for number in range(first, self._schedule.rounds):
                    self._drawn.put(draw(number))
                    if (actor := self._actors.get()) is None:
                        break
                    collect(number, jax.tree.unflatten(self._actor, actor))
            finally:
                # Where one of them failed, the program runs to its end on nothing.
                self._given_up = True
                self._drawn.put(None)
                ended.exception()  # waits
            state, metrics = ended.result()
        means = np.stack([np.asarray(metrics[name]).mean(axis=1) for name in self._names], axis=-1)
        return on_one_device(state), means[first:]

    def _run(self, *args: Any) -> Any:
        return jax.block_until_ready((self._compiled or self._program)(*args))  # type: ignore[no-untyped-call]

    def _ask(self, _: Any, words: Any, *actor: Any) -> None:
        """Called by the program, on a thread of its own."""
        if not self._given_up and (batches := self._drawn.get()) is not None:
            self._words.write(np.asarray(words), batches)
            # Copies, for the program is about to write to these.
            self._actors.put([np.asarray(leaf).copy() for leaf in actor])

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
