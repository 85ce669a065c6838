"""The matrix of a benchmark: every program with every environment, every point of its grid and every seed.

A program that knows nothing of Rollbook is told its cell by `--env-id E --seed S --key value`, or where its command has
`{env}`, `{seed}` or `{key}` in it.
"""

from __future__ import annotations

import itertools
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollbook.bench.arguments import parse_arguments, parse_value, program_arguments
from rollbook.errors import UsageError, did_you_mean

# {{name}} stands for {name} itself; braces around anything but a name, as in JSON, are left alone.
_PLACEHOLDER = re.compile(r"\{\{(?P<escaped>[A-Za-z_][\w-]*)\}\}|\{(?P<name>[A-Za-z_][\w-]*)\}")


@dataclass(frozen=True, kw_only=True)
class Program:
    """What is to be run in every cell: an algorithm of ours, or somebody's command."""

    algo: str | None = None
    command: str | None = None  # None: `rollbook train algo`
    env_ids: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    grid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    steps: int | None = None
    task: str
    tags: tuple[str, ...] = ()
    resumes: bool = False  # a second try goes on from the run's checkpoint instead of starting over


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One job: a command, and what is known of the run that it will be."""

    command: list[str]
    task: str
    algo: str | None
    env: str | None
    seed: int
    grid: dict[str, Any]
    config: dict[str, Any]
    tags: list[str]
    resumes: bool

    @property
    def group(self) -> str:
        """What the cell has in common with those of other seeds."""
        grid = [f"{key}={value}" for key, value in self.grid.items()]
        return " ".join(filter(None, [self.algo, self.env, *grid]))

    @property
    def label(self) -> str:
        return f"{self.group} seed {self.seed}"


def make_cells(programs: Iterable[Program]) -> list[Cell]:
    """All cells, the first seeds of everything first: half a benchmark is then a benchmark with half the seeds."""
    rounds: dict[int, list[Cell]] = {}
    for program in programs:
        for number, cell in _cells_of(program):
            rounds.setdefault(number, []).append(cell)
    cells = [cell for number in sorted(rounds) for cell in rounds[number]]
    _refuse_duplicates(cells)
    if not cells:
        raise UsageError(
            "the benchmark has no cell", "name environments and seeds: --env-ids CartPole-v1 --num-seeds 3"
        )
    return cells


def _cells_of(program: Program) -> Iterable[tuple[int, Cell]]:
    """Each with the number of its seed."""
    points = [dict(zip(program.grid, values, strict=True)) for values in itertools.product(*program.grid.values())]
    for env, point in itertools.product(program.env_ids or (None,), points):
        for number, seed in enumerate(program.seeds):
            make = _ours if program.command is None else _theirs
            yield number, make(program, env, seed, point)


def _ours(program: Program, env: str | None, seed: int, point: Mapping[str, str]) -> Cell:
    if env is None or program.algo is None:
        raise UsageError(f"{program.algo} needs environments to train on", "--env-ids CartPole-v1")
    command = [
        sys.executable,
        "-m",
        "rollbook",
        "train",
        program.algo,
        env,
        "--seeds",
        str(seed),
        "--task",
        program.task,
    ]
    if program.steps is not None:
        command += ["--steps", str(program.steps)]
    for key, value in point.items():
        command += ["--set", f"{key}={value}"]
    algo = Path(program.algo).stem
    return _cell(program, command, algo, env, seed, point, {})


def _theirs(program: Program, env: str | None, seed: int, point: Mapping[str, str]) -> Cell:
    assert program.command is not None
    template = _split(program.command)
    algo = program.algo or _script_name(template)
    values = {"env": env, "env_id": env, "seed": str(seed), "algo": algo, "steps": program.steps, **point}
    known = {key: str(value) for key, value in values.items() if value is not None}
    used: set[str] = set()
    command = [_fill(part, known, used) for part in template]
    if program.steps is not None and "steps" not in used:
        raise UsageError(
            f"{program.command!r} is not told its {program.steps} steps",
            "write {steps} where it takes them: --total-timesteps {steps}",
        )
    if env is not None and not used & {"env", "env_id"}:
        command += ["--env-id", env]
    if "seed" not in used:
        command += ["--seed", str(seed)]
    for key, value in point.items():
        if key not in used:
            command += [f"--{key}", value]
    return _cell(program, command, algo, env, seed, point, parse_arguments(program_arguments(command)))


def _cell(
    program: Program,
    command: list[str],
    algo: str | None,
    env: str | None,
    seed: int,
    point: Mapping[str, str],
    arguments: Mapping[str, Any],
) -> Cell:
    own = {"algo": algo, "env": env, "seed": seed, "steps": program.steps}
    grid = {key.replace("-", "_"): parse_value(value) for key, value in point.items()}
    config = {**arguments, **{key: value for key, value in own.items() if value is not None}, **grid}
    return Cell(
        command=command,
        task=program.task,
        algo=algo,
        env=env,
        seed=seed,
        grid=grid,
        config=config,
        tags=list(program.tags),
        resumes=program.resumes or program.command is None,
    )


def _split(command: str) -> list[str]:
    try:
        template = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"cannot read the command {command!r}: {error}", "quote it as in a shell") from None
    if not template:
        raise UsageError("the command is empty", '--command "python train.py"')
    return template


def _fill(part: str, known: Mapping[str, str], used: set[str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "{" + found["escaped"] + "}"
        if found["name"] not in known:
            hint = did_you_mean(found["name"], known) or f"there are {', '.join(f'{{{key}}}' for key in known)}"
            raise UsageError(f"unknown placeholder {found[0]} in the command", f"{hint} ({{{found[0]}}} for itself)")
        used.add(found["name"])
        return known[found["name"]]

    return _PLACEHOLDER.sub(value, part)


def _script_name(template: Sequence[str]) -> str:
    """What a program is called that nobody has named: its script, its module, or itself."""
    for before, part in itertools.pairwise(template):
        if before == "-m":
            return part.rpartition(".")[2]
    script = next((part for part in template if part.endswith(".py")), template[0])
    return Path(script).stem


def _refuse_duplicates(cells: Sequence[Cell]) -> None:
    seen: set[tuple[str, ...]] = set()
    for cell in cells:
        if tuple(cell.command) in seen:
            raise UsageError(
                f"two cells of the matrix are the same: {shlex.join(cell.command)}",
                "an environment, a seed or a grid value stands there twice, or a placeholder hides what differs",
            )
        seen.add(tuple(cell.command))
