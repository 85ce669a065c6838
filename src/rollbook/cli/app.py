"""The commands of `rollbook`. What they need is imported when they run, so that --help stays quick."""

from __future__ import annotations

import click

from rollbook._version import __version__
from rollbook.cli import bench, change, code, demo, gate, launch, plot, policy, query, show, tags, train

_EPILOG = """\b
Examples:
  rollbook demo
  rollbook run -- python train.py --lr 1e-3
  rollbook top 5 --algo sac --env Hopper-v5 --by auc --over seed
  rollbook sql "select algo, env, count(*) from runs group by all"
"""


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rollbook")
@click.option("--book", metavar="DIR", help="The book [else ROLLBOOK_BOOK, rollbook.toml, book/ at the git root].")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def app(context: click.Context, book: str | None, debug: bool) -> None:  # noqa: ARG001 - main() looks at --debug
    """The lab book of reinforcement learning: track, query, compare and tidy up experiments."""
    context.obj = {"book": book}


for _command in (
    demo.demo,
    train.train,
    policy.evaluate,
    bench.bench,
    gate.gate,
    launch.run,
    launch.resume,
    launch.fork,
    launch.rerun,
    query.runs,
    show.show,
    query.top,
    query.newest,
    query.sql,
    plot.plot,
    code.code,
    tags.tag,
    change.note,
    change.verbosity,
    change.delete,
    change.archive,
    change.restore,
    change.purge,
    change.thin,
    change.du,
    policy.export,
):
    app.add_command(_command)
