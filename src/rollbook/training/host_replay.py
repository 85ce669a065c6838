"""Replays of host loops: arrays of numpy that are allocated once and written in place.

Images are kept frame by frame. An observation of four stacked frames shares three of them with the one before, so each
frame is stored once and an observation is a list of frames: a million steps of Atari take 7.2 GB in place of 56.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.algos.parts.replay import Batch, Transition, choose, look_ahead, places_ahead, steps_at
from rollbook.algos.parts.spaces import Spaces
from rollbook.book.growing import GrowingRows, SavedRows
from rollbook.training.ring import fill, growing_rows, part
from rollbook.training.step_records import Records, StepForm

_SPARE_FRAMES = 0.02  # for the beginnings of episodes, which share nothing with what was before


class VectorReplay:
    """Of observations that are kept as they are."""

    def __init__(self, rows: int, envs: int, spaces: Spaces, kind: Any = np.float32) -> None:
        self.rows, self.envs, self.added = rows, envs, 0
        self._known = 0  # the oldest row that it ever had
        self.form = StepForm(spaces, kind)
        self._records = np.zeros(rows * envs, self.form.dtype)
        in_rows = self._records.reshape(rows, envs)
        self.data = Transition(**{name: in_rows[name] for name in Transition._fields})

    @property
    def first(self) -> int:
        """The oldest row that is still there."""
        return max(self.added - self.rows, self._known)

    def clear(self) -> None:
        self.added = self._known = 0

    def add(self, step: Transition) -> None:
        place = self.added % self.rows
        for ring, x in zip(self.data, step, strict=True):
            ring[place] = x
        self.added += 1

    def sample(self, bits: NDArray[np.uint32], *, n_step: int, gamma: float) -> Batch:
        return self.form.batch(self.sample_records(bits, n_step=n_step, gamma=gamma))

    def sample_records(self, bits: NDArray[np.uint32], *, n_step: int, gamma: float) -> Records:
        """The same with each step's numbers side by side."""
        # As `choose` does, without telling rows and environments apart: numpy's calls are what takes the time here.
        usable, size = (self.added - self.first - n_step + 1) * self.envs, self.rows * self.envs
        place = (bits % np.uint32(usable) + np.int64(self.first * self.envs % size)) % size
        chosen: Records = self._records.take(place)
        if n_step == 1:
            chosen["discount"] = gamma
            return chosen
        # Fields of records, not whole ones: observations are most of them, and only the last is needed.
        ahead = (place + np.arange(n_step).reshape(-1, *[1] * place.ndim) * self.envs) % size
        columns = (self._records[name][ahead] for name in ("reward", "terminated", "begins"))
        chosen["reward"], chosen["terminated"], chosen["discount"], last = look_ahead(*columns, gamma=gamma)
        chosen["next_observation"] = self._records["next_observation"][(place + last * self.envs) % size]
        return chosen

    def growing(self) -> dict[str, GrowingRows]:
        return {"replay": growing_rows(self.data._asdict(), self.first, self.added)}

    def load(self, saved: Mapping[str, SavedRows]) -> None:
        fill(self.data._asdict(), saved["replay"])
        self.added, self._known = saved["replay"].end, saved["replay"].first


