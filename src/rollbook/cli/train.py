"""train: the reference algorithms, or a user's own file, as tracked runs."""

from __future__ import annotations

import dataclasses
import gc
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollbook.cli.options import book_option, chosen_path, key_value
from rollbook.cli.output import print_json, printable, say
from rollbook.errors import UsageError

if TYPE_CHECKING:
    from rollbook.book.book import RunRecord
    from rollbook.training.setup import Setup

_EPILOG = """\b
Examples:
  rollbook train ppo CartPole-v1 --seeds 1,2,3 --steps 500000
  rollbook train sac HalfCheetah-v5 --set lr=1e-4 --tags pilot
  rollbook train ppo --help            every parameter of the algorithm
  rollbook train my_algo.py my_package:MyEnv-v0
"""


class _TrainCommand(click.Command):
    """Knows an algorithm's parameters as options, and lists them in `rollbook train ALGO --help`."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        if {"--help", "-h"} & set(arguments) and (named := [one for one in arguments if not one.startswith("-")]):
            context.meta["algorithm"] = named[0]
        return super().parse_args(context, arguments)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if algorithm := context.meta.get("algorithm"):
            _write_parameters(algorithm, formatter)
        super().format_epilog(context, formatter)


def _write_parameters(algorithm: str, formatter: click.HelpFormatter) -> None:
    from rollbook.algos.parts.fields import fields_of
    from rollbook.training.setup import load_algorithm, presets_of

    fields = fields_of(load_algorithm(algorithm).Config)
    with formatter.section(f"Parameters of {algorithm} (--set NAME=VALUE, or --NAME VALUE)"):
        formatter.write_dl([(name, f"{field.doc}  [{_shown(field.default)}]") for name, field in fields.items()])
    if presets := presets_of(algorithm):
        with formatter.section("Presets (--preset NAME; by default the first that is for the environment)"):
            formatter.write_dl([(name, ", ".join(preset.envs)) for name, preset in presets.items()])


@click.command(cls=_TrainCommand, epilog=_EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("algorithm", metavar="ALGO")
@click.argument("env", metavar="ENV")
@click.argument("parameters", nargs=-1, type=click.UNPROCESSED, metavar="[--PARAMETER VALUE]...")
@click.option("--seeds", default="1", show_default=True, metavar="1,2,3", help="Each seed is a run of its own.")
@click.option("--steps", type=int, metavar="N", help="Environment steps [default: of the preset].")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A parameter to change; repeatable.")
@click.option("--preset", metavar="NAME", help="Tuned parameters; `none` for bare defaults [default: by environment].")
@click.option("--config", "file", type=click.Path(exists=True, dir_okay=False), help="Parameters from a TOML file.")
@click.option("--print-config", is_flag=True, help="Show what would be trained, and end.")
@click.option("--backend", type=click.Choice(["auto", "device", "host"]), default="auto", help="[default: auto]")
@click.option("--eval-every", type=int, metavar="N", help="Steps between evaluations; 0: never [default: a tenth].")
@click.option("--eval-episodes", type=int, default=10, show_default=True, metavar="N")
@click.option("--checkpoint-every", type=int, metavar="N", help="Steps between checkpoints [default: a tenth].")
@click.option("--keep-checkpoints", type=int, default=3, show_default=True, metavar="N")
@click.option("--no-save-replay", is_flag=True, help="Small checkpoints; a resume begins with an empty replay.")
@click.option("--max-episode-steps", type=int, metavar="N", help="Another time limit; it counts as truncation.")
@click.option("--init-from", metavar="RUN[@STEP]", help="Begin with the weights of another run.")
@click.option("--only", metavar="NETWORK", help="Of --init-from, take only the actor or the critic.")
@click.option("--capture-video", is_flag=True, help="Record an episode of the first seed at each evaluation.")
@click.option("--workers", type=int, metavar="N", help="Seeds at the same time [default: a core each].")
@click.option("--cores", type=int, metavar="N", help="Cores for a single seed [default: all].")
@click.option("--shares", type=int, metavar="N", help="Parts of a batch, a core each [default: by cores and sizes].")
@click.option("--task", metavar="TASK", help="[default: task in rollbook.toml, else the project's name]")
@click.option("--tags", metavar="A,B", help="Tags of the runs.")
@click.option("--notes", default="", help="Why these runs are made.")
@click.option("--verbosity", type=click.Choice(["essential", "info", "debug"]), help="[default: info]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array of the runs.")
@book_option
def train(
    algorithm: str,
    env: str,
    parameters: tuple[str, ...],
    seeds: str,
    changes: tuple[str, ...],
    file: str | None,
    print_config: bool,
    workers: int | None,
    cores: int | None,
    task: str | None,
    tags: str | None,
    notes: str,
    verbosity: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Train an algorithm on an environment; each seed is a tracked run."""
    gc.enable()
    check_installed()
    from rollbook.track.config import as_tags
    from rollbook.training.compiling import use_cores
    from rollbook.training.train import Labels, make_setup

    chosen_seeds = _parse_seeds(seeds)
    changed = _parse_parameters(parameters) | {key.replace("-", "_"): value for key, value in map(key_value, changes)}
    from_file = _read_config(file) if file else {}
    kept = use_cores(cores) if len(chosen_seeds) == 1 else 1
    setup = make_setup(algorithm, env, sources=[from_file, changed], cores=kept, **options)
    if print_config:
        _print_config(setup)
        return 0
    labels = Labels(
        task=task, tags=tuple(as_tags(tags)), notes=notes, verbosity=verbosity, track=tuple({**from_file, **changed})
    )
    setups = [
        dataclasses.replace(setup, seed=seed, capture_video=setup.capture_video and number == 0)
        for number, seed in enumerate(chosen_seeds)
    ]
    records, code = _train(setups, labels, chosen_path(), workers)
    if as_json:
        print_json([_summary(record) for record in records])
    return code


