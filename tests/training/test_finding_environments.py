from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from rollbook import domains
from rollbook.book.checkpoints import load_checkpoint, save_checkpoint
from rollbook.errors import UnknownEnvironment, UnsuitableEnvironment, UsageError
from rollbook.training.environments import find_environment, to_spaces
from rollbook.training.snapshots import can_snapshot, restore, snapshot


def test_a_twin_runs_on_the_device_unless_told_otherwise() -> None:
    assert find_environment("CartPole-v1").backend == "device"
    assert find_environment("rollbook/CartPole-v1").backend == "device"
    assert find_environment("CartPole-v1", "host").backend == "host"
    assert find_environment("cartpole-continuous-v0", "host").env_id == "rollbook/cartpole-continuous-v0"
    assert find_environment("Hopper-v5").backend == "host"


def test_what_has_no_functions_cannot_run_on_the_device() -> None:
    with pytest.raises(UnknownEnvironment, match="'Hopper-v5' is no functional domain") as raised:
        find_environment("Hopper-v5", "device")

    assert raised.value.hint == "--backend host runs any Gymnasium environment"


@pytest.mark.parametrize("wrong", ["", "a|b-v1", "x y-v1", "../../x", "a:b:c", "<b>"])
def test_what_cannot_be_an_id_is_refused_with_examples(wrong: str) -> None:
    with pytest.raises(UnknownEnvironment, match="is no environment's id") as raised:
        find_environment(wrong, "host")

    assert "CartPole-v1" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("HalfCheeta-v5", "HalfCheetah-v5"),
        ("cartpole-continous-v0", "cartpole-continuous-v0"),
        ("HalfCheeta-v5-p", "HalfCheetah-v5-p"),
        ("HalfCheeta-v5-v+concat5", "HalfCheetah-v5-v+concat5"),
        ("pendulm-p-v0+concat5", "pendulum-p-v0+concat5"),
        ("cartpole-continuous-v0-p", "cartpole-continuous-p-v0"),
    ],
)
def test_an_unknown_environment_is_answered_with_the_nearest_names(wrong: str, meant: str) -> None:
    with pytest.raises(UnknownEnvironment, match=re.escape(f"there is no environment '{wrong}'")) as raised:
        find_environment(wrong)

    assert f"did you mean '{meant}'" in str(raised.value.hint)


def test_a_stack_that_is_none_is_refused_with_how_to_write_one() -> None:
    with pytest.raises(UnknownEnvironment, match=r"'pendulum-p-v0\+concat0' is no environment's id") as raised:
        find_environment("pendulum-p-v0+concat0")

    assert "+concatN with N of 1 or more" in str(raised.value.hint)


def test_a_domain_in_a_window_warns_of_nothing() -> None:
    find_environment("car-v0").make(render="human")


