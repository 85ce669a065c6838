"""run, resume, fork, rerun: programs as tracked runs."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rollbook.cli.options import book_option, chosen_path, current_book, key_value
from rollbook.cli.output import printable, say
from rollbook.errors import CodeNotFound, RunIsLive, UsageError

if TYPE_CHECKING:
    from rollbook.book.book import RunRecord

_PASS_THROUGH = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.command(
    context_settings=_PASS_THROUGH, epilog="\b\nExample:\n  rollbook run --task hopper -- python train.py --lr 1e-3"
)
@click.option("--task", metavar="TASK", help="[default: task in rollbook.toml, else the project's name]")
@click.option("--tags", metavar="A,B", help="Tags of the run.")
@click.option("--notes", default="", help="Why this run is made.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- PROGRAM [ARGUMENT]...")
@book_option
def run(task: str | None, tags: str | None, notes: str, command: tuple[str, ...]) -> int:
    """Track any program without touching its code: arguments as config, code, console, exit status."""
    from rollbook.bench.arguments import parse_arguments, program_arguments
    from rollbook.bench.launch import Job, launch
    from rollbook.book.layout import Layout
    from rollbook.book.settings import find_book, git_root, load_settings
    from rollbook.track.config import as_tags

    settings = load_settings()
    job = Job(
        command=list(command),
        task=task or settings.task or (git_root() or Path.cwd()).name or "runs",
        config=parse_arguments(program_arguments(command)),
        tags=list(dict.fromkeys([*as_tags(tags), *as_tags(os.environ.get("ROLLBOOK_TAGS"))])),
        notes=notes,
    )
    done = launch(Layout(find_book(chosen_path())), settings, job)
    return _report(done.run_id, done.exit_code)


@click.command(epilog="\b\nExamples:\n  rollbook resume 9f2c\n  rollbook resume 9f2c --steps +500000")
@click.argument("reference", metavar="RUN")
@click.option("--steps", metavar="N", help="Another --steps for the program; +N: so many more.")
@book_option
def resume(reference: str, steps: str | None) -> int:
    """Go on with a run from its newest checkpoint: its command again, in its folder, as a new attempt."""
    from rollbook.bench.arguments import with_arguments
    from rollbook.bench.launch import Job, launch
    from rollbook.book.settings import load_settings

    book = current_book()
    record = book.run(reference)
    if record.status == "running":
        raise RunIsLive(f"run {record.run_id} is still running", "wait for its end, or fork it: rollbook fork RUN")
    info = record.stored().info
    more = {"steps": _total_steps(record, steps)} if steps else {}
    job = Job(
        command=with_arguments(_program(info.command), more),
        task=record.task,
        cwd=_folder(info.cwd, record),
        config=record.config | more,
        tags=record.tags,
        resume=str(record.folder),
    )
    done = launch(book.layout, load_settings(job.cwd), job)
    return _report(done.run_id, done.exit_code)


@click.command(epilog="\b\nExample:\n  rollbook fork 9f2c --set lr=1e-4 --at 50000 --copy-metrics")
@click.argument("reference", metavar="RUN")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="An argument to change; repeatable.")
@click.option("--steps", metavar="N", help="Another --steps for the program; +N: so many more than the parent's.")
@click.option("--at", "step", type=int, metavar="STEP", help="The checkpoint to start from [default: the newest].")
@click.option("--copy-metrics", is_flag=True, help="Begin with the parent's metrics up to that step.")
@book_option
def fork(reference: str, changes: tuple[str, ...], steps: str | None, step: int | None, copy_metrics: bool) -> int:
    """Branch off a run: its command with changes, as a new run that knows its parent.

    The program finds the parent's checkpoint with run.starting_point().
    """
    from rollbook.bench.arguments import parse_arguments, program_arguments, with_arguments
    from rollbook.bench.launch import Job, launch
    from rollbook.book.run_folder import check_checkpoint
    from rollbook.book.settings import load_settings

    book = current_book()
    parent = book.run(reference)
    stored = parent.stored()
    info = stored.info
    if step is not None:
        check_checkpoint(stored, step)
    chosen = dict(key_value(change) for change in changes)
    if steps:
        chosen["steps"] = _total_steps(parent, steps)
    command = with_arguments(_program(info.command), chosen)
    config = parse_arguments(program_arguments(command))
    job = Job(
        command=command,
        task=parent.task,
        cwd=_folder(info.cwd, parent),
        config=config,
        parent=parent.run_id,
        environment={
            "ROLLBOOK_PARENT": parent.run_id,
            **({"ROLLBOOK_PARENT_STEP": str(step)} if step is not None else {}),
            **({"ROLLBOOK_COPY_METRICS": "1"} if copy_metrics else {}),
        },
    )
    for key, value in chosen.items():
        known = key if key in parent.config else key.replace("-", "_")
        say(f"{printable(key)}: {printable(parent.config.get(known))} -> {printable(value)}")
    done = launch(book.layout, load_settings(job.cwd), job)
    return _report(done.run_id, done.exit_code)


@click.command(epilog="\b\nExample:\n  rollbook rerun 9f2c")
@click.argument("reference", metavar="RUN")
@click.option("--here", is_flag=True, help="Use the code as it is now, not as it was stored.")
@book_option
def rerun(reference: str, here: bool) -> int:
    """The same again: a run's stored code and command, as a new run."""
    from rollbook.bench.launch import Job, launch
    from rollbook.book.settings import load_settings

    book = current_book()
    original = book.run(reference)
    stored = original.stored()
    info, provenance = stored.info, stored.provenance
    with tempfile.TemporaryDirectory(prefix="rollbook-rerun-") as scratch:
        command, cwd = _program(info.command), Path(info.cwd)
        if not here:
            command, cwd = _in_stored_code(original, Path(scratch), command)
        job = Job(
            command=command,
            task=original.task,
            cwd=_folder(str(cwd), original),
            config=original.config if stored.launch else {},
            parent=original.run_id,
            # Its paths begin at the scratch folder, from which it can be made again in turn.
            provenance=None if here else dataclasses.replace(provenance, project_root=scratch),
        )
        say(f"{printable(shlex.join(command))}\n  in {cwd}")
        done = launch(book.layout, load_settings(job.cwd), job)
    return _report(done.run_id, done.exit_code)


