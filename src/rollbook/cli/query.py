"""runs, top, newest, sql: what is in the book."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import click

from rollbook.cli.options import book_option, current_book, json_option
from rollbook.cli.output import ago, cell, duration, print_json, say, short, thousands
from rollbook.cli.table import print_table

if TYPE_CHECKING:
    from rollbook.book.book import Book

_PARAMS_SHOWN = 60


@click.command(
    epilog="\b\nExample:\n  rollbook runs --where \"algo = 'sac' and 'latest' in tags\" --metric eval/return"
)
@click.option("--where", metavar="SQL", help="A condition on the view runs.")
@click.option("--task", metavar="TASK", help="Only runs of this task.")
@click.option("--limit", "-n", default=20, show_default=True, help="The newest N; 0 for all.")
@click.option("--metric", "-m", "metrics", multiple=True, metavar="NAME", help="Show its final value too; repeatable.")
@click.option("--hidden", is_flag=True, help="Deleted and archived runs instead.")
@json_option
@book_option
def runs(
    where: str | None, task: str | None, limit: int, metrics: tuple[str, ...], hidden: bool, as_json: bool
) -> None:
    """List runs, newest first."""
    book = current_book()
    if hidden:
        _print_hidden(book, as_json)
        return
    condition = " and ".join(
        [f"({where}\n)" if where else "true", *(["task = '" + task.replace("'", "''") + "'"] if task else [])]
    )
    counts = dict(book.table(f"select status, count(*) from runs where {condition} group by status")[1])
    total = sum(counts.values())
    cut = f" limit {limit}" if limit > 0 else ""
    found = book.runs(condition, order=f"started_at desc, run_id{cut}")
    finals = _finals(book, metrics, [run.run_id for run in found])
    if as_json:
        print_json([dataclasses.asdict(run) | {"metrics": finals.get(run.run_id, {})} for run in found])
        return
    if not total:
        say("no run matches" if where or task else "the book is empty: `rollbook run -- python train.py` adds a run")
        return
    columns = ["run", "task", "algo", "env", "seed", "status", "step", *metrics, "started", "took", "tags"]
    rows = [
        [
            run.run_id, run.task, run.algo, run.env, run.seed, run.status, thousands(run.last_step),
            *(finals.get(run.run_id, {}).get(metric) for metric in metrics),
            ago(run.started_at), duration(run.duration_s), [short(tag) for tag in run.tags] or "",
        ]
        for run in found
    ]  # fmt: skip
    used = [
        place
        for place, column in enumerate(columns)
        if column in metrics or any(row[place] not in (None, "", "-") for row in rows)
    ]
    print_table(
        [short(columns[place]) for place in used],
        [[row[place] for place in used] for row in rows],
        right=["seed", "step", "took", *map(short, metrics)],
    )
    by_status = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items(), key=lambda one: -one[1]))
    shown = f"the newest {len(found):,} of " if len(found) < total else ""
    more = "; --limit 0 shows all, --where narrows" if shown else ""
    say(f"{shown}{total:,} run{'s' if total != 1 else ''}: {by_status}{more}")


def _finals(book: Book, metrics: tuple[str, ...], run_ids: list[str]) -> dict[str, dict[str, float]]:
    """By run and name. MetricNotFound for a name that no run of the book logged."""
    from rollbook.book.top import metric_not_found

    if not metrics or not run_ids:
        return {}
    ids, names = ", ".join(f"'{run_id}'" for run_id in run_ids), ", ".join("?" for _ in metrics)
    query = (
        f"""select run_id, name, coalesce(final, "last") from summaries where run_id in ({ids}) and name in ({names})"""
    )
    finals: dict[str, dict[str, float]] = {}
    for run_id, name, value in book.table(query, list(metrics))[1]:
        finals.setdefault(run_id, {})[name] = value
    missing = [metric for metric in metrics if not any(metric in values for values in finals.values())]
    if missing:
        known = {name for (name,) in book.table("select distinct name from summaries")[1]}
        for metric in missing:
            if metric not in known:
                raise metric_not_found(metric, known)
    return finals


def _print_hidden(book: Book, as_json: bool) -> None:
    from rollbook.book.tidy import hidden_runs

    found = hidden_runs(book.layout)
    if as_json:
        print_json([{"run_id": run.run_id, "name": run.name, "task": run.task, "state": run.state} for run in found])
    elif found:
        print_table(["run", "task", "state"], [[run.name, run.task, run.state] for run in found])
        say("`rollbook restore RUN` brings one back, `rollbook purge` removes deleted ones for good")
    else:
        say("no run is deleted or archived")


@click.command(
    epilog="\b\nExamples:\n  rollbook top 5 --algo sac --env Hopper-v5 --by auc --over seed"
    "\n  rollbook top --metric losses/critic --by final --ascending"
)
@click.argument("n", default=5)
@click.option("--algo", help="Only this algorithm.")
@click.option("--env", help="Only this environment.")
@click.option("--task", help="Only this task.")
@click.option("--where", metavar="SQL", help="A further condition on the view runs.")
@click.option(
    "--by",
    default="auc",
    show_default=True,
    help="auc (average over all timesteps), final (last 10% of the steps), mean, max, min, last or first.",
)
@click.option("--metric", metavar="NAME", help="[default: eval/return if logged, else charts/episodic_return]")
@click.option("--over", metavar="seed", help="Fold seeds: rank configurations, with n and spread.")
@click.option("--ascending", is_flag=True, help="The smallest first.")
@json_option
@book_option
def top(
    n: int,
    algo: str | None,
    env: str | None,
    task: str | None,
    where: str | None,
    by: str,
    metric: str | None,
    over: str | None,
    ascending: bool,
    as_json: bool,
) -> None:
    """The best N runs, or configurations with their seeds folded. A diverged run never wins."""
    book = current_book()
    entries = book.top(
        n, algo=algo, env=env, task=task, where=where, by=by, metric=metric, over=over, ascending=ascending
    )
    if as_json:
        print_json([dataclasses.asdict(entry) for entry in entries])
        return
    varying = _varying([entry.params for entry in entries])
    folded = over is not None
    spread = ["n", "sd", "min", "max"] if folded else []
    rows = [
        [
            entry.rank,
            entry.score,
            *([entry.n, entry.std, entry.min, entry.max] if folded else []),
            entry.algo,
            entry.env,
            ", ".join(f"{key}={cell(entry.params.get(key))}" for key in varying)[:_PARAMS_SHOWN] or "",
            entry.run_ids[0] + (f" and {len(entry.run_ids) - 1} more" if len(entry.run_ids) > 1 else ""),
            f"{entry.diverged} diverged" if entry.diverged else "",
        ]
        for entry in entries
    ]
    columns = ["rank", by, *spread, "algo", "env", "differing parameters", "runs" if folded else "run", ""]
    print_table(columns, rows, right=["rank", by, *spread])


def _varying(params: list[dict[str, Any]]) -> list[str]:
    """The parameters in which the listed entries differ: the others say nothing here."""
    keys = sorted({key for one in params for key in one})
    return [key for key in keys if len({repr(one.get(key)) for one in params}) > 1]


@click.command(epilog="\b\nExample:\n  rollbook newest --task hopper")
@click.option("--task", help="Only this task.")
@click.option("--metric", metavar="NAME", help="[default: eval/return if logged, else charts/episodic_return]")
@json_option
@book_option
def newest(task: str | None, metric: str | None, as_json: bool) -> None:
    """The newest benchmark of every (task, algorithm, environment): its runs and their final score."""
    from rollbook.book.top import DEFAULT_METRICS

    book = current_book()
    names = [metric] if metric else list(DEFAULT_METRICS)
    rows = book.rows(
        """
        with scores as (
            select run_id, arg_min(coalesce(s.final, s.last), list_position($1::varchar[], s.name)) as final
            from summaries s where list_contains($1::varchar[], s.name) group by run_id
        )
        select n.task, n.algo, n.env, any_value(n.benchmark) as benchmark, any_value(n.git_describe) as version,
            count(*) as n, count(final) as scored, list(n.seed order by n.seed) as seeds,
            avg(final) as mean, stddev_samp(final) as sd,
            count(*) filter (n.status <> 'finished') as unfinished, max(n.started_at) as started_at,
            list(n.run_id order by n.seed, n.run_id) as run_ids
        from newest n left join scores using (run_id)
        where $2 is null or n.task = $2
        group by n.task, n.algo, n.env order by n.task, n.algo, n.env
        """,
        [names, task],
    )
    if as_json:
        print_json(rows)
        return
    if not rows:
        say("no run matches" if task else "the book is empty")
        return
    print_table(
        ["task", "algo", "env", "version", "n", "seeds", "final", "sd", "not finished", "started"],
        [
            [r["task"], r["algo"], r["env"], r["version"], _scored(r), _ranges(r["seeds"]), r["mean"], r["sd"],
             r["unfinished"] or "", ago(r["started_at"])]
            for r in rows
        ],
        right=["n", "final", "sd", "not finished"],
    )  # fmt: skip


def _scored(row: dict[str, Any]) -> str:
    """How many runs the mean is over: `2 of 3` where some have no score."""
    return str(row["n"]) if row["scored"] == row["n"] else f"{row['scored']} of {row['n']}"


def _ranges(seeds: list[int | None]) -> str:
    """1-5, 8 of [1, 2, 3, 4, 5, 8]."""
    known = sorted({seed for seed in seeds if seed is not None})
    parts: list[list[int]] = []
    for seed in known:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


@click.command(
    epilog='\b\nExamples:\n  rollbook sql "select algo, env, count(*) from runs group by all"'
    "\n  rollbook sql 'show tables'\n  rollbook sql - < question.sql"
)
@click.argument("query")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@click.option("--limit", "-n", default=200, show_default=True, help="Rows shown in a terminal; 0 for all.")
@json_option
@book_option
def sql(query: str, as_csv: bool, limit: int, as_json: bool) -> None:
    """Ask one SELECT of the views runs, params, tags, metrics, summaries, newest, checkpoints, media, verdicts."""
    columns, rows = current_book().table(sys.stdin.read() if query == "-" else query)
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif as_csv:
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    elif columns == ["explain_key", "explain_value"]:
        print("\n".join(plan for _, plan in rows))
    else:
        shown = rows[:limit] if limit and sys.stdout.isatty() else rows
        numeric = [
            column
            for place, column in enumerate(columns)
            if any(isinstance(row[place], int | float) for row in shown[:50])
        ]
        print_table(columns, shown, right=numeric)
        if len(shown) < len(rows):
            say(f"{len(shown):,} of {len(rows):,} rows; --limit 0 shows all, --csv and --json print all")
