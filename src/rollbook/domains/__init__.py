"""Our own environments: pure functions in JAX, as Gymnasium `FuncEnv`s, and as ordinary Gymnasium ids.

A new domain is one file with a class and one line in the table below. Reading the table imports neither JAX nor
Gymnasium; `make` and `register` import them when called.

    env = make(DOMAINS["CartPole-v1"])                            # pure functions, for jit, vmap and scan
    register(); gymnasium.make("rollbook/CartPole-v1")            # a Gymnasium environment with its time limit
    gymnasium.make("rollbook.domains.gym_env:rollbook/CartPole-v1")  # the same, with nothing imported before

The last form is there because Gymnasium dropped its entry points for plugins in 1.0: a package is registered only
once it is imported.

`pendulum-p-v0+concat5` is a domain shown by its last five observations; so is any other with any number. Gymnasium's
ids have no plus: there, `rollbook/pendulum-p-concat5-v0` is the same, for 5 and 20.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from gymnasium.experimental.functional import FuncEnv

    AnyFuncEnv: TypeAlias = FuncEnv[Any, Any, Any, Any, Any, Any, Any]

__all__ = ["DOMAINS", "NAMESPACE", "Domain", "find", "make", "register"]

NAMESPACE = "rollbook"
REGISTERED_STACKS = (5, 20)


@dataclass(frozen=True, kw_only=True)
class Domain:
    """What is known of a domain before it is imported."""

    name: str
    entry_point: str  # module:class
    max_episode_steps: int
    twin_of: str | None = None  # the id of Gymnasium's own environment that this one equals, step for step
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # constants of the class, replaced
    success_above: float | None = None  # the return above which an episode is a success, where there is such a thing
    stacked: int = 1  # observations that are shown at once

    @property
    def env_id(self) -> str:
        """The id in Gymnasium's registry, which has observations one at a time, and 5 and 20 at once."""
        return f"{NAMESPACE}/{stacked_name(self.name, self.stacked)}"


def stacked_name(name: str, count: int) -> str:
    """pendulum-p-v0 -> pendulum-p-concat5-v0: Gymnasium wants the version last."""
    return re.sub(r"(-v\d+)(\+concat\d+)?$", rf"-concat{count}\1", name) if count > 1 else name


def _twin(name: str, entry_point: str, max_episode_steps: int) -> Domain:
    return Domain(name=name, entry_point=entry_point, max_episode_steps=max_episode_steps, twin_of=name)


def _own(
    name: str, entry_point: str, max_episode_steps: int, success_above: float | None = None, **options: Any
) -> Domain:
    return Domain(
        name=name,
        entry_point=f"rollbook.domains.{entry_point}",
        max_episode_steps=max_episode_steps,
        success_above=success_above,
        options=options,
    )


def _partial_pendulums() -> Iterator[Domain]:
    """p: position, v: velocity, a: the action before, l: length."""
    partial, variable = "pendulum_partial:PartialPendulum", "pendulum_partial:VariablePendulum"
    yield _own("pendulum-p-v0", partial, 200, seen="cos sin")
    yield _own("pendulum-v-v0", partial, 200, seen="rate")
    yield _own("pendulum-va-v0", partial, 200, seen="rate torque")
    yield _own("pendulum-var-len-pvl-v0", variable, 200, seen="cos sin rate length")
    yield _own("pendulum-var-len-pv-v0", variable, 200, seen="cos sin rate")
    yield _own("pendulum-var-len-pl-v0", variable, 200, seen="cos sin length")
    yield _own("pendulum-var-len-pa-v0", variable, 200, seen="cos sin torque")


def _partial_cart_poles() -> Iterator[Domain]:
    partial, variable = "cartpole_partial:PartialCartPole", "cartpole_partial:VariableCartPole"
    for name, steps in (("cartpole-continuous", 200), ("cartpole-continuous-long", 1000)):
        yield _own(f"{name}-p-v0", partial, steps, seen="position angle")
        yield _own(f"{name}-v-v0", partial, steps, seen="velocity spin")
    yield _own("cartpole-var-len-pvl-v0", variable, 500, seen="position velocity cos sin spin length")
    yield _own("cartpole-var-len-pv-v0", variable, 500, seen="position velocity cos sin spin")
    yield _own("cartpole-var-len-pa-v0", variable, 500, seen="position cos sin action")


def _water_mazes() -> Iterator[Domain]:
    # Success is to come back: five points can be had by having found the platform once.
    for name, entry_point, success_above in (
        ("water-maze", "water_maze:WaterMaze", 5.5),
        ("water-maze-dense", "water_maze:DenseWaterMaze", None),
        ("water-maze-simple", "water_maze:SimpleWaterMaze", 5.5),
    ):
        yield _own(f"{name}-mdp-v0", entry_point, 200, success_above, seen="x y inside platform_x platform_y")
        yield _own(f"{name}-pomdp-v0", entry_point, 200, success_above, seen="x y inside")


