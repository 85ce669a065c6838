"""Each recurrent algorithm learns what only a memory can solve; without a memory, or with a broken one, none does."""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tasks import Count, Recall, learn_values

from rollbook.algos import rdpg, rsac, rtd3, sac
from rollbook.algos.parts.sequences import Seen
from rollbook.training import recurrent
from rollbook.training.carried import RememberingPolicy
from rollbook.training.device import DeviceEnvs
from rollbook.training.host import HostEnvs

SMALL: dict[str, Any] = {
    "num_envs": 8, "train_every": 3, "updates_per_step": 0.125, "learning_starts": 240, "buffer_size": 8_000,
    "gamma": 0.5, "lr": 3e-3, "critic_lr": 5e-3, "tau": 0.05, "log_every": 240,
}  # fmt: skip
SEQUENCES: dict[str, Any] = {
    **SMALL, "batch_size": 16, "sequence_length": 8, "units": 16, "hidden_sizes": (32,),
}  # fmt: skip
FEW_ACTIONS_AT_RANDOM = {"exploration_noise": 0.3}
CASES: dict[str, Any] = {
    "rsac": (rsac, rsac.Config(**SEQUENCES, alpha=0.01, learn_alpha=False)),
    "rtd3": (rtd3, rtd3.Config(**SEQUENCES, **FEW_ACTIONS_AT_RANDOM, target_noise=0.05)),
    "rdpg": (rdpg, rdpg.Config(**SEQUENCES, **FEW_ACTIONS_AT_RANDOM)),
    "rsac on episodes, gru, shared": (
        rsac,
        rsac.Config(
            **{**SEQUENCES, "sequence_length": 4}, alpha=0.01, learn_alpha=False, sequences="episodes", cell="gru",
            encoders="shared",
        ),
    ),
    "rtd3 with stored memory": (
        rtd3, rtd3.Config(**SEQUENCES, **FEW_ACTIONS_AT_RANDOM, target_noise=0.05, start="stored", layers=2)
    ),
}  # fmt: skip
OFTEN = ("rsac", "rdpg")
WHO_COUNTS = (rdpg, Count, CASES["rdpg"][1])
ITERATIONS = 20  # of 240 steps, with 30 updates each


@cache
def learned(name: str) -> Any:
    """The state after learning; what is compiled and learned once serves several tests."""
    algorithm, config = CASES[name]
    return learn_values(algorithm, Recall, config, ITERATIONS)


def recall_error(algorithm: Any, state: Any) -> float:
    """Of the answer to both cues, by the best actions with what is carried from step to step."""
    actor, cues = jax.device_get(state.actor), np.array([-0.8, 0.8], np.float32)
    memory, action, reward = (np.zeros(shape, np.float32) for shape in ((2, actor.encoder.memory_size), (2, 1), 2))
    for t in range(3):
        observation = np.stack([cues * (t == 0), np.full(2, t / 3, np.float32)], axis=-1)
        action, memory = algorithm.act(actor, Seen(observation, action, reward), memory, None)
    return float(np.abs(action[:, 0] - cues).max())


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_a_memory_task_is_solved(name: str) -> None:
    assert recall_error(CASES[name][0], learned(name)) < 0.3


@pytest.mark.slow
def test_without_a_memory_it_is_not_solved() -> None:
    config = sac.Config(**SMALL, batch_size=128, hidden_sizes=(32,), alpha=0.01, learn_alpha=False)
    state = learn_values(sac, Recall, config, ITERATIONS)

    answer = sac.act(state.actor, jnp.array([[0.0, 2 / 3]]), None)
    assert abs(float(answer[0, 0])) < 0.6  # the same for both cues, so it misses one by as much as 0.8


def test_it_is_not_solved_if_the_memory_is_lost_at_every_step_of_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    right = recurrent.sample_sequences

    def forgetful(*args: Any, **kwargs: Any) -> Any:
        batch = right(*args, **kwargs)
        return batch._replace(begins=jnp.ones_like(batch.begins))

    monkeypatch.setattr(recurrent, "sample_sequences", forgetful)

    algorithm, config = CASES["rdpg"]
    assert recall_error(algorithm, learn_values(algorithm, Recall, config, ITERATIONS)) > 0.6


def test_it_is_not_solved_if_the_memory_is_lost_at_every_step_of_acting() -> None:
    class Forgetful:
        @staticmethod
        def act(actor: Any, seen: Any, memory: Any, noise: Any) -> Any:
            return rsac.act(actor, seen, np.zeros_like(memory), noise)

    assert recall_error(rsac, learned("rsac")) < 0.3
    assert recall_error(Forgetful, learned("rsac")) > 0.6


def count_error(state: Any) -> float:
    """The largest in four episodes, played one after the other."""
    policy, errors = RememberingPolicy(rdpg, state.actor, Count.spaces), []
    for length in (2, 3, 1, 3):
        policy.begin()
        errors += [abs(float(policy(np.ones(1))[0]) - Count.wanted(step)) for step in range(length)]
    return max(errors)


