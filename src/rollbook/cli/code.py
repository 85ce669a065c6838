"""code diff, code restore, code list: the code of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollbook.cli.options import book_option, current_book, json_option
from rollbook.cli.output import print_json, printable, say, size
from rollbook.cli.table import print_table
from rollbook.errors import CodeNotFound

if TYPE_CHECKING:
    from rollbook.book.book import Book

_COLOURS = {"+++": "bold", "---": "bold", "+": "green", "-": "red", "@@": "cyan", "diff": "bold"}


@click.group(epilog="\b\nExample:\n  rollbook code diff 9f2c 41d0")
def code() -> None:
    """The code that a run was made with, as it was, uncommitted changes included."""


@code.command(epilog="\b\nExample:\n  rollbook code diff 9f2c 41d0 | git apply")
@click.argument("a")
@click.argument("b")
@book_option
def diff(a: str, b: str) -> None:
    """What changed in the code from run A to run B, as a unified diff."""
    from rollbook.book.code import diff as diff_code

    book = current_book()
    (id_a, code_a), (id_b, code_b) = (_code_of(book, run) for run in (a, b))
    text = diff_code(book.layout, code_a, code_b, labels=(id_a, id_b))
    if not text:
        say(f"{id_a} and {id_b} were made with the same code")
    colour = sys.stdout.isatty()
    for line in text.splitlines(keepends=True):
        style = next((style for start, style in _COLOURS.items() if line.startswith(start)), None) if colour else None
        shown = printable(line.rstrip("\n").expandtabs()) + "\n" if colour else line
        if style == "bold":
            click.secho(shown, bold=True, nl=False)
        else:
            click.secho(shown, fg=style, nl=False) if style else sys.stdout.write(shown)


@code.command(epilog="\b\nExample:\n  rollbook code restore 9f2c /tmp/as-it-was")
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Write into a folder that is not empty.")
@book_option
def restore(run: str, folder: Path, force: bool) -> None:
    """Write the code of a run into a folder."""
    from rollbook.book.code import restore as restore_code

    book = current_book()
    run_id, manifest = _code_of(book, run)
    count = restore_code(book.layout, manifest, folder, force=force)
    say(f"{count} files of {run_id} in {folder}")


@code.command(name="list", epilog="\b\nExample:\n  rollbook code list 9f2c")
@click.argument("run")
@json_option
@book_option
def list_files(run: str, as_json: bool) -> None:
    """The files of a run's code, and what was left out."""
    from rollbook.book.code import read_manifest

    book = current_book()
    _, object_id = _code_of(book, run)
    manifest = read_manifest(book.layout, object_id)
    rows: list[dict[str, Any]] = [
        {"path": path, "id": file.id, "bytes": _bytes(book.layout.object_path(file.id))}
        for path, file in sorted(manifest.files.items())
    ]
    if as_json:
        print_json(rows)
    else:
        shown = [[row["path"], "missing" if row["bytes"] is None else size(row["bytes"])] for row in rows]
        print_table(["path", "size"], shown, right=["size"])
        for path, reason in sorted(manifest.skipped.items()):
            say(f"left out: {printable(path)}: {printable(reason)}")


def _bytes(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _code_of(book: Book, reference: str) -> tuple[str, str]:
    record = book.run(reference)
    manifest = record.stored().provenance.code
    if not manifest:
        raise CodeNotFound(
            f"run {record.run_id} has no stored code",
            "code is stored unless save_code=False, or the run was killed at once",
        )
    return record.run_id, manifest
