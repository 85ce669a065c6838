"""The rules of training that hold everywhere, each as a test of its own."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rollbook
from rollbook.errors import UnsuitableEnvironment
from rollbook.training.environments import find_environment
from rollbook.training.evaluate import Evaluation
from rollbook.training.host import HostEnvs
from rollbook.training.setup import Setup, load_algorithm
from rollbook.training.train import Labels, make_setup, train_one
from rollbook.training.trainer import Trainer, make_machine

SMALL = {"num_envs": 2, "rollout_steps": 64, "minibatches": 2, "epochs": 2, "hidden_sizes": (8,)}
OTHERS = {"num_envs": 2, "rollout_steps": 64, "value_steps": 5, "hidden_sizes": (8,)}
OFF_POLICY = {
    "num_envs": 2, "train_every": 4, "updates_per_step": 0.25, "learning_starts": 128, "buffer_size": 500,
    "batch_size": 16, "n_step": 2, "hidden_sizes": (8,), "log_every": 64,
}  # fmt: skip
CONTINUOUS, DISCRETE = ("ddpg", "td3", "sac"), ("dqn", "c51", "qrdqn")


def small_setup(algorithm: str = "ppo", env: str = "CartPole-v1", **changes: Any) -> Setup:
    usual = SMALL if algorithm == "ppo" else OFF_POLICY if algorithm in (*CONTINUOUS, *DISCRETE) else OTHERS
    config = {**usual, **changes.pop("config", {})}
    options = {"steps": 1280, "eval_every": 512, "checkpoint_every": 256, "eval_episodes": 2, **changes}
    return make_setup(algorithm, env, preset="none", sources=[config], **options)


def metrics_of(record: rollbook.RunRecord) -> dict[str, list[tuple[int, float]]]:
    """Everything but the timing."""
    found: dict[str, list[tuple[int, float]]] = {}
    relation = rollbook.open().sql(
        f"select name, step, value from metrics where run_id = '{record.run_id}' and name <> 'charts/SPS' "
        "order by name, step, value"
    )
    for name, step, value in relation.fetchall():
        found.setdefault(name, []).append((step, value))
    return found


def last_tensors(record: rollbook.RunRecord) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(record.load_checkpoint().tensors["learner"])]


def assert_same(first: rollbook.RunRecord, second: rollbook.RunRecord) -> None:
    assert metrics_of(first) == metrics_of(second)
    for one, other in zip(last_tensors(first), last_tensors(second), strict=True):
        np.testing.assert_array_equal(one, other)


# ---- a time limit is not the end of the task ------------------------------------------------------------------------


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps; ends at the fifth if told to stop."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.count += 1
        return np.array([self.count], np.float32), 1.0, bool(action) and self.count == 5, False, {}


@pytest.mark.parametrize(("stops", "length"), [(1, 5), (0, 7)], ids=["terminated", "truncated"])
def test_host_steps_hand_out_the_true_final_observation(stops: int, length: int) -> None:
    envs = HostEnvs(lambda: gymnasium.wrappers.TimeLimit(Counter(), 7), 2, seed=1)
    envs.reset()

    made = [envs.step(np.array([stops, stops])) for _ in range(length)]

    last, ended = made[-1]
    assert last.next_observation.tolist() == [[length], [length]]
    assert envs.observation.tolist() == [[0], [0]]
    assert last.terminated.all() == (stops == 1)
    assert last.truncated.all() == (stops == 0)
    assert [(episode.total, episode.length) for episode in ended] == [(length, length)] * 2
    assert not any(step.terminated.any() or step.truncated.any() for step, _ in made[:-1])


def test_device_steps_hand_out_the_true_final_observation_and_no_junk_transition() -> None:
    environment = find_environment("Pendulum-v1", max_episode_steps=5)
    envs = environment.on_device(3)
    state = envs.reset(jax.random.key(0))
    seen = []
    for number in range(10):
        fresh = envs.draw(jax.random.key(number), ())
        before = state.observation
        state, made = envs.step(state, jnp.zeros((3, 1)), jax.random.split(jax.random.key(1), 3), fresh)
        seen.append((before, made, state.observation, fresh.observation))

    for number, (before, made, after, fresh) in enumerate(seen):
        last = number % 5 == 4
        assert bool(made.truncated.all()) is last
        assert not made.terminated.any()
        assert made.episode_length.tolist() == [number % 5 + 1] * 3
        np.testing.assert_array_equal(after, fresh if last else made.next_observation)
        assert not np.array_equal(before, made.next_observation)


def test_one_environment_that_resets_leaves_the_others_alone() -> None:
    environment = find_environment("CartPole-v1")
    envs = environment.on_device(2)
    state = envs.reset(jax.random.key(0))
    tilted = jnp.array([[0.0, 0.0, 0.3, 0.0], [0.0, 0.0, 0.0, 0.0]])  # the first pole has fallen
    state = state._replace(inner=tilted, observation=tilted)
    fresh = envs.draw(jax.random.key(1), ())

    state, made = envs.step(state, jnp.array([1, 1]), jax.random.split(jax.random.key(1), 2), fresh)

    assert made.terminated.tolist() == [True, False]
    np.testing.assert_array_equal(state.observation[0], fresh.observation[0])
    np.testing.assert_array_equal(state.observation[1], made.next_observation[1])
    assert state.elapsed.tolist() == [0, 1]


# ---- same seed, same numbers; seeds are independent ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        ("ppo", "CartPole-v1"),
        ("td3", "Hopper-v5"),
        pytest.param("trpo", "Pendulum-v1", marks=pytest.mark.slow),
        pytest.param("vpg", "Hopper-v5", marks=pytest.mark.slow),
        pytest.param("sac", "Pendulum-v1", marks=pytest.mark.slow),
        pytest.param("c51", "CartPole-v1", marks=pytest.mark.slow),
    ],
)
def test_same_seed_same_numbers(book: Path, algorithm: str, env: str) -> None:
    first, second = (train_one(small_setup(algorithm, env), Labels(), None) for _ in range(2))
    other = train_one(dataclasses.replace(small_setup(algorithm, env), seed=2), Labels(), None)

    assert_same(first, second)
    assert metrics_of(first) != metrics_of(other)


# ---- resume is exact ----------------------------------------------------------------------------------------------


# Each algorithm, on the device or on the host; the other pairs among the slow tests.
OFTEN = [("vpg", "Acrobot-v1"), ("trpo", "Pendulum-v1"), ("ppo", "CartPole-v1"), ("ppo", "HalfCheetah-v5")]
ALGORITHMS, ENVS = ("vpg", "trpo", "ppo"), ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "HalfCheetah-v5")


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        *OFTEN,
        *(
            pytest.param(algorithm, env, marks=pytest.mark.slow)
            for algorithm in ALGORITHMS
            for env in ENVS
            if (algorithm, env) not in OFTEN
        ),
    ],
)
def test_resume_is_exact(book: Path, algorithm: str, env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = "host" if env == "Acrobot-v1" else "auto"
    changes: dict[str, Any] = {
        "config": {"normalise_observations": True, "normalise_rewards": True},
        "backend": backend,
    }
    setup = small_setup(algorithm, env, **changes)
    whole = train_one(setup, Labels(), None)

    class Killed(Exception):
        pass

    def killed(self: Trainer, *_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        # It dies while it is about to evaluate for the second time: after the checkpoint at 768.
        patch.setattr(Trainer, "_evaluate", _at_second_call(Trainer._evaluate, killed))
        with pytest.raises(Killed):
            train_one(setup, Labels(), None)
    died = rollbook.open().runs("status = 'failed'")[0]
    assert [checkpoint.step for checkpoint in died.checkpoints()] == [256, 512, 768]
    monkeypatch.setenv("ROLLBOOK_RESUME", died.run_id)
    resumed = train_one(setup, Labels(), None)

    assert resumed.run_id == died.run_id
    assert resumed.status == "finished"
    assert_same(whole, resumed)


# Each off-policy algorithm on the device and on the host; n steps, several environments, a replay that goes round.
@pytest.mark.parametrize(
    ("algorithm", "env", "backend"),
    [
        ("sac", "Pendulum-v1", "device"),
        ("td3", "HalfCheetah-v5", "host"),
        ("dqn", "CartPole-v1", "device"),
        ("qrdqn", "CartPole-v1", "host"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("ddpg", "Pendulum-v1", "device"), ("td3", "Pendulum-v1", "device"), ("c51", "Acrobot-v1", "device"),
                ("qrdqn", "Acrobot-v1", "device"), ("ddpg", "HalfCheetah-v5", "host"), ("sac", "Hopper-v5", "host"),
                ("dqn", "CartPole-v1", "host"), ("c51", "CartPole-v1", "host"), ("sac", "Pendulum-v1", "host"),
            ]
        ),
    ],
)  # fmt: skip
def test_resume_is_exact_with_a_replay(
    book: Path, algorithm: str, env: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = small_setup(algorithm, env, backend=backend)
    whole = train_one(setup, Labels(), None)
    died = killed_at_second_evaluation(setup, monkeypatch)
    monkeypatch.setenv("ROLLBOOK_RESUME", died.run_id)
    resumed = train_one(setup, Labels(), None)

    assert resumed.status == "finished"
    assert_same(whole, resumed)
    saved = resumed.load_checkpoint().growing["replay"]
    assert (saved.first, saved.end) == (1280 // 2 - 250, 1280 // 2)


def killed_at_second_evaluation(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> rollbook.RunRecord:
    class Killed(Exception):
        pass

    def killed(self: Trainer, *_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_evaluate", _at_second_call(Trainer._evaluate, killed))
        with pytest.raises(Killed):
            train_one(setup, Labels(), None)
    died = rollbook.open().runs("status = 'failed'")[0]
    assert [checkpoint.step for checkpoint in died.checkpoints()] == [256, 512, 768]
    return died


@pytest.mark.parametrize("damage", ["not saved", "damaged"])
def test_without_its_replay_a_run_goes_on_and_says_what_that_means(
    book: Path, damage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = small_setup("dqn", no_save_replay=damage == "not saved")
    died = killed_at_second_evaluation(setup, monkeypatch)
    chunks = list(died.folder.glob("checkpoints/growing/*"))
    assert bool(chunks) == (damage == "damaged")
    for chunk in chunks:
        chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    monkeypatch.setenv("ROLLBOOK_RESUME", died.run_id)
    resumed = train_one(setup, Labels(), None)

    said = capsys.readouterr().err
    assert ("the replay was not saved" if damage == "not saved" else "the replay cannot be read") in said
    assert "it begins empty" in said
    steps = [step for step, _ in metrics_of(resumed)["losses/critic"]]
    # Nothing is learned until there are 128 steps again after the checkpoint at 768.
    assert [step for step in steps if step > 768] == list(range(768 + 128, 1281, 64))


@pytest.mark.parametrize(("learning_starts", "said"), [(256, False), (257, True)])
def test_a_training_too_short_to_learn_anything_says_so(
    book: Path, learning_starts: int, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    record = train_one(small_setup("dqn", steps=256, config={"learning_starts": learning_starts}), Labels(), None)

    assert ("nothing will be learned: learning_starts is 257" in capsys.readouterr().err) == said
    assert ("losses/critic" in metrics_of(record)) != said


def test_a_replay_that_began_anew_is_not_taken_for_the_one_that_was_lost(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = train_one(small_setup("dqn", steps=256), Labels(), None)
    (lost,) = died.folder.glob("checkpoints/growing/*")
    lost.unlink()
    monkeypatch.setenv("ROLLBOOK_RESUME", died.run_id)
    resumed = train_one(small_setup("dqn", steps=512), Labels(), None)

    saved = resumed.load_checkpoint(512).growing["replay"]
    # As many rows as the lost one had, with the same numbers, but others.
    assert (saved.first, saved.end) == (0, 128)
    assert sum(len(columns["reward"]) for _, columns in saved) == 128


@pytest.mark.parametrize("backend", ["device", "host"])
@pytest.mark.parametrize("buffer_size", [200, 2000])
def test_a_fork_with_another_buffer_learns_from_steps_that_were_made(
    book: Path, backend: str, buffer_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = train_one(small_setup("dqn", backend=backend), Labels(), None)
    monkeypatch.setenv("ROLLBOOK_PARENT", parent.run_id)
    setup = small_setup("dqn", steps=1536, backend=backend, config={"buffer_size": buffer_size})
    child = train_one(setup, Labels(), None)

    kept, saved = parent.load_checkpoint().growing["replay"], child.load_checkpoint().growing["replay"]
    assert (saved.first, saved.end) == (max(kept.first, 768 - buffer_size // 2), 768)
    assert all(columns["observation"].any(axis=-1).all() for _, columns in saved)
    assert metrics_of(child)["charts/replay_size"][-1] == (1536, (saved.end - saved.first) * 2)


def test_a_fork_keeps_the_replay_of_its_parent_in_its_own_folder(
    book: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = train_one(small_setup("dqn"), Labels(), None)
    monkeypatch.setenv("ROLLBOOK_PARENT", parent.run_id)
    child = train_one(small_setup("dqn", steps=1536), Labels(), None)

    assert child.run_id != parent.run_id
    saved = child.load_checkpoint().growing["replay"]
    assert (saved.first, saved.end) == (1536 // 2 - 250, 1536 // 2)
    assert sum(len(columns["reward"]) for _, columns in saved) == 250


def _at_second_call(usual: Any, other: Any) -> Any:
    calls = []

    def call(*args: Any) -> Any:
        calls.append(1)
        return (other if len(calls) == 2 else usual)(*args)

    return call


SMALL_LOOPS = "xla_cpu_small_while_loop_byte_threshold"
ONE_OR_SEVERAL_AT_ONCE = """
from test_rules_of_training import Labels, assert_same, small_setup, train_one
from rollbook.training import {loops}
one = train_one(small_setup("{algorithm}"), Labels(), None)
{loops}.STEPS_AT_ONCE = 1
assert_same(one, train_one(small_setup("{algorithm}"), Labels(), None))
"""


@pytest.mark.parametrize(("loops", "algorithm"), [("on_policy", "ppo"), ("off_policy", "dqn")])
def test_more_iterations_in_one_call_do_not_change_the_numbers(book: Path, loops: str, algorithm: str) -> None:
    """Only the compiler that trainings have makes the same of both, not the quick one that tests have."""
    program = ONE_OR_SEVERAL_AT_ONCE.format(loops=loops, algorithm=algorithm)
    changes = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | changes, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


WHOLE_OR_IN_CALLS = """
import os
from test_rules_of_training import Labels, small_setup, train_one
print(train_one(small_setup("{algorithm}"), Labels(), None).run_id)
assert {small} in os.environ["XLA_FLAGS"]
"""


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "c51"])
def test_small_loops_as_one_piece_of_code_do_not_change_the_numbers(book: Path, algorithm: str) -> None:
    """And what the user has set in XLA_FLAGS stays."""
    records = []
    for flags, small in [("", "byte_threshold=200000"), (f"--xla_backend_extra_options={SMALL_LOOPS}=0", "=0")]:
        program = WHOLE_OR_IN_CALLS.format(algorithm=algorithm, small=repr(small))
        changes = {"XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", program], env=os.environ | changes, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        records.append(rollbook.open(book).run(done.stdout.split()[-1]))

    assert_same(*records)


def test_images_are_learned_from_and_a_game_begins_anew_after_a_resume(
    book: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the replay holds is then exactly what was played, and no n steps cross the border."""
    config = {"num_envs": 1, "train_every": 8, "updates_per_step": 0.125, "learning_starts": 16, "buffer_size": 64,
              "batch_size": 2, "log_every": 16}  # fmt: skip
    changes = {"config": config, "steps": 32, "eval_every": 0, "checkpoint_every": 16}
    first = train_one(small_setup("dqn", "ALE/Pong-v5", **changes), Labels(), None)
    monkeypatch.setenv("ROLLBOOK_RESUME", first.run_id)
    record = train_one(small_setup("dqn", "ALE/Pong-v5", **(changes | {"steps": 48})), Labels(), None)

    assert "cannot be saved within an episode: its episodes begin anew" in capsys.readouterr().err
    assert [step for step, _ in metrics_of(record)["losses/critic"]] == [16, 32, 48]
    saved = record.load_checkpoint().growing
    columns = [columns for _, columns in saved["replay"]]
    assert np.flatnonzero(np.concatenate([chunk["begins"] for chunk in columns])).tolist() == [0, 32]
    stored = saved["frames"].end
    assert 2 <= stored <= 1 + 32 + 1 + 16  # a frame a step, and one for each beginning; none for one that stands still
    assert max(chunk["next_frames"].max() for chunk in columns) == stored - 1


