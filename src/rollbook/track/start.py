"""`rollbook.start`: a new run, the next attempt at one, a fork of one, or the run that our launcher prepared."""

from __future__ import annotations

import argparse
import dataclasses
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollbook._version import __version__
from rollbook.book import journal
from rollbook.book.find import find_run_folder
from rollbook.book.layout import Layout, attempt_folders, readable_name
from rollbook.book.run_folder import StoredRun, counting_checkpoints, read_run, run_series
from rollbook.book.settings import Settings, find_book, git_root, load_settings
from rollbook.book.summaries import last_step
from rollbook.book.writer import AttemptWriter, create_run_folder
from rollbook.errors import CheckpointNotFound, RunIsLive, UsageError
from rollbook.records import LEVELS, LOST_AFTER_SECONDS, GoesOnFrom, Provenance, RunInfo
from rollbook.track.outputs import check_outputs, check_verbosity, open_outputs
from rollbook.track.run import Run, as_tags, say


def start(
    task: str | None = None,
    *,
    config: Any = None,
    tags: str | Iterable[str] | None = None,
    track: Iterable[str] = (),
    verbosity: str = "info",
    notes: str = "",
    book: str | os.PathLike[str] | None = None,
    name: str | None = None,
    parent: str | None = None,
    parent_step: int | None = None,
    copy_metrics: bool = False,
    resume: str | None = None,
    resume_step: int | None = None,
    save_code: bool = True,
    outputs: Mapping[str, str] | Sequence[str] | None = None,
) -> Run:
    """Begin to track. Returns at once; code snapshot and provenance are gathered in the background.

    `resume=RUN` opens a new attempt at a run, from its newest checkpoint (or `resume_step`).
    `parent=RUN` makes a fork: a new run that starts from the parent's checkpoint at `parent_step`.
    `outputs` are live outputs besides the book: "console", "csv", "tensorboard", or {"console": "essential"}.
    """
    check_verbosity(verbosity)
    environment = _Environment.take()
    settings = load_settings()
    layout = Layout(find_book(book or environment.book))
    layout.create()
    chosen_outputs = check_outputs(
        outputs if outputs is not None else os.environ.get("ROLLBOOK_OUTPUTS") or settings.outputs, verbosity
    )
    plan = _Plan(
        task=task or environment.task or settings.task or (git_root() or Path.cwd()).name or "runs",
        config=as_config(config),
        tags=list(dict.fromkeys(map(_text, [*as_tags(tags), *environment.tags]))),
        track=list(track),
        notes=_text(notes),
        name=name,
        parent=parent or environment.parent,
        parent_step=parent_step if parent_step is not None else environment.parent_step,
        copy_metrics=copy_metrics or environment.copy_metrics,
        benchmark=environment.benchmark,
    )
    resume = resume or environment.resume
    if resume and parent:
        raise UsageError("a run is resumed or forked, not both", "give resume= or parent=")
    if resume:
        opened = _resume(layout, resume, resume_step, plan, launched=environment.resume is not None)
    else:
        opened = _claim(layout, environment, plan, settings) or _open_new(layout, plan, settings)

    def gather() -> Provenance:
        if opened.provenance is not None:
            return opened.provenance
        from rollbook.book.provenance import gather as gather_provenance

        return gather_provenance(layout, settings, _script(), save_code)

    run = Run(
        layout=layout,
        info=opened.info,
        writer=opened.writer,
        verbosity=verbosity,
        outputs=open_outputs(chosen_outputs, opened.writer.run_folder, opened.info.name),
        gather=gather,
        goes_on_from=opened.goes_on_from,
        config_changes=opened.config_changes,
        next_step=opened.next_step,
        starting_folder=opened.starting_folder,
    )
    say(f"run {run.name} in {layout.root}")
    return run


