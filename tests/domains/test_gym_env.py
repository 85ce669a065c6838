"""Every domain as an ordinary Gymnasium environment."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import InvalidAction
from gymnasium.utils.env_checker import check_env
from one_of_each import ONE_OF_EACH

from rollbook import domains
from rollbook.domains import DOMAINS
from rollbook.domains.cartpole import CartPole


@pytest.fixture(autouse=True)
def registered() -> None:
    domains.register()


def make(name: str, **options: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(DOMAINS[name].env_id, **options)


def surviving_action(env: Any) -> Any:
    """What keeps an episode from ending: a steadied pole, or no force at all."""
    if isinstance(env.func_env, CartPole):
        position, velocity, angle, spin = np.asarray(env._state)
        lean = 2.0 * angle + 0.5 * spin + 0.05 * position + 0.1 * velocity
        return np.array([lean], np.float32) if env.action_space.shape else int(lean > 0)
    return np.zeros(env.action_space.shape, np.float32) if env.action_space.shape else 1


def test_a_fresh_process_makes_every_domain_by_its_long_id_alone() -> None:
    code = f"""
import gymnasium
for name in {sorted(DOMAINS)}:
    env = gymnasium.make("rollbook.domains.gym_env:rollbook/" + name, render_mode="rgb_array")
    print(name, env.spec.id)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [f"{name} rollbook/{name}" for name in sorted(DOMAINS)]


def test_registering_twice_is_quiet_and_keeps_what_is_there() -> None:
    before = gymnasium.spec("rollbook/CartPole-v1")

    domains.register()

    assert gymnasium.spec("rollbook/CartPole-v1") is before


# The bounds are those of Gymnasium's own environments, which make it warn as well.
@pytest.mark.filterwarnings("ignore:.*A Box observation space (min|max)imum value is -?infinity")
@pytest.mark.filterwarnings("ignore:.*we recommend using a symmetric and normalized space")
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_gymnasiums_own_checker_finds_nothing(name: str) -> None:
    check_env(make(name, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_an_episode_is_truncated_at_its_time_limit_and_not_before(name: str) -> None:
    env = make(name)
    env.reset(seed=3)
    limit = DOMAINS[name].max_episode_steps

    for step in range(1, limit + 1):
        _, _, terminated, truncated, _ = env.step(surviving_action(env.unwrapped))
        assert not terminated
        assert truncated == (step == limit)


@pytest.mark.parametrize("name", DOMAINS)
def test_gymnasium_knows_the_time_limit_and_the_spaces_of_every_domain(name: str) -> None:
    env, functions = make(name), domains.make(DOMAINS[name])

    assert env.spec is not None
    assert env.spec.max_episode_steps == DOMAINS[name].max_episode_steps
    assert env.observation_space == functions.observation_space
    assert env.action_space == functions.action_space


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_two_instances_do_not_touch_each_other(name: str) -> None:
    alone, one, other = make(name), make(name), make(name)
    for env, seed in ((alone, 5), (one, 5), (other, 6)):
        env.reset(seed=seed)
        env.action_space.seed(seed)

    expected, mixed = [], []
    for _ in range(5):
        expected.append(alone.step(alone.action_space.sample())[0])
    for _ in range(5):
        mixed.append(one.step(one.action_space.sample())[0])
        other.step(other.action_space.sample())

    assert np.array_equal(expected, mixed)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_seed_repeats_its_episodes_and_the_next_episode_is_another(name: str) -> None:
    env = make(name)

    first, second = env.reset(seed=8)[0], env.reset()[0]

    assert np.array_equal(env.reset(seed=8)[0], first)
    assert np.array_equal(env.reset()[0], second)
    assert not np.array_equal(first, second)
    assert not np.array_equal(env.reset(seed=9)[0], first)


def test_unseeded_instances_start_differently() -> None:
    assert not np.array_equal(make("Pendulum-v1").reset()[0], make("Pendulum-v1").reset()[0])


@pytest.mark.parametrize("name", [name for name, domain in DOMAINS.items() if domain.twin_of])
def test_the_wrapped_twin_follows_gymnasiums_own_for_an_episode(name: str) -> None:
    ours, theirs = make(name), gymnasium.make(name)
    observation, _ = ours.reset(seed=2)
    theirs.reset(seed=2)
    env: Any = theirs.unwrapped
    state: Any = ours.unwrapped
    env.state = np.asarray(state._state, np.float64)[: np.size(env.state)]
    ours.action_space.seed(2)

    for _ in range(20):
        action = ours.action_space.sample()
        observation, reward, terminated, truncated, _ = ours.step(action)
        expected, *rest, _ = theirs.step(action)
        np.testing.assert_allclose(observation, expected, atol=1e-4)
        assert [terminated, truncated] == rest[1:]
        assert reward == pytest.approx(rest[0], abs=1e-4)
        if terminated:
            break


def test_what_a_step_returns_is_plain_python_and_numpy() -> None:
    env = make("CartPole-v1")
    env.reset(seed=0)

    observation, reward, terminated, truncated, info = env.step(np.int64(1))

    assert type(observation) is np.ndarray
    assert observation.flags.writeable
    assert (type(reward), type(terminated), type(truncated), info) == (float, bool, bool, {})


@pytest.mark.parametrize(
    ("name", "action"), [("CartPole-v1", 2), ("CartPole-v1", -1), ("Acrobot-v1", 0.5), ("Pendulum-v1", [0.0, 0.0])]
)
def test_an_action_that_is_not_there_is_refused(name: str, action: Any) -> None:
    env = make(name)
    env.reset(seed=0)

    with pytest.raises(InvalidAction):
        env.step(action)


def test_rendering_without_a_mode_says_how_to_get_pictures() -> None:
    env = make("CartPole-v1").unwrapped
    env.reset(seed=0)

    with pytest.warns(UserWarning, match="render_mode="):
        assert env.render() is None


@pytest.mark.parametrize(("name", "fps"), [("CartPole-v1", 50), ("Acrobot-v1", 15), ("Pendulum-v1", 30)])
def test_pictures_come_at_the_rate_of_the_domain(name: str, fps: int) -> None:
    assert make(name, render_mode="rgb_array").metadata["render_fps"] == fps


def test_a_list_of_frames_is_collected_by_gymnasium() -> None:
    env = make("Pendulum-v1", render_mode="rgb_array_list")
    env.reset(seed=0)
    env.step(np.zeros(1, np.float32))

    frames: Any = env.render()

    assert len(frames) == 2


def test_a_vector_of_environments_starts_each_differently() -> None:
    envs = gymnasium.make_vec("rollbook/CartPole-v1", num_envs=3)

    observations, _ = envs.reset(seed=0)

    assert observations.shape == (3, 4)
    assert len(np.unique(observations[:, 0])) == 3
    envs.close()