@pytest.mark.parametrize(
    ("module", "env_id", "command"),
    [
        ("mujoco", "Hopper-v5", "pip install 'rollbook[mujoco]'"),
        ("ale_py", "ALE/Pong-v5", "pip install 'rollbook[atari]'"),
        ("Box2D", "LunarLander-v3", "pip install 'rollbook[box2d]'"),
    ],
)
def test_a_missing_package_is_answered_with_the_command_that_installs_it(
    module: str, env_id: str, command: str
) -> None:
    program = f"""
import sys
sys.modules[{module!r}] = None
from rollbook.errors import UnknownEnvironment
from rollbook.training.environments import find_environment
try:
    find_environment({env_id!r})
except UnknownEnvironment as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)

    assert ended.stdout == f"{env_id!r} needs a package that is not installed\nhint: {command}\n", ended.stderr


def test_unsuitable_spaces_are_named() -> None:
    box = gymnasium.spaces.Box(-1, 1, (3,))
    with pytest.raises(UnsuitableEnvironment, match="X takes actions of MultiDiscrete"):
        to_spaces("X", box, gymnasium.spaces.MultiDiscrete([2, 2]))
    with pytest.raises(UnsuitableEnvironment, match="X has observations of Text"):
        to_spaces("X", gymnasium.spaces.Text(5), gymnasium.spaces.Discrete(2))
    with pytest.raises(UnsuitableEnvironment, match="X gives images of 10 x 10"):
        to_spaces("X", gymnasium.spaces.Box(0, 255, (10, 10, 3), np.uint8), gymnasium.spaces.Discrete(2))
    with pytest.raises(UsageError, match="max_episode_steps is 0"):
        find_environment("CartPole-v1", max_episode_steps=0)


def test_other_observations_become_one_flat_vector() -> None:
    assert find_environment("FrozenLake-v1").spaces.observation == (16,)
    assert find_environment("Blackjack-v1").spaces.observation == (32 + 11 + 2,)


def test_a_time_limit_of_the_users_own_counts() -> None:
    environment = find_environment("Hopper-v5", max_episode_steps=3)
    env = environment.make()
    env.reset(seed=1)

    ends = [env.step(np.zeros(3))[2:4] for _ in range(3)]

    assert ends == [(False, False), (False, False), (False, True)]
    env.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("env_id", "backend", "size"),
    [
        ("pendulum-p-v0", "device", 2),
        ("pendulum-p-v0+concat5", "device", 10),
        ("CartPole-v1+concat3", "device", 12),
        ("HalfCheetah-v5-p", "host", 8),
        ("HalfCheetah-v5-v", "host", 9),
        ("Ant-v5-p", "host", 13 + 78),
        ("HalfCheetah-v5-p+concat3", "host", 24),
        ("MountainCar-v0+concat2", "device", 4),
    ],
)
def test_an_id_says_what_is_seen_and_how_much_of_it_at_once(env_id: str, backend: str, size: int) -> None:
    environment = find_environment(env_id)
    env = environment.make(training=False)

    assert (environment.backend, environment.spaces.observation) == (backend, (size,))
    assert env.reset(seed=1)[0].shape == (size,)
    env.close()


@pytest.mark.parametrize("env_id", ["pendulum-p-v0+concat5", "rollbook/pendulum-p-concat5-v0", "Pendulum-v1+concat5"])
def test_a_stack_is_there_on_the_host_too(env_id: str) -> None:
    environment = find_environment(env_id, "host")

    assert environment.backend == "host"
    assert environment.spaces.observation == ((15,) if env_id.startswith("P") else (10,))


def test_a_part_of_what_has_no_parts_is_refused() -> None:
    with pytest.raises(UnsuitableEnvironment, match="does not tell which of its numbers are positions") as raised:
        find_environment("LunarLander-v3-p")
    assert "-p and -v are for MuJoCo" in str(raised.value.hint)
    with pytest.raises(UnsuitableEnvironment, match=r"^Pendulum-v1: PendulumEnv does not tell which") as raised:
        find_environment("Pendulum-v1-p+concat5")
    assert raised.value.hint == "did you mean 'pendulum-p-v0+concat5'?"
    with pytest.raises(UnsuitableEnvironment, match="only vectors can be stacked"):
        find_environment("ALE/Breakout-v5+concat5")
    with pytest.raises(UnknownEnvironment, match="there is no environment 'Walker-v5-p'"):
        find_environment("Walker-v5-p")


def test_only_episodes_of_the_usual_length_say_whether_they_were_a_success() -> None:
    assert find_environment("car-v0").success_above == 0.5
    assert find_environment("car-v0", "host").success_above == 0.5
    assert find_environment("car-v0+concat20").success_above == 0.5
    assert find_environment("car-v0", max_episode_steps=30).success_above is None
    assert find_environment("CartPole-v1").success_above is None
    assert find_environment("Hopper-v5").success_above is None


def test_stacked_observations_go_on_exactly_from_a_snapshot() -> None:
    environment = find_environment("HalfCheetah-v5-p+concat4")
    first, second = (environment.on_host(2, seed) for seed in (1, 2))
    actions = np.random.default_rng(3).uniform(-1, 1, (12, 2, 6)).astype(np.float32)
    first.reset()
    second.reset()
    for action in actions[:6]:
        first.step(action)
    second.from_tree(first.to_tree(), 1)

    for action in actions[6:]:
        one, other = first.step(action)[0], second.step(action)[0]
        np.testing.assert_array_equal(one.next_observation, other.next_observation)
        np.testing.assert_array_equal(one.reward, other.reward)


MUJOCO = ["HalfCheetah", "Hopper", "Walker2d", "Swimmer", "Ant", "Humanoid", "Reacher", "InvertedDoublePendulum"]
CLASSIC = ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0"]
OURS = ["rollbook/pendulum-var-len-pv-v0", "rollbook/car-v0"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("env_id", [*(f"{name}-v5" for name in MUJOCO), *CLASSIC, *OURS])
def test_a_simulator_goes_on_exactly_from_its_snapshot_in_a_checkpoint(env_id: str, tmp_path: Path) -> None:
    domains.register()
    first, second = (gymnasium.make(env_id, max_episode_steps=60) for _ in range(2))
    first.reset(seed=1)
    first.action_space.seed(1)
    for _ in range(37):
        _, _, terminated, _, _ = first.step(first.action_space.sample())
        if terminated:
            first.reset()
    assert can_snapshot(first)
    second.reset(seed=5)
    save_checkpoint(
        tmp_path, 37, snapshot(first), extra=None, attempt=0, rows=0, time=0.0, next_step=38, keep=None
    )  # fmt: skip
    restore(second, load_checkpoint(tmp_path, like=snapshot(second)).tensors)

    for _ in range(150):
        action = first.action_space.sample()
        one, other = first.step(action), second.step(action)
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:4] == other[1:4]
        if one[2] or one[3]:
            np.testing.assert_array_equal(first.reset()[0], second.reset()[0])
    first.close()
    second.close()


def test_atari_is_seen_as_the_field_sees_it() -> None:
    environment = find_environment("ALE/Breakout-v5")
    assert environment.spaces.observation == (84, 84, 4)
    env = environment.make()
    observation, _ = env.reset(seed=1)
    rewards, lives, lengths = set(), 0, []
    length = 0
    rng = np.random.default_rng(1)
    for _ in range(600):
        observation, reward, terminated, _, info = env.step(int(rng.integers(4)))
        rewards.add(float(reward))
        length += 1
        if terminated:
            lengths.append(length)
            length = 0
            lives += not info["rollbook/task_over"]
            env.reset()

    assert observation.dtype == np.uint8
    assert rewards <= {-1.0, 0.0, 1.0}
    assert lives >= 3  # a lost life ended an episode, and the game went on
    env.close()
    whole = environment.make(training=False)
    whole.reset(seed=1)
    total, over = 0.0, False
    while not over:
        _, reward, over, _, info = whole.step(int(rng.integers(4)))
        total += float(reward)
    assert info["lives"] == 0
    whole.close()