def test_no_chance_is_used_twice() -> None:
    """Stale noise is a quiet mistake: every update and every step has random numbers of its own."""
    machine = make_machine(small_setup("sac", "Pendulum-v1"))
    loop: Any = machine.loop
    drawn = [loop._chance(jax.random.key(1), jnp.int32(iteration), jnp.float32(20)) for iteration in range(3)]

    for name, per in (("noise", 8 * 4 * 2), ("random", 8 * 4 * 2), ("keys", 8 * 2), ("bits", 8 * 2 * 16)):
        numbers = np.concatenate([np.asarray(getattr(one, name)) for one in drawn])
        numbers = numbers.reshape(-1, 2) if name == "keys" else numbers.reshape(-1, 1)
        assert len(np.unique(numbers, axis=0)) == 3 * per, name


def test_learning_waits_for_its_first_steps_which_are_random(book: Path) -> None:
    record = train_one(small_setup("dqn"), Labels(), None)

    assert metrics_of(record)["losses/critic"][0][0] == 128
    assert metrics_of(record)["charts/replay_size"][:2] == [(128, 128.0), (192, 192.0)]
    assert metrics_of(record)["charts/replay_size"][-1] == (1280, 500.0)


@pytest.mark.parametrize(
    ("algorithm", "env", "error"),
    [
        ("sac", "CartPole-v1", "sac does not take CartPole-v1, whose actions are discrete"),
        ("dqn", "Pendulum-v1", "dqn does not take Pendulum-v1, whose actions are continuous"),
    ],
)
def test_an_algorithm_says_which_actions_it_takes(book: Path, algorithm: str, env: str, error: str) -> None:
    with pytest.raises(UnsuitableEnvironment, match=error):
        train_one(small_setup(algorithm, env), Labels(), None)

    assert not list(book.glob("tasks/*/*"))


