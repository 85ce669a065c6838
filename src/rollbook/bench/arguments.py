"""Command lines of programs that are not ours: which parameters they have, and how to change one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def program_arguments(command: Sequence[str]) -> list[str]:
    """What the program itself is given: not the interpreter's own options, nor the script or module that it runs."""
    arguments = list(command[1:])
    if not re.fullmatch(r"python[0-9.]*", Path(command[0]).name):
        return arguments
    for place, argument in enumerate(arguments):
        if argument in ("-m", "-c"):
            return arguments[place + 2 :]
        takes_value = place > 0 and arguments[place - 1] in ("-W", "-X")
        if not argument.startswith("-") and not takes_value:
            return arguments[place + 1 :]
    return []


def parse_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """A config of a command line: `--lr 1e-3`, `--lr=1e-3`, `--flag`, `--sizes 64 64`, `key=value`."""
    config: dict[str, Any] = {}
    values: list[Any] | None = None
    key = ""
    for argument in arguments:
        if argument.startswith("-") and not _is_number(argument) and argument.strip("-"):
            key, equals, value = argument.lstrip("-").partition("=")
            key = key.replace("-", "_")
            values = [parse_value(value)] if equals else []
            config[key] = parse_value(value) if equals else True
        elif values is not None:
            values.append(parse_value(argument))
            config[key] = values[0] if len(values) == 1 else list(values)
        elif "=" in argument:
            name, _, value = argument.partition("=")
            config[name.lstrip("+")] = parse_value(value)
    return config


def parse_value(text: str) -> Any:
    """A number, true, false, null or JSON where it reads as one, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in ("none", "null"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, str) and _is_number(text):
        value = float(text)
    if isinstance(value, float) and value - value != 0:
        return text  # nan and inf have no JSON form
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def with_arguments(command: Sequence[str], changes: Mapping[str, str]) -> list[str]:
    """The command with some arguments set to other values: replaced where they stand, else added at the end."""
    changed = list(command)
    for key, value in changes.items():
        names = {f"--{key}", f"--{key.replace('_', '-')}", f"--{key.replace('-', '_')}"}
        for place, part in enumerate(changed):
            name, equals, _ = part.partition("=")
            if name in names and equals:
                changed[place] = f"{name}={value}"
                break
            if name == key and equals:
                changed[place] = f"{key}={value}"
                break
            if part in names:
                given = changed[place + 1 : place + 2]
                is_flag = not given or (given[0].startswith("-") and not _is_number(given[0]))
                changed[place + 1 : place + 1 if is_flag else place + 2] = [value]
                break
        else:
            changed += [f"--{key.replace('_', '-')}", value]
    return changed