def test_counting_an_episodes_steps_is_learned_and_fails_if_the_memory_is_carried_over_its_end_in_playing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = learn_values(*WHO_COUNTS, ITERATIONS)
    assert count_error(state) < 0.3

    begin = RememberingPolicy.begin
    monkeypatch.setattr(RememberingPolicy, "begin", lambda self: hasattr(self, "_carried") or begin(self))
    assert count_error(state) > 0.6


def test_counting_is_not_learned_if_the_memory_is_carried_over_an_episodes_end_in_learning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = recurrent.sample_sequences

    def unforgetting(*args: Any, **kwargs: Any) -> Any:
        batch = right(*args, **kwargs)
        return batch._replace(begins=jnp.zeros_like(batch.begins))

    monkeypatch.setattr(recurrent, "sample_sequences", unforgetting)

    assert count_error(learn_values(*WHO_COUNTS, ITERATIONS)) > 0.6


# ---- what is carried ------------------------------------------------------------------------------------------------


class Stagger(Recall):
    """Ends after a number of steps that was drawn with the episode, or by time."""

    limit = 4

    def initial(self, rng: Any, params: Any = None) -> Any:
        return jnp.stack([jax.random.randint(rng, (), 1, 6).astype(jnp.float32), 0.0])

    def terminal(self, state: Any, rng: Any, params: Any = None) -> Any:
        return state[1] == state[0]


class Unlearning:
    """Acts as rsac and never changes: one policy makes all steps, and little has to be compiled."""

    LOOP, init, explore, act = rsac.LOOP, staticmethod(rsac.init), staticmethod(rsac.explore), staticmethod(rsac.act)

    @staticmethod
    def update(state: Any, batch: Any, key: Any, config: Any) -> Any:
        return state, {"losses/critic": batch.reward.mean()}


class StaggerOnHost(gymnasium.Env[Any, Any]):
    """The same, in Python."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.length = 0, self.np_random.integers(1, 6)
        return np.array([self.length / 6, 0], np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation = np.array([0, self.steps / 3], np.float32)
        return observation, -float(action[0] ** 2), self.steps == self.length, self.steps == Stagger.limit, {}


def steps_on_device(config: Any) -> tuple[Any, Any, Any]:
    """The algorithm's state, the steps in the replay, and the replay, which has their places and memories."""
    loop = recurrent.DeviceLoop(DeviceEnvs(Stagger(), 3, Stagger.limit), Unlearning, config, Stagger.spaces, 0, 10)
    state, _ = loop.advance(loop.start(), 1)
    state = jax.device_get(state)
    return state.learner.algorithm, state.replay.replay.data, state.replay


def steps_on_host(config: Any) -> tuple[Any, Any, Any]:
    loop = recurrent.HostLoop(HostEnvs(StaggerOnHost, 3, 0), Unlearning, config, Stagger.spaces, 0, 10)
    learner, _ = loop.advance(loop.start(), 1)
    return jax.device_get(learner.algorithm), loop.replay.replay.data, loop.replay


on_device_and_on_host = pytest.mark.parametrize("make_steps", [steps_on_device, steps_on_host])


def stored_against_replayed(make_steps: Any) -> tuple[Any, Any, Any]:
    """Memories as stored while acting, and again from the steps in the replay, with the steps' places; three
    environments that end at different times.
    """
    few = {"num_envs": 3, "train_every": 40, "updates_per_step": 1 / 120, "log_every": 120}
    algorithm, data, replay = make_steps(rsac.Config(**{**SEQUENCES, **few}, start="stored", see_reward=True))
    stored, position = replay.memory[:40], replay.position[:40]
    encoders = [algorithm.actor.encoder, *algorithm.critic.encoders]
    memory = np.zeros_like(stored[0])
    size, replayed = encoders[0].memory_size, []
    for row in range(40):
        begins = position[row] == 0
        memory = np.where(begins[:, None], np.float32(0), memory)
        replayed.append(memory)
        action = np.where(begins[:, None], 0, data.action[row - 1])
        reward = np.where(begins, 0, data.reward[row - 1])
        seen = Seen(data.observation[row], action, reward)
        parts = [encoder.step(seen, memory[:, n * size : (n + 1) * size])[1] for n, encoder in enumerate(encoders)]
        memory = np.concatenate(parts, axis=-1)
    return stored, np.stack(replayed), position


@on_device_and_on_host
def test_the_memory_after_an_episodes_end_is_the_first_one_and_else_what_the_steps_make_it(make_steps: Any) -> None:
    stored, replayed, position = stored_against_replayed(make_steps)

    assert len({tuple(row) for row in (position == 0).tolist()}) > 3, "they do end at different times"
    assert not stored[position == 0].any()
    assert all(stored[position == place].any(-1).all() for place in (1, 2, 3))
    np.testing.assert_allclose(stored, replayed, atol=1e-5)


@on_device_and_on_host
def test_a_memory_that_is_not_forgotten_at_an_episodes_end_is_caught(
    make_steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "forgotten_where", lambda begins, carried: carried)

    stored, replayed, position = stored_against_replayed(make_steps)

    assert stored[3:][position[3:] == 0].any()
    assert not np.allclose(stored, replayed, atol=1e-2)
