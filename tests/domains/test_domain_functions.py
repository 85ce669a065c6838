"""Every domain as pure functions: inside jit, vmap and scan, and as pictures."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from one_of_each import ONE_OF_EACH

from rollbook.domains import DOMAINS, make

KEY = jax.random.key(0)
CONTINUOUS_CARTS = ["cartpole-continuous-v0", "cartpole-continuous-long-v0"]


def random_actions(env: Any, *shape: int) -> Any:
    rng = np.random.default_rng(4)
    if isinstance(env.action_space, spaces.Discrete):
        return rng.integers(env.action_space.n, size=shape, dtype=np.int32)
    space = env.action_space
    return rng.uniform(space.low, space.high, (*shape, *space.shape)).astype(np.float32)


def random_walk(env: Any, start: Any, actions: Any) -> Any:
    """Observations, rewards and ends of a random policy; an episode that ends starts again."""

    def step(state: Any, action: Any) -> Any:
        after = env.transition(state, action, KEY)
        ended = env.terminal(after, KEY)
        return jnp.where(ended, start, after), (
            env.observation(after, KEY),
            env.reward(state, action, after, KEY),
            ended,
        )

    return jax.lax.scan(step, start, actions)[1]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_random_walks_in_one_compiled_scan_stay_in_the_observation_space(name: str) -> None:
    env = make(DOMAINS[name])
    space = env.observation_space
    assert isinstance(space, spaces.Box)

    starts = jax.vmap(env.initial)(jax.random.split(KEY, 8))
    walks = jax.jit(jax.vmap(lambda *start: random_walk(env, *start)))(starts, random_actions(env, 8, 500))
    observations, rewards, ended = (np.asarray(array) for array in walks)

    assert observations.dtype == space.dtype
    assert observations.shape == (8, 500, *space.shape)
    assert np.all((observations >= space.low) & (observations <= space.high))
    assert np.all(np.isfinite(observations))
    assert rewards.shape == ended.shape == (8, 500)
    assert rewards.dtype == np.float32
    assert ended.dtype == np.bool_
    # Walks of different keys differ, and one walk moves.
    assert len(np.unique(observations[:, -1, 0])) > 1
    assert np.all(np.ptp(observations[..., 0], axis=1) > 0)


@pytest.mark.parametrize(("name", "angles"), [("Acrobot-v1", 2), ("Pendulum-v1", 1)])
def test_no_angle_gives_a_sine_or_cosine_above_one(name: str, angles: int) -> None:
    env = make(DOMAINS[name])
    turns = np.concatenate([np.linspace(-np.pi, np.pi, 200_001), np.linspace(-1e-3, 1e-3, 2001)]).astype(np.float32)
    size = len(env.initial(KEY))
    states = np.zeros((len(turns), size), np.float32)
    states[:, :angles] = turns[:, None]

    observations = np.asarray(jax.jit(jax.vmap(lambda state: env.observation(state, KEY)))(states))

    assert np.abs(observations[:, : 2 * angles]).max() == 1.0


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_compiled_and_uncompiled_steps_agree(name: str) -> None:
    env = make(DOMAINS[name])
    state, action = env.initial(KEY), random_actions(env)

    plain = env.transition(state, action, KEY)

    np.testing.assert_allclose(jax.jit(env.transition)(state, action, KEY), plain, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", CONTINUOUS_CARTS)
def test_a_third_of_30_newtons_is_the_push_of_the_discrete_cart_pole(name: str) -> None:
    continuous, discrete = make(DOMAINS[name]), make(DOMAINS["CartPole-v1"])
    state = jnp.array([0.3, -0.2, 0.05, 0.4])

    for part, action in ((1 / 3, 1), (-1 / 3, 0)):
        np.testing.assert_allclose(
            continuous.transition(state, jnp.array([part]), KEY), discrete.transition(state, action, KEY), rtol=1e-6
        )


@pytest.mark.parametrize("name", CONTINUOUS_CARTS)
def test_a_continuous_cart_is_pushed_by_at_most_30_newtons(name: str) -> None:
    env = make(DOMAINS[name])
    state = jnp.zeros(4)

    velocities = [float(env.transition(state, jnp.array([part]), KEY)[1]) for part in (-7.0, -1.0, 0.0, 1.0, 7.0)]

    assert velocities[0] == velocities[1] == -velocities[3] == -velocities[4]
    assert velocities[2] == 0
    # An upright pole at rest: the cart moves as if the pole had a quarter of its mass (Florian 2007, at angle 0).
    assert velocities[3] == pytest.approx(0.02 * 30 / (1.0 + 0.1 / 4), rel=1e-5)


@pytest.mark.parametrize("name", CONTINUOUS_CARTS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_continuous_cart_pole_ends_past_2_4_metres_or_12_degrees(name: str, sign: int) -> None:
    env = make(DOMAINS[name])
    limit = np.radians(12)

    def ended(position: float, angle: float) -> bool:
        return bool(env.terminal(sign * jnp.array([position, 9.0, angle, 9.0]), KEY))

    assert not ended(2.399, limit - 1e-4)
    assert ended(2.401, 0.0)
    assert ended(0.0, limit + 1e-4)


@pytest.mark.parametrize("name", CONTINUOUS_CARTS)
def test_every_step_of_a_continuous_cart_pole_is_worth_one_and_so_is_the_last(name: str) -> None:
    env = make(DOMAINS[name])
    action = jnp.zeros(1)
    standing, falling = jnp.zeros(4), jnp.array([0.0, 0.0, 0.2, 3.0])
    fallen = env.transition(falling, action, KEY)

    assert bool(env.terminal(fallen, KEY))
    assert float(env.reward(falling, action, fallen, KEY)) == 1.0
    assert float(env.reward(standing, action, standing, KEY)) == 1.0


def frame(name: str, state: Any, **size: int) -> Any:
    env = make(DOMAINS[name])
    render_state = env.render_init(**size)
    render_state, image = env.render_image(jnp.asarray(state, jnp.float32), render_state)
    env.render_close(render_state)
    return image


def has_color(image: Any, color: str) -> bool:
    wanted = [int(color[part : part + 2], 16) for part in (1, 3, 5)]
    return bool(np.any(np.all(image == wanted, axis=-1)))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_two_states_make_two_pictures_and_one_state_makes_one(name: str) -> None:
    env = make(DOMAINS[name])
    state = env.initial(KEY)
    moved = state.at[0].add(0.3)

    assert frame(name, state).shape == (300, 400, 3)
    assert frame(name, state).dtype == np.uint8
    assert np.array_equal(frame(name, state), frame(name, state))
    assert np.sum(np.any(frame(name, state) != frame(name, moved), axis=-1)) > 100


def test_a_picture_has_the_size_that_was_asked_for() -> None:
    assert frame("CartPole-v1", np.zeros(4), width=200, height=120).shape == (120, 200, 3)


def test_the_pole_changes_its_colour_when_the_episode_is_lost() -> None:
    blue = "#0072b2"

    assert has_color(frame("CartPole-v1", [0, 0, 0.2, 0]), blue)
    assert not has_color(frame("CartPole-v1", [0, 0, 0.22, 0]), blue)
    assert not has_color(frame("CartPole-v1", [2.5, 0, 0, 0]), blue)


def test_a_pole_that_leans_right_is_drawn_to_the_right_of_its_cart() -> None:
    blue = np.array([0x00, 0x72, 0xB2])

    columns = np.nonzero(np.all(frame("CartPole-v1", [0, 0, 0.2, 0]) == blue, axis=-1))[1]

    assert columns.mean() > 205


def test_the_tip_of_the_acrobot_turns_green_above_the_line() -> None:
    below, above = frame("Acrobot-v1", [2.0, 0, 0, 0]), frame("Acrobot-v1", [3.0, 0, 0, 0])
    green = np.array([0x00, 0x9E, 0x73])

    def rows(image: Any) -> Any:
        return np.unique(np.nonzero(np.all(image == green, axis=-1))[0])

    assert len(rows(below)) < 5
    assert len(rows(above)) > 10


def test_the_pendulum_shows_the_torque_and_its_direction() -> None:
    orange = np.array([0xE6, 0x9F, 0x00])

    def columns(torque: float) -> Any:
        return np.nonzero(np.all(frame("Pendulum-v1", [np.pi, 0, torque]) == orange, axis=-1))[1]

    assert columns(2.0).mean() < 190  # counter-clockwise from the top
    assert columns(-2.0).mean() > 210
    assert len(columns(1.0)) < len(columns(2.0))
    assert len(columns(0.0)) == 0
