"""From an environment's id to something that a loop can step: on the device, or on the host."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces

from rollbook import domains
from rollbook.algos.parts.spaces import Spaces
from rollbook.domains.mujoco_part import Kept, Part
from rollbook.domains.stacking import Concat
from rollbook.errors import UnknownEnvironment, UnsuitableEnvironment, UsageError, did_you_mean
from rollbook.training import atari
from rollbook.training.device import DeviceEnvs
from rollbook.training.host import HostEnvs

Backend = Literal["device", "host"]

# What an id needs beyond `rollbook[train]`: the module that must be there, and what installs it.
_EXTRAS = {"mujoco": "rollbook[mujoco]", "ale_py": "rollbook[atari]", "Box2D": "rollbook[box2d]"}


@dataclass(frozen=True)
class Environment:
    """An environment that was found, ready to be made."""

    env_id: str
    backend: Backend
    spaces: Spaces
    max_episode_steps: int | None
    domain: domains.Domain | None
    make: Callable[..., gymnasium.Env[Any, Any]]  # a host environment; render=True for frames, "human" for a window
    success_above: float | None = None  # the return above which an episode is a success, where there is such a thing

    def on_device(self, count: int) -> DeviceEnvs:
        assert self.domain and self.max_episode_steps
        return DeviceEnvs(domains.make(self.domain), count, self.max_episode_steps)

    def on_host(self, count: int, seed: int) -> HostEnvs:
        return _StackingEnvs(self.make, count, seed)


class _StackingEnvs(HostEnvs):
    """Also goes on exactly where observations are stacked: the one that was saved is all that the wrapper remembers."""

    def from_tree(self, tree: dict[str, Any], iteration: int) -> None:
        super().from_tree(tree, iteration)
        for env, observation in zip(self.envs, self.observation, strict=True):
            if isinstance(env, Concat):
                env.go_on_from(observation)


class _View(NamedTuple):
    """What an id says of how an environment is to be seen: `HalfCheetah-v5-p+concat5`."""

    env_id: str  # of the environment itself
    kept: Kept | None = None
    stacked: int = 1

    def of(self, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        try:
            if self.kept:
                env = Part(env, self.kept)
            return Concat(env, self.stacked) if self.stacked > 1 else env
        except TypeError as error:
            env.close()
            hint = "-p and -v are for MuJoCo, +concat5 for observations that are vectors"
            raise UnsuitableEnvironment(f"{self.env_id}: {error}", self._domain_in_part() or hint) from None

    @property
    def stack(self) -> str:
        return f"+concat{self.stacked}" if self.stacked > 1 else ""

    def nearest(self) -> str | None:
        """A hint with names that can be seen in the same way."""
        if not self.kept:
            return did_you_mean(self.env_id, [*domains.DOMAINS, *gymnasium.registry], ending=self.stack)
        mujoco = [name for name, spec in gymnasium.registry.items() if "mujoco" in str(spec.entry_point)]
        return self._domain_in_part() or did_you_mean(self.env_id, mujoco, ending=f"-{self.kept}{self.stack}")

    def _domain_in_part(self) -> str | None:
        """For Pendulum-v1-p, pendulum-p-v0: domains have the version last."""
        name = re.sub(r"-v\d+$", f"-{self.kept}-v0", self.env_id.lower())
        return did_you_mean(name, [name], ending=self.stack) if name in domains.DOMAINS else None


def _view(env_id: str) -> _View:
    stacked = re.fullmatch(r"(.+)\+concat([1-9]\d*)", env_id)
    name, count = (stacked[1], int(stacked[2])) if stacked else (env_id, 1)
    part = re.fullmatch(r"(.+-v\d+)-([pv])", name)
    return _View(part[1], "p" if part[2] == "p" else "v", count) if part else _View(name, None, count)


def runs_on_device(env_id: str, backend: str) -> bool:
    """Said without making it."""
    return backend != "host" and domains.find(env_id) is not None


def find_environment(
    env_id: str, backend: Literal["auto", "device", "host"] = "auto", max_episode_steps: int | None = None
) -> Environment:
    """The functional twin or domain where there is one and the backend admits it, else Gymnasium's own."""
    if max_episode_steps is not None and max_episode_steps < 1:
        raise UsageError(f"max_episode_steps is {max_episode_steps}", "an episode has at least one step")
    domain, view = domains.find(env_id), _view(env_id)
    if domain and backend != "host":
        env = domains.make(domain)
        limit = max_episode_steps or domain.max_episode_steps
        spaces = to_spaces(env_id, env.observation_space, env.action_space)
        make = _domain_maker(domain, limit)
        return Environment(env_id, "device", spaces, limit, domain, make, _success_above(domain, limit))
    if backend == "device":
        raise UnknownEnvironment(
            f"{env_id!r} is no functional domain, so it cannot run on the device",
            did_you_mean(view.env_id, domains.DOMAINS, ending=view.stack)
            or "--backend host runs any Gymnasium environment",
        )
    if domain and not domain.twin_of:
        return _host_environment(domain.env_id, _domain_maker(domain, max_episode_steps), max_episode_steps, domain)
    _import_plugins(view.env_id)
    return _host_environment(env_id, _maker(view, max_episode_steps), max_episode_steps)


def _success_above(domain: domains.Domain, limit: int) -> float | None:
    """Of episodes that are shorter or longer than meant, the return says something else."""
    return domain.success_above if limit == domain.max_episode_steps else None


