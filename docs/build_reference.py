"""Writes docs/reference from the code: the commands, the SQL views, the settings and the Python names.

    python docs/build_reference.py            write the pages
    python docs/build_reference.py --check    write nothing; exit 1 when a page differs from what would be written

`pages()` is what tests/contract/test_docs.py compares. book-format.md is written by hand and not touched.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import rollbook
from rollbook import errors, records
from rollbook.book import settings
from rollbook.book.checkpoints import LoadedCheckpoint
from rollbook.book.views import VIEWS
from rollbook.cli.app import app
from rollbook.track.timings import Timing

REFERENCE = Path(__file__).parent / "reference"
SOURCE = Path(rollbook.__file__).parent
HELP_WIDTH = 88  # fixed: a page must not depend on the window in which it was made
_GENERATED = "<!-- Written by docs/build_reference.py from the code. Change the code, then run it again. -->\n"

# What each environment variable does. A variable that the code reads and that is not here fails the build.
VARIABLES = {
    "ROLLBOOK_BOOK": "The book, where `--book` or `book=` does not name one.",
    "ROLLBOOK_TASK": "Task of runs that name none.",
    "ROLLBOOK_TAGS": "Tags that every run gets beside its own: `a,b`.",
    "ROLLBOOK_BENCHMARK": "Id of the benchmark that a run belongs to.",
    "ROLLBOOK_OUTPUTS": "Live outputs of runs that name none: `console,csv,tensorboard`.",
    "ROLLBOOK_QUIET": "If set, a run says nothing on stderr except about problems.",
    "ROLLBOOK_RUN_ID": "Set by `rollbook run`: the run that the program's first `rollbook.start` claims.",
    "ROLLBOOK_RESUME": "Set by `rollbook resume`: the run that the first `rollbook.start` goes on with.",
    "ROLLBOOK_START_OVER": "Set to 1 by `rollbook bench` for a retry: what the run logged before no longer counts.",
    "ROLLBOOK_PARENT": "Set by `rollbook fork`: the run that the first `rollbook.start` branches off.",
    "ROLLBOOK_PARENT_STEP": "Set by `rollbook fork --at`: the step of the parent's checkpoint.",
    "ROLLBOOK_COPY_METRICS": "Set to 1 by `rollbook fork --copy-metrics`.",
}


def pages() -> dict[str, str]:
    """File name -> text of every generated page."""
    return {
        "cli.md": cli_page(),
        "sql.md": sql_page(),
        "configuration.md": configuration_page(),
        "python.md": python_page(),
    }


# ---- cli.md -------------------------------------------------------------------------------------------------------


def commands(
    command: click.Command | None = None, path: tuple[str, ...] = ("rollbook",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group with its path, parents first."""
    command = command or app
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from commands(command.commands[name], (*path, name))


def help_text(path: tuple[str, ...], command: click.Command) -> str:
    """What `--help` prints, at a fixed width."""
    context: click.Context | None = None
    for name in path[:-1]:
        context = click.Context(app, info_name=name, parent=context)
    settings_of_all = {"help_option_names": ["-h", "--help"], **command.context_settings}
    with click.Context(
        command,
        info_name=path[-1],
        parent=context,
        terminal_width=HELP_WIDTH,
        max_content_width=HELP_WIDTH,
        **settings_of_all,
    ) as own:
        text = command.get_help(own)
    return "\n".join(line.rstrip() for line in text.splitlines())


def cli_page() -> str:
    lines = [
        "# The command line",
        "",
        _GENERATED,
        "Data goes to stdout, talk to stderr. RUN is the beginning of a run's id, its last part (`9f2c`), or a regular",
        "expression on its readable name that matches one run.",
        "",
        "Exit codes: 0 done, 1 the program failed, 2 wrong usage, 4 data missing or damaged, 130 stopped by Ctrl-C.",
        "An error is one line with the value seen and one line `hint:`; `rollbook --debug ...` shows the traceback.",
        "",
    ]
    for path, command in commands():
        lines += [f"## {' '.join(path)}", "", "```text", help_text(path, command), "```", ""]
    return _joined(lines)


# ---- sql.md -------------------------------------------------------------------------------------------------------

