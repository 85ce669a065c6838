"""Which runs make one line, and which lines one panel."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rollbook.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from rollbook.book.book import RunRecord

Lines: TypeAlias = "dict[str, list[RunRecord]]"  # label -> runs
Panels: TypeAlias = dict[str, Lines]  # title -> lines

TAG = "tag"
COLUMNS = (
    "algo", "env", "task", "seed", "status", "benchmark", "host", "user", "git_commit", "git_describe", "git_dirty",
    "pr", "parent", "run_id", "name", "tags",
)  # fmt: skip
_MOST_ADDED = 3  # parameters that are added to the default grouping
_MOST_LINES = 12  # that they may make


class Grouping:
    """Runs by environment, then by columns of the view `runs`, parameters (dotted where nested) and chosen tags."""

    def __init__(self, runs: Sequence[RunRecord], names: Collection[str], tags: Sequence[str] = ()) -> None:
        """`names` are the parameters that mean algorithm, environment or seed."""
        from rollbook.book.entries import flatten

        self._runs = runs
        self._tags = tags
        self._params = {run.run_id: dict(flatten(run.config)) for run in runs}
        self._names = names

    def check(self, keys: Sequence[str]) -> None:
        known = {*COLUMNS, TAG, *(key for params in self._params.values() for key in params)}
        for key in keys:
            if key not in known:
                hint = did_you_mean(key, known) or f"columns: {', '.join(COLUMNS)}; or a parameter of the runs"
                raise UsageError(f"runs have neither a column nor a parameter {key!r}", hint)
        if TAG in keys and not self._tags:
            raise UsageError("--group-by tag without tags", "--tag latest --tag pilot names them")

    def default_keys(self) -> list[str]:
        """The algorithm, the tags if there are several, and what runs of one algorithm and environment differ in."""
        keys = ["algo", *([TAG] if len(self._tags) > 1 else [])]
        added = self._differing(keys)
        if 0 < len(added) <= _MOST_ADDED and len(self._labels([*keys, *added])) <= _MOST_LINES:
            keys += added
        if len(keys) > 1 and len({run.algo for run in self._runs}) == 1:
            keys.remove("algo")
        return keys

    def labels(self, keys: Sequence[str]) -> list[str]:
        """Of all lines, in one order for all panels: by their values, numbers as numbers."""
        return list(self._labels(keys).values())

    def panels(self, keys: Sequence[str]) -> Panels:
        """Sorted by environment, their lines as `labels` has them."""
        labels = self._labels(keys)
        panels: Panels = {}
        for run in sorted(self._runs, key=lambda run: (_title(run).casefold(), _title(run))):
            lines = panels.setdefault(_title(run), {})
            for values in self._values_of(run, keys):
                lines.setdefault(labels[values], []).append(run)
        return {
            title: {label: _by_seed(lines[label]) for label in labels.values() if label in lines}
            for title, lines in panels.items()
        }

    def doubts(self, panels: Panels) -> list[str]:
        """Lines that fold runs of more than one kind: what differs, and which flag separates them."""
        found = []
        for title, lines in panels.items():
            for label, runs in lines.items():
                if reason := self._doubt(runs):
                    found.append(f"{label} on {title} folds {reason}")
        return found

    def _doubt(self, runs: Sequence[RunRecord]) -> str | None:
        if differing := self._settings_that_differ(runs):
            shown = ", ".join(differing[:4]) + (", ..." if len(differing) > 4 else "")
            return f"runs that differ in {shown}; --group-by {differing[0]} separates them"
        versions = sorted({run.git_describe or "none" for run in runs})
        if len(versions) > 1:
            return f"{len(versions)} versions of the code; --newest takes the newest, --group-by git_describe separates"
        seeds = [run.seed for run in runs if run.seed is not None]
        again = sorted({seed for seed in seeds if seeds.count(seed) > 1})
        if again:
            return f"seed {again[0]} {seeds.count(again[0])} times; --newest takes each once"
        return None

    def _differing(self, keys: Sequence[str]) -> list[str]:
        cells: dict[Any, list[RunRecord]] = {}
        for run in self._runs:
            for values in self._values_of(run, keys):
                cells.setdefault((run.env, values), []).append(run)
        found = {key: None for runs in cells.values() for key in self._settings_that_differ(runs)}
        return sorted(found)

    def _settings_that_differ(self, runs: Sequence[RunRecord]) -> list[str]:
        if len(runs) < 2:
            return []
        params = [self._params[run.run_id] for run in runs]
        every_seed_once = len({run.seed for run in runs}) == len(runs)
        found = []
        for key in sorted({key for one in params for key in one} - set(self._names)):
            values = {one.get(key) for one in params}
            # What is another for each seed is the run's name or folder, not a setting.
            if len(values) > 1 and not (every_seed_once and len(values) == len(runs)):
                found.append(key)
        if len({run.task for run in runs}) > 1:
            found.append("task")
        return found

    def _labels(self, keys: Sequence[str]) -> dict[tuple[str | None, ...], str]:
        """Of every combination of values that runs have, in order."""
        every = {values for run in self._runs for values in self._values_of(run, keys)}
        ordered = sorted(every, key=lambda values: [_order(value) for value in values])
        return {values: " ".join(map(_part, keys, values)) for values in ordered}

    def _values_of(self, run: RunRecord, keys: Sequence[str]) -> list[tuple[str | None, ...]]:
        """One, or one for each of the chosen tags that the run carries."""
        chosen = [tag for tag in self._tags if tag in run.tags] if TAG in keys else [None]
        return [tuple(tag if key == TAG else self._value(run, key) for key in keys) for tag in chosen]

    def _value(self, run: RunRecord, key: str) -> str | None:
        if key not in COLUMNS:
            return self._params[run.run_id].get(key)
        value = getattr(run, key)
        if isinstance(value, list):
            return ", ".join(value) or None
        return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _title(run: RunRecord) -> str:
    return run.env or f"{run.task} (no environment)"


def _by_seed(runs: Sequence[RunRecord]) -> list[RunRecord]:
    return sorted(runs, key=lambda run: (run.seed is None, run.seed, run.run_id))


def _part(key: str, value: str | None) -> str:
    if value is None:
        return f"no {key}"
    speaks_for_itself = key == TAG or (key in COLUMNS and key not in ("seed", "pr", "git_dirty"))
    return value if speaks_for_itself else f"{key}={value}"


def _order(value: str | None) -> tuple[int, float, str]:
    """Numbers by size, then texts, then what is missing."""
    if value is None:
        return 2, 0.0, ""
    try:
        number = float(value)
    except ValueError:
        return 1, 0.0, value
    return (0, number, value) if math.isfinite(number) else (1, 0.0, value)