class FrameReplay:
    """Of images (height, width, frames), of which the next has mostly the same frames, moved on by one."""

    def __init__(self, rows: int, envs: int, spaces: Spaces, *, stacked: bool) -> None:
        self.rows, self.envs, self.added = rows, envs, 0
        height, width, depth = spaces.observation
        # An image of colours shares nothing with the next: each has as many frames of its own as colours, twice where
        # an episode ends.
        share = 1 + _SPARE_FRAMES if stacked else depth * (1 + _SPARE_FRAMES)
        self.frames = np.zeros((int(rows * envs * share) + 2 * depth * envs, height, width), np.uint8)
        self.stored = 0  # frames so far
        self.columns = {
            "action": np.zeros((rows, envs), np.int32)
            if spaces.discrete
            else np.zeros((rows, envs, spaces.actions), np.float32),
            "reward": np.zeros((rows, envs), np.float32),
            "terminated": np.zeros((rows, envs), np.bool_),
            "begins": np.zeros((rows, envs), np.bool_),
            "frames": np.zeros((rows, envs, depth), np.int32),
            "next_frames": np.zeros((rows, envs, depth), np.int32),
        }
        self._first = 0
        self._newest: list[tuple[NDArray[np.uint8], NDArray[np.int32]] | None] = [None] * envs

    @property
    def first(self) -> int:
        """The oldest row whose frames are all still there."""
        self._first = max(self._first, self.added - self.rows)
        while self._first < self.added and self._oldest_frame(self._first) < self.stored - len(self.frames):
            self._first += 1
        return self._first

    def _oldest_frame(self, row: int) -> int:
        return int(self.columns["frames"][row % self.rows].min())

    def clear(self) -> None:
        self.added = self.stored = self._first = 0
        self._newest = [None] * self.envs

    def add(self, step: Transition) -> None:
        place = self.added % self.rows
        for name in ("action", "reward", "terminated", "begins"):
            self.columns[name][place] = getattr(step, name)
        for env in range(self.envs):
            self.columns["frames"][place, env] = self._store(env, step.observation[env])
            self.columns["next_frames"][place, env] = self._store(env, step.next_observation[env])
        self.added += 1

    def _store(self, env: int, image: NDArray[np.uint8]) -> NDArray[np.int32]:
        """The numbers of an image's frames; those that the image before it has are not stored again."""
        newest = self._newest[env]
        if newest is not None and np.array_equal(image, newest[0]):
            return newest[1]
        depth = image.shape[-1]
        known = 0
        if newest is not None and np.array_equal(image[..., :-1], newest[0][..., 1:]):
            known = depth - 1
        numbers = np.empty(depth, np.int32)
        if known:
            numbers[:known] = newest[1][1:]  # type: ignore[index]
        for frame in range(known, depth):
            if frame > known and np.array_equal(image[..., frame], image[..., frame - 1]):
                numbers[frame] = numbers[frame - 1]
                continue
            self.frames[self.stored % len(self.frames)] = image[..., frame]
            numbers[frame] = self.stored
            self.stored += 1
        self._newest[env] = image.copy(), numbers
        return numbers

    def sample(self, bits: NDArray[np.uint32], *, n_step: int, gamma: float) -> Batch:
        columns = self.columns
        place, env = choose(bits, self.first, self.added, self.rows, self.envs, n_step)
        ahead = places_ahead(place, self.rows, n_step)
        steps = (steps_at(columns[name], ahead, env) for name in ("reward", "terminated", "begins"))
        reward, terminated, discount, last = look_ahead(*steps, gamma=gamma)
        return Batch(
            observation=self._images(columns["frames"][place, env]),  # type: ignore[arg-type]
            action=columns["action"][place, env],
            reward=reward,
            terminated=terminated,
            next_observation=self._images(columns["next_frames"][(place + last) % self.rows, env]),  # type: ignore[arg-type]
            discount=discount,
        )

    def _images(self, numbers: NDArray[np.int32]) -> NDArray[np.uint8]:
        """(..., height, width, frames) from (..., frames)."""
        return np.ascontiguousarray(np.moveaxis(self.frames[numbers % len(self.frames)], -3, -1))

    def growing(self) -> dict[str, GrowingRows]:
        first = max(self.stored - len(self.frames), 0)
        return {
            "replay": growing_rows(self.columns, self.first, self.added),
            "frames": growing_rows({"frame": self.frames}, first, self.stored),
        }

    def load(self, saved: Mapping[str, SavedRows]) -> None:
        fill(self.columns, saved["replay"])
        fill({"frame": self.frames}, saved["frames"])
        self.added, self.stored, self._first = saved["replay"].end, saved["frames"].end, saved["replay"].first
        if self.added:
            numbers = part(self.columns["next_frames"], self.added - 1, self.added)[0]
            self._newest = [(self._images(one), one.copy()) for one in numbers]


HostReplay = VectorReplay | FrameReplay
