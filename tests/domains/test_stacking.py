"""The last observations as one, against a deque of plain Python."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollbook.domains import DOMAINS, find, make, register
from rollbook.domains.stacking import Concat
from rollbook.training.device import DeviceEnvs


class PlainStack:
    def __init__(self, count: int, first: Any) -> None:
        self.seen = deque([np.zeros_like(first)] * count, maxlen=count)
        self.seen.append(first)

    def observation(self) -> Any:
        return np.concatenate(self.seen)


def test_a_host_environment_shows_its_last_observations_also_after_resets() -> None:
    plain, stacked = gymnasium.make("CartPole-v1"), Concat(gymnasium.make("CartPole-v1"), 5)
    ended = 0
    first, _ = plain.reset(seed=1)
    expected = PlainStack(5, first)
    np.testing.assert_array_equal(stacked.reset(seed=1)[0], expected.observation())

    for number in range(60):
        observation, *rest, _ = plain.step(number % 2 if number > 20 else 0)
        found, *others, _ = stacked.step(number % 2 if number > 20 else 0)
        expected.seen.append(observation)
        np.testing.assert_array_equal(found, expected.observation())
        assert stacked.observation_space.contains(found)
        assert rest == others
        if rest[1]:
            ended += 1
            expected = PlainStack(5, plain.reset()[0])
            np.testing.assert_array_equal(stacked.reset()[0], expected.observation())
    assert ended >= 2


def test_device_environments_show_their_last_observations_also_after_resets() -> None:
    domain = find("cartpole-continuous-p-v0+concat3")
    assert domain
    plain, stacked = (DeviceEnvs(make(one), 4, 9) for one in (DOMAINS["cartpole-continuous-p-v0"], domain))
    key = jax.random.key(2)
    states = [plain.reset(key), stacked.reset(key)]
    expected = [PlainStack(3, first) for first in np.asarray(states[0].observation)]
    steps = [jax.jit(envs.step) for envs in (plain, stacked)]
    draws = [jax.jit(lambda key, envs=envs: envs.draw(key, ())) for envs in (plain, stacked)]
    resets = 0

    for number in range(25):
        step_key = jax.random.fold_in(key, number)
        action = jax.random.uniform(step_key, (4, 1), minval=-1)
        keys = jax.random.split(step_key, 4)
        (states[0], one), (states[1], other) = (
            step(state, action, keys, draw(step_key)) for step, state, draw in zip(steps, states, draws, strict=True)
        )
        done = np.asarray(one.terminated | one.truncated)
        np.testing.assert_array_equal(done, other.terminated | other.truncated)
        np.testing.assert_allclose(one.reward, other.reward)
        for env in range(4):
            expected[env].seen.append(np.asarray(one.next_observation[env]))
            np.testing.assert_allclose(other.next_observation[env], expected[env].observation(), rtol=1e-6)
            if done[env]:
                resets += 1
                expected[env] = PlainStack(3, np.asarray(states[0].observation[env]))
        np.testing.assert_allclose(states[1].observation, [one.observation() for one in expected], rtol=1e-6)
    assert resets > 8


def test_any_domain_can_be_stacked_by_its_name() -> None:
    for name in DOMAINS:
        domain = find(f"{name}+concat20")
        assert domain == find(f"rollbook/{name}+concat20")
        assert domain
        assert domain.stacked == 20
        assert make(domain).observation_space.shape == (20 * make(DOMAINS[name]).observation_space.shape[0],)


@pytest.mark.parametrize("wrong", ["pendulum-p-v0+concat0", "pendulum-p-v0+concat", "nothing-v0+concat5", "+concat5"])
def test_a_stack_of_nothing_is_no_domain(wrong: str) -> None:
    assert find(wrong) is None


@pytest.mark.parametrize("count", [5, 20])
def test_gymnasium_knows_stacks_of_5_and_20_of_every_domain(count: int) -> None:
    register()

    for name in DOMAINS:
        base, version = name.rsplit("-", 1)
        env_id = f"rollbook/{base}-concat{count}-{version}"
        domain = find(env_id)
        assert domain
        assert (domain.env_id, domain.name) == (env_id, f"{name}+concat{count}")
        assert gymnasium.spec(env_id).max_episode_steps == DOMAINS[name].max_episode_steps


def test_a_registered_stack_is_made_and_looks_like_the_one_on_the_device() -> None:
    register()
    env = gymnasium.make("rollbook/pendulum-p-concat5-v0", render_mode="rgb_array")
    domain = find("pendulum-p-v0+concat5")
    assert domain

    observation, _ = env.reset(seed=4)
    moved, *_ = env.step(np.zeros(1, np.float32))

    assert env.observation_space == make(domain).observation_space
    assert np.all(observation[:8] == 0)
    np.testing.assert_array_equal(moved[6:8], observation[8:])
    frames: Any = env.render()
    assert frames.shape == (300, 400, 3)


def test_a_stacked_domain_is_drawn_as_the_domain() -> None:
    domain = find("pendulum-p-v0+concat5")
    assert domain
    stacked, plain = make(domain), make(DOMAINS["pendulum-p-v0"])
    state = stacked.initial(jax.random.key(1))
    render_state = stacked.render_init(width=80, height=60)

    _, image = stacked.render_image(state, render_state)

    np.testing.assert_array_equal(image, plain.render_image(state.state, (80, 60))[1])
    stacked.render_close(render_state)
    assert jnp.array_equal(state.window[-1], plain.observation(state.state, jax.random.key(1)))
    assert stacked.render_fps == plain.render_fps


def test_images_are_not_stacked() -> None:
    class Camera(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 255, (40, 40, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)

    with pytest.raises(TypeError, match="only vectors can be stacked"):
        Concat(Camera(), 5)