def _cars() -> Iterator[Domain]:
    for name, entry_point, success_above in (("car", "car:Car", 0.5), ("car-episodic", "car:EpisodicCar", -159.5)):
        sights = "position velocity direction"
        yield _own(f"{name}-mdp-v0", entry_point, 160, success_above, seen=sights, sign_reach=10.0)
        yield _own(f"{name}-v0", entry_point, 160, success_above, seen=sights)
        yield _own(f"{name}-p-v0", entry_point, 160, success_above, seen="position direction")


def _reachers() -> Iterator[Domain]:
    arm, goal, after = "cos1 cos2 sin1 sin2 goal_x goal_y", "gap_x gap_y", "action1 action2"
    yield _own("reacher-mdp-v0", "reacher:Reacher", 50)
    yield _own("reacher-pomdp-v0", "reacher:Reacher", 50, seen=f"{arm} rate1 rate2 {goal} {after}", shown_steps=1)
    yield _own("reacher-pomdp-p-v0", "reacher:Reacher", 50, seen=f"{arm} {goal} {after}", shown_steps=1)


def _bumps() -> Iterator[Domain]:
    rail, table = "hand_x bend_x", "hand_x hand_y bend_x bend_y"
    yield _own("bumps-1d-v0", "bumps:Bumps", 50, 0.5, seen=rail)
    yield _own("bumps-1d-mdp-v0", "bumps:Bumps", 50, 0.5, seen=f"{rail} left_x right_x")
    yield _own("bumps-2d-v0", "bumps:TableBumps", 100, 0.5, seen=table)
    yield _own("bumps-2d-mdp-v0", "bumps:TableBumps", 100, 0.5, seen=f"{table} left_x left_y right_x right_y")


DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (
        _twin("CartPole-v1", "rollbook.domains.cartpole:CartPole", 500),
        _twin("Acrobot-v1", "rollbook.domains.acrobot:Acrobot", 500),
        _twin("MountainCar-v0", "rollbook.domains.mountain_car:MountainCar", 200),
        _twin("MountainCarContinuous-v0", "rollbook.domains.mountain_car:MountainCarContinuous", 999),
        _twin("Pendulum-v1", "rollbook.domains.pendulum:Pendulum", 200),
        _own("cartpole-continuous-v0", "cartpole:CartPoleContinuous", 200),
        _own("cartpole-continuous-long-v0", "cartpole:CartPoleContinuous", 1000),
        *_partial_pendulums(),
        *_partial_cart_poles(),
        *_water_mazes(),
        *_cars(),
        *_reachers(),
        *_bumps(),
    )
}


def find(env_id: str) -> Domain | None:
    """The domain of an id, with or without our namespace; an id of anybody else's namespace has none."""
    name = env_id.removeprefix(f"{NAMESPACE}/")
    stacked = re.fullmatch(r"(?P<base>.+)\+concat(?P<count>[1-9]\d*)", name) or re.fullmatch(
        r"(?P<base>.+)-concat(?P<count>[1-9]\d*)(?P<version>-v\d+)", name
    )
    if not stacked:
        return DOMAINS.get(name)
    found = DOMAINS.get(stacked["base"] + stacked.groupdict().get("version", ""))
    count = int(stacked["count"])
    return found and dataclasses.replace(found, name=f"{found.name}+concat{count}", stacked=count)


def make(domain: Domain) -> AnyFuncEnv:
    """A new instance of the domain's functions; its time limit is for the caller to keep."""
    module, _, name = domain.entry_point.partition(":")
    env: AnyFuncEnv = getattr(importlib.import_module(module), name)(dict(domain.options))
    if domain.stacked == 1:
        return env
    from rollbook.domains.stacking import Stacked

    return Stacked(env, domain.stacked)


def register() -> None:
    """Make every domain known to Gymnasium as `rollbook/<name>`; a second call changes nothing."""
    import gymnasium
    from gymnasium.envs.registration import WrapperSpec

    for domain in DOMAINS.values():
        for count in (1, *REGISTERED_STACKS):
            env_id = f"{NAMESPACE}/{stacked_name(domain.name, count)}"
            concat = WrapperSpec("Concat", "rollbook.domains.stacking:Concat", {"count": count})
            if env_id not in gymnasium.registry:
                gymnasium.register(
                    env_id,
                    entry_point="rollbook.domains.gym_env:GymEnv",
                    max_episode_steps=domain.max_episode_steps,
                    disable_env_checker=True,
                    additional_wrappers=(concat,) if count > 1 else (),
                    kwargs={"domain": domain.name},
                )