_SQL_RULES = """\
A question is one SELECT (or EXPLAIN, DESCRIBE, SHOW, SUMMARIZE) in [DuckDB](https://duckdb.org/docs/stable/sql/introduction)'s
SQL, by `rollbook sql "..."` or `book.sql("...")`.

- **Read-only.** The statement is parsed and walked before it runs. What writes, attaches, installs, sets or reads a
  file is refused, inside a CTE too. Python variables are not visible. See
  [ADR 5](../adr/0005-sql-is-checked-by-parsing.md).
- **One statement a call.** `book.sql(query, [values])` fills in `?`.
- **Up to date.** Each question sees what runs have flushed, at most a second old.
- **Bounded.** `memory_limit` and `query_seconds` of the [configuration](configuration.md) hold for a query.
- **Hyper-parameters** are in the JSON column `config`: `config->>'lr'` is text, `(config->>'lr')::double` a number,
  `config->'net'->>'width'` a nested one. The view `params` has them a row each, with dotted keys: `net.width`.
- **algo, env and seed** are read from the config by the [alias table](configuration.md#aliases).
- **Tags** are a list: `'latest' in tags`. The view `tags` has them a row each.
- **Times** are UTC.
- **Deleted and archived runs** are in no view. `rollbook runs --hidden` lists them.
"""


def sql_page() -> str:
    lines = ["# SQL", "", _GENERATED, _SQL_RULES, "| view | what it holds |", "| --- | --- |"]
    lines += [f"| [{name}](#{name}) | {view.about} |" for name, view in VIEWS.items()]
    lines += [""]
    for name, view in VIEWS.items():
        lines += [f"## {name}", "", view.about, ""]
        if "*" in view.columns:
            lines += ["Columns: those of [runs](#runs).", ""]
            continue
        lines += ["| column | type | |", "| --- | --- | --- |"]
        for column, described in view.columns.items():
            kind, _, meaning = described.partition(": ")
            lines.append(f"| `{column}` | {kind} | {meaning} |")
        lines += [""]
    return _joined(lines)


# ---- configuration.md ---------------------------------------------------------------------------------------------

_BOOK_PLACES = """\
The book is the first of these:

1. `--book DIR` on the command line, `book=` in `rollbook.start`, the argument of `rollbook.open`
2. `ROLLBOOK_BOOK`
3. `book` in `rollbook.toml`, or in `[tool.rollbook]` of `pyproject.toml`, looked for from the working folder upwards; a
   relative path is relative to that file
4. `book/` at the root of the git checkout
5. `./book`
"""


