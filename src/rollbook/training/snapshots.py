"""The state of a host environment as a tree of arrays and numbers, so that a training can go on exactly.

MuJoCo, Gymnasium's classic control and our own domains can be saved between any two steps. Any other simulator goes on
at an episode border: its episodes start anew when a run is resumed, and the resume says so.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

# Attributes of classic control that change from step to step, while an episode goes on.
_CLASSIC = ("state", "last_u")


def can_snapshot(env: gymnasium.Env[Any, Any]) -> bool:
    return _is_mujoco(env) or _is_classic(env) or _is_domain(env)


def snapshot(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Of an environment that `can_snapshot`, after its first reset."""
    limit = _time_limit(env)
    return {
        "simulator": _read(env),
        "elapsed": limit._elapsed_steps if limit else None,
        "random": env.unwrapped.np_random.bit_generator.state,
    }


def restore(env: gymnasium.Env[Any, Any], saved: dict[str, Any]) -> None:
    """Into an environment that has been reset."""
    _write(env, saved["simulator"])
    if limit := _time_limit(env):
        limit._elapsed_steps = saved["elapsed"]
    env.unwrapped.np_random.bit_generator.state = saved["random"]


def _read(env: Any) -> dict[str, Any]:
    if _is_domain(env):
        state: dict[str, Any] = env.unwrapped.simulator
        return state
    return _mujoco_state(env) if _is_mujoco(env) else _classic_state(env)


def _write(env: Any, saved: dict[str, Any]) -> None:
    if _is_domain(env):
        env.unwrapped.simulator = saved
    elif _is_mujoco(env):
        _set_mujoco_state(env, saved)
    else:
        _set_classic_state(env, saved)


def _is_domain(env: gymnasium.Env[Any, Any]) -> bool:
    return type(env.unwrapped).__module__ == "rollbook.domains.gym_env"


def _is_mujoco(env: gymnasium.Env[Any, Any]) -> bool:
    return hasattr(env.unwrapped, "model") and type(getattr(env.unwrapped, "data", None)).__name__ == "MjData"


def _is_classic(env: gymnasium.Env[Any, Any]) -> bool:
    return type(env.unwrapped).__module__.startswith("gymnasium.envs.classic_control")


def _time_limit(env: gymnasium.Env[Any, Any]) -> TimeLimit[Any, Any] | None:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return env
        env = env.env
    return None


def _mujoco_state(env: Any) -> dict[str, Any]:
    import mujoco

    model, data = env.unwrapped.model, env.unwrapped.data
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    # Ant and Humanoid read positions that were computed by the step before, which the integrator's state leaves out.
    return {"integration": state, "xpos": data.xpos.copy(), "xipos": data.xipos.copy()}


def _set_mujoco_state(env: Any, saved: dict[str, Any]) -> None:
    import mujoco

    model, data = env.unwrapped.model, env.unwrapped.data
    mujoco.mj_setState(model, data, saved["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)
    data.xpos[:], data.xipos[:] = saved["xpos"], saved["xipos"]


def _classic_state(env: Any) -> dict[str, Any]:
    """Numbers as doubles with their type beside them: some states are single precision until their first step, and
    Pendulum has no last action until then. The tree has one shape all the same, as a checkpoint asks.
    """
    inner = env.unwrapped
    saved = {name: getattr(inner, name) for name in _CLASSIC if hasattr(inner, name)}
    return {
        name: {
            "type": "" if value is None else np.asarray(value).dtype.str,
            "value": np.asarray(0 if value is None else value, np.float64),
        }
        for name, value in saved.items()
    }


def _set_classic_state(env: Any, saved: dict[str, Any]) -> None:
    for name, value in saved.items():
        setattr(env.unwrapped, name, value["value"].astype(value["type"]) if value["type"] else None)
