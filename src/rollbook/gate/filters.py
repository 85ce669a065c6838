"""openrlbenchmark's filters and its table.

    '?ceik=env_id&cen=exp_name&metric=charts/episodic_return' 'ppo?tag=pr-308&cl=New' 'ppo?tag=latest'

What begins with `?` holds for those after it: `cen` is the parameter that names an experiment, `metric` what is
compared. Of the others, all tags must be there; any other key is a parameter, and one of its values must fit. `cl` is
the name in tables. The first is the candidate, the second the baseline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import numpy as np

from rollbook.book.find import of_tag, quoted
from rollbook.errors import UsageError
from rollbook.gate.scores import Choice, Side, read_side

if TYPE_CHECKING:
    from rollbook.book.book import Book

_HINT = "--filters '?cen=exp_name&metric=charts/episodic_return' 'ppo?tag=pr-308' 'ppo?tag=latest'"
_ELSEWHERE = {"we", "wpn", "ceik", "xaxis"}  # where W&B has the runs; which parameter is the environment: the aliases


@dataclass(frozen=True, kw_only=True)
class Filters:
    choices: tuple[Choice, ...]
    metric: str | None

    @property
    def candidate(self) -> Choice:
        return self.choices[0]

    @property
    def baseline(self) -> Choice:
        return self.choices[1]


def parse_filters(texts: Sequence[str]) -> Filters:
    shared: dict[str, list[str]] = {}
    choices: list[Choice] = []
    for text in texts:
        experiment, mark, rest = text.partition("?")
        keys = parse_qs(rest, keep_blank_values=True)
        if mark and not experiment:
            shared = keys
        else:
            choices.append(_choice(text, experiment, keys, shared.get("cen", ["exp_name"])[0]))
    if len(choices) < 2:
        raise UsageError(f"the filters name {len(choices)} of the two sides", _HINT)
    return Filters(choices=tuple(choices), metric=shared.get("metric", [None])[0])


def _choice(text: str, experiment: str, keys: dict[str, list[str]], name_key: str) -> Choice:
    conditions = [f"(algo = {quoted(experiment)} or {_parameter(name_key, [experiment])})"]
    for key, values in keys.items():
        if key == "tag":
            conditions += [of_tag(value) for value in values]
        elif key == "user":
            conditions.append(f'list_contains([{", ".join(map(quoted, values))}], "user")')
        elif key != "cl" and key not in _ELSEWHERE:
            conditions.append(_parameter(key, values))
    return Choice(name=keys.get("cl", [text])[0], where=" and ".join(conditions))


def _parameter(key: str, values: Sequence[str]) -> str:
    listed = ", ".join(map(quoted, values))
    return f"run_id in (select run_id from params where key = {quoted(key)} and value in ({listed}))"


def last_points(
    book: Book, choices: Sequence[Choice], metric: str | None, last: int, *, only: str = "true"
) -> tuple[list[str], list[list[str]]]:
    """Mean ± standard deviation over seeds, of each seed's mean over its last points; a row an environment."""
    if last < 1:
        raise UsageError(f"the last {last} points are none", "--last 100")
    sides = [read_side(book, choice, metric, only=only) for choice in choices]
    rows: dict[str, list[str]] = defaultdict(lambda: [""] * len(choices))
    for place, side in enumerate(sides):
        for name, means in _by_environment(book, side, metric, last).items():
            spread = f" ± {np.std(means, ddof=1):.2f}" if len(means) > 1 else ""
            rows[name][place] = f"{np.mean(means):.2f}{spread}"
    return ["", *(choice.name for choice in choices)], [[name, *rows[name]] for name in sorted(rows)]


def _by_environment(book: Book, side: Side, metric: str | None, last: int) -> dict[str, list[float]]:
    """The mean of the last points of each run that logged any."""
    wanted = {
        run.run_id: (str(cell.env), metric or next(iter(run.figures), ""))
        for cell, runs in side.items()
        for run in runs
    }
    means = book.sql(
        """
        with placed as (
            select run_id, name, value, row_number() over (partition by run_id, name order by step desc) as place
            from metrics where list_contains(?, run_id) and list_contains(?, name)
        )
        select run_id, name, avg(value) from placed where place <= ? group by all order by run_id
        """,
        [list(wanted), sorted({name for _, name in wanted.values()}), last],
    ).fetchall()
    found: dict[str, list[float]] = {}
    for run_id, name, value in means:
        env, of_run = wanted[run_id]
        if name == of_run:
            found.setdefault(env, []).append(value)
    return found
