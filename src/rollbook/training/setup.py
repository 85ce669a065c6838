"""What to train: the algorithm's file, its configuration from defaults, preset, file and --set, and the training's own
settings.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import importlib
import importlib.util
import sys
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rollbook.algos.parts.fields import Field, fields_of
from rollbook.errors import InvalidConfig, UnknownAlgorithm, UsageError, did_you_mean

ALGORITHMS = {
    "vpg": "vanilla policy gradient with a fitted value function",
    "trpo": "trust region policy optimization",
    "ppo": "proximal policy optimization",
    "ddpg": "deep deterministic policy gradient",
    "td3": "twin delayed deep deterministic policy gradient",
    "sac": "soft actor-critic with a learned temperature",
    "rdpg": "recurrent deterministic policy gradient, for what is only partly seen",
    "rtd3": "recurrent TD3, for what is only partly seen",
    "rsac": "recurrent SAC, for what is only partly seen",
    "dqn": "deep Q-network",
    "c51": "categorical DQN: returns as probabilities of fixed values",
    "qrdqn": "quantile regression DQN: returns as quantiles",
}
_FUNCTIONS = ("Config", "init", "act", "update")
_MORE_FUNCTIONS = {"off_policy": ("explore",), "recurrent": ("explore",)}  # by LOOP
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_PRESETS = Path(__file__).with_name("presets")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One training of one seed, whole: what the run's record keeps, and what a resume starts from."""

    algorithm: str  # a name, or the path of a user's file
    env: str
    seed: int
    steps: int
    backend: Literal["auto", "device", "host"] = "auto"
    eval_every: int = 0  # steps; 0: never
    eval_episodes: int = 10
    checkpoint_every: int = 0  # steps; 0: only at the end
    keep_checkpoints: int = 3
    no_save_replay: bool = False  # of checkpoints; a resume then begins with an empty one
    max_episode_steps: int | None = None
    capture_video: bool = False
    init_from: str | None = None  # RUN or RUN@STEP, whose weights to begin with
    only: str | None = None  # the network to take from there, if not all
    cores: int | None = None  # that the process keeps to; results depend on it in their last bits
    shares: int | None = None  # of a batch, each learned from on a core of its own; none: as many as are worth it
    config: Any

    def to_record(self, algo: str) -> dict[str, Any]:
        """Flat, as runs are asked about: `config->>'lr'`."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del own["config"], own["algorithm"]
        record = {"algo": algo, **own, **dataclasses.asdict(self.config)}
        if algo != self.algorithm:
            record["algorithm_file"] = self.algorithm
        return record


def setup_from_record(record: Mapping[str, Any]) -> Setup:
    """The setup that made a run, from the run's config."""
    algorithm = record.get("algorithm_file", record.get("algo"))
    own = {field.name for field in dataclasses.fields(Setup)} & record.keys()
    if not isinstance(algorithm, str) or not {"env", "seed", "steps"} <= own:
        raise UsageError("this run was not made by `rollbook train`", "rollbook rerun RUN starts its program again")
    fields = fields_of(load_algorithm(algorithm).Config)
    chosen = {name: _honest(record[name]) for name in fields if name in record}
    config = load_algorithm(algorithm).Config(**chosen)
    return Setup(algorithm=algorithm, config=config, **{name: record[name] for name in own})


def load_algorithm(name: str) -> types.ModuleType:
    """One of ours by name, or a user's file."""
    if name in ALGORITHMS:
        return importlib.import_module(f"rollbook.algos.{name}")
    if not name.endswith(".py"):
        hint = did_you_mean(name, ALGORITHMS) or f"ours are {', '.join(ALGORITHMS)}; a file of yours ends with .py"
        raise UnknownAlgorithm(f"there is no algorithm {name!r}", hint)
    path = Path(name)
    if not path.is_file():
        raise UnknownAlgorithm(f"there is no file {name}", "give the path of a file with Config, init, act and update")
    return _load_file(path.absolute(), path.stat().st_mtime_ns)


