"""`rollbook.start`: a new run, the next attempt at one, a fork of one, or the run that our launcher prepared."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rollbook.book.layout import Layout
from rollbook.book.settings import find_book, git_root, load_settings
from rollbook.errors import UsageError
from rollbook.records import DEFAULT_VERBOSITY, Provenance
from rollbook.track.config import as_config, as_tags, plain_text
from rollbook.track.opening import Environment, Plan, open_new
from rollbook.track.outputs import check_outputs, check_verbosity, open_outputs
from rollbook.track.run import Run, say


def start(
    task: str | None = None,
    *,
    config: Any = None,
    tags: str | Iterable[str] | None = None,
    track: Iterable[str] = (),
    verbosity: str | None = None,
    notes: str = "",
    book: str | os.PathLike[str] | None = None,
    name: str | None = None,
    parent: str | None = None,
    parent_step: int | None = None,
    copy_metrics: bool = False,
    resume: str | None = None,
    resume_step: int | None = None,
    start_over: bool = False,
    save_code: bool = True,
    outputs: Mapping[str, str] | Sequence[str] | None = None,
    command: Sequence[str] | None = None,
) -> Run:
    """Begin to track. Returns at once; code snapshot and provenance are gathered in the background.

    `verbosity` is essential, info (the default) or debug; a resumed run keeps its own unless told otherwise.
    `resume=RUN` opens a new attempt at a run, from its newest checkpoint (or `resume_step`). Without a checkpoint, what
    the run has logged stays, or no longer counts with `start_over`: for programs that then begin at their first step.
    `parent=RUN` makes a fork: a new run that starts from the parent's checkpoint at `parent_step`.
    `outputs` are live outputs besides the book: "console", "csv", "tensorboard", or {"console": "essential"}.
    `command` is what `rollbook resume` and `rerun` are to run, if not the command line of this program.
    """
    check_verbosity(verbosity or DEFAULT_VERBOSITY)
    environment = Environment.take()
    settings = load_settings()
    layout = Layout(find_book(book or environment.book))
    layout.create()
    chosen_outputs = check_outputs(
        outputs if outputs is not None else os.environ.get("ROLLBOOK_OUTPUTS") or settings.outputs,
        verbosity or DEFAULT_VERBOSITY,
    )
    plan = Plan(
        task=task or environment.task or settings.task or (git_root() or Path.cwd()).name or "runs",
        config=as_config(config),
        tags=list(dict.fromkeys(map(plain_text, [*as_tags(tags), *environment.tags]))),
        track=list(track),
        notes=plain_text(notes),
        name=name,
        parent=parent or environment.parent,
        parent_step=parent_step if parent_step is not None else environment.parent_step,
        copy_metrics=copy_metrics or environment.copy_metrics,
        benchmark=environment.benchmark,
        command=list(command or sys.orig_argv),
    )
    resume = resume or environment.resume
    if resume and parent:
        raise UsageError("a run is resumed or forked, not both", "give resume= or parent=")
    if resume or plan.parent or environment.run_id:
        from rollbook.track import going_on

        if resume:
            opened = going_on.resume(
                layout, resume, resume_step, plan,
                launched=environment.resume is not None,
                start_over="always" if environment.start_over else "without a checkpoint" if start_over else "never",
            )  # fmt: skip
        else:
            opened = going_on.claim(layout, environment, plan, settings) or open_new(
                layout, plan, settings, going_on.find_parent(layout, plan)
            )
    else:
        opened = open_new(layout, plan, settings, None)

    def gather() -> Provenance:
        if opened.provenance is not None:
            return opened.provenance
        from rollbook.book.provenance import gather as gather_provenance
        from rollbook.book.provenance import script_of

        script = script_of(command, Path.cwd()) if command else _script()
        return gather_provenance(layout, settings, script, save_code)

    run = Run(
        layout=layout,
        info=opened.info,
        writer=opened.writer,
        verbosity=verbosity or opened.verbosity,
        outputs=open_outputs(chosen_outputs, opened.writer.run_folder, opened.info.name),
        gather=gather,
        goes_on_from=opened.goes_on_from,
        config_changes=opened.config_changes,
        next_step=opened.next_step,
        starting_folder=opened.starting_folder,
    )
    say(f"run {run.name} in {layout.root}")
    return run


def _script() -> Path | None:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(main).absolute() if main else None
