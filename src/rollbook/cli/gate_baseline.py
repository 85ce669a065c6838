"""Further seeds of a baseline, trained from its own commit: the adaptive gate uses each of them at every look."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.cli.output import say
from rollbook.errors import TrainingFailed

if TYPE_CHECKING:
    from rollbook.bench.matrix import Cell as Job
    from rollbook.book.book import Book
    from rollbook.gate.scores import Choice, ScoredRun

WANTED = 10


def top_up(
    book: Book, baseline: Choice, planned: Sequence[Job], matrix: Sequence[str], execution: Mapping[str, Any]
) -> None:
    """Train what the baseline lacks to ten seeds; where that cannot be done, say why and leave it."""
    from rollbook.gate.scores import Cell, read_side

    if baseline.tag is None:
        return
    side = read_side(book, baseline, None)
    lacking: dict[tuple[str, int, int], list[str]] = {}  # by commit, first seed and number of seeds
    for cell in dict.fromkeys(Cell(job.task, job.algo, job.env) for job in planned):
        runs = side.get(cell, [])
        if not runs or len(runs) >= WANTED:
            continue
        commit = _commit(book, runs)
        if commit is None:
            say(
                f"{cell}: the baseline has {len(runs)} seeds, {WANTED} are better; its code is no commit of this "
                "repository, so they cannot be trained here"
            )
            continue
        first = max((run.seed or 0 for run in runs), default=0) + 1
        lacking.setdefault((commit, first, WANTED - len(runs)), []).append(cell.env or "")
    for (commit, first, count), env_ids in lacking.items():
        _train(
            book,
            baseline.tag,
            commit,
            [*matrix, "--start-seed", str(first), "--num-seeds", str(count)],
            env_ids,
            execution,
        )


def _commit(book: Book, runs: Sequence[ScoredRun]) -> str | None:
    """The one that all runs are of, if it can be checked out again."""
    rows = book.rows(
        "select distinct git_commit, git_dirty from runs where list_contains(?, run_id)", [[run.run_id for run in runs]]
    )
    if len(rows) != 1 or rows[0]["git_commit"] is None or rows[0]["git_dirty"]:
        return None
    commit = str(rows[0]["git_commit"])
    known = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False)
    return commit if known.returncode == 0 else None


def _train(
    book: Book, tag: str, commit: str, matrix: Sequence[str], env_ids: Sequence[str], execution: Mapping[str, Any]
) -> None:
    checkout = _checkout(book.layout.cache, commit)
    say(f"training {matrix[-1]} more seeds of the baseline, from its commit {commit[:12]}, in {', '.join(env_ids)}")
    command = [sys.executable, "-m", "rollbook", "--book", str(book.path.absolute()), "bench", *matrix, "--tags", tag]
    if any(env_ids):
        command += ["--env-ids", *env_ids]
    options = {"where": "on", "time_limit": "time"}
    for name, value in execution.items():
        if name not in ("tags", "notes", "fresh") and value is not None:
            command += [f"--{options.get(name, name).replace('_', '-')}", str(value)]
    # A package that is installed from the working folder would be the candidate's.
    path = os.pathsep.join([str(checkout), str(checkout / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(command, cwd=checkout, env=os.environ | {"PYTHONPATH": path}, stdout=2, check=False)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode:
        raise TrainingFailed("the baseline could not be topped up", "the same command goes on with it")


def _checkout(cache: Path, commit: str) -> Path:
    """The baseline's code in the book's cache, where every node of a cluster sees it. The repository stays as it is."""
    folder = cache.absolute() / "baselines" / commit
    if not (folder / ".git").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        for command in (
            ["git", "clone", "--quiet", "--shared", "--no-checkout", ".", str(folder)],
            ["git", "-C", str(folder), "checkout", "--quiet", "--detach", commit],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise TrainingFailed(f"git cannot check out the baseline: {done.stderr.strip()}")
    return folder