@pytest.mark.parametrize(
    "schedule",
    [
        {"num_envs": 1, "train_every": 50, "updates_per_step": 1.0, "learning_starts": 100, "log_every": 1},
        {"num_envs": 3, "train_every": 1, "updates_per_step": 1.0, "learning_starts": 0, "log_every": 100},
        {"num_envs": 1, "train_every": 1, "updates_per_step": 2.0, "learning_starts": 30, "log_every": 10},
    ],
    ids=["fifty updates after fifty steps", "three environments", "two updates a step"],
)
@pytest.mark.parametrize("backend", ["device", "host"])
def test_updates_come_as_often_as_the_schedule_says(book: Path, schedule: dict[str, Any], backend: str) -> None:
    setup = small_setup("dqn", steps=200, backend=backend, config=schedule)
    record = train_one(setup, Labels(), None)

    steps = record.checkpoints()[-1].step
    updates = int(record.load_checkpoint().tensors["learner"]["algorithm"]["updates"])
    per_training = schedule["num_envs"] * schedule["train_every"]
    trainings = [step for step in range(per_training, steps + 1, per_training) if step >= schedule["learning_starts"]]
    # Two steps of each environment have to be there before n steps can be summed up.
    trainings = [step for step in trainings if step >= 2 * schedule["num_envs"]]
    assert updates == len(trainings) * round(per_training * schedule["updates_per_step"])