def _in_stored_code(original: RunRecord, scratch: Path, command: list[str]) -> tuple[list[str], Path]:
    """The code in a folder of its own, with the command and the working folder moved there."""
    from rollbook.book.code import restore

    book = current_book()
    stored = original.stored()
    provenance = stored.provenance
    if not provenance.code or not provenance.project_root:
        raise CodeNotFound(f"run {original.run_id} has no stored code", "rollbook rerun RUN --here uses today's code")
    restore(book.layout, provenance.code, scratch)
    root = Path(provenance.project_root)
    cwd = Path(stored.info.cwd)
    inside = cwd.is_relative_to(root)
    # The interpreter of a virtual environment inside the project is not part of its code.
    moved = [command[0], *(_moved(part, cwd, root, scratch, relative=not inside) for part in command[1:])]
    new_cwd = scratch / cwd.relative_to(root) if inside else scratch
    new_cwd.mkdir(parents=True, exist_ok=True)
    return moved, new_cwd


def _moved(part: str, cwd: Path, root: Path, scratch: Path, *, relative: bool) -> str:
    """An absolute path into the project, or one from a working folder outside it, in the restored code."""
    path = cwd / part
    if not path.is_relative_to(root) or not (relative or part.startswith("/")):
        return part
    moved = scratch / path.relative_to(root)
    return str(moved) if part.startswith("/") or moved.exists() else part


def _program(command: list[str]) -> list[str]:
    """The stored command; an interpreter that is gone is replaced by this one."""
    import shutil

    if not command:
        raise UsageError("the run has no stored command", "start it again by hand")
    if "python" in Path(command[0]).name and not shutil.which(command[0]):
        return [sys.executable, *command[1:]]
    return list(command)


def _folder(cwd: str, record: RunRecord) -> Path:
    path = Path(cwd)
    if not path.is_dir():
        raise UsageError(
            f"the folder {cwd} of run {record.run_id} is gone", f"rollbook rerun {record.run_id} uses its stored code"
        )
    return path


def _total_steps(record: RunRecord, steps: str) -> str:
    """N as it is; +N added to the steps that the run was started with."""
    try:
        number = int(steps.replace("_", ""))
    except ValueError:
        raise UsageError(f"--steps {steps!r} is no number of steps", "--steps 1000000 or --steps +500000") from None
    if not steps.startswith("+"):
        return str(number)
    before = record.config.get("steps")
    if not isinstance(before, int):
        raise UsageError(f"run {record.run_id} has no parameter steps to add to", "--set NAME=VALUE changes another")
    return str(before + number)


def _report(run_id: str, exit_code: int) -> int:
    say(f"run {run_id}: {'finished' if exit_code == 0 else f'exit code {exit_code}'}")
    return 0 if exit_code == 0 else 1