@dataclass(frozen=True, kw_only=True)
class _Environment:
    """What a launching Rollbook tells the program. The first `start` takes it, so that children do not see it."""

    book: str | None
    run_id: str | None
    task: str | None
    tags: list[str]
    benchmark: str | None
    resume: str | None
    parent: str | None
    parent_step: int | None
    copy_metrics: bool

    @classmethod
    def take(cls) -> _Environment:
        take, look = os.environ.pop, os.environ.get
        step = take("ROLLBOOK_PARENT_STEP", None)
        return cls(
            book=look("ROLLBOOK_BOOK"),
            run_id=take("ROLLBOOK_RUN_ID", None),
            task=look("ROLLBOOK_TASK"),
            tags=as_tags(look("ROLLBOOK_TAGS")),
            benchmark=look("ROLLBOOK_BENCHMARK"),
            resume=take("ROLLBOOK_RESUME", None),
            parent=take("ROLLBOOK_PARENT", None),
            parent_step=int(step) if step else None,
            copy_metrics=take("ROLLBOOK_COPY_METRICS", "") == "1",
        )


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What the caller wants of a new run."""

    task: str
    config: dict[str, Any]
    tags: list[str]
    track: list[str]
    notes: str
    name: str | None
    parent: str | None
    parent_step: int | None
    copy_metrics: bool
    benchmark: str | None


@dataclass(frozen=True, kw_only=True)
class _Opened:
    info: RunInfo
    writer: AttemptWriter
    goes_on_from: GoesOnFrom | None = None
    config_changes: dict[str, Any] = field(default_factory=dict)
    next_step: int = 0
    starting_folder: Path | None = None
    provenance: Provenance | None = None


def _open_new(layout: Layout, plan: _Plan, settings: Settings) -> _Opened:
    parent = _find_parent(layout, plan)
    now = time.time()
    run_id, folder = create_run_folder(layout, plan.task, now)
    return _begin(folder, _info(run_id, plan, settings, parent, now), plan, parent)


def _claim(layout: Layout, environment: _Environment, plan: _Plan, settings: Settings) -> _Opened | None:
    """The run that our launcher prepared, unless somebody has it already."""
    if not environment.run_id or not environment.task:
        return None
    folder = layout.run_folder(environment.task, environment.run_id)
    try:
        launch = read_run(folder).launch
    except FileNotFoundError:
        return None
    if launch is None or (folder / "attempts").exists():
        return None
    prepared = launch.info
    plan = dataclasses.replace(
        plan,
        task=environment.task,
        config=prepared.config | plan.config,
        tags=list(dict.fromkeys([*prepared.tags, *plan.tags])),
        notes=plan.notes or prepared.notes,
    )
    parent = _find_parent(layout, plan)
    info = _info(environment.run_id, plan, settings, parent, prepared.started_at)
    if parent is None:
        # What is made again knows what it repeats, and begins where that began.
        info = dataclasses.replace(info, parent=prepared.parent)
    try:
        opened = _begin(folder, info, plan, parent)
    except RunIsLive:
        return None  # another process of the same program was first
    return dataclasses.replace(opened, provenance=launch.provenance)


def _begin(folder: Path, info: RunInfo, plan: _Plan, parent: StoredRun | None) -> _Opened:
    writer = AttemptWriter(folder, 0)
    writer.write_run(info)
    next_step = 0
    if parent and plan.copy_metrics:
        next_step = _copy_metrics(parent, info.parent_step, writer)
    return _Opened(info=info, writer=writer, next_step=next_step, starting_folder=parent.folder if parent else None)


def _info(run_id: str, plan: _Plan, settings: Settings, parent: StoredRun | None, now: float) -> RunInfo:
    step = plan.parent_step
    if parent and step is None:
        saved = counting_checkpoints(parent)
        step = saved[-1].step if saved else None
    name = readable_name(run_id, tracked(plan.config, plan.track, settings))
    return RunInfo(
        run_id=run_id,
        task=plan.task,
        name=f"{name}&{plan.name}" if plan.name else name,
        config=plan.config,
        tags=plan.tags,
        notes=plan.notes,
        track=plan.track,
        parent=parent.info.run_id if parent else None,
        parent_step=step,
        benchmark=plan.benchmark,
        started_at=now,
        host=socket.gethostname(),
        user=journal.user_name(),
        command=list(sys.orig_argv),
        cwd=str(Path.cwd()),
        rollbook_version=__version__,
    )


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


def _find_parent(layout: Layout, plan: _Plan) -> StoredRun | None:
    return read_run(find_run_folder(layout, plan.parent)) if plan.parent else None


def _copy_metrics(parent: StoredRun, until_step: int | None, writer: AttemptWriter) -> int:
    """The parent's points up to a step become the first rows of the fork. Returns the step that follows."""
    from rollbook.book.metric_log import KeyRows, encode

    copied: dict[tuple[str, str], KeyRows] = {}
    level_names = sorted(LEVELS, key=LEVELS.__getitem__)
    last = -1
    for name, series in run_series(parent, []).items():
        points = zip(*(column.tolist() for column in series.columns()), strict=True)
        for step, moment, value, level in points:
            if until_step is None or step <= until_step:
                key = (level_names[level], name)
                copied.setdefault(key, KeyRows(key[0], (name,))).append(step, moment, [value])
                last = max(last, step)
    blocks = [rows.take() for rows in copied.values()]
    if blocks:
        writer.log.append(encode(blocks), sum(map(len, blocks)))
        writer.log.flush()
    return last + 1


