"""Each kind of replay against a plain list of what happened, never overwritten, that looks ahead step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.algos.parts import replay as device
from rollbook.algos.parts.replay import Batch, Transition
from rollbook.algos.parts.spaces import Spaces
from rollbook.book.checkpoints import load_checkpoint, save_checkpoint
from rollbook.training.host_replay import FrameReplay, VectorReplay

GAMMA = 0.9
VECTORS = Spaces(observation=(3,), discrete=False, actions=2, low=(-1, -1), high=(1, 1))
BYTES = Spaces(observation=(5,), discrete=True, actions=4)
IMAGES = Spaces(observation=(5, 4, 3), discrete=True, actions=4)


class Happened(NamedTuple):
    """One step of one environment, with what a replay is not told: that the time was up."""

    observation: Any
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    next_observation: Any


class World:
    """Random episodes of some environments, as a loop would see them."""

    def __init__(self, spaces: Spaces, envs: int, seed: int) -> None:
        self.spaces, self.rng = spaces, np.random.default_rng(seed)
        self.observation = [self._fresh() for _ in range(envs)]
        self.begins = np.ones(envs, bool)

    def step(self) -> tuple[list[Happened], Transition]:
        row = [self._one(env) for env in range(len(self.observation))]
        begins = self.begins
        self.begins = np.array([one.terminated or one.truncated for one in row])
        columns = {name: np.stack([np.asarray(getattr(one, name)) for one in row]) for name in Happened._fields}
        del columns["truncated"]
        return row, Transition(**columns, begins=begins)

    def _one(self, env: int) -> Happened:
        before = self.observation[env]
        after = self._after(before)
        end = self.rng.random()
        terminated, truncated = bool(end < 0.15), bool(0.15 <= end < 0.3)
        # A lost life ends an episode, but the next begins with the same picture.
        same_picture = self.rng.random() < 0.5
        self.observation[env] = self._fresh() if (terminated or truncated) and not same_picture else after
        action = self.rng.integers(4) if self.spaces.discrete else self.rng.normal(size=2).astype(np.float32)
        return Happened(before, action, np.float32(self.rng.normal()), terminated, truncated, after)

    def _fresh(self) -> Any:
        if self.spaces is BYTES:
            return self.rng.integers(0, 256, 5, np.uint8)
        if not self.spaces.image:
            return self.rng.normal(size=3).astype(np.float32)
        return np.repeat(self._frame(), 3, axis=-1)

    def _after(self, before: Any) -> Any:
        return np.concatenate([before[..., 1:], self._frame()], -1) if self.spaces.image else self._fresh()

    def _frame(self) -> Any:
        return self.rng.integers(0, 256, (5, 4, 1), np.uint8)


def by_definition(history: list[list[Happened]], row: int, env: int, n_step: int) -> dict[str, Any]:
    first = history[row][env]
    total, discount = 0.0, 1.0
    for step in history[row : row + n_step]:
        one = step[env]
        total += discount * one.reward
        discount *= GAMMA
        if one.terminated or one.truncated:
            break
    return {
        "observation": first.observation,
        "action": first.action,
        "reward": total,
        "terminated": one.terminated,
        "next_observation": one.next_observation,
        "discount": discount,
    }


def assert_samples_are_right(history: list[list[Happened]], batch: Batch, first: int, envs: int, n_step: int) -> None:
    """A batch of all numbers from 0 up has every step that can be chosen, in order."""
    for number in range(len(batch.reward)):
        expected = by_definition(history, first + number // envs, number % envs, n_step)
        for name, value in expected.items():
            np.testing.assert_allclose(getattr(batch, name)[number], value, rtol=1e-5, atol=1e-6, err_msg=name)


def every_choice(size: int, envs: int, n_step: int) -> Any:
    return np.arange((size - n_step + 1) * envs, dtype=np.uint32)


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(4, 9),
    steps=st.integers(4, 30),
    envs=st.integers(1, 3),
    n_step=st.integers(1, 4),
    spaces=st.sampled_from([VECTORS, BYTES, IMAGES]),
)
def test_host_replays_hold_what_a_plain_list_holds(
    seed: int, rows: int, steps: int, envs: int, n_step: int, spaces: Spaces
) -> None:
    world = World(spaces, envs, seed)
    replay: Any = (
        FrameReplay(rows, envs, spaces, stacked=False)
        if spaces.image
        else VectorReplay(rows, envs, spaces, np.uint8 if spaces is BYTES else np.float32)
    )
    history = []
    for _ in range(steps):
        row, transition = world.step()
        history.append(row)
        replay.add(transition)

    assert replay.first == max(steps - rows, 0)
    batch = replay.sample(every_choice(min(steps, rows), envs, n_step), n_step=n_step, gamma=GAMMA)

    assert_samples_are_right(history, batch, replay.first, envs, n_step)


ADD = jax.jit(device.add)
SAMPLE = jax.jit(device.sample, static_argnames=("n_step", "gamma"))


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("parts", [[4], [7], [1] * 23, [5] * 4, [2, 9], [10, 3]])
def test_the_device_replay_holds_what_a_plain_list_holds(n_step: int, parts: list[int]) -> None:
    """However many rows are added at once; also more than it has places for."""
    rows, envs, steps = 7, 2, sum(parts)
    world = World(VECTORS, envs, steps)
    replay = device.empty(rows, envs, VECTORS)
    history = []
    for count in parts:
        made = [world.step() for _ in range(count)]
        history += [row for row, _ in made]
        replay = ADD(replay, jax.tree.map(lambda *rows: jnp.stack(rows), *(transition for _, transition in made)))

    size = min(steps, rows)
    batch = SAMPLE(replay, jnp.asarray(every_choice(size, envs, n_step)), n_step=n_step, gamma=GAMMA)

    assert_samples_are_right(history, batch, steps - size, envs, n_step)


def test_n_steps_end_with_the_episode_and_a_time_limit_is_not_the_end_of_the_task() -> None:
    """Three steps of reward 1: the time is up after the second, the task ends with the third."""
    replay = VectorReplay(8, 1, Spaces(observation=(1,), discrete=True, actions=2))
    for number, (terminated, begins) in enumerate([(False, True), (False, False), (True, True)]):
        at = np.array([[float(number)]], np.float32)
        replay.add(Transition(at, [0], [1.0], [terminated], [begins], at + 10))

    batch = replay.sample(np.array([0], np.uint32), n_step=3, gamma=0.5)

    assert batch.reward.tolist() == [1.5]
    assert batch.terminated.tolist() == [False]
    assert batch.discount.tolist() == [0.25]
    assert batch.next_observation.tolist() == [[11.0]]


def test_every_step_is_as_likely_as_any_other() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 60_000, np.uint32)

    place, env = device.choose(bits, 7, 17, 10, 3, 2)

    counts = np.zeros((10, 3))
    np.add.at(counts, (place, env), 1)
    assert counts[16 % 10].sum() == 0  # the newest row has no second step yet
    assert counts.sum(1)[np.arange(7, 16) % 10] == pytest.approx(60_000 / 9, rel=0.05)
    assert counts.sum(0) == pytest.approx(20_000, rel=0.03)


def test_frames_of_a_stack_are_stored_once() -> None:
    """A million steps of Atari then fit: 1.02 frames of 84 x 84 a step, and eight small numbers."""
    replay = FrameReplay(1000, 1, IMAGES, stacked=True)
    world = World(IMAGES, 1, 3)
    world.observation = [world._fresh()]
    for _ in range(1000):
        before = world.observation[0]
        after = world._after(before)
        replay.add(Transition(before[None], [0], [0.0], [False], [False], after[None]))
        world.observation = [after]

    assert replay.stored == 1001
    atari = Spaces(observation=(84, 84, 4), discrete=True, actions=6)
    a_million = FrameReplay(1_000_000, 1, atari, stacked=True)
    assert a_million.frames.nbytes + sum(column.nbytes for column in a_million.columns.values()) < 8e9


def test_rows_whose_frames_are_gone_are_never_chosen() -> None:
    """More beginnings of episodes than there is room for: the oldest rows go early, and nothing wrong is sampled."""
    replay = FrameReplay(50, 1, IMAGES, stacked=True)
    world = World(IMAGES, 1, 5)
    history = []
    for _ in range(200):
        row, transition = world.step()
        history.append(row)
        replay.add(transition)

    assert replay.first > 150
    batch = replay.sample(every_choice(replay.added - replay.first, 1, 2), n_step=2, gamma=GAMMA)
    assert_samples_are_right(history, batch, replay.first, 1, 2)


# ---- in checkpoints -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [False, True], ids=["vectors", "frames"])
def test_a_replay_from_a_checkpoint_goes_on_as_if_it_had_never_stopped(tmp_path: Path, images: bool) -> None:
    def make() -> Any:
        return FrameReplay(9, 2, IMAGES, stacked=True) if images else VectorReplay(9, 2, VECTORS)

    world, replay, bits = World(IMAGES if images else VECTORS, 2, 1), make(), np.arange(50, dtype=np.uint32) * 7919
    for step in range(1, 31):
        replay.add(world.step()[1])
        if step % 5 == 0:
            save(tmp_path, step, replay, keep=2)

    again = make()
    again.load(load_checkpoint(tmp_path).growing)

    for _ in range(4):
        transition = world.step()[1]
        for one in (replay, again):
            one.add(transition)
        for mine, other in zip(*(one.sample(bits, n_step=2, gamma=GAMMA) for one in (replay, again)), strict=True):
            np.testing.assert_array_equal(mine, other)


def save(run_folder: Path, step: int, replay: Any, keep: int) -> None:
    save_checkpoint(
        run_folder, step, {}, extra=None, attempt=0, rows=0, time=float(step), next_step=step, keep=keep,
        growing=replay.growing(), after=step - 5,
    )  # fmt: skip


def test_keeping_three_checkpoints_of_a_replay_costs_little_more_than_one(tmp_path: Path) -> None:
    world, replay = World(VECTORS, 1, 1), VectorReplay(1000, 1, VECTORS)

    def bytes_of_chunks() -> int:
        return sum(path.stat().st_size for path in tmp_path.glob("checkpoints/growing/*"))

    sizes = []
    for step in range(5, 1501, 5):
        for _ in range(5):
            replay.add(world.step()[1])
        if step % 100 == 0:
            save_checkpoint(
                tmp_path, step, {}, extra=None, attempt=0, rows=0, time=float(step), next_step=step, keep=3,
                growing=replay.growing(), after=step - 100,
            )  # fmt: skip
            sizes.append(bytes_of_chunks())

    of_all_rows = sum(ring.nbytes for ring in replay.data)
    assert of_all_rows < sizes[-1] < 1.35 * of_all_rows
    assert load_checkpoint(tmp_path, 1300).growing["replay"].first == 300
