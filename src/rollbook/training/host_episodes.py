"""The replay of recurrent host loops: a replay of steps, and beside it each step's place in its episode and perhaps the
memory before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.algos.parts.replay import Transition
from rollbook.algos.parts.sequences import (
    Cut,
    Sequences,
    choose_episodes,
    choose_segments,
    oldest_usable,
    read_sequences,
)
from rollbook.book.growing import GrowingRows, SavedRows
from rollbook.training.host_replay import FrameReplay, HostReplay
from rollbook.training.ring import fill, growing_rows


class HostEpisodes:
    def __init__(self, replay: HostReplay, memory_size: int) -> None:
        self.replay = replay
        shape = (replay.rows, replay.envs)
        self.position = np.zeros(shape, np.int32)
        self.memory = np.zeros((*shape, memory_size), np.float32)

    @property
    def added(self) -> int:
        return self.replay.added

    @property
    def first(self) -> int:
        return self.replay.first

    def clear(self) -> None:
        self.replay.clear()

    def add(self, step: Transition, position: NDArray[np.int32], memory: NDArray[np.float32]) -> None:
        place = self.replay.added % self.replay.rows
        self.position[place] = position
        if self.memory.shape[-1]:
            self.memory[place] = memory
        self.replay.add(step)

    def sample(self, bits: NDArray[np.uint32], *, steps: int, cut: Cut) -> Sequences:
        """Arrays (..., time, batch, ...) for bits (..., batch)."""
        first, end = np.int64(oldest_usable(self.first)), np.int64(self.added)
        chosen = (
            choose_segments(bits, first, end, self.replay.envs, steps)
            if cut == "segments"
            else choose_episodes(bits, first, end, self.position, steps)
        )
        return read_sequences(chosen, end, self._columns, self.position, self.memory, self._look, steps=steps, cut=cut)

    @property
    def _columns(self) -> Any:
        if isinstance(self.replay, FrameReplay):
            return SimpleNamespace(**self.replay.columns)
        return self.replay.data

    def _look(self, place: Any, env: Any, after: Any) -> Any:
        if isinstance(self.replay, FrameReplay):
            columns = self.replay.columns
            numbers = np.where(after[..., None], columns["next_frames"][place, env], columns["frames"][place, env])
            return self.replay._images(numbers)
        before, following = self.replay.data.observation, self.replay.data.next_observation
        after = after.reshape(*after.shape, *[1] * (before.ndim - 2))
        return np.where(after, following[place, env], before[place, env])

    def growing(self) -> dict[str, GrowingRows]:
        return self.replay.growing() | {"episodes": growing_rows(self._own, self.first, self.added)}

    def load(self, saved: Mapping[str, SavedRows]) -> None:
        fill(self._own, saved["episodes"])  # first: what cannot be read must not leave steps without their places
        self.replay.load(saved)

    @property
    def _own(self) -> dict[str, NDArray[Any]]:
        return own_columns(self.position, self.memory)


def own_columns(position: Any, memory: Any) -> dict[str, Any]:
    """Of the rows, what a replay of single steps does not have."""
    return {"position": position} | ({"memory": memory} if memory.shape[-1] else {})
