"""What the catalogue keeps of one run: a row for each view that the run appears in."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollbook.book.media import list_media
from rollbook.book.processes import is_alive
from rollbook.book.run_folder import StoredRun, counting_checkpoints, read_run, run_series
from rollbook.book.summaries import last_step, summarise, to_text
from rollbook.book.tables import SCHEMAS, Row
from rollbook.records import TERMINAL_STATES

# A mtime is only as fine as the kernel's tick or the file server's: what changed this recently is read again.
RACY_SECONDS = 2.0
# Silent for so long, a run on another host is taken for lost for good; should it end after all, its folder is touched.
FORGOTTEN_SECONDS = 7 * 86_400.0


@dataclass
class Entry:
    """One run's rows, by table name. `settled`: nothing about them changes until the folder's mtime does."""

    run: StoredRun
    mtime_ns: int
    settled: bool
    tables: dict[str, list[Row]] = field(default_factory=dict)


def read_entry(folder: Path, mtime_ns: int, aliases: Mapping[str, tuple[str, ...]], now: float) -> Entry:
    """FileNotFoundError when the folder is not a run (yet, or any more)."""
    run = read_run(folder, mtime_ns / 1e9)
    state = run.state(now)
    settled = now - mtime_ns / 1e9 > RACY_SECONDS and (run.ended or (state == "lost" and _gone_for_good(run, now)))
    entry = Entry(run, mtime_ns, settled)
    problems = list(run.problems)
    summaries = ""
    end = _last_step_so_far(run)
    if settled:
        summaries, end = _figures(run, end, problems)
    config = run.config
    parts = set(os.listdir(folder))
    run_id = run.info.run_id
    row = _run_row(run, config, state, end, mtime_ns, aliases)
    entry.tables["runs"] = [[row[column] for column in SCHEMAS["runs"]]]
    entry.tables["params"] = [(run_id, key, value) for key, value in flatten(config)]
    entry.tables["summaries"] = [(run_id, summaries)] if summaries else []
    entry.tables["checkpoints"] = [
        (run_id, saved.step, saved.time, saved.bytes, saved.path)
        for saved in (counting_checkpoints(run) if "checkpoints" in parts else ())
    ]
    entry.tables["media"] = [
        (run_id, item.name, item.step, item.kind, item.bytes, item.path)
        for item in (list_media(folder) if parts & {"media", "files"} else ())
    ]
    entry.tables["problems"] = [(run_id, text) for text in problems]
    return entry


def _last_step_so_far(run: StoredRun) -> int | None:
    """As the last attempt says; before it has logged anything, the step that it goes on from."""
    status = run.last_status
    if status is None or status.last_step is not None or status.goes_on_from is None:
        return status.last_step if status else None
    return status.goes_on_from.step


def _gone_for_good(run: StoredRun, now: float) -> bool:
    status = run.last_status
    process = status.process if status else run.launch.process if run.launch else None
    heartbeat = status.heartbeat if status else run.launch.heartbeat if run.launch else run.info.started_at
    return (process is not None and is_alive(process) is False) or now - heartbeat > FORGOTTEN_SECONDS


def _figures(run: StoredRun, end: int | None, problems: list[str]) -> tuple[str, int | None]:
    """Summaries and last step: as the attempt left them where it was the only one, else from its metrics.

    What was thinned has fewer steps than the run made: the status knows them still.
    """
    only = run.attempts[0].status if len(run.attempts) == 1 else None
    if only and only.state in TERMINAL_STATES and only.summaries is not None:
        problems += only.problems
        return only.summaries, end
    series = run_series(run, problems)
    known = [step for step in (end, last_step(series)) if step is not None]
    return to_text(summarise(series)), max(known, default=None)


def _run_row(
    run: StoredRun,
    config: dict[str, Any],
    state: str,
    end: int | None,
    mtime_ns: int,
    aliases: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    info, status, provenance, launch = run.info, run.last_status, run.provenance, run.launch
    git = provenance.git
    finished_at = status.ended_at if status and status.ended_at else launch.ended_at if launch else None
    heartbeat = status.heartbeat if status else launch.heartbeat if launch else info.started_at
    return {
        "run_id": info.run_id,
        "name": _text(info.name),
        "task": _text(info.task),
        "algo": _meaning(config, aliases["algo"]),
        "env": _meaning(config, aliases["env"]),
        "seed": _whole(_meaning(config, aliases["seed"])),
        "status": state,
        "benchmark": None if info.benchmark is None else _text(info.benchmark),
        "started_at": info.started_at,
        "finished_at": finished_at,
        "duration_s": max((finished_at or heartbeat) - info.started_at, 0.0),
        "last_step": end,
        "host": _text(info.host),
        "user": _text(info.user),
        "command": _text(shlex.join(info.command)),
        "git_commit": git.commit if git else None,
        "git_describe": git.describe if git else None,
        "git_dirty": git.dirty if git else None,
        "pr": provenance.pr,
        "parent": info.parent,
        "notes": _text(info.notes),
        "tags": [_text(tag) for tag in info.tags],
        "config": _json_text(config),
        "config_key": config_key(config, aliases["seed"], info.parent if info.parent_step is not None else None),
        "mtime_ns": mtime_ns,
    }


def _text(text: str) -> str:
    if text.isascii():
        return text
    # Half a character pair, as file names and arguments of another encoding give it, is shown by its number.
    return text.encode("utf-8", "backslashreplace").decode()


def _json_text(value: Any) -> str:
    if type(value) is int or type(value) is float:
        return repr(value)  # as JSON writes it, and most parameters are numbers
    text = json.dumps(value, ensure_ascii=False)
    return text if _text(text) == text else json.dumps(_clean(value), ensure_ascii=False)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {_text(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _meaning(config: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    value = next((config[name] for name in names if config.get(name) is not None), None)
    return None if value is None else _text(str(value))


def _whole(text: str | None) -> int | None:
    try:
        return int(text) if text is not None and -(2**63) <= int(text) < 2**63 else None
    except ValueError:
        return None


def config_key(config: Mapping[str, Any], seed_names: tuple[str, ...], forked_from: str | None = None) -> str:
    """The same for two runs that differ in nothing but the seed. A fork began half-way: it is no further seed."""
    rest = [{key: value for key, value in config.items() if key not in seed_names}, forked_from]
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:16]


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Dotted keys of nested dicts; lists as JSON."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        elif value is None or isinstance(value, str):
            yield _text(prefix + key), None if value is None else _text(value)
        else:
            yield _text(prefix + key), _json_text(value)


def config_diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[str | None]]:
    """{key: [before, after]} of what differs."""
    old, new = dict(flatten(before)), dict(flatten(after))
    return {key: [old.get(key), new.get(key)] for key in sorted({*old, *new}) if old.get(key) != new.get(key)}
