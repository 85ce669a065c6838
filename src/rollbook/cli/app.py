"""The commands of `rollbook`. A call imports the one that it is about, and that one what it needs when it runs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping

import click

from rollbook._version import __version__

_EPILOG = """\b
Examples:
  rollbook demo
  rollbook run -- python train.py --lr 1e-3
  rollbook top 5 --algo sac --env Hopper-v5 --by auc --over seed
  rollbook gate pr-308 --against latest
  rollbook sql "select algo, env, count(*) from runs group by all"
"""

# Where each command is, in this package.
_PLACES = {
    "demo": "demo.demo",
    "train": "train.train",
    "eval": "policy.evaluate",
    "bench": "bench.bench",
    "gate": "gate.gate",
    "run": "launch.run",
    "resume": "launch.resume",
    "fork": "launch.fork",
    "rerun": "launch.rerun",
    "runs": "query.runs",
    "show": "show.show",
    "top": "query.top",
    "newest": "query.newest",
    "sql": "query.sql",
    "plot": "plot.plot",
    "code": "code.code",
    "tag": "tags.tag",
    "note": "change.note",
    "verbosity": "change.verbosity",
    "delete": "change.delete",
    "archive": "change.archive",
    "restore": "change.restore",
    "purge": "change.purge",
    "thin": "change.thin",
    "du": "change.du",
    "export": "policy.export",
}


class _Commands(MutableMapping[str, click.Command]):
    """By name; imported when looked up. All modules with all their options would take longer than most questions."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places
        self._found: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._found:
            module, _, attribute = self._places[name].partition(".")
            self._found[name] = getattr(importlib.import_module(f"rollbook.cli.{module}"), attribute)
        return self._found[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._places[name], self._found[name] = "", command

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._found.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@click.group(commands=_Commands(_PLACES), epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rollbook")
@click.option("--book", metavar="DIR", help="The book [else ROLLBOOK_BOOK, rollbook.toml, book/ at the git root].")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def app(context: click.Context, book: str | None, debug: bool) -> None:  # noqa: ARG001 - main() looks at --debug
    """The lab book of reinforcement learning: track, query, compare and tidy up experiments."""
    context.obj = {"book": book}
