"""What each partially observable domain does, and what it hides."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from one_of_each import ONE_OF_EACH

from rollbook.domains import DOMAINS, make
from rollbook.domains.drawing import GREEN, ORANGE, SHADE

KEY = jax.random.key(0)
OWN = [name for name, domain in DOMAINS.items() if not domain.twin_of]

# Numbers of the state that must not show, by domain. The states that are compared are the first ones of episodes.
HIDDEN = {
    "pendulum-p-v0": [1, 2],
    "pendulum-v-v0": [0, 2],
    "pendulum-va-v0": [0],
    "pendulum-var-len-pvl-v0": [2],
    "pendulum-var-len-pv-v0": [2, 3],
    "pendulum-var-len-pl-v0": [1, 2],
    "pendulum-var-len-pa-v0": [1, 3],
    "cartpole-continuous-p-v0": [1, 3],
    "cartpole-continuous-v-v0": [0, 2],
    "cartpole-continuous-long-p-v0": [1, 3],
    "cartpole-continuous-long-v-v0": [0, 2],
    "cartpole-var-len-pvl-v0": [4],
    "cartpole-var-len-pv-v0": [4, 5],
    "cartpole-var-len-pa-v0": [1, 3, 5],
    "water-maze-mdp-v0": [2, 3, 7],
    "water-maze-pomdp-v0": [2, 3, 4, 5, 7],
    "water-maze-dense-mdp-v0": [2, 3, 7],
    "water-maze-dense-pomdp-v0": [2, 3, 4, 5, 7],
    "water-maze-simple-mdp-v0": [2, 3, 7],
    "water-maze-simple-pomdp-v0": [2, 3, 4, 5, 7],
    "car-mdp-v0": [3],
    "car-v0": [2, 3],
    "car-p-v0": [1, 2, 3],
    "car-episodic-mdp-v0": [3],
    "car-episodic-v0": [2, 3],
    "car-episodic-p-v0": [1, 2, 3],
    "reacher-mdp-v0": [6, 7, 8],
    "reacher-pomdp-v0": [8],
    "reacher-pomdp-p-v0": [2, 3, 8],
    "bumps-1d-v0": [1, 2, 4, 5, 6],
    "bumps-1d-mdp-v0": [4, 5, 6],
    "bumps-2d-v0": [2, 3, 4, 5, 8, 9, 10, 11, 12],
    "bumps-2d-mdp-v0": [8, 9, 10, 11, 12],
}


@functools.cache
def env_of(name: str) -> Any:
    return make(DOMAINS[name])


def seen(name: str, state: Any) -> Any:
    return np.asarray(env_of(name).observation(jnp.asarray(state, jnp.float32), KEY))


def step(name: str, state: Any, action: Any) -> tuple[Any, float, bool]:
    """The next state, the reward and whether the episode is over."""
    env, before, action = env_of(name), jnp.asarray(state, jnp.float32), jnp.asarray(action, jnp.float32)
    after = env.transition(before, action, KEY)
    return np.asarray(after), float(env.reward(before, action, after, KEY)), bool(env.terminal(after, KEY))


def beginnings(initial: Any) -> Any:
    return jax.jit(jax.vmap(initial))


def test_every_domain_says_what_it_hides() -> None:
    without = {"cartpole-continuous-v0", "cartpole-continuous-long-v0"}

    assert set(HIDDEN) == set(OWN) - without


@pytest.mark.parametrize("name", HIDDEN)
def test_states_that_differ_in_hidden_numbers_alone_look_the_same_and_no_others_do(name: str) -> None:
    state = np.array(env_of(name).initial(jax.random.key(3)))
    before = seen(name, state)

    for number in range(len(state)):
        other = state.copy()
        other[number] += 0.01
        assert np.array_equal(seen(name, other), before) == (number in HIDDEN[name]), number


@pytest.mark.parametrize("name", OWN)
def test_what_is_seen_fits_its_space(name: str) -> None:
    env = env_of(name)
    state = env.initial(KEY)

    observation = np.asarray(env.observation(state, KEY))

    assert observation.dtype == np.float32
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if name in OWN])
def test_a_key_decides_where_an_episode_begins(name: str) -> None:
    env = env_of(name)

    again, first, other = (np.asarray(env.initial(jax.random.key(seed))) for seed in (1, 1, 2))

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


# ---- pendulum -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0.2, 1.0])
def test_a_pendulum_of_any_length_swings_as_gymnasiums_of_this_length(length: float) -> None:
    theirs: Any = gymnasium.make("Pendulum-v1").unwrapped
    theirs.reset(seed=0)
    theirs.l = length
    rng = np.random.default_rng(5)

    for _ in range(20):
        angle, rate, torque = rng.uniform([-4, -8, -2.5], [4, 8, 2.5])
        theirs.state = np.array([angle, rate])
        _, expected, _, _, _ = theirs.step(np.array([torque]))
        after, reward, over = step("pendulum-var-len-pa-v0", [angle, rate, 0, length], [torque])
        np.testing.assert_allclose(after[:2], theirs.state, rtol=1e-5, atol=1e-5)
        assert after[2:] == pytest.approx([np.clip(torque, -2, 2), length])
        assert reward == pytest.approx(float(expected), rel=1e-5)
        assert not over


@pytest.mark.parametrize(
    ("name", "place", "lengths"), [("pendulum-var-len-pv-v0", 3, (0.2, 1.0)), ("cartpole-var-len-pv-v0", 5, (0.1, 0.6))]
)
def test_half_of_the_episodes_have_the_short_one(name: str, place: int, lengths: tuple[float, float]) -> None:
    states = beginnings(env_of(name).initial)(jax.random.split(KEY, 400))

    values, counts = np.unique(np.asarray(states[:, place]), return_counts=True)

    assert values == pytest.approx(lengths)
    assert np.all(counts > 150)


# ---- cart-pole ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cartpole-continuous-p-v0", "cartpole-continuous-long-v-v0"])
def test_a_partly_seen_cart_pole_moves_as_the_one_that_is_seen(name: str) -> None:
    state, action = [0.3, -0.2, 0.05, 0.4], [0.7]

    after, reward, over = step(name, state, action)

    np.testing.assert_array_equal(after, step("cartpole-continuous-v0", state, action)[0])
    assert (reward, over) == (1.0, False)
    assert step(name, [0, 0, 0.2, 3.0], action)[1:] == (1.0, True)


def manipulator(state: Any, push: float) -> Any:
    """Accelerations of the cart and the pole from the mass matrix of a rod of 0.5 kg on a cart of 0.5 kg."""
    _, velocity, angle, spin, _, length = state
    couple = -0.5 * 0.5 * length * np.cos(angle)
    mass = np.array([[1.0, couple], [couple, 0.5 * length**2 / 3]])
    cart = push - 0.1 * velocity - 0.25 * length * spin**2 * np.sin(angle)
    return np.linalg.solve(mass, [cart, 0.25 * 9.82 * length * np.sin(angle)])


@pytest.mark.parametrize("length", [0.1, 0.6])
def test_the_pole_of_variable_length_obeys_lagranges_equations(length: float) -> None:
    rng = np.random.default_rng(6)

    for _ in range(20):
        state = np.array([*rng.uniform([-2, -3, -4, -8], [2, 3, 4, 8]), 0.0, length], np.float32)
        action = float(rng.uniform(-1, 1))
        after, reward, over = step("cartpole-var-len-pa-v0", state, [action])
        rates = state[[1, 3]] + 0.01 * manipulator(np.float64(state), 10 * action)
        np.testing.assert_allclose(after[[1, 3]], rates, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(after[[0, 2]], state[[0, 2]] + 0.01 * rates, rtol=1e-4, atol=1e-4)
        turned = (after[2] + np.pi) % (2 * np.pi) - np.pi
        assert reward == pytest.approx(-0.1 * (turned**2 + 0.01 * after[3] ** 2 + after[0] ** 2), rel=1e-4)
        assert not over


def test_the_end_of_the_track_throws_the_cart_back() -> None:
    after, _, over = step("cartpole-var-len-pa-v0", [2.39, 3.0, np.pi, 0, 0, 0.6], [0.0])

    assert after[0] == pytest.approx(2.4)
    assert after[1] < -2.9
    assert not over


def test_a_hanging_pole_that_nobody_pushes_does_not_swing_up_by_itself() -> None:
    env = env_of("cartpole-var-len-pa-v0")
    start = jnp.array([0.0, 0.0, np.pi + 0.3, 0.0, 0.0, 0.1])

    _, angles = jax.lax.scan(lambda s, _: ((n := env.transition(s, jnp.zeros(1), KEY)), n[2]), start, None, 500)

    assert np.abs(np.asarray(angles) - np.pi).max() < 0.33


# ---- car ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heaven", [-1.0, 1.0])
def test_the_sign_is_read_from_nearby_only(heaven: float) -> None:
    shown = {place: seen("car-v0", [place, 0.01, heaven, 3])[2] for place in (-0.5, 0.0, 0.29, 0.31, 0.5, 0.69, 0.71)}

    assert shown == {-0.5: 0, 0.0: 0, 0.29: 0, 0.31: heaven, 0.5: heaven, 0.69: heaven, 0.71: 0}


def test_a_car_speeds_up_by_its_power_up_to_a_limit() -> None:
    assert step("car-v0", [0.1, 0.02, 1, 4], [0.5])[0] == pytest.approx([0.12075, 0.02075, 1, 5])
    assert step("car-v0", [0.1, 0.02, 1, 4], [9.0])[0] == pytest.approx([0.1215, 0.0215, 1, 5])
    assert step("car-v0", [0.1, 0.1999, 1, 4], [1.0])[0][1] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("heaven", "side", "plain", "episodic"),
    [(1, 1, 1.0, -1.0), (-1, -1, 1.0, -1.0), (1, -1, 0.0, -130.0), (-1, 1, 0.0, -130.0)],
)
def test_heaven_is_worth_one_and_hell_what_the_whole_episode_would_cost(
    heaven: int, side: int, plain: float, episodic: float
) -> None:
    state = [0.99 * side, 0.03 * side, heaven, 30]  # 30 steps have been paid for

    assert step("car-v0", state, [0.0])[1:] == (plain, True)
    assert step("car-episodic-v0", state, [0.0])[1:] == (episodic, True)


def test_between_heaven_and_hell_there_is_nothing_to_gain() -> None:
    assert step("car-v0", [0.5, 0.01, 1, 3], [1.0])[1:] == (0.0, False)
    assert step("car-episodic-v0", [0.5, 0.01, 1, 3], [1.0])[1:] == (-1.0, False)


# ---- water maze -----------------------------------------------------------------------------------------------------


def maze(x: float, y: float, count: float = 0, platform: tuple[float, float] = (0.5, 0.0)) -> list[float]:
    return [x, y, 0, 0, *platform, 0, count]


def test_a_stroke_moves_the_swimmer_and_the_wall_stops_it() -> None:
    assert step("water-maze-pomdp-v0", maze(-0.5, 0), [1, -0.5])[0][:2] == pytest.approx([-0.46, -0.02])
    assert step("water-maze-pomdp-v0", maze(-0.5, 0), [5, 0])[0][:2] == pytest.approx([-0.46, 0])
    assert step("water-maze-pomdp-v0", maze(0, 0.99), [1, 1])[0][:2] == pytest.approx([0, 0.99])


def test_a_step_on_the_platform_is_worth_one_and_shows() -> None:
    outside, gain, _ = step("water-maze-pomdp-v0", maze(0.1, 0), [1, 0])
    inside, more, over = step("water-maze-pomdp-v0", maze(0.19, 0), [1, 0])

    assert (gain, seen("water-maze-pomdp-v0", outside)[2]) == (0, 0)
    assert (more, seen("water-maze-pomdp-v0", inside)[2]) == (1, 1)
    assert not over


def test_after_the_fifth_step_on_the_platform_the_swimmer_is_carried_off() -> None:
    fourth, _, _ = step("water-maze-pomdp-v0", maze(0.5, 0, count=3), [0, 0])
    fifth, reward, over = step("water-maze-pomdp-v0", fourth, [0, 0])
    sixth, nothing, _ = step("water-maze-pomdp-v0", fifth, [0, 0])

    assert fourth[:2] == pytest.approx([0.5, 0])
    assert np.hypot(*(fifth[:2] - [0.5, 0])) > 0.3
    assert (reward, over, nothing) == (1, False, 0)
    np.testing.assert_array_equal(fifth[4:6], fourth[4:6])  # the platform stays
    assert [fourth[7], fifth[7], sixth[7]] == [4, 0, 0]


def test_dense_costs_are_the_distance_to_the_platform() -> None:
    assert step("water-maze-dense-mdp-v0", maze(-0.1, 0), [0, 0])[1] == pytest.approx(-0.6)
    assert step("water-maze-dense-mdp-v0", maze(-0.1, 0), [1, 0])[1] == pytest.approx(-0.56)
    # Of where it swam to, not of where it was carried to.
    assert step("water-maze-dense-mdp-v0", maze(0.5, 0.1, count=4), [0, -1])[1] == pytest.approx(-0.06)


def test_in_the_simple_maze_actions_accelerate_and_the_swimmer_is_carried_to_the_middle() -> None:
    first, _, _ = step("water-maze-simple-mdp-v0", maze(0, 0, platform=(0.7, 0)), [1, 0])
    second, _, _ = step("water-maze-simple-mdp-v0", first, [1, 0])
    carried, reward, _ = step("water-maze-simple-mdp-v0", [0.7, 0, 0.05, 0, 0.7, 0, 1, 4], [0, 0])

    assert first[:4] == pytest.approx([0.03, 0, 0.03, 0])
    assert second[:4] == pytest.approx([0.09, 0, 0.06, 0])
    assert carried[:4] == pytest.approx([0, 0, 0, 0])
    assert reward == 1


@pytest.mark.parametrize(
    ("name", "radius"),
    [("water-maze-pomdp-v0", 0.3), ("water-maze-dense-mdp-v0", 0.2), ("water-maze-simple-mdp-v0", 0.3)],
)
def test_episodes_begin_in_the_water_beside_a_platform_that_is_in_the_pool(name: str, radius: float) -> None:
    states = np.asarray(beginnings(env_of(name).initial)(jax.random.split(KEY, 500)))
    swimmer, platform = states[:, :2], states[:, 4:6]

    assert np.linalg.norm(swimmer, axis=1).max() < 1
    assert np.linalg.norm(platform, axis=1).max() <= 1 - radius + 1e-6
    assert np.linalg.norm(swimmer - platform, axis=1).min() >= radius
    assert np.abs(platform.mean(axis=0)).max() < 0.1


# ---- reacher --------------------------------------------------------------------------------------------------------


def test_the_arm_moves_as_mujocos() -> None:
    theirs: Any = gymnasium.make("Reacher-v5").unwrapped
    theirs.reset(seed=0)
    rng = np.random.default_rng(7)

    for _ in range(10):
        angles, rates, goal = rng.uniform(-2, 2, 2), rng.uniform(-5, 5, 2), rng.uniform(-0.14, 0.14, 2)
        action = rng.uniform(-1, 1, 2)
        theirs.set_state(np.concatenate([angles, goal]), np.array([*rates, 0, 0]))
        expected, reward, _, _, _ = theirs.step(action)
        after, ours, over = step("reacher-mdp-v0", [*angles, *rates, *goal, 0, 0, 4], action)
        np.testing.assert_allclose(seen("reacher-mdp-v0", after), expected, rtol=2e-3, atol=2e-3)
        assert ours == pytest.approx(reward, abs=1e-3)
        assert not over
    theirs.close()


def test_the_elbow_does_not_bend_beyond_its_limit() -> None:
    after, _, _ = step("reacher-mdp-v0", [0, 2.99, 0, 5, 0, 0, 0, 0, 0], [0, 1])

    assert after[[1, 3]] == pytest.approx([3.0, 0.0])


def test_the_goal_is_shown_at_the_beginning_only() -> None:
    state = np.array(env_of("reacher-pomdp-v0").initial(KEY))
    goal = state[4:6]
    after, reward, _ = step("reacher-pomdp-v0", state, [0.0, 0.0])

    assert seen("reacher-pomdp-v0", state)[4:6] == pytest.approx(goal)
    assert np.all(seen("reacher-pomdp-v0", after)[[4, 5, 8, 9]] == 0)
    assert np.all(seen("reacher-pomdp-p-v0", after)[[4, 5, 6, 7]] == 0)
    assert seen("reacher-mdp-v0", after)[4:6] == pytest.approx(goal)
    assert -0.42 < reward < 0  # it is still what counts


def test_goals_are_spread_evenly_over_a_disc() -> None:
    states = np.asarray(beginnings(env_of("reacher-mdp-v0").initial)(jax.random.split(KEY, 1000)))
    distance = np.linalg.norm(states[:, 4:6], axis=1)

    assert distance.max() < 0.2
    assert np.mean(distance < 0.1) == pytest.approx(0.25, abs=0.05)


# ---- bumps ----------------------------------------------------------------------------------------------------------


def rail(hand: float, left: float = -0.4, right: float = 0.4, bend: float = 0.0) -> list[float]:
    return [hand, left, right, bend, -0.4, 0.4, 0]


SOFT, STIFF = -1.0, 1.0


def test_off_the_bumps_nothing_is_felt() -> None:
    after, reward, over = step("bumps-1d-v0", rail(0.0), [0.7, SOFT])

    assert seen("bumps-1d-v0", after) == pytest.approx([0.07, 0])
    assert (reward, over) == (0, False)


@pytest.mark.parametrize("bump", [-0.4, 0.4])
@pytest.mark.parametrize("way", [-1, 1])
def test_a_soft_finger_bends_against_its_way_over_any_bump_and_moves_none(bump: float, way: int) -> None:
    state, bends = np.array(rail(bump - 0.2 * way)), []
    for _ in range(4):
        state, _, over = step("bumps-1d-v0", state, [way, SOFT])
        bends.append(seen("bumps-1d-v0", state)[1])
        assert not over

    assert [np.sign(bend) for bend in bends] == [-way, -way, -way, 0]
    assert np.abs(bends[1]) > np.abs(bends[0])
    assert state[1:3] == pytest.approx([-0.4, 0.4])


def test_a_stiff_finger_pushes_the_right_bump_to_success() -> None:
    touching, nothing, _ = step("bumps-1d-v0", rail(0.26), [0.4, STIFF])
    pushed, reward, over = step("bumps-1d-v0", touching, [1.0, STIFF])

    assert touching[2] == pytest.approx(0.42)  # its edge is where the finger is
    assert nothing == 0
    assert pushed[2] == pytest.approx(0.52)
    assert (reward, over) == (1, True)


@pytest.mark.parametrize(("hand", "way"), [(-0.55, 1), (-0.25, -1), (0.55, -1)])
def test_any_other_push_ends_the_episode_with_nothing(hand: float, way: int) -> None:
    _, reward, over = step("bumps-1d-v0", rail(hand), [way, STIFF])

    assert (reward, over) == (0, True)


def test_a_finger_that_is_bent_over_a_bump_cannot_be_straightened() -> None:
    on_top, _, _ = step("bumps-1d-v0", rail(0.25), [1, SOFT])
    stiff, reward, over = step("bumps-1d-v0", on_top, [0.5, STIFF])

    assert stiff[2] == pytest.approx(0.4)
    assert seen("bumps-1d-v0", stiff)[1] < 0
    assert (reward, over) == (0, False)


def test_the_ends_of_the_rail_stop_the_hand() -> None:
    assert step("bumps-1d-v0", rail(0.98), [1, SOFT])[0][0] == pytest.approx(1.0)


def table(x: float, y: float) -> list[float]:
    return [x, y, -0.4, 0, 0.4, 0, 0, 0, -0.4, 0, 0.4, 0, 0]


def test_on_the_table_the_bump_gives_way_to_where_it_is_pushed() -> None:
    straight, reward, over = step("bumps-2d-v0", table(0.18, 0.0), [1, 0, STIFF])
    aside, nothing, lost = step("bumps-2d-v0", table(0.4, 0.21), [0, -1, STIFF])
    bent, _, _ = step("bumps-2d-v0", table(0.4, 0.21), [0, -1, SOFT])

    assert straight[4:6] == pytest.approx([0.48, 0])
    assert (reward, over) == (1, True)
    assert aside[4:6] == pytest.approx([0.4, -0.09])
    assert (nothing, lost) == (0, True)
    assert seen("bumps-2d-v0", bent)[2:] == pytest.approx([0, np.sqrt(1 - 0.55**2)])


@pytest.mark.parametrize(("name", "radius"), [("bumps-1d-v0", 0.12), ("bumps-2d-v0", 0.2)])
def test_episodes_begin_with_two_bumps_apart_and_the_finger_beside_them(name: str, radius: float) -> None:
    env = env_of(name)
    parts = beginnings(lambda key: env.parts(env.initial(key)))(jax.random.split(KEY, 500))
    hand, left, right = (np.asarray(part) for part in parts[:3])
    apart = right[:, 0] - left[:, 0]

    assert apart.min() >= env.gaps[0] - 1e-6
    assert apart.max() <= env.gaps[1] + 1e-6
    assert np.abs([left[:, 0], right[:, 0]]).max() <= 0.7 + 1e-6
    for bump in (left, right):
        assert np.linalg.norm(hand - bump, axis=1).min() > radius
    # The hand begins on any side of them.
    assert min(np.mean(hand < left), np.mean((hand > left) & (hand < right)), np.mean(hand > right)) > 0.1


# ---- pictures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "state", "number"),
    [
        ("pendulum-var-len-pa-v0", [1.0, 0, 0, 0.2], 3),
        ("cartpole-var-len-pa-v0", [0, 0, 3.0, 0, 0, 0.1], 5),
        ("water-maze-pomdp-v0", maze(-0.5, 0), 4),
        ("car-v0", [0, 0, -0.5, 0], 2),
        ("reacher-pomdp-v0", [0, 0, 0, 0, 0.1, -0.1, 0, 0, 5], 4),
        ("bumps-1d-v0", rail(0.0), 1),
        ("bumps-2d-v0", table(0, 0.3), 2),
    ],
)
def test_pictures_show_what_the_agent_does_not_see(name: str, state: list[float], number: int) -> None:
    other = list(state)
    other[number] += 0.5

    frames = [env_of(name).render_image(jnp.asarray(one), (200, 150))[1] for one in (state, other)]

    assert frames[0].shape == (150, 200, 3)
    assert np.sum(np.any(frames[0] != frames[1], axis=-1)) > 30


def pixels(name: str, state: list[float], color: str) -> Any:
    """Rows and columns of those of just this colour."""
    _, image = env_of(name).render_image(jnp.asarray(state), (400, 300))
    return np.nonzero(np.all(image == [int(color[part : part + 2], 16) for part in (1, 3, 5)], axis=-1))


@pytest.mark.parametrize("side", [-1, 1])
def test_the_arrow_of_a_force_is_whole_at_the_end_of_the_track(side: int) -> None:
    sizes = [len(pixels("cartpole-var-len-pa-v0", [place, 0, 0, 0, side, 0.6], ORANGE)[0]) for place in (0, 2.4 * side)]

    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)


@pytest.mark.parametrize("from_bump", [-0.03, 0.0, 0.05])
def test_the_tip_of_a_bent_finger_is_drawn_on_the_bump(from_bump: float) -> None:
    bend = float(np.sqrt(1 - (from_bump / 0.12) ** 2))
    state = rail(0.4 + from_bump, bend=bend)
    rows, columns = pixels("bumps-1d-v0", state, ORANGE)
    tip = columns[rows.argmax()]

    bump = pixels("bumps-1d-v0", state, GREEN)

    assert np.hypot(bump[0] - rows.max(), bump[1] - tip).min() < 5


def test_the_part_of_the_road_where_the_sign_can_be_read_is_shaded_unless_it_is_all_of_it() -> None:
    above_the_road = {name: (pixels(name, [-0.8, 0, 1, 0], SHADE)[0] < 170).any() for name in ("car-v0", "car-mdp-v0")}

    assert above_the_road == {"car-v0": True, "car-mdp-v0": False}


def test_every_space_of_observations_is_a_vector() -> None:
    assert all(isinstance(env_of(name).observation_space, spaces.Box) for name in DOMAINS)
    assert all(len(env_of(name).observation_space.shape) == 1 for name in DOMAINS)
