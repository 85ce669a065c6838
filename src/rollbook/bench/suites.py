"""Suites: benchmarks as files.

    task = "nightly"
    env_ids = ["CartPole-v1", "Acrobot-v1"]
    num_seeds = 3

    [[programs]]
    algo = "ppo"                       # one of ours, or a file: rollbook train ppo ENV
    steps = 500_000
    grid.lr = [1e-3, 3e-4]

    [[programs]]
    algo = "their-ppo"                 # what its runs are called
    command = "python ppo.py --total-timesteps {steps}"

What stands above the programs holds for each of them that does not say otherwise.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollbook.bench.matrix import Program
from rollbook.errors import InvalidConfig, did_you_mean

SHIPPED = Path(__file__).with_name("shipped")
DEFAULT_SEEDS = 3

_SHARED: dict[str, tuple[type, ...]] = {
    "env_ids": (list,),
    "seeds": (list,),
    "num_seeds": (int,),
    "start_seed": (int,),
    "steps": (int,),
    "task": (str,),
    "tags": (list,),
    "grid": (dict,),
    "resumes": (bool,),
}
_OF_A_PROGRAM: dict[str, tuple[type, ...]] = {**_SHARED, "algo": (str,), "command": (str,)}
_OF_A_SUITE: dict[str, tuple[type, ...]] = {**_SHARED, "programs": (list,)}


def shipped_suites() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_suite(name: str, overrides: Mapping[str, Any]) -> list[Program]:
    """The programs of a file, or of a suite of ours; `overrides` (of the command line) beat what the file says."""
    path = Path(name)
    if not path.suffix and not path.exists():
        path = SHIPPED / f"{name}.toml"
    try:
        text = path.read_text()
    except OSError as error:
        known = shipped_suites()
        hint = did_you_mean(name, known) or f"give a file, or one of {', '.join(known)}"
        raise InvalidConfig(f"there is no suite {name!r}: {error.strerror or error}", hint) from None
    try:
        table = tomllib.loads(text)
    except ValueError as error:
        raise InvalidConfig(f"{path} is no TOML: {error}", "see docs/guide/bench.md for an example") from None
    return _Suite(path, text).programs(table, overrides)


class _Suite:
    """A file that is being read; it knows where its keys stand."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text

    def programs(self, table: dict[str, Any], overrides: Mapping[str, Any]) -> list[Program]:
        self._check(table, _OF_A_SUITE)
        shared = {"task": self.path.stem, **{key: value for key, value in table.items() if key != "programs"}}
        entries = table.get("programs", [])
        if not entries:
            raise InvalidConfig(f"{self.path} has no programs", '[[programs]] and below it algo = "ppo"')
        return [self._program(shared, entry, overrides) for entry in entries]

    def _program(self, shared: Mapping[str, Any], entry: Any, overrides: Mapping[str, Any]) -> Program:
        if not isinstance(entry, dict):
            raise InvalidConfig(f"{self.path}: programs are tables", '[[programs]] and below it algo = "ppo"')
        self._check(entry, _OF_A_PROGRAM)
        if "algo" not in entry and "command" not in entry:
            raise InvalidConfig(f"{self.path}: a program has neither algo nor command", 'algo = "ppo" for one of ours')
        # Who names seeds does not want those that were counted out above, and the other way round.
        above = {
            key: value
            for key, value in shared.items()
            if not ("seeds" in entry and key in ("num_seeds", "start_seed"))
            and not (key == "seeds" and entry.keys() & {"num_seeds", "start_seed"})
        }
        both = {**above, **entry}
        both["tags"] = [*shared.get("tags", ()), *entry.get("tags", ())]
        return make_program(both, overrides)

    def _check(self, table: Mapping[str, Any], known: Mapping[str, tuple[type, ...]]) -> None:
        for key, value in table.items():
            if key not in known:
                hint = did_you_mean(key, known) or f"there are {', '.join(known)}"
                raise InvalidConfig(f"{self.path}{self._line(key)} has the unknown key {key!r}", hint)
            if not isinstance(value, known[key]) or (isinstance(value, bool) and bool not in known[key]):
                kinds = " or ".join(kind.__name__ for kind in known[key])
                raise InvalidConfig(f"{self.path}{self._line(key)}: {key} = {value!r} is not a {kinds}")

    def _line(self, key: str) -> str:
        """The parser does not tell where a key stands: the first line that begins with it."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if re.match(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[=.\]]", line):
                return f":{number}"
        return ""


def make_program(table: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Program:
    """Of checked keys, as a suite or the command line gives them."""
    given = {**table, **(overrides or {})}
    if overrides and overrides.keys() & {"num_seeds", "start_seed"}:
        given.pop("seeds", None)
    return Program(
        algo=given.get("algo"),
        command=given.get("command"),
        env_ids=tuple(_texts("env_ids", given.get("env_ids", ()))),
        seeds=_seeds(given),
        grid={key: _grid_values(key, values) for key, values in given.get("grid", {}).items()},
        steps=given.get("steps"),
        task=given["task"],
        tags=tuple(_texts("tags", given.get("tags", ()))),
        resumes=given.get("resumes", False),
    )


def _seeds(given: Mapping[str, Any]) -> tuple[int, ...]:
    if "seeds" in given:
        seeds = given["seeds"]
        if not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds):
            raise InvalidConfig(f"seeds = {seeds!r} are not whole numbers", "seeds = [1, 2, 3]")
        return tuple(seeds)
    count, first = given.get("num_seeds", DEFAULT_SEEDS), given.get("start_seed", 1)
    if count < 1:
        raise InvalidConfig(f"num_seeds is {count}", "at least 1; the gate wants 3 or more")
    return tuple(range(first, first + count))


def _texts(key: str, values: Sequence[Any]) -> list[str]:
    if not all(isinstance(value, str) for value in values):
        raise InvalidConfig(f"{key} = {values!r} is no list of names", f'{key} = ["..."]')
    return list(dict.fromkeys(values)) if key == "tags" else list(values)


def _grid_values(key: str, values: Any) -> tuple[str, ...]:
    """As they will stand on the command line."""
    chosen = values if isinstance(values, list | tuple) else [values]
    if not chosen:
        raise InvalidConfig(f"the grid has no value for {key}", f"{key} = [1e-3, 3e-4]")
    return tuple(",".join(map(str, value)) if isinstance(value, list) else str(value) for value in chosen)
