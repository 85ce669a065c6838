"""rollbook.toml (or `[tool.rollbook]` in pyproject.toml), and where the book is."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollbook.errors import InvalidConfig, did_you_mean

# Other people's names for what we call algo, env and seed, in order of preference.
DEFAULT_ALIASES: dict[str, tuple[str, ...]] = {
    "algo": ("algo", "algorithm", "alg", "algo_name", "exp_name", "agent"),
    "env": ("env", "env_id", "env_name", "environment", "task_name", "gym_id"),
    "seed": ("seed", "random_seed", "rng_seed"),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a project may configure. Every field is a key of rollbook.toml."""

    book: str | None = None
    """Folder of the book, relative to the file that names it."""
    task: str | None = None
    """Task of runs that name none; the project folder's name otherwise."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: DEFAULT_ALIASES)
    """Parameter names that mean algo, env or seed; yours are tried before the built-in ones."""
    include: tuple[str, ...] = ()
    """Patterns (as in .gitignore) of files to snapshot although git ignores them."""
    exclude: tuple[str, ...] = ()
    """Patterns (as in .gitignore) of files to leave out of the code snapshot."""
    max_file_bytes: int = 1_000_000
    """A larger file is left out of the code snapshot and named in it."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Live outputs besides the book and the verbosity of each: console, csv, tensorboard."""
    anchor: str | None = None
    """Tag of a release that `rollbook gate` holds every candidate against, besides its baseline."""
    memory_limit: str = "1500MB"
    """What a query may use."""
    query_seconds: float = 60.0
    """A query is stopped after this long."""
    root: Path | None = None
    """The folder whose file was read (not a key)."""


_KEYS: dict[str, type | tuple[type, ...]] = {
    "book": str,
    "task": str,
    "aliases": dict,
    "include": list,
    "exclude": list,
    "max_file_bytes": int,
    "outputs": dict,
    "anchor": str,
    "memory_limit": str,
    "query_seconds": (int, float),
}


def load_settings(start: Path | None = None) -> Settings:
    """The nearest configuration from `start` upwards; defaults when there is none."""
    start = (start or Path.cwd()).absolute()
    for folder in (start, *start.parents):
        for name in ("rollbook.toml", "pyproject.toml"):
            file = folder / name
            if not file.is_file():
                continue
            table: Any = _read_toml(file)
            if name == "pyproject.toml":
                tools = table.get("tool")
                table = tools.get("rollbook") if isinstance(tools, dict) else None
            if isinstance(table, dict):
                return _parse(table, file)
    return Settings()


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"cannot read {file}: {error}") from error


def _parse(table: dict[str, Any], file: Path) -> Settings:
    values: dict[str, Any] = {"root": file.parent}
    for key, value in table.items():
        if key not in _KEYS:
            raise InvalidConfig(f"{file} has the unknown key {key!r}", did_you_mean(key, _KEYS))
        lists_other_than_text = isinstance(value, list) and not all(isinstance(item, str) for item in value)
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool) or lists_other_than_text:
            raise InvalidConfig(f"{file}: {key} = {value!r} is of the wrong type")
        values[key] = tuple(value) if isinstance(value, list) else value
    if "aliases" in values:
        values["aliases"] = _merge_aliases(values["aliases"], file)
    return Settings(**values)


def _merge_aliases(own: dict[str, Any], file: Path) -> dict[str, tuple[str, ...]]:
    unknown = set(own) - set(DEFAULT_ALIASES)
    if unknown:
        raise InvalidConfig(f"{file}: aliases are for algo, env and seed, not {sorted(unknown)}")
    for key, names in own.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InvalidConfig(f"{file}: aliases.{key} = {names!r} is no list of names", f'{key} = ["my_{key}"]')
    return {key: (*own.get(key, ()), *names) for key, names in DEFAULT_ALIASES.items()}


def find_book(explicit: str | os.PathLike[str] | None = None, start: Path | None = None) -> Path:
    """--book, else ROLLBOOK_BOOK, else the configuration, else book/ at the git root, else ./book."""
    chosen = explicit or os.environ.get("ROLLBOOK_BOOK")
    if chosen:
        return _absolute(Path(chosen).expanduser())
    settings = load_settings(start)
    if settings.book and settings.root:
        return _absolute(settings.root / Path(settings.book).expanduser())
    return (git_root(start) or (start or Path.cwd())).absolute() / "book"


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - also without `..`, which Path.absolute() keeps


def git_root(start: Path | None = None) -> Path | None:
    """The nearest folder with a .git, without calling git."""
    start = (start or Path.cwd()).absolute()
    return next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
