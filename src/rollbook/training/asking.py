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
from rollbook.training.shares import Cores, over_shares, own_keys
from rollbook.training.step_records import Records, StepForm

Learn = Callable[[Any, Any, Array], tuple[Any, dict[str, Array]]]  # state, batches, keys -> state, metrics (updates,)
Draw = Callable[[int], Records]  # the number of a round -> batches (updates, batch)
Collect = Callable[[int, Any], None]  # the number of a round and the actor, in numpy


class AskingUpdates:
    """The updates of an iteration, on batches that are asked for one after another."""

    def __init__(
        self, learn: Learn, schedule: Schedule, shares: int, state: Any, form: StepForm, batch_size: int
    ) -> None:
        """`state` is an example, or its shapes; batches have steps of the `form`."""
        self._learn, self._schedule = learn, schedule
        self._cores, self._shares = Cores(shares), shares
        self._form, self._share_size = form, batch_size // shares
        self._actor = jax.tree.structure(state.actor)
        keys = jax.ShapeDtypeStruct((schedule.updates, 2), jnp.uint32)  # type: ignore[no-untyped-call]
        _, metrics = jax.eval_shape(learn, state, jax.eval_shape(form.batch_of_words, self._share), keys)
        self._names = sorted(metrics)
        self._program = compiled(self._cores.run(self._iteration))
        self._compiled: Any = None
        self._open()

    def _open(self) -> None:
        # For each device, its share of the next round's batches. None: there are none.
        self._drawn: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(self._shares)]
        self._actors: queue.SimpleQueue[Any] = queue.SimpleQueue()  # the arrays of this round's. None: all have ended

    def compile(self, state: Any, keys: Any) -> None:
        if self._compiled is None:
            self._compiled = self._program.lower(self._cores.put(state), keys, np.int32(0)).compile()

    def run(
        self, state: Any, keys: NDArray[np.uint32], first: int, draw: Draw, collect: Collect
    ) -> tuple[Any, NDArray[np.float32]]:
        """The rounds from the `first` on, with keys of all rounds. The new state, on every device, and metrics (rounds,
        names), means over updates.

        While the program learns from a round's batches, `collect` makes the round's steps.
        """
        self._open()
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self._run, self._cores.put(state), keys, np.int32(first))
            ended.add_done_callback(lambda _: self._actors.put(None))
            try:
                for number in range(first, self._schedule.rounds):
                    self._put(draw(number))
                    if (actor := self._actors.get()) is None:
                        break
                    collect(number, jax.tree.unflatten(self._actor, actor))
            finally:
                # Where one of them failed, the program runs to its end on nothing.
                for drawn in self._drawn:
                    drawn.put(None)
                ended.exception()  # waits
            state, metrics = ended.result()
        means = np.stack([np.asarray(metrics[name]).mean(axis=1) for name in self._names], axis=-1)
        return state, means[first:]

    def _run(self, *args: Any) -> Any:
        return jax.block_until_ready((self._compiled or self._program)(*args))  # type: ignore[no-untyped-call]

    @property
    def _share(self) -> Any:
        """The shape of a device's share of a round's batches, as words."""
        shape = self._schedule.updates, self._share_size, self._form.words
        return jax.ShapeDtypeStruct(shape, jnp.uint32)  # type: ignore[no-untyped-call]

    def _put(self, batches: Records) -> None:
        words = self._form.to_words(batches)
        for device, drawn in enumerate(self._drawn):
            drawn.put(words[:, device * self._share_size : (device + 1) * self._share_size])

    def _ask(self, _: Any, words: Any, device: Any, *actor: Any) -> None:
        """Called by the program, on a thread of each device's own."""
        drawn = self._drawn[int(np.asarray(device))]
        if (own := drawn.get()) is None:
            drawn.put(None)  # for the rounds that are left
            return
        np.asarray(words)[:] = own
        if drawn is self._drawn[0]:  # the others' actor is the same
            # Copies, for the program is about to write to these.
            self._actors.put([np.asarray(leaf).copy() for leaf in actor])

    def _iteration(self, state: Any, keys: Array, first: Array) -> tuple[Any, dict[str, Array]]:
        device = jax.lax.axis_index(SHARES)
        ask = buffer_callback(self._ask, self._share, has_side_effect=True)

        def one_round(number: Array, carry: tuple[Any, dict[str, Array]]) -> Any:
            state, metrics = carry
            batches = self._form.batch_of_words(ask(device, *jax.tree.leaves(state.actor)))
            state, found = self._learn(state, batches, own_keys(keys[number]))
            return state, jax.tree.map(lambda all_, one: all_.at[number].set(one), metrics, found)

        rounds, updates = self._schedule.rounds, self._schedule.updates
        metrics = {name: jnp.zeros((rounds, updates)) for name in self._names}
        state, metrics = jax.lax.fori_loop(first, rounds, one_round, (state, metrics))
        return state, over_shares(metrics)