def _train(setups: Sequence[Setup], labels: Any, book: str | None, workers: int | None) -> tuple[list[RunRecord], int]:
    from rollbook.book.book import open_book
    from rollbook.cli.progress import Board
    from rollbook.training.environments import find_environment
    from rollbook.training.seeds import train_seeds
    from rollbook.training.train import train_one

    with Board([setup.seed for setup in setups]) as board:
        if len(setups) == 1:
            record = train_one(setups[0], labels, book, board.tell)
            return [record], _exit_code([record.status])
        find_environment(setups[0].env, setups[0].backend, setups[0].max_episode_steps)  # fails once, not once a seed
        outcomes = train_seeds(setups, labels, book, board.tell, workers)
    for outcome in outcomes:
        if outcome.error:
            say(f"seed {outcome.seed} failed: {printable(outcome.error)}")
            say(textwrap.indent((outcome.details or "").strip(), "  "))
    opened = open_book(book)
    done = [opened.run(outcome.run_id) for outcome in outcomes if outcome.run_id]
    return done, _exit_code([outcome.status for outcome in outcomes])


def _exit_code(statuses: Sequence[str]) -> int:
    if "interrupted" in statuses:
        return 130  # as the shell has it for a program that Ctrl-C ended
    return 0 if set(statuses) == {"finished"} else 1


def _summary(record: RunRecord) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "name": record.name,
        "task": record.task,
        "status": record.status,
        "seed": record.config["seed"],
        "config": record.config,
    }


def check_installed() -> None:
    import importlib.util

    missing = [name for name in ("jax", "optax", "gymnasium") if not importlib.util.find_spec(name)]
    if missing:
        raise UsageError(f"training needs {missing[0]}, which is not installed", "pip install 'rollbook[train]'")


def _parse_seeds(text: str) -> list[int]:
    """1,2,3 or 1-10."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            seeds += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        raise UsageError(f"--seeds {text!r} is no list of whole numbers", "--seeds 1,2,3 or --seeds 1-10") from None
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text!r} names a seed twice, or none", "--seeds 1,2,3 or --seeds 1-10")
    return seeds


def _parse_parameters(arguments: Sequence[str]) -> dict[str, str]:
    """--lr 1e-3, --lr=1e-3: the algorithm's parameters as options of their own."""
    parameters, rest = {}, list(arguments)
    while rest:
        option = rest.pop(0)
        name, equals, value = option.partition("=")
        if not name.startswith("--"):
            raise UsageError(f"unexpected argument {option!r}", "rollbook train ppo CartPole-v1 --lr 1e-3")
        if not equals:
            if not rest:
                raise UsageError(f"{name} has no value", f"{name} VALUE")
            value = rest.pop(0)
        parameters[name[2:].replace("-", "_")] = value
    return parameters


def _read_config(file: str) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(Path(file).read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is no TOML: {error}", "a line such as lr = 1e-4") from None


def _print_config(setup: Setup) -> None:
    """As TOML that --config reads again; what is not the algorithm's own stands in comments."""
    own = {field.name: getattr(setup, field.name) for field in dataclasses.fields(setup) if field.name != "config"}
    for name, value in own.items():
        print(f"# {name} = {value}")
    for field in dataclasses.fields(setup.config):
        value = getattr(setup.config, field.name)
        print(f"# {field.name} = none" if value is None else f"{field.name} = {_toml(value)}")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return (
        str(value).lower()
        if isinstance(value, bool) or value is None
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
