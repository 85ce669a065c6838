"""Every twin against Gymnasium's own environment, one step from thousands of states."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rollbook.domains import DOMAINS, make

PI = np.pi
STATES_A_REGION = 500


@dataclass(frozen=True)
class Twin:
    regions: list[tuple[list[float], list[float]]]  # (low, high) of states to start from
    extra: int = 0  # numbers that our state holds and Gymnasium's does not
    angles: tuple[int, ...] = ()  # parts of the state that are equal modulo 2 pi
    tolerance: float = 1e-6  # of float32
    double: float = 1e-12  # of float64


TWINS = {
    "CartPole-v1": Twin(
        regions=[
            ([-3, -5, -0.4, -5], [3, 5, 0.4, 5]),
            ([2.35, -1, -0.1, -1], [2.45, 1, 0.1, 1]),
            ([-2.45, -1, -0.1, -1], [-2.35, 1, 0.1, 1]),
            ([-1, -1, 0.2, -0.5], [1, 1, 0.22, 0.5]),
            ([-1, -1, -0.22, -0.5], [1, 1, -0.2, 0.5]),
        ],
    ),
    "Acrobot-v1": Twin(
        regions=[
            ([-0.1] * 4, [0.1] * 4),
            ([-PI, -PI, -2, -2], [PI, PI, 2, 2]),
            ([-PI, -PI, -4 * PI, -9 * PI], [PI, PI, 4 * PI, 9 * PI]),
        ],
        angles=(0, 1),
        tolerance=5e-4,  # at full speed one step of Runge-Kutta multiplies what float32 rounds off
        double=1e-11,
    ),
    "MountainCar-v0": Twin(
        regions=[
            ([-1.2, -0.07], [0.6, 0.07]),
            ([-1.2, -0.07], [-1.15, 0]),
            ([0.45, -0.05], [0.55, 0.05]),
            ([0.55, 0], [0.6, 0.07]),
        ],
    ),
    "MountainCarContinuous-v0": Twin(
        regions=[
            ([-1.2, -0.07], [0.6, 0.07]),
            ([-1.2, -0.07], [-1.15, 0]),
            ([0.4, -0.05], [0.5, 0.05]),
            ([0.55, 0], [0.6, 0.07]),
        ],
        double=1e-7,  # Gymnasium keeps this state in float32
    ),
    "Pendulum-v1": Twin(
        regions=[([-4 * PI, -8], [4 * PI, 8]), ([-0.1, -0.5], [0.1, 0.5]), ([3.0, -1], [3.3, 1])],
        extra=1,
        tolerance=3e-6,  # angles of many turns
    ),
}


@dataclass(frozen=True)
class Steps:
    """One step from each of many states."""

    state: Any  # (n, state)
    observation: Any  # (n, observation)
    reward: Any  # (n,)
    terminated: Any  # (n,)


def start(name: str) -> tuple[Any, Any]:
    """States and actions, the same for both sides: numbers that float32 holds exactly, in float64."""
    rng = np.random.default_rng(7)
    states = np.concatenate([rng.uniform(low, high, (STATES_A_REGION, len(low))) for low, high in TWINS[name].regions])
    states = states.astype(np.float32).astype(np.float64)
    space = gymnasium.make(name).action_space
    if isinstance(space, spaces.Discrete):
        return states, rng.integers(space.n, size=len(states), dtype=np.int32)
    assert isinstance(space, spaces.Box)
    actions = rng.uniform(1.5 * space.low, 1.5 * space.high, (len(states), *space.shape))
    return states, actions.astype(np.float32).astype(np.float64)


@functools.cache
def gymnasium_steps(name: str) -> Steps:
    env: Any = gymnasium.make(name).unwrapped
    env.reset(seed=0)
    rows = []
    for state, action in zip(*start(name), strict=True):
        env.state = state
        env.steps_beyond_terminated = None  # CartPole counts steps after the end
        observation, reward, terminated, _, _ = env.step(action)
        rows.append((np.array(env.state), observation, reward, terminated))
    return Steps(*(np.array(column) for column in zip(*rows, strict=True)))


def our_steps(name: str) -> Steps:
    """In the precision that JAX is set to."""
    env = make(DOMAINS[name])
    states, actions = start(name)
    padded = np.pad(states, ((0, 0), (0, TWINS[name].extra)))

    @jax.jit
    @jax.vmap
    def step(state: Any, action: Any, key: Any) -> tuple[Any, ...]:
        after = env.transition(state, action, key)
        return after, env.observation(after, key), env.reward(state, action, after, key), env.terminal(after, key)

    keys = jax.random.split(jax.random.key(0), len(states))
    after, *others = (np.asarray(column) for column in step(jnp.asarray(padded), jnp.asarray(actions), keys))
    return Steps(after[:, : states.shape[1]], *others)


def assert_same_steps(name: str, ours: Steps, tolerance: float) -> None:
    theirs = gymnasium_steps(name)
    difference = np.asarray(ours.state, np.float64) - theirs.state
    for column in TWINS[name].angles:
        difference[:, column] = (difference[:, column] + PI) % (2 * PI) - PI

    assert np.all(np.abs(ours.state[:, list(TWINS[name].angles)]) <= PI + 1e-6)
    assert np.all(np.abs(difference) < tolerance * np.maximum(1, np.abs(theirs.state)))
    # Gymnasium's observations are float32 whatever ours are.
    np.testing.assert_allclose(ours.observation, theirs.observation, rtol=max(tolerance, 1e-6), atol=tolerance + 1e-7)
    np.testing.assert_allclose(ours.reward, theirs.reward, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(ours.terminated, theirs.terminated)


def test_every_twin_in_the_table_is_compared_here() -> None:
    assert {domain.twin_of for domain in DOMAINS.values()} - {None} == set(TWINS)


@pytest.mark.parametrize("name", TWINS)
def test_a_step_equals_gymnasiums_own_in_the_precision_of_training(name: str) -> None:
    ours = our_steps(name)

    assert ours.state.dtype == ours.observation.dtype == ours.reward.dtype == np.float32
    assert_same_steps(name, ours, TWINS[name].tolerance)


@pytest.mark.parametrize("name", TWINS)
def test_a_step_equals_gymnasiums_own_to_the_last_digits_in_double_precision(name: str) -> None:
    with jax.enable_x64(True):
        ours = our_steps(name)

    assert ours.state.dtype == np.float64
    assert_same_steps(name, ours, TWINS[name].double)


@pytest.mark.parametrize("name", sorted(set(TWINS) - {"Pendulum-v1"}))
def test_some_of_the_compared_steps_end_the_episode_and_some_do_not(name: str) -> None:
    terminated = gymnasium_steps(name).terminated

    assert 0.02 < terminated.mean() < 0.98


@pytest.mark.parametrize("name", ["MountainCar-v0", "MountainCarContinuous-v0"])
def test_the_compared_steps_hit_the_wall_and_the_edge(name: str) -> None:
    position, velocity = gymnasium_steps(name).state.T

    assert np.sum((position == position.min()) & (velocity == 0)) > 50
    assert np.sum((position == position.max()) & (velocity > 0)) > 50


@pytest.mark.parametrize("name", TWINS)
def test_spaces_and_time_limit_are_gymnasiums_own(name: str) -> None:
    theirs = gymnasium.make(name)
    ours = make(DOMAINS[name])

    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert theirs.spec is not None
    assert DOMAINS[name].max_episode_steps == theirs.spec.max_episode_steps


@pytest.mark.parametrize("name", TWINS)
def test_episodes_start_where_gymnasiums_do(name: str) -> None:
    env: Any = gymnasium.make(name).unwrapped
    theirs = np.array([(env.reset(seed=seed), np.array(env.state))[1] for seed in range(1000)])

    states = jax.vmap(make(DOMAINS[name]).initial)(jax.random.split(jax.random.key(1), 1000))
    ours = np.asarray(states)[:, : theirs.shape[1]]

    assert states.dtype == jnp.float32
    assert np.all(np.asarray(states)[:, theirs.shape[1] :] == 0)
    spread = np.ptp(theirs, axis=0)
    np.testing.assert_allclose(ours.min(axis=0), theirs.min(axis=0), atol=0.01 * spread.max())
    np.testing.assert_allclose(ours.max(axis=0), theirs.max(axis=0), atol=0.01 * spread.max())
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=0.05 * spread.max())
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.05)
    # Each number is drawn by itself.
    moving = spread > 0
    correlation = np.corrcoef(ours[:, moving], rowvar=False)
    assert np.all(np.abs(np.atleast_2d(correlation) - np.eye(moving.sum())) < 0.1)
