"""Our own environments: pure functions in JAX, as Gymnasium `FuncEnv`s, and as ordinary Gymnasium ids.

A new domain is one file with a class and one line in the table below. Reading the table imports neither JAX nor
Gymnasium; `make` and `register` import them when called.

    env = make(DOMAINS["CartPole-v1"])                            # pure functions, for jit, vmap and scan
    register(); gymnasium.make("rollbook/CartPole-v1")            # a Gymnasium environment with its time limit
    gymnasium.make("rollbook.domains.gym_env:rollbook/CartPole-v1")  # the same, with nothing imported before

The last form is there because Gymnasium dropped its entry points for plugins in 1.0: a package is registered only
once it is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from gymnasium.experimental.functional import FuncEnv

    AnyFuncEnv: TypeAlias = FuncEnv[Any, Any, Any, Any, Any, Any, Any]

__all__ = ["DOMAINS", "NAMESPACE", "Domain", "find", "make", "register"]

NAMESPACE = "rollbook"


@dataclass(frozen=True, kw_only=True)
class Domain:
    """What is known of a domain before it is imported."""

    name: str
    entry_point: str  # module:class
    max_episode_steps: int
    twin_of: str | None = None  # the id of Gymnasium's own environment that this one equals, step for step
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # constants of the class, replaced

    @property
    def env_id(self) -> str:
        """The id in Gymnasium's registry."""
        return f"{NAMESPACE}/{self.name}"


def _twin(name: str, entry_point: str, max_episode_steps: int) -> Domain:
    return Domain(name=name, entry_point=entry_point, max_episode_steps=max_episode_steps, twin_of=name)


def _own(name: str, entry_point: str, max_episode_steps: int, **options: Any) -> Domain:
    return Domain(name=name, entry_point=entry_point, max_episode_steps=max_episode_steps, options=options)


DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (
        _twin("CartPole-v1", "rollbook.domains.cartpole:CartPole", 500),
        _twin("Acrobot-v1", "rollbook.domains.acrobot:Acrobot", 500),
        _twin("MountainCar-v0", "rollbook.domains.mountain_car:MountainCar", 200),
        _twin("MountainCarContinuous-v0", "rollbook.domains.mountain_car:MountainCarContinuous", 999),
        _twin("Pendulum-v1", "rollbook.domains.pendulum:Pendulum", 200),
        _own("cartpole-continuous-v0", "rollbook.domains.cartpole:CartPoleContinuous", 200),
        _own("cartpole-continuous-long-v0", "rollbook.domains.cartpole:CartPoleContinuous", 1000),
    )
}


def find(env_id: str) -> Domain | None:
    """The domain of an id, with or without our namespace; an id of anybody else's namespace has none."""
    return DOMAINS.get(env_id.removeprefix(f"{NAMESPACE}/"))


def make(domain: Domain) -> AnyFuncEnv:
    """A new instance of the domain's functions; its time limit is for the caller to keep."""
    module, _, name = domain.entry_point.partition(":")
    env: AnyFuncEnv = getattr(importlib.import_module(module), name)(dict(domain.options))
    return env


def register() -> None:
    """Make every domain known to Gymnasium as `rollbook/<name>`; a second call changes nothing."""
    import gymnasium

    for domain in DOMAINS.values():
        if domain.env_id not in gymnasium.registry:
            gymnasium.register(
                domain.env_id,
                entry_point="rollbook.domains.gym_env:GymEnv",
                max_episode_steps=domain.max_episode_steps,
                disable_env_checker=True,
                kwargs={"domain": domain.name},
            )
