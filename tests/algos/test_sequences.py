"""Episodic replays against a plain list of what happened, never overwritten, that is read step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_replay import IMAGES, VECTORS, Happened, World

from rollbook.algos import rsac
from rollbook.algos.parts.replay import Transition
from rollbook.algos.parts.sequences import Sequences, add_steps, empty_episodic, sample_sequences
from rollbook.book.checkpoints import load_checkpoint, save_checkpoint
from rollbook.errors import CorruptFile, InvalidConfig
from rollbook.training.host_episodes import HostEpisodes
from rollbook.training.host_replay import FrameReplay, VectorReplay

History = list[list[Happened]]


class Recorder:
    """Steps of a world, with what a replay is told besides, and the memory that each step is given: its number."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history: History = []
        self.positions: list[Any] = []

    def step(self) -> tuple[Transition, Any, Any]:
        begins = self.world.begins
        row, transition = self.world.step()
        position = np.where(begins, 0, self.positions[-1] + 1 if self.positions else 0).astype(np.int32)
        memory = (len(self.history) * len(row) + np.arange(len(row), dtype=np.float32) + 1)[:, None]
        self.history.append(row)
        self.positions.append(position)
        return transition, position, memory


def expected_starts(recorder: Recorder, first: int, envs: int, steps: int, cut: str) -> list[tuple[int, int]]:
    """Of every choice that there is, in order."""
    end = len(recorder.history)
    first += first > 0
    if cut == "segments":
        return [(first + n // envs, n % envs) for n in range((end - first - steps + 1) * envs)]
    starts = []
    for env in range(envs):
        within = [int(positions[env]) % steps for positions in recorder.positions]
        begins = [row for row in range(first, end) if within[row] == 0]
        starts += [(row - within[row], env) for row in range(begins[0], end)] if begins else []
    return starts


def by_definition(recorder: Recorder, start: int, env: int, steps: int, cut: str) -> list[tuple[Any, ...]]:
    """What is seen one after another: observation, action and reward before, begins, real, terminated."""
    history, end = recorder.history, len(recorder.history)
    seen: list[tuple[Any, ...]] = []
    for row in range(start, end):
        one, begins = history[row][env], recorder.positions[row][env] == 0
        before = None if begins else history[row - 1][env]
        action, reward = (before.action, before.reward) if before else (0, 0)
        seen.append((one.observation, action, reward, begins, True, one.terminated))
        over = one.terminated or one.truncated
        if over or row + 1 == end:
            seen.append((one.next_observation, one.action, one.reward, False, False, None))
        if (over and cut == "episodes") or len(seen) > steps:
            break
    return seen[: steps + 1]


def assert_sequences_are_right(recorder: Recorder, batch: Sequences, starts: Any, steps: int, cut: str) -> None:
    envs = len(recorder.history[0])
    for number, (start, env) in enumerate(starts):
        expected = by_definition(recorder, start, env, steps, cut)
        assert batch.memory[number].tolist() == [start * envs + env + 1]
        for t, (observation, action, reward, begins, real, terminated) in enumerate(expected):
            np.testing.assert_array_equal(batch.observation[t, number], observation)
            np.testing.assert_array_equal(batch.previous_action[t, number], np.zeros(2) + action)
            np.testing.assert_array_equal(batch.previous_reward[t, number], np.float32(reward))
            assert batch.begins[t, number] == begins
            if t < steps:
                assert batch.real[t, number] == real
                assert not real or batch.terminated[t, number] == terminated
        rest = slice(len(expected), None)
        assert not np.asarray(batch.real[rest, number]).any()
        assert not np.asarray(batch.observation[rest, number]).any(), "padding has something of other episodes"
        assert not np.asarray(batch.previous_action[rest, number]).any()


IMAGE_SPACES = type(VECTORS)(observation=IMAGES.observation, discrete=False, actions=2, low=(-1, -1), high=(1, 1))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(5, 9),
    added=st.integers(4, 30),
    envs=st.integers(1, 3),
    steps=st.integers(1, 4),
    cut=st.sampled_from(["episodes", "segments"]),
    images=st.booleans(),
)
def test_host_episodes_hold_what_a_plain_list_holds(
    seed: int, rows: int, added: int, envs: int, steps: int, cut: Any, images: bool
) -> None:
    spaces = IMAGE_SPACES if images else VECTORS
    recorder = Recorder(World(spaces, envs, seed))
    inner: Any = FrameReplay(rows, envs, spaces, stacked=False) if images else VectorReplay(rows, envs, spaces)
    replay = HostEpisodes(inner, memory_size=1)
    for _ in range(added):
        replay.add(*recorder.step())

    starts = expected_starts(recorder, replay.first, envs, steps, cut)
    batch = replay.sample(np.arange(len(starts), dtype=np.uint32), steps=steps, cut=cut)

    assert_sequences_are_right(recorder, batch, starts, steps, cut)


ADD = jax.jit(add_steps)
SAMPLE = jax.jit(sample_sequences, static_argnames=("steps", "cut"))


@pytest.mark.parametrize("cut", ["episodes", "segments"])
@pytest.mark.parametrize(("added", "at_once"), [(5, 1), (24, 3), (26, 13)])
def test_the_device_replay_holds_the_episodes_that_a_plain_list_holds(added: int, at_once: int, cut: Any) -> None:
    rows, envs, steps = 11, 2, 4
    recorder, replay = Recorder(World(VECTORS, envs, added)), empty_episodic(rows, envs, VECTORS, 1)
    for _ in range(added // at_once):
        made = [recorder.step() for _ in range(at_once)]
        replay = ADD(replay, *jax.tree.map(lambda *rows: jnp.stack(rows), *made))

    starts = expected_starts(recorder, max(added - rows, 0), envs, steps, cut)
    batch = SAMPLE(replay, jnp.arange(len(starts), dtype=jnp.uint32), steps=steps, cut=cut)

    assert_sequences_are_right(recorder, jax.device_get(batch), starts, steps, cut)


def test_episodes_are_sampled_in_proportion_to_their_length() -> None:
    """Episodes of 1, 2, ... 6 steps, side by side with the same in the other order."""
    replay = HostEpisodes(VectorReplay(30, 2, VECTORS), memory_size=0)
    lengths = [(1, 6), (2, 5), (3, 4), (4, 3), (5, 2), (6, 1)]
    positions = [np.concatenate([np.arange(pair[env]) for pair in lengths]) for env in range(2)]
    names = [np.concatenate([np.full(pair[env], pair[env]) for pair in lengths]) for env in range(2)]
    zeros = np.zeros((2, 3))
    for row in range(21):
        observation = np.stack([np.full(3, names[env][row]) for env in range(2)])
        step = Transition(observation, np.zeros((2, 2)), np.zeros(2), np.zeros(2), np.zeros(2), zeros)
        replay.add(step, np.array([positions[env][row] for env in range(2)], np.int32), zeros[:, :0])

    bits = np.random.default_rng(1).integers(0, 2**32, 42_000, np.uint32)
    batch = replay.sample(bits, steps=10, cut="episodes")

    drawn = batch.observation[0, :, 0].astype(int)
    np.testing.assert_array_equal(batch.real.sum(0), drawn)
    counts = np.bincount(drawn)[1:]
    assert counts == pytest.approx(42_000 * 2 * np.arange(1, 7) / 42, rel=0.06)


def test_a_replay_of_episodes_from_a_checkpoint_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    def make() -> HostEpisodes:
        return HostEpisodes(VectorReplay(9, 2, VECTORS), memory_size=1)

    recorder, replay, bits = Recorder(World(VECTORS, 2, 1)), make(), np.arange(50, dtype=np.uint32) * 7919
    for step in range(1, 31):
        replay.add(*recorder.step())
        if step % 5 == 0:
            save_checkpoint(
                tmp_path, step, {}, extra=None, attempt=0, rows=0, time=float(step), next_step=step, keep=2,
                growing=replay.growing(), after=step - 5,
            )  # fmt: skip
    again = make()
    again.load(load_checkpoint(tmp_path).growing)

    for _ in range(4):
        step = recorder.step()
        for one in (replay, again):
            one.add(*step)
        for cut in ("episodes", "segments"):
            both = (one.sample(bits, steps=4, cut=cut) for one in (replay, again))  # type: ignore[arg-type]
            for mine, other in zip(*both, strict=True):
                np.testing.assert_array_equal(mine, other)


def test_a_replay_whose_places_cannot_be_read_stays_empty() -> None:
    class Unreadable:
        first, end = 0, 5

        def __iter__(self) -> Any:
            raise CorruptFile("damaged")

    recorder, replay, again = (
        Recorder(World(VECTORS, 2, 1)),
        *(HostEpisodes(VectorReplay(9, 2, VECTORS), 1) for _ in "12"),
    )
    for _ in range(5):
        replay.add(*recorder.step())
    steps = replay.growing()["replay"]
    saved: Any = {"replay": [(steps.first, steps.read(steps.first, steps.end))], "episodes": Unreadable()}

    with pytest.raises(CorruptFile):
        again.load(saved)

    assert again.added == 0


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"sequences": "episodes", "burn_in": 5}, "burn_in is 5"),
        ({"buffer_size": 55, "burn_in": 5, "learning_starts": 10}, "buffer_size is 55"),
        ({"buffer_size": 100, "learning_starts": 200}, r"it must hold learning_starts \(200\)$"),
        ({"layers": 3}, "layers is 3"),
        ({"updates_per_step": 0.15}, "make 1.5 updates"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidConfig, match=error):
        rsac.Config(**changes)
