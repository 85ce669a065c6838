"""Opening a new run: what the caller and a launching Rollbook ask for, and the folder that is made of it."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook._version import __version__
from rollbook.book import journal
from rollbook.book.layout import Layout, readable_name
from rollbook.book.settings import Settings
from rollbook.book.writer import AttemptWriter, create_run_folder
from rollbook.records import DEFAULT_VERBOSITY, GoesOnFrom, Provenance, RunInfo
from rollbook.track.config import as_tags, tracked

if TYPE_CHECKING:
    from rollbook.book.run_folder import StoredRun


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a launching Rollbook tells the program. The first `start` takes it, so that children do not see it."""

    book: str | None
    run_id: str | None
    task: str | None
    tags: list[str]
    benchmark: str | None
    resume: str | None
    start_over: bool
    parent: str | None
    parent_step: int | None
    copy_metrics: bool

    @classmethod
    def take(cls) -> Environment:
        take, look = os.environ.pop, os.environ.get
        step = take("ROLLBOOK_PARENT_STEP", None)
        return cls(
            book=look("ROLLBOOK_BOOK"),
            run_id=take("ROLLBOOK_RUN_ID", None),
            task=look("ROLLBOOK_TASK"),
            tags=[*as_tags(look("ROLLBOOK_TAGS")), *as_tags(look("WANDB_TAGS"))],
            benchmark=look("ROLLBOOK_BENCHMARK"),
            resume=take("ROLLBOOK_RESUME", None),
            start_over=take("ROLLBOOK_START_OVER", "") == "1",
            parent=take("ROLLBOOK_PARENT", None),
            parent_step=int(step) if step else None,
            copy_metrics=take("ROLLBOOK_COPY_METRICS", "") == "1",
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
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
    command: list[str]


@dataclass(frozen=True, kw_only=True)
class Opened:
    info: RunInfo
    writer: AttemptWriter
    goes_on_from: GoesOnFrom | None = None
    config_changes: dict[str, Any] = field(default_factory=dict)
    next_step: int = 0
    starting_folder: Path | None = None
    verbosity: str = DEFAULT_VERBOSITY
    provenance: Provenance | None = None


def open_new(layout: Layout, plan: Plan, settings: Settings, parent: StoredRun | None) -> Opened:
    now = time.time()
    run_id, folder = create_run_folder(layout, plan.task, now)
    return begin(folder, make_info(run_id, plan, settings, parent, now), plan, parent)


def begin(folder: Path, info: RunInfo, plan: Plan, parent: StoredRun | None) -> Opened:
    writer = AttemptWriter(folder, 0)
    writer.write_run(info)
    next_step = 0
    if parent and plan.copy_metrics:
        from rollbook.track.going_on import copy_metrics

        next_step = copy_metrics(parent, info.parent_step, writer)
    return Opened(info=info, writer=writer, next_step=next_step, starting_folder=parent.folder if parent else None)


def make_info(run_id: str, plan: Plan, settings: Settings, parent: StoredRun | None, now: float) -> RunInfo:
    step = plan.parent_step
    if parent and step is None:
        from rollbook.book.run_folder import counting_checkpoints

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
        command=plan.command,
        cwd=str(Path.cwd()),
        rollbook_version=__version__,
    )
