"""A run's config: plain JSON data of whatever a script keeps its hyper-parameters in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from rollbook.book.settings import Settings
from rollbook.errors import UsageError


def as_config(config: Any) -> dict[str, Any]:
    """Plain JSON data of a dict, a dataclass or an argparse.Namespace. What has no JSON form becomes text."""
    if config is None:
        return {}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    elif type(config).__name__ == "Namespace":  # argparse's, which need not be loaded to know it
        config = vars(config)
    if not isinstance(config, Mapping):
        raise UsageError(
            f"config must be a dict, a dataclass or an argparse.Namespace, got {type(config).__name__}",
            "config=vars(args) or config={...}",
        )
    return {plain_text(str(key)): _plain(value) for key, value in config.items()}


def plain_text(text: str) -> str:
    """Bytes that are no text are lone surrogates in Python, which neither JSON nor SQL takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON knows neither NaN nor infinities
    if isinstance(value, Mapping):
        return {plain_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_plain(item) for item in items]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_config(value)
    if hasattr(value, "tolist") and getattr(value, "size", 0) <= 1000:
        return _plain(value.tolist())  # numpy, torch and JAX numbers and small arrays
    return plain_text(str(value))


def tracked(config: Mapping[str, Any], keys: Iterable[str], settings: Settings) -> dict[str, Any]:
    """algo and env, whatever their names are, and the hyper-parameters to track, for the readable name."""
    found = {
        meaning: config[alias]
        for meaning in ("algo", "env")
        if (alias := next((alias for alias in settings.aliases[meaning] if alias in config), None))
    }
    for key in keys:
        value: Any = config
        for part in [key] if key in config else key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        found[key] = value
    return found


def as_tags(tags: str | Iterable[str] | None) -> list[str]:
    """Tags from a list or from `a,b` as environment variables give them."""
    if isinstance(tags, str):
        tags = tags.split(",")
    return list(dict.fromkeys(tag.strip() for tag in tags or () if tag.strip()))