# ---- episodes as seen by the task -----------------------------------------------------------------------------------


def test_logged_returns_are_unnormalised_and_actions_rescaled(book: Path) -> None:
    record = train_one(
        small_setup("ppo", "Pendulum-v1", config={"normalise_rewards": True, "normalise_observations": True}),
        Labels(),
        None,
    )

    returns = [value for _, value in metrics_of(record)["charts/episodic_return"]]
    assert all(-2000 < value < -100 for value in returns)
    assert {length for _, length in metrics_of(record)["charts/episodic_length"]} == {200.0}


@pytest.mark.parametrize("backend", ["device", "host"])
def test_the_success_of_every_episode_and_its_rate_in_evaluations_are_logged(book: Path, backend: str) -> None:
    setup = small_setup("sac", "bumps-1d-v0+concat2", backend=backend, steps=512, eval_every=256)
    metrics = metrics_of(train_one(setup, Labels(), None))

    assert [step for step, _ in metrics["charts/success_rate"]] == [s for s, _ in metrics["charts/episodic_return"]]
    # Of each episode, as its return says: 1 for success, else 0.
    assert sorted(metrics["charts/success_rate"]) == sorted(metrics["charts/episodic_return"])
    assert metrics["eval/success_rate"] == metrics["eval/return"]


