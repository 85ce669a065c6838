"""MuJoCo without velocities or without positions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from rollbook.domains.mujoco_part import Kept, Part

# Numbers of the whole observation: positions, velocities, and what is neither.
SIZES = {
    "HalfCheetah-v5": (8, 9, 0),
    "Hopper-v5": (5, 6, 0),
    "Walker2d-v5": (8, 9, 0),
    "Swimmer-v5": (3, 5, 0),
    "Ant-v5": (13, 14, 78),
    "Humanoid-v5": (22 + 130, 23 + 78, 17 + 78),
    "InvertedPendulum-v5": (2, 2, 0),
    "InvertedDoublePendulum-v5": (5, 3, 1),
    "Reacher-v5": (6, 2, 2),
    "Pusher-v5": (13, 7, 3),
}


def simulator(env: gymnasium.Env[Any, Any]) -> Any:
    return env.unwrapped


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("env_id", SIZES)
def test_velocities_do_not_show_without_velocities_nor_positions_without_positions(env_id: str) -> None:
    env = gymnasium.make(env_id)
    parts: dict[Kept, Part] = {"p": Part(env, "p"), "v": Part(env, "v")}
    positions, velocities, others = SIZES[env_id]
    whole, _ = env.reset(seed=1)
    state = simulator(env)
    shape = state.init_qpos.shape, state.init_qvel.shape
    rng = np.random.default_rng(1)
    qpos, qvel = state.data.qpos + 0.01 * rng.normal(size=shape[0]), 0.1 * rng.normal(size=shape[1])

    def seen(kept: Kept, qpos: Any, qvel: Any) -> Any:
        state.set_state(qpos, qvel)
        return parts[kept].observation(state._get_obs())

    assert whole.shape == (positions + velocities + others,)
    assert parts["p"].observation_space.shape == (positions + others,)
    assert parts["v"].observation_space.shape == (velocities + others,)
    assert len(seen("p", qpos, qvel)) == positions + others
    if not others:  # contact forces change with both
        np.testing.assert_array_equal(seen("p", qpos, qvel), seen("p", qpos, -qvel))
        np.testing.assert_array_equal(seen("v", qpos, qvel), seen("v", qpos + 0.01, qvel))
    assert not np.array_equal(seen("p", qpos, qvel), seen("p", qpos + 0.01, qvel))
    assert not np.array_equal(seen("v", qpos, qvel), seen("v", qpos, -qvel))
    env.close()


def test_a_step_gives_the_part_too() -> None:
    env, part = gymnasium.make("HalfCheetah-v5"), Part(gymnasium.make("HalfCheetah-v5"), "p")
    np.testing.assert_array_equal(part.reset(seed=2)[0], env.reset(seed=2)[0][:8])

    whole, reward, *_ = env.step(np.full(6, 0.3))
    seen, same, *_ = part.step(np.full(6, 0.3))

    np.testing.assert_array_equal(seen, whole[:8])
    assert reward == same
    env.close()
    part.close()


def test_an_environment_that_does_not_tell_its_parts_is_refused() -> None:
    with pytest.raises(TypeError, match="does not tell which of its numbers are positions"):
        Part(gymnasium.make("CartPole-v1"), "p")
