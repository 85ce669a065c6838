"""Starting from something that is there: a run to resume, a parent to fork, a run that our launcher prepared."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Literal

from rollbook.book.find import find_run_folder
from rollbook.book.layout import Layout, attempt_folders
from rollbook.book.metric_log import KeyRows, encode
from rollbook.book.run_folder import (
    StoredRun,
    check_checkpoint,
    counting_checkpoints,
    read_run,
    rows_of_attempt,
    run_series,
)
from rollbook.book.settings import Settings
from rollbook.book.summaries import last_step
from rollbook.book.writer import AttemptWriter
from rollbook.errors import RunIsLive
from rollbook.records import DEFAULT_VERBOSITY, LEVELS, LOST_AFTER_SECONDS, GoesOnFrom
from rollbook.track.opening import Environment, Opened, Plan, begin, make_info
from rollbook.track.run import say


def claim(layout: Layout, environment: Environment, plan: Plan, settings: Settings) -> Opened | None:
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
        track=list(dict.fromkeys([*prepared.track, *plan.track])),
        notes=plan.notes or prepared.notes,
    )
    parent = find_parent(layout, plan)
    info = make_info(environment.run_id, plan, settings, parent, prepared.started_at)
    if parent is None:
        # What is made again knows what it repeats, and begins where that began.
        info = dataclasses.replace(info, parent=prepared.parent)
    try:
        opened = begin(folder, info, plan, parent)
    except RunIsLive:
        return None  # another process of the same program was first
    return dataclasses.replace(opened, provenance=launch.provenance)


def find_parent(layout: Layout, plan: Plan) -> StoredRun | None:
    return read_run(find_run_folder(layout, plan.parent)) if plan.parent else None


def copy_metrics(parent: StoredRun, until_step: int | None, writer: AttemptWriter) -> int:
    """The parent's points up to a step become the first rows of the fork. Returns the step that follows."""
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


def resume(
    layout: Layout,
    reference: str,
    step: int | None,
    plan: Plan,
    *,
    launched: bool,
    start_over: Literal["never", "without a checkpoint", "always"] = "never",
) -> Opened:
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
    cut, next_step = (None, 0) if start_over == "always" else _where_to_go_on(stored, step)
    if start_over != "never" and (cut is None or cut.step is None):
        cut, next_step = None, 0
    known = stored.config
    changes = {key: value for key, value in plan.config.items() if key not in known or known[key] != value}
    writer = AttemptWriter(folder, taken[-1][0] + 1 if taken else 0)
    if stored.launch and not (folder / "run.json").exists():
        writer.write_run(stored.info)
    _say_what_is_cut(stored, cut)
    return Opened(
        info=dataclasses.replace(stored.info, config=known, command=plan.command, cwd=str(Path.cwd())),
        writer=writer,
        goes_on_from=cut,
        config_changes=changes,
        next_step=next_step,
        starting_folder=folder if cut and cut.step is not None else None,
        verbosity=stored.last_status.verbosity if stored.last_status else DEFAULT_VERBOSITY,
    )


def _is_live(stored: StoredRun, taken: list[tuple[int, str]], launched: bool) -> bool:
    if taken and not (Path(taken[-1][1]) / "status.json").exists():
        # Another process has just taken this attempt, or was killed in that moment.
        return time.time() - Path(taken[-1][1]).stat().st_mtime < LOST_AFTER_SECONDS
    # Where nobody has worked on the run, it is its launcher that lives: ours, when it told us to go on.
    return stored.state(time.time()) == "running" and bool(taken or not launched)


def _where_to_go_on(stored: StoredRun, step: int | None) -> tuple[GoesOnFrom | None, int]:
    """The checkpoint to go on from; without any, everything logged so far stays."""
    if step is not None:
        check_checkpoint(stored, step)
    chosen = [one for one in counting_checkpoints(stored) if step is None or one.step == step]
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
        if stored.attempts:
            say(f"run {stored.info.run_id} starts over: what it logged before no longer counts", always=True)
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
        f"{gone:,} {'row' if gone == 1 else 'rows'} logged after it no longer {'counts' if gone == 1 else 'count'}",
        always=True,
    )
