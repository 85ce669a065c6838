"""The best runs or configurations by a figure of a metric."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rollbook.book.settings import DEFAULT_ALIASES
from rollbook.errors import MetricNotFound, RunNotFound, UsageError, did_you_mean
from rollbook.records import TopEntry

if TYPE_CHECKING:
    from rollbook.book.book import Book

FIGURES = ("auc", "final", "mean", "max", "min", "last", "first")
DEFAULT_METRICS = ("eval/return", "charts/episodic_return")

_BY_RUN = """
    select list(run_id) as run_ids, task, algo, env, any_value(config) as config,
        any_value({by}) as score, count(*) as n, null::double as std, any_value({by}) as low, any_value({by}) as high,
        count(*) filter (diverged) as diverged
    from chosen group by run_id, task, algo, env
"""
_BY_CONFIG = """
    select list(run_id order by seed, run_id) as run_ids, task, algo, env, any_value(config) as config,
        avg({by}) as score, count(*) as n, stddev_samp({by}) as std, min({by}) as low, max({by}) as high,
        count(*) filter (diverged) as diverged
    from chosen group by task, algo, env, config_key
"""


def top(
    book: Book,
    n: int,
    *,
    algo: str | None,
    env: str | None,
    task: str | None,
    where: str | None,
    by: str,
    metric: str | None,
    over: str | None,
    ascending: bool,
) -> list[TopEntry]:
    """Sorted by score; what diverged comes last, whatever its score."""
    if by not in FIGURES:
        raise UsageError(f"cannot rank by {by!r}; there are {', '.join(FIGURES)}", did_you_mean(by, FIGURES))
    if n < 1:
        raise UsageError(f"the best {n} are none", "rollbook top 5")
    if over not in (None, "seed"):
        raise UsageError(f"runs are folded over 'seed', not over {over!r}", "--over seed")
    given = {column: value for column, value in (("algo", algo), ("env", env), ("task", task)) if value is not None}
    conditions = [*(f"{column} = ?" for column in given), f"({where}\n)" if where else "true"]
    chosen = f"(select * from runs where {' and '.join(conditions)})"
    metric = _choose_metric(book, metric, chosen, given)
    folded = (_BY_CONFIG if over == "seed" else _BY_RUN).format(by=by)
    rows = book.rows(
        f"""
        with chosen as (
            select r.*, s.{by}, s.diverged from {chosen} r join summaries s using (run_id) where s.name = ?
        ), folded as ({folded})
        select * from folded
        order by diverged > 0 or score is null, score {"asc" if ascending else "desc"}, run_ids limit {int(n)}
        """,
        [*given.values(), metric],
    )
    return [_entry(rank, row) for rank, row in enumerate(rows, start=1)]


def _choose_metric(book: Book, metric: str | None, chosen: str, given: dict[str, str]) -> str:
    query = f"select distinct s.name from summaries s join {chosen} r using (run_id)"
    names = {name for (name,) in book.table(query, list(given.values()))[1]}
    if metric in names:
        return str(metric)
    if not names:
        raise RunNotFound("no run with metrics matches", _nearest(book, given) or "`rollbook runs` lists what there is")
    if metric is not None:
        raise metric_not_found(metric, names)
    found = next((name for name in DEFAULT_METRICS if name in names), None)
    if found is None:
        raise MetricNotFound(
            f"no run logged {' or '.join(DEFAULT_METRICS)}", f"name one with --metric; there are: {_some(names)}"
        )
    return found


def _nearest(book: Book, given: dict[str, str]) -> str | None:
    """A hint for the first of the given names that no run has: the nearest that there is, or some of them."""
    for column, value in given.items():
        query = f"select distinct {column} from runs where {column} is not null"
        known = {name for (name,) in book.table(query)[1]}
        if known and value not in known:
            wrong = f"no run has the {column} {value!r}"
            return f"{wrong}; {did_you_mean(value, known) or f'there are: {_some(known)}'}"
    return None


def metric_not_found(metric: str, known: set[str]) -> MetricNotFound:
    """The nearest known name in the hint, or some of those there are."""
    some = f"there are: {_some(known)}" if known else "no run has logged a metric yet"
    return MetricNotFound(f"no run logged the metric {metric!r}", did_you_mean(metric, known) or some)


def _some(names: set[str]) -> str:
    shown = sorted(names)[:12]
    return ", ".join(shown) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _entry(rank: int, row: dict[str, Any]) -> TopEntry:
    known = {alias for names in DEFAULT_ALIASES.values() for alias in names}
    config = json.loads(row["config"])
    return TopEntry(
        rank=rank,
        score=row["score"],
        n=row["n"],
        std=row["std"],
        min=row["low"],
        max=row["high"],
        diverged=row["diverged"],
        task=row["task"],
        algo=row["algo"],
        env=row["env"],
        params={key: value for key, value in config.items() if key not in known},
        run_ids=row["run_ids"],
    )