def setting_docs() -> dict[str, tuple[str, str]]:
    """Field -> (type, docstring line), from the source: the text under a field is lost at run time."""
    (table,) = [
        node
        for node in ast.parse(Path(settings.__file__).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Settings"
    ]
    found: dict[str, tuple[str, str]] = {}
    for node, following in zip(table.body, [*table.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            doc = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                doc = str(following.value.value)
            found[node.target.id] = (ast.unparse(node.annotation), doc)
    return found


def variables_in_code() -> set[str]:
    """The environment variables that the source names."""
    return {name for file in SOURCE.rglob("*.py") for name in re.findall(r"\bROLLBOOK_[A-Z_]+\b", file.read_text())}


def configuration_page() -> str:
    defaults = settings.Settings()
    undescribed = variables_in_code() - VARIABLES.keys()
    if undescribed:
        raise SystemExit(f"docs/build_reference.py does not describe {', '.join(sorted(undescribed))}")
    lines = ["# Configuration", "", _GENERATED, "## Where the book is", "", _BOOK_PLACES]
    lines += ["## rollbook.toml", ""]
    lines += [
        "Or the table `[tool.rollbook]` of `pyproject.toml`. The nearest file upwards counts. Unknown keys are errors.",
        "",
    ]
    lines += ["| key | type | default | |", "| --- | --- | --- | --- |"]
    for name, (kind, doc) in setting_docs().items():
        if name == "root":
            continue  # where the file was found, which a file cannot say
        kind = kind.replace("|", "\\|")
        shown = "below" if name == "aliases" else _toml(getattr(defaults, name))
        lines.append(f"| `{name}` | {kind} | {shown} | {doc} |")
    lines += [
        "",
        "```toml",
        'book = "/data/book"',
        'task = "hopper"',
        'exclude = ["*.ipynb", "data/"]',
        "",
        "[aliases]",
    ]
    lines += ['env = ["scenario"]', "", "[outputs]", 'console = "essential"', 'csv = "info"', "```", ""]
    lines += ["## Aliases", "", "Parameter names that mean algo, env or seed, the first that a config has:", ""]
    lines += ["| meaning | names |", "| --- | --- |"]
    lines += [
        f"| {meaning} | {', '.join(f'`{name}`' for name in names)} |"
        for meaning, names in settings.DEFAULT_ALIASES.items()
    ]
    lines += ["", "## Environment variables", "", "| variable | |", "| --- | --- |"]
    lines += [f"| `{name}` | {about} |" for name, about in VARIABLES.items()]
    lines += [
        "",
        "A launched program's first `rollbook.start` takes `ROLLBOOK_RUN_ID`, `ROLLBOOK_RESUME` and `ROLLBOOK_PARENT`",
    ]
    lines += ["out of its environment, so that the programs it starts do not claim the same run.", ""]
    return _joined(lines)


def _toml(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "`[]`" if not value else f"`{list(value)}`"
    if isinstance(value, dict):
        return "`{}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value:_}`" if isinstance(value, int) else f"`{value}`"


# ---- python.md ----------------------------------------------------------------------------------------------------

_RETURNED = (records.TopEntry, records.Checkpoint, LoadedCheckpoint, Timing)


class _Text:
    """An annotation that prints as it was written, without quotes."""

    def __init__(self, annotation: Any) -> None:
        self._text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

    def __repr__(self) -> str:
        return self._text


def signature(function: Any) -> str:
    """`(step: int, keep: int | None = None) -> Path`, without self."""
    parsed = inspect.signature(function)
    empty = inspect.Parameter.empty
    kept = [
        one.replace(annotation=empty if one.annotation is empty else _Text(one.annotation))
        for name, one in parsed.parameters.items()
        if name != "self"
    ]
    returned = parsed.return_annotation
    return str(parsed.replace(parameters=kept, return_annotation=empty if returned is empty else _Text(returned)))


def methods(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and inspect.isfunction(value)}


def python_page() -> str:
    lines = ["# Python", "", _GENERATED]
    lines += ["```python", "import rollbook", "```", "", "| name | |", "| --- | --- |"]
    for name in rollbook.__all__:
        about = "the version, as text" if name == "__version__" else _first_line(getattr(rollbook, name))
        lines.append(f"| `{name}` | {about} |")
    lines += [""]
    for name in ("start", "open"):
        lines += _function(f"rollbook.{name}", getattr(rollbook, name), level=2, whole=True)
    for name in ("Run", "Book", "RunRecord"):
        lines += _class(name, getattr(rollbook, name))
    lines += ["## What they return", ""]
    for kind in _RETURNED:
        lines += [f"### {kind.__name__}", "", _first_line(kind), "", *_fields(kind), ""]
    lines += [
        "## RollbookError",
        "",
        "Every error that a user can cause, with `.message`, `.hint` and `.exit_code`:",
        "",
    ]
    lines += ["```text", *(errors.__doc__ or "").strip().splitlines()[2:], "```", ""]
    return _joined(lines)


def _class(name: str, kind: type) -> list[str]:
    lines = [f"## {name}", "", _first_line(kind), ""]
    if dataclasses.is_dataclass(kind):
        lines += [*_fields(kind), ""]
    else:
        lines += ["Attributes: " + ", ".join(f"`{attribute}`" for attribute in public_attributes(kind)) + ".", ""]
    for method, function in methods(kind).items():
        lines += _function(f"{name}.{method}", function, level=3)
    return lines


def public_attributes(kind: type) -> list[str]:
    """What the methods give an object, by name: `self.id = ...`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    targets = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    named = [one.attr for one in targets if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self"]
    return list(dict.fromkeys(name for name in named if not name.startswith("_")))


def _function(title: str, function: Any, *, level: int, whole: bool = False) -> list[str]:
    doc = inspect.getdoc(function) or ""
    text = doc if whole else doc.split("\n\n")[0].replace("\n", " ")
    return [f"{'#' * level} {title}", "", "```text", _wrapped(title, signature(function)), "```", "", text, ""]


def _wrapped(title: str, text: str) -> str:
    if len(title) + len(text) <= HELP_WIDTH:
        return title + text
    inside, _, returned = text[1:].rpartition(")")
    return f"{title}(\n" + "".join(f"    {part},\n" for part in _parameters(inside)) + f"){returned}"


def _parameters(inside: str) -> list[str]:
    """Split at the commas that are in no brackets and no quotes."""
    parts, depth, quoted = [""], 0, False
    for sign in inside:
        quoted ^= sign == "'"
        depth += (sign in "[({") - (sign in "])}")
        if sign == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _fields(kind: Any) -> list[str]:
    lines = ["| field | type |", "| --- | --- |"]
    return lines + [
        f"| `{one.name}` | {str(one.type).replace('|', chr(92) + '|')} |" for one in dataclasses.fields(kind)
    ]


def _first_line(value: Any) -> str:
    doc = inspect.getdoc(value) or ""
    if isinstance(value, type) and doc.startswith(f"{value.__name__}("):
        return ""  # what dataclass writes where nobody has written anything
    return doc.split("\n")[0]


def _joined(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    stale = [name for name, text in pages().items() if not _same(REFERENCE / name, text)]
    if "--check" in arguments:
        for name in stale:
            print(f"docs/reference/{name} is out of date: run `python docs/build_reference.py`", file=sys.stderr)
        return 1 if stale else 0
    REFERENCE.mkdir(exist_ok=True)
    for name in stale:
        (REFERENCE / name).write_text(pages()[name])
        print(f"wrote docs/reference/{name}")
    return 0


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