def _resume(layout: Layout, reference: str, step: int | None, plan: _Plan, *, launched: bool) -> _Opened:
    folder = find_run_folder(layout, reference)
    stored = read_run(folder)
    taken = attempt_folders(folder)
    if _is_live(stored, taken, launched):
        process = stored.last_status.process if stored.last_status else None
        where = f" as process {process.pid} on {process.host}" if process else ""
        raise RunIsLive(
            f"run {stored.info.run_id} is still running{where}",
            f"stop it first, or fork it: rollbook.start(..., parent={stored.info.run_id!r})",
        )
    # An attempt that was killed as it opened has written nothing, and there is nothing to go on from.
    stored = dataclasses.replace(stored, attempts=[one for one in stored.attempts if one.status or one.info])
    cut, next_step = _where_to_go_on(stored, step)
    known = stored.config
    changes = {key: value for key, value in plan.config.items() if key not in known or known[key] != value}
    writer = AttemptWriter(folder, taken[-1][0] + 1 if taken else 0)
    if stored.launch and not (folder / "run.json").exists():
        writer.write_run(stored.info)
    _say_what_is_cut(stored, cut)
    return _Opened(
        info=dataclasses.replace(stored.info, config=known, command=list(sys.orig_argv), cwd=str(Path.cwd())),
        writer=writer,
        goes_on_from=cut,
        config_changes=changes,
        next_step=next_step,
        starting_folder=folder if cut and cut.step is not None else None,
    )


def _is_live(stored: StoredRun, taken: list[tuple[int, str]], launched: bool) -> bool:
    if taken and not (Path(taken[-1][1]) / "status.json").exists():
        # Another process has just taken this attempt, or was killed in that moment.
        return time.time() - Path(taken[-1][1]).stat().st_mtime < LOST_AFTER_SECONDS
    # Where nobody has worked on the run, it is its launcher that lives: ours, when it told us to go on.
    return stored.state(time.time()) == "running" and bool(taken or not launched)


def _where_to_go_on(stored: StoredRun, step: int | None) -> tuple[GoesOnFrom | None, int]:
    """The checkpoint to go on from; without any, everything logged so far stays."""
    saved = counting_checkpoints(stored)
    if step is not None and step not in [checkpoint.step for checkpoint in saved]:
        steps = ", ".join(str(checkpoint.step) for checkpoint in saved) or "none"
        raise CheckpointNotFound(f"run {stored.info.run_id} has no checkpoint {step}; there are: {steps}")
    chosen = [checkpoint for checkpoint in saved if step is None or checkpoint.step == step]
    if chosen:
        newest = chosen[-1]
        cut = GoesOnFrom(attempt=newest.attempt, rows=newest.rows, time=newest.time, step=newest.step)
        return cut, newest.next_step
    if not stored.attempts:
        return None, 0
    last = stored.attempts[-1]
    # The status of a killed process is a heartbeat old; what it logged since then counts too.
    reached = last_step(run_series(stored, []))
    cut = GoesOnFrom(attempt=last.number, rows=rows_of_attempt(last.folder), time=time.time() + 1e6, step=None)
    return cut, 0 if reached is None else reached + 1


def _say_what_is_cut(stored: StoredRun, cut: GoesOnFrom | None) -> None:
    if cut is None:
        return
    if cut.step is None:
        say(f"run {stored.info.run_id} has no checkpoint: everything logged so far stays", always=True)
        return
    way = [attempt for attempt, _ in stored.chain()]
    counting = [source.rows for attempt in way[1:] if (source := attempt.goes_on_from)]
    counting.append(rows_of_attempt(way[-1].folder))
    rows = sum(count for attempt, count in zip(way, counting, strict=True) if attempt.number >= cut.attempt)
    gone = max(rows - cut.rows, 0)
    say(
        f"run {stored.info.run_id} goes on from its checkpoint at step {cut.step:,}; "
        f"{gone:,} rows logged after it no longer count",
        always=True,
    )


def rows_of_attempt(folder: str) -> int:
    """How many rows an attempt logged; of one that was killed, how many can be read."""
    from rollbook.book.layout import read_json
    from rollbook.book.metric_log import read_log

    log = Path(folder) / "metrics.log"
    if log.exists():
        return read_log(log).rows
    return int(read_json(Path(folder) / "status.json").get("rows", 0))


def _script() -> Path | None:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(main).absolute() if main else None


def as_config(config: Any) -> dict[str, Any]:
    """Plain JSON data of a dict, a dataclass or an argparse.Namespace. What has no JSON form becomes text."""
    if config is None:
        return {}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    elif isinstance(config, argparse.Namespace):
        config = vars(config)
    if not isinstance(config, Mapping):
        raise UsageError(
            f"config must be a dict, a dataclass or an argparse.Namespace, got {type(config).__name__}",
            "config=vars(args) or config={...}",
        )
    return {_text(str(key)): _plain(value) for key, value in config.items()}


def _text(text: str) -> str:
    """Bytes that are no text (of an argument, a path) are lone surrogates in Python, which neither JSON nor SQL takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON knows neither NaN nor infinities
    if isinstance(value, Mapping):
        return {_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_plain(item) for item in items]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_config(value)
    if hasattr(value, "tolist") and getattr(value, "size", 0) <= 1000:
        return _plain(value.tolist())  # numpy, torch and JAX numbers and small arrays
    return _text(str(value))
