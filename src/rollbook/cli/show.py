"""show: everything about one run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollbook.cli.options import book_option, current_book, json_option
from rollbook.cli.output import ago, cell, duration, print_json, printable, say, short, size, thousands
from rollbook.cli.table import print_table

if TYPE_CHECKING:
    from rollbook.book.book import Book, RunRecord
    from rollbook.book.run_folder import Attempt

_CONSOLE_LINES = 12
_OF_ONE_POINT = ("count", "last", "nonfinite")
_FIGURES = ("count", "first", "last", "min", "max", "mean", "auc", "final", "nonfinite")


@click.command(epilog="\b\nExample:\n  rollbook show 20261115-184917-lab3-9f2c")
@click.argument("run")
@json_option
@book_option
def show(run: str, as_json: bool) -> None:
    """Everything about one run: config, code, machine, metrics, checkpoints, media, attempts."""
    book = current_book()
    record = book.run(run)
    details = _details(book, record)
    if as_json:
        print_json([details])
        return
    _print_facts(record, details)
    _print_tables(record, details)
    if details["reason"]:
        print("\nended with")
        print("  " + _lines(details["reason"].rstrip(), "\n  "))
    elif details["console"]:
        print(f"\nend of {record.folder / 'console.log'}")
        print("  " + _lines(details["console"], "\n  "))
    for problem in details["problems"]:
        say(f"problem: {printable(problem)}")


def _details(book: Book, record: RunRecord) -> dict[str, Any]:
    from rollbook.book.entries import config_diff
    from rollbook.book.run_folder import rows_of_attempt
    from rollbook.records import to_json

    stored = record.stored()
    mine = f"where run_id = '{record.run_id}'"
    parents = book.runs(f"run_id = '{record.parent}'") if record.parent else []
    return dataclasses.asdict(record) | {
        "reason": stored.last_status.reason if stored.last_status else None,
        "exit_code": stored.launch.exit_code if stored.launch else None,
        "console": _end_of_console(record.folder / "console.log") if record.status != "finished" else "",
        "provenance": to_json(stored.provenance),
        "differs_from_parent": config_diff(parents[0].config, record.config) if parents else {},
        "attempts": [
            {
                "number": attempt.number,
                "state": record.status if attempt is stored.attempts[-1] else _how_it_ended(attempt),
                "rows": rows_of_attempt(attempt.folder),
                "goes_on_from_step": attempt.goes_on_from.step if attempt.goes_on_from else None,
            }
            for attempt in stored.attempts
        ],
        "metrics": book.rows(f"select * exclude (run_id) from summaries {mine} order by name"),
        "checkpoints": book.rows(f"select * exclude (run_id) from checkpoints {mine} order by step"),
        "media": book.rows(f"select * exclude (run_id) from media {mine} order by name, step"),
        "problems": [row["problem"] for row in book.rows(f"select problem from problems {mine}")],
    }


def _how_it_ended(attempt: Attempt) -> str:
    """An earlier attempt that says it is running was killed: another one has taken over."""
    return attempt.status.state if attempt.status and attempt.status.state != "running" else "lost"


def _end_of_console(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(file.seek(0, 2) - 4096, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-_CONSOLE_LINES:])


def _print_facts(record: RunRecord, details: dict[str, Any]) -> None:
    provenance = details["provenance"]
    git = provenance["git"] or {}
    code = git.get("describe") or git.get("commit") or "not a git checkout"
    code += ", stored" if provenance["code"] else ", not stored"
    if git.get("dirty"):
        code += "  (with uncommitted changes, which `rollbook code restore` brings back too)"
    machine = f"{record.user}@{record.host}, {provenance['cpu_count']} x {provenance['cpu'] or 'CPU'}"
    exit_code = details["exit_code"]
    facts = {
        "run": record.name,
        "task": record.task,
        "status": record.status + (f", exit code {exit_code}" if exit_code is not None else ""),
        "started": f"{cell(record.started_at)} UTC, {ago(record.started_at)}, took {duration(record.duration_s)}",
        "last step": thousands(record.last_step),
        "tags": ", ".join(map(short, record.tags)),
        "notes": record.notes,
        "parent": record.parent or "",
        "command": record.command,
        "code": code,
        "machine": ", ".join([machine, *provenance["gpus"]]),
        "folder": str(record.folder),
    }
    for key, value in facts.items():
        if value:
            print(f"{key:>9}  {_lines(value, chr(10) + ' ' * 11)}")


def _print_tables(record: RunRecord, details: dict[str, Any]) -> None:
    from rollbook.book.entries import flatten

    _section("config", ["parameter", "value"], [list(pair) for pair in flatten(record.config)])
    changes = [[key, *pair] for key, pair in details["differs_from_parent"].items()]
    _section("differs from its parent", ["parameter", "parent", "this run"], changes)
    metrics = [
        [
            short(one["name"]),
            *(one[figure] if one["count"] > 1 or figure in _OF_ONE_POINT else "" for figure in _FIGURES),
        ]
        for one in details["metrics"]
    ]
    _section("metrics", ["metric", *_FIGURES], metrics, right=_FIGURES)
    saved = [[thousands(one["step"]), size(one["bytes"])] for one in details["checkpoints"]]
    _section("checkpoints", ["step", "size"], saved, right=("step", "size"))
    media = [[one["name"], one["step"], one["kind"], size(one["bytes"])] for one in details["media"]]
    _section("media", ["name", "step", "kind", "size"], media, right=("step", "size"))
    if len(details["attempts"]) > 1:
        attempts = [list(one.values()) for one in details["attempts"]]
        _section("attempts", ["attempt", "state", "rows", "from step"], attempts, right=("rows", "from step"))


def _section(title: str, columns: list[str], rows: list[list[Any]], right: tuple[str, ...] = ()) -> None:
    if rows:
        print(f"\n{title}")
        print_table(columns, rows, right=right)


def _lines(text: str, separator: str) -> str:
    return separator.join(printable(line) for line in text.splitlines())