def test_steps_count_environment_steps_of_all_environments(book: Path) -> None:
    record = train_one(small_setup("ppo", "Pendulum-v1"), Labels(), None)

    # Two environments of 200 steps end together after 400, 800 and 1200 steps in all.
    assert [step for step, _ in metrics_of(record)["charts/episodic_return"]] == [400, 400, 800, 800, 1200, 1200]
    assert record.checkpoints()[-1].step == 1280


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_good_checkpoint(book: Path) -> None:
    from rollbook.errors import TrainingFailed

    setup = small_setup("ppo", "Pendulum-v1", config={"lr": 1e30, "max_grad_norm": 1e30})
    with pytest.raises(TrainingFailed, match=r"losses/\w+ is (nan|inf|-inf) at step \d+"):
        train_one(setup, Labels(), None)

    failed = rollbook.open().runs()[0]
    assert failed.status == "failed"
    for checkpoint in failed.checkpoints():
        tensors = jax.tree.leaves(failed.load_checkpoint(checkpoint.step).tensors["learner"])
        assert all(np.isfinite(leaf).all() for leaf in tensors if np.issubdtype(np.asarray(leaf).dtype, np.floating))


def test_evaluation_does_not_change_the_training(book: Path) -> None:
    with_it = train_one(small_setup(), Labels(), None)
    without = train_one(small_setup(eval_every=0), Labels(), None)

    names = [name for name in metrics_of(with_it) if not name.startswith("eval/")]
    assert {name: metrics_of(with_it)[name] for name in names} == metrics_of(without)
    assert "eval/return" in metrics_of(with_it)