@functools.cache
def _load_file(path: Path, mtime_ns: int) -> types.ModuleType:  # noqa: ARG001 - a file that has changed is another
    """Once: the next seed has the same classes, and with them what was compiled."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # a dataclass looks its module up there
    spec.loader.exec_module(module)
    functions = (*_FUNCTIONS, *_MORE_FUNCTIONS.get(getattr(module, "LOOP", "on_policy"), ()))
    if missing := [function for function in functions if not hasattr(module, function)]:
        raise UnknownAlgorithm(
            f"{path.name} has no {missing[0]}", "see `python -c 'help(\"rollbook.algos\")'` for the functions"
        )
    return module


def algorithm_name(name: str) -> str:
    return Path(name).stem if name.endswith(".py") else name


# ---- configuration: defaults < preset < file < --set --------------------------------------------------------------


@dataclass(frozen=True)
class Preset:
    """Hyper-parameters that were tried on some environments, with what they reached."""

    name: str
    envs: tuple[str, ...]  # ids, or patterns such as ALE/*
    steps: int
    checked: tuple[str, ...]  # commands and their scores
    config: Mapping[str, Any]


def presets_of(algorithm: str) -> dict[str, Preset]:
    path = _PRESETS / f"{algorithm}.toml"
    if not path.exists():
        return {}
    return {
        name: Preset(name, tuple(entry["envs"]), entry["steps"], tuple(entry["checked"]), entry["config"])
        for name, entry in tomllib.loads(path.read_text()).items()
    }


def find_preset(algorithm: str, env: str, name: str | None) -> Preset | None:
    """The one named, or the first that is for the environment, where stacked observations (`+concat5`) make none of
    their own; `none` for the algorithm's bare defaults.
    """
    presets = presets_of(algorithm)
    if name == "none":
        return None
    if name is not None:
        if name not in presets:
            hint = did_you_mean(name, presets) or f"there are {', '.join([*presets, 'none'])}"
            raise UsageError(f"{algorithm} has no preset {name!r}", hint)
        return presets[name]
    bare = env.removeprefix("rollbook/").partition("+")[0]
    return next((preset for preset in presets.values() if any(fnmatch.fnmatch(bare, one) for one in preset.envs)), None)


def make_config(algorithm: str, *sources: Mapping[str, Any]) -> Any:
    """The algorithm's Config; a later source beats an earlier one. Values may be text, as from the command line."""
    kind = load_algorithm(algorithm).Config
    fields = fields_of(kind)
    chosen: dict[str, Any] = {}
    for source in sources:
        for name, value in source.items():
            if name not in fields:
                raise InvalidConfig(
                    f"{algorithm_name(algorithm)} has no parameter {name!r}",
                    did_you_mean(name, fields) or f"rollbook train {algorithm} --help lists them",
                )
            chosen[name] = parse(fields[name], value) if isinstance(value, str) else _honest(value)
    return kind(**chosen)


def parse(field: Field, text: str) -> Any:
    """Text from the command line as a field's type; InvalidConfig says what the field takes."""
    for kind in _choices(field.kind):
        try:
            return _parse_as(kind, text.strip())
        except ValueError:
            continue
    raise InvalidConfig(f"{field.name} is {text!r}", f"{field.name} must be {field.allowed}")


def _choices(kind: Any) -> tuple[Any, ...]:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return tuple(choice for one in typing.get_args(kind) for choice in _choices(one))
    return _choices(typing.get_args(kind)[0]) if origin is Annotated else (kind,)


def _parse_as(kind: Any, text: str) -> Any:
    if typing.get_origin(kind) is tuple:
        return tuple(int(part) for part in text.strip("()[]").split(",") if part.strip())
    if typing.get_origin(kind) is Literal:
        if text in typing.get_args(kind):
            return text
        raise ValueError(text)
    if kind is bool:
        return _BOOLEANS[text.lower()] if text.lower() in _BOOLEANS else _refuse(text)
    if kind is type(None):
        return None if text.lower() in ("none", "null", "") else _refuse(text)
    if kind is int:
        number = float(text.replace("_", ""))
        return int(number) if number == int(number) else _refuse(text)
    return kind(text)


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _honest(value: Any) -> Any:
    """What TOML and JSON say in their own way: lists for tuples."""
    return tuple(value) if isinstance(value, list) else value