def _host_environment(
    env_id: str,
    make: Callable[..., gymnasium.Env[Any, Any]],
    max_episode_steps: int | None,
    domain: domains.Domain | None = None,
) -> Environment:
    with _explained(env_id):
        probe = make()
    try:
        spaces = to_spaces(env_id, probe.observation_space, probe.action_space)
        limit = max_episode_steps or (probe.spec.max_episode_steps if probe.spec else None)
    finally:
        probe.close()
    success_above = _success_above(domain, limit) if domain and limit else None
    return Environment(env_id, "host", spaces, limit, None, make, success_above)


def _domain_maker(domain: domains.Domain, max_episode_steps: int | None) -> Callable[..., gymnasium.Env[Any, Any]]:
    domains.register()
    alone = dataclasses.replace(domain, name=domain.name.partition("+")[0], stacked=1)
    return _maker(_View(alone.env_id, None, domain.stacked), max_episode_steps)


def _maker(view: _View, max_episode_steps: int | None) -> Callable[..., gymnasium.Env[Any, Any]]:
    env_id = view.env_id

    def make(*, render: bool | str = False, training: bool = True) -> gymnasium.Env[Any, Any]:
        options = {"render_mode": "rgb_array" if render is True else render} if render else {}
        if atari.is_atari(env_id):
            return view.of(atari.make(env_id, max_episode_steps, training=training, **options))
        with warnings.catch_warnings():
            # Gymnasium tells that it puts pictures into a window itself, where the environment does not.
            warnings.filterwarnings("ignore", ".*'human' rendering")
            env = gymnasium.make(env_id, max_episode_steps=max_episode_steps, disable_env_checker=True, **options)
        return view.of(_as_array(env))

    return make


def _as_array(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Images as they are, everything else that can be as one flat vector."""
    space = env.observation_space
    if isinstance(space, gym_spaces.Box) and (_is_image(space) or len(space.shape) == 1):
        return env
    return gymnasium.wrappers.FlattenObservation(env) if space.is_np_flattenable else env


def _is_image(space: gym_spaces.Box) -> bool:
    return len(space.shape) == 3 and space.dtype == np.uint8


def to_spaces(env_id: str, observation: gym_spaces.Space[Any], action: gym_spaces.Space[Any]) -> Spaces:
    if not isinstance(observation, gym_spaces.Box):
        raise UnsuitableEnvironment(
            f"{env_id} has observations of {observation}", "wrap it so that it gives one array (a Box)"
        )
    shape = tuple(observation.shape)
    if _is_image(observation) and min(shape[:2]) < 36:
        raise UnsuitableEnvironment(
            f"{env_id} gives images of {shape[0]} x {shape[1]}", "the convolutions need at least 36 x 36 pixels"
        )
    if isinstance(action, gym_spaces.Discrete):
        return Spaces(observation=shape, discrete=True, actions=int(action.n), first_action=int(action.start))
    if isinstance(action, gym_spaces.Box) and len(action.shape) == 1:
        low, high = (tuple(map(float, bound)) for bound in (action.low, action.high))
        return Spaces(observation=shape, discrete=False, actions=action.shape[0], low=low, high=high)
    raise UnsuitableEnvironment(
        f"{env_id} takes actions of {action}", "the algorithms choose one of n (Discrete) or some numbers (a flat Box)"
    )


def _import_plugins(env_id: str) -> None:
    """Packages that register their environments when imported, where the id says that it is needed."""
    if atari.is_atari(env_id) and importlib.util.find_spec("ale_py"):
        import ale_py

        gymnasium.register_envs(ale_py)
    if env_id.startswith("rollbook/"):
        domains.register()


@contextlib.contextmanager
def _explained(env_id: str) -> Iterator[None]:
    """Gymnasium's errors as ours: the nearest name, or the exact command that installs what is missing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an outdated version of an environment is a user's free choice
            yield
    except gymnasium.error.UnregisteredEnv as error:
        if atari.is_atari(env_id) and isinstance(error, gymnasium.error.NamespaceNotFound):
            raise UnknownEnvironment(f"{env_id!r} needs a package that is not installed", _install("ale_py")) from None
        raise UnknownEnvironment(
            f"there is no environment {env_id!r}",
            _view(env_id).nearest() or "`my_package:MyEnv-v0` imports my_package, which registers it",
        ) from None
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        missing = next((module for module in _EXTRAS if module.lower() in str(error).lower()), None)
        raise UnknownEnvironment(
            f"{env_id!r} needs a package that is not installed",
            _install(missing) if missing else str(error).splitlines()[0],
        ) from None
    except (gymnasium.error.Error, ValueError) as error:
        if not _is_malformed(env_id):
            raise
        examples = "CartPole-v1, ALE/Pong-v5 or my_package:MyEnv-v0"
        raise UnknownEnvironment(
            f"{env_id!r} is no environment's id",
            f"{examples}, and +concatN with N of 1 or more after it" if "+" in env_id else examples,
        ) from error


def _is_malformed(env_id: str) -> bool:
    return re.fullmatch(r"([\w.]+:)?([\w-]+/)?[\w.:-]+", env_id) is None or env_id.count(":") > 1


def _install(module: str) -> str:
    return f"pip install '{_EXTRAS[module]}'"
