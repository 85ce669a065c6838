"""What memory is worth: policies by hand, with and without it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from rollbook.domains import DOMAINS, make, register

Memory = dict[str, Any]
Policy = Callable[[Any, Memory], Any]
KEY = jax.random.key(0)


def returns(name: str, policy: Policy, episodes: int = 12) -> Any:
    register()
    env = gymnasium.make(DOMAINS[name].env_id)
    return np.array([one_return(env, policy, seed) for seed in range(episodes)])


def one_return(env: Any, policy: Policy, seed: int) -> float:
    observation, _ = env.reset(seed=seed)
    memory: Memory = {}
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(np.asarray(policy(observation, memory), np.float32))
        total, over = total + reward, terminated or truncated
    return total


def success(name: str, policy: Policy, episodes: int = 12) -> float:
    above = DOMAINS[name].success_above
    assert above is not None
    return float(np.mean(returns(name, policy, episodes) > above))


# ---- car ------------------------------------------------------------------------------------------------------------


def read_the_sign_and_remember(observation: Any, memory: Memory) -> list[float]:
    """To the right until the sign can be read, then where it says."""
    memory["way"] = observation[-1] or memory.get("way", 1.0)
    return [memory["way"]]


def test_who_remembers_the_sign_always_gets_to_heaven() -> None:
    assert success("car-p-v0", read_the_sign_and_remember) == 1
    assert success("car-episodic-v0", read_the_sign_and_remember) == 1


def test_who_does_not_read_the_sign_gets_there_by_chance() -> None:
    assert 0.2 < success("car-v0", lambda *_: [1.0], episodes=40) < 0.8
    np.testing.assert_array_equal(np.unique(returns("car-episodic-v0", lambda *_: [-1.0]) == -160), [False, True])


def test_no_policy_of_place_and_sign_alone_gets_to_heaven_on_both_sides() -> None:
    """What pushes by place alone is a potential: who had to roll down towards the sign does not come back over where it
    began, let alone to the other end. Every choice of full pushes on five parts of the road is tried here.
    """
    env = make(DOMAINS["car-p-v0"])
    borders = jnp.array([-0.6, -0.21, 0.0, 0.3, 0.7])  # the sign can be read between the last two
    pushes = jnp.array(list(itertools.product([-1.0, 1.0], repeat=7)))  # five places and two readings

    def reached(push: Any, heaven: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            position, direction = env.observation(state, KEY)
            place = jnp.searchsorted(borders, position)
            place = jnp.where(place == 5, 4, jnp.minimum(place, 3))
            action = jnp.where(direction == 0, push[place], jnp.where(direction > 0, push[5], push[6]))
            after = env.transition(state, action[None], KEY)
            over = env.terminal(state, KEY)
            return jnp.where(over, state, after), None

        start = jnp.array([0.1, 0.0, heaven, 0.0])
        last, _ = jax.lax.scan(step, start, None, 160)
        return last[0] * heaven >= 1

    found = jax.jit(jax.vmap(lambda push: jnp.stack([reached(push, 1.0), reached(push, -1.0)])))(pushes)

    assert np.all(np.asarray(found).any(axis=0))  # each side is reached by some
    assert not np.any(np.asarray(found).all(axis=1))


def test_a_velocity_that_is_seen_can_stand_in_for_memory() -> None:
    def keep_rolling(observation: Any, _: Memory) -> list[float]:
        _, velocity, direction = observation
        if direction or velocity < 0:
            return [direction or -1.0]
        return [1.0 if velocity < 0.02 else 0.0]  # slowly, so as to turn round before the sign is out of sight

    assert success("car-v0", keep_rolling) == 1


# ---- water maze -----------------------------------------------------------------------------------------------------


def towards(target: Any, place: Any) -> Any:
    return np.clip((np.asarray(target) - place) / 0.04, -1, 1)


def around(place: Any, distance: float = 0.6) -> Any:
    """A round through the pool."""
    turn = np.arctan2(place[1], place[0]) + 0.5
    return towards([distance * np.cos(turn), distance * np.sin(turn)], place)


def search_and_remember(observation: Any, memory: Memory) -> Any:
    place, inside = observation[:2], observation[2]
    if inside and np.hypot(*(place - memory.get("last", place))) < 0.1:  # not where it was carried to
        memory["platform"] = place.copy()
    memory["last"] = place.copy()
    memory["steps"] = memory.get("steps", 0) + 1
    distance = 0.6 if memory["steps"] < 100 else 0.2  # a platform that the wide round did not meet is in the middle
    return towards(memory["platform"], place) if "platform" in memory else around(place, distance)


def search_again(observation: Any, _: Memory) -> Any:
    return np.zeros(2) if observation[2] else around(observation[:2])


def swim_to_what_is_seen(observation: Any, _: Memory) -> Any:
    return towards(observation[3:5], observation[:2])


def test_who_remembers_the_platform_comes_back_more_often() -> None:
    with_memory = returns("water-maze-pomdp-v0", search_and_remember)
    without = returns("water-maze-pomdp-v0", search_again)
    seeing = returns("water-maze-mdp-v0", swim_to_what_is_seen)

    assert without.mean() + 5 < with_memory.mean() < seeing.mean() < 100
    assert success("water-maze-pomdp-v0", search_and_remember) > 0.9


def test_a_swimmer_who_sees_the_platform_pays_little() -> None:
    assert returns("water-maze-dense-mdp-v0", swim_to_what_is_seen).mean() > -100


# ---- bumps ----------------------------------------------------------------------------------------------------------


def feel_and_count(observation: Any, memory: Memory) -> list[float]:
    """Softly to the left end, softly back to the second bump, off it again, and stiffly against it."""
    hand, bend = observation
    memory.setdefault("phase", "left")
    if memory["phase"] == "left":
        if hand > -0.99:
            return [-1, -1]
        memory.update(phase="right", bumps=0, touching=False)
    if memory["phase"] == "right":
        if bend and not memory["touching"]:
            memory["bumps"] += 1
        memory["touching"] = bool(bend)
        if memory["bumps"] < 2:
            return [0.9, -1]
        memory["phase"] = "back"
    if memory["phase"] == "back":
        if bend:
            return [-1, -1]
        memory["phase"] = "push"
    return [1, 1]


def test_who_counts_the_bumps_pushes_the_right_one() -> None:
    assert success("bumps-1d-v0", feel_and_count, episodes=30) == 1


def test_who_pushes_whatever_comes_fails_as_often_as_not() -> None:
    assert success("bumps-1d-v0", lambda *_: [1.0, 1.0], episodes=40) < 0.6


def push_what_is_seen(observation: Any, _: Memory) -> list[float]:
    hand, bend, left, right = (observation[start : start + 2] for start in (0, 2, 4, 6))
    in_line = abs(hand[1] - right[1]) < 0.04 and right[0] - 0.45 < hand[0] < right[0] - 0.2
    if in_line and not np.any(bend) and np.hypot(*(hand - left)) > 0.21:
        return [1, 0, 1]
    target = right - [0.3, 0]
    return [*np.clip((target - hand) / 0.1, -1, 1), -1]


def test_who_sees_the_bumps_on_the_table_pushes_the_right_one() -> None:
    assert success("bumps-2d-mdp-v0", push_what_is_seen, episodes=30) > 0.7


# ---- the others -----------------------------------------------------------------------------------------------------


def remember_the_goal(observation: Any, memory: Memory) -> Any:
    """The angles that reach it, by the law of cosines, held by springs and dampers."""
    memory.setdefault("goal", observation[4:6].copy())
    x, y = memory["goal"]
    one, two = 0.1, 0.11
    bend = np.arccos(np.clip((x * x + y * y - one**2 - two**2) / (2 * one * two), -1, 1))
    shoulder = np.arctan2(y, x) - np.arctan2(two * np.sin(bend), one + two * np.cos(bend))
    now = np.arctan2(observation[2:4], observation[:2])
    error = (np.array([shoulder, bend]) - now + np.pi) % (2 * np.pi) - np.pi
    rates = observation[6:8]
    return np.clip(0.2 * error - 0.04 * rates, -1, 1)


def forget_the_goal(observation: Any, _: Memory) -> Any:
    return remember_the_goal(observation, {})


def test_who_remembers_the_goal_reaches_it() -> None:
    with_memory = returns("reacher-pomdp-v0", remember_the_goal)
    without = returns("reacher-pomdp-v0", forget_the_goal)

    assert with_memory.mean() > -5
    assert with_memory.mean() > without.mean() + 1


def test_the_rate_that_a_position_hides_decides_which_torque_is_good() -> None:
    """Near the top at the same place, a torque that saves one pendulum drops the other."""
    env = make(DOMAINS["pendulum-p-v0"])
    rising, falling = jnp.array([0.2, -1.6, 0.0]), jnp.array([0.2, 1.6, 0.0])

    np.testing.assert_array_equal(env.observation(rising, KEY), env.observation(falling, KEY))

    def cost(state: Any, torque: float) -> float:
        total = 0.0
        for _ in range(8):
            action = jnp.array([torque])
            after = env.transition(state, action, KEY)
            total -= float(env.reward(state, action, after, KEY))
            state = after
        return total

    assert cost(falling, -2.0) < cost(falling, 2.0)
    assert cost(rising, 2.0) < cost(rising, -2.0)
