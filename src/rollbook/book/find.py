"""Finding runs by what a user types: the beginning of an id, a regular expression on a readable name, or a tag."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from rollbook.book.layout import Layout
from rollbook.errors import AmbiguousRun, RunNotFound, did_you_mean

_SHOWN = 8


def find_run_folder(layout: Layout, reference: str, *, archived: bool = False) -> Path:
    """The folder of exactly one run; candidates are named when there are several."""
    base = layout.archive if archived else layout.tasks
    folders = {entry.name: Path(entry.path) for entry in layout.run_folders(base)}
    matching = match_ids(reference, folders)
    if not matching:
        names = {run_id: _name(folder) for run_id, folder in folders.items()}
        matching = match_names(reference, names)
    return folders[one_of(reference, matching, folders)]


def match_ids(reference: str, run_ids: Iterable[str]) -> list[str]:
    if not reference:
        return []
    ids = list(run_ids)
    # A readable name in full begins with the id, and the last part of an id is what people remember.
    exact = [run_id for run_id in ids if run_id == reference.split("&")[0]]
    return exact or [run_id for run_id in ids if run_id.startswith(reference) or run_id.endswith("-" + reference)]


def match_names(reference: str, names: dict[str, str]) -> list[str]:
    try:
        pattern = re.compile(reference)
    except re.error:
        return []
    return [run_id for run_id, name in names.items() if reference and pattern.search(name)]


def quoted(text: str) -> str:
    """As SQL writes a text."""
    return "'" + text.replace("'", "''") + "'"


def carries(tag: str) -> str:
    """The condition that a run has a tag."""
    return f"list_contains(tags, {quoted(tag)})"


def of_tag(tag: str) -> str:
    """The condition that a run has a tag, or is of a git version: what people name a version of their code by."""
    return f"({carries(tag)} or git_describe = {quoted(tag)})"


def one_of(reference: str, matching: list[str], known: Iterable[str]) -> str:
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise RunNotFound(
            f"no run matches {reference!r}", did_you_mean(reference, known) or "`rollbook runs` lists them"
        )
    shown = sorted(matching)[:_SHOWN]
    more = f" and {len(matching) - _SHOWN} more" if len(matching) > _SHOWN else ""
    raise AmbiguousRun(f"{reference!r} matches {len(matching)} runs: {', '.join(shown)}{more}", "give more of the id")


def _name(folder: Path) -> str:
    from rollbook.book.run_folder import read_run

    try:
        return read_run(folder).info.name
    except FileNotFoundError:
        return folder.name