def test_debug_metrics_do_not_change_the_training(book: Path) -> None:
    usual = train_one(small_setup(), Labels(), None)
    looked_at = train_one(small_setup(), Labels(verbosity="debug"), None)

    names = [name for name in metrics_of(looked_at) if not name.startswith("debug/")]
    assert {name: metrics_of(looked_at)[name] for name in names} == metrics_of(usual)
    assert {"debug/gradient_norm", "debug/actor_weight_norm", "debug/advantage_p50"} <= metrics_of(looked_at).keys()


@pytest.mark.parametrize("backend", ["device", "host"])
def test_debug_metrics_do_not_change_learning_from_a_replay(book: Path, backend: str) -> None:
    usual = train_one(small_setup("sac", "Pendulum-v1", backend=backend), Labels(), None)
    looked_at = train_one(small_setup("sac", "Pendulum-v1", backend=backend), Labels(verbosity="debug"), None)

    found = metrics_of(looked_at)
    names = [name for name in found if not name.startswith("debug/")]
    assert {name: found[name] for name in names} == metrics_of(usual)
    assert {"debug/td_error_p50", "debug/critic_gradient_norm", "debug/overestimation"} <= found.keys()


@pytest.mark.parametrize("backend", ["device", "host"])
@pytest.mark.parametrize(("env", "limited"), [("Pendulum-v1", True), ("CartPole-v1", False)])
def test_an_evaluation_knows_how_its_episodes_ended(env: str, limited: bool, backend: str) -> None:
    setup = small_setup("ddpg" if limited else "dqn", env, backend=backend)
    machine = make_machine(setup)
    learner = machine.loop.learner(machine.loop.start())

    found = machine.evaluator(learner.algorithm.actor, learner.normaliser, 0)

    assert found.truncated.tolist() == [limited] * 2
    np.testing.assert_array_equal(found.lengths == 200, found.truncated)
    if not limited:  # the pole lies, or the cart is off the track
        assert (np.abs(found.first_observations) < 0.06).all()
        assert ((np.abs(found.last_observations[:, 2]) > 0.2) | (np.abs(found.last_observations[:, 0]) > 2.4)).all()


def test_what_is_expected_after_a_time_limit_is_no_overestimation() -> None:
    found = Evaluation(
        returns=np.ones(2), lengths=np.array([2, 3]), discounted=np.ones(2), truncated=np.array([True, False]),
        first_observations=np.array([[4.0], [2.0]]), last_observations=np.array([[8.0], [8.0]]),
    )  # fmt: skip
    trainer = object.__new__(Trainer)
    trainer.machine = SimpleNamespace(algorithm=load_algorithm("sac"), evaluator=SimpleNamespace(gamma=0.5))  # type: ignore[assignment]
    trainer.loop = SimpleNamespace(growing=print, with_growing=print, value=lambda _, seen: seen[:, 0])  # type: ignore[assignment]

    # The first episode brought 1 and, a quarter of it, 8; the second ended with 1.
    assert trainer._overestimation(None, found) == {"debug/expected_return": 3, "debug/overestimation": 1}
