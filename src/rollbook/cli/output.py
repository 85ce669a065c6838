"""How answers look: tables for people, JSON for programs. What users named is never taken for markup."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_LONGEST_NAME = 48  # characters
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def say(text: str) -> None:
    """Talk, on stderr."""
    print(text, file=sys.stderr)


def printable(text: object) -> str:
    """Control characters made visible, so that a name cannot steer the terminal."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text))


def short(text: object) -> str:
    """A name as a table shows it: one that is too long ends in an ellipsis. `--json` has all of it."""
    name = str(text)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def print_json(rows: Sequence[Any]) -> None:
    """One array of objects."""
    print(json.dumps([to_plain(row) for row in rows], indent=1, ensure_ascii=False))


def to_plain(value: Any) -> Any:
    """What JSON can say: times as ISO 8601 in UTC, NaN and infinities as text."""
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).isoformat().replace("+00:00", "Z")
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return str(value)


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list | tuple):
        return printable(", ".join(cell(item) for item in value))
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return printable(value)


def number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.6g}"


def thousands(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 48:
        return f"{hours / 24:.0f}d"
    return f"{minutes:.0f}m" if minutes < 100 else f"{hours:.0f}h"


def ago(moment: datetime) -> str:
    return duration(max((datetime.now(UTC) - moment.replace(tzinfo=UTC)).total_seconds(), 0.0)) + " ago"


def relative(path: Path) -> str:
    """A path as a user would type it from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
