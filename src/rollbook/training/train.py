"""`rollbook.train`: one seed in this process, several in worker processes, each a run of its own."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rollbook.errors import TrainingFailed, UsageError
from rollbook.training.compiling import keep_small_loops_whole, use_compile_cache
from rollbook.training.environments import runs_on_device
from rollbook.training.setup import Setup, algorithm_name, find_preset, make_config
from rollbook.training.trainer import Machine, Progress, Trainer, make_machine

if TYPE_CHECKING:
    from rollbook.book.book import RunRecord

DEFAULT_STEPS = 1_000_000
_EVALUATIONS = _CHECKPOINTS = 10  # of a training, where the user says nothing


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What is said about a run besides what it does."""

    task: str | None = None
    tags: tuple[str, ...] = ()
    notes: str = ""
    verbosity: str | None = None
    track: tuple[str, ...] = ()  # parameters for the readable name


def train(
    algorithm: str,
    env: str,
    *,
    seed: int | None = None,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    config: Mapping[str, Any] | None = None,
    preset: str | None = None,
    book: str | os.PathLike[str] | None = None,
    task: str | None = None,
    tags: Iterable[str] = (),
    notes: str = "",
    verbosity: str | None = None,
    **options: Any,
) -> RunRecord | list[RunRecord]:
    """Train an algorithm of ours, or of a file, on an environment. `seed=` gives one record, `seeds=` a list.

    `options` are those of `rollbook train`: backend, eval_every, eval_episodes, checkpoint_every, keep_checkpoints,
    max_episode_steps, capture_video, init_from, only, shares.
    """
    if seed is not None and seeds is not None:
        raise UsageError("both seed and seeds were given", "seed=1 for one run, seeds=[1, 2, 3] for several")
    setup = make_setup(algorithm, env, steps=steps, preset=preset, sources=[config or {}], **options)
    labels = Labels(task=task, tags=tuple(tags), notes=notes, verbosity=verbosity, track=tuple(config or ()))
    path = os.fspath(book) if book is not None else None
    if seeds is None:
        return train_one(dataclasses.replace(setup, seed=1 if seed is None else seed), labels, path)
    from rollbook.training.seeds import train_seeds

    outcomes = train_seeds([dataclasses.replace(setup, seed=one) for one in seeds], labels, path)
    if failed := [outcome for outcome in outcomes if outcome.error]:
        raise TrainingFailed(
            f"seed {failed[0].seed} failed: {failed[0].error}", f"{len(failed)} of {len(seeds)} failed"
        )
    from rollbook.book.book import open_book

    opened = open_book(path)
    return [opened.run(outcome.run_id) for outcome in outcomes if outcome.run_id]


def make_setup(
    algorithm: str,
    env: str,
    *,
    steps: int | None = None,
    preset: str | None = None,
    sources: Sequence[Mapping[str, Any]] = (),
    eval_every: int | None = None,
    checkpoint_every: int | None = None,
    **options: Any,
) -> Setup:
    """Seed 1 of a training; configuration sources beat the preset, and each the one before it."""
    chosen = find_preset(algorithm_name(algorithm), env, preset)
    config = make_config(algorithm, chosen.config if chosen else {}, *sources)
    steps = steps or (chosen.steps if chosen else DEFAULT_STEPS)
    if steps < 1:
        raise UsageError(f"steps is {steps}", "--steps 500000")
    return Setup(
        algorithm=algorithm,
        env=env,
        seed=1,
        steps=steps,
        config=config,
        eval_every=max(steps // _EVALUATIONS, 1) if eval_every is None else eval_every,
        checkpoint_every=max(steps // _CHECKPOINTS, 1) if checkpoint_every is None else checkpoint_every,
        **options,
    )


def train_one(
    setup: Setup,
    labels: Labels,
    book: str | None,
    tell: Callable[[Progress], None] = lambda _: None,
    machines: dict[Setup, Machine] | None = None,
) -> RunRecord:
    """In this process. `machines` keeps what was compiled from one call to the next."""
    import rollbook

    if runs_on_device(setup.env, setup.backend):
        keep_small_loops_whole()
    use_compile_cache()
    # Before there is a run: what is wrong with the environment is then an error and no failed run.
    machine = _find_machine(setup, {} if machines is None else machines)
    setup = dataclasses.replace(setup, shares=machine.shares)  # a resume has as many, whatever it runs on
    name = algorithm_name(setup.algorithm)
    with rollbook.start(
        labels.task,
        config=setup.to_record(name),
        tags=labels.tags,
        notes=labels.notes,
        verbosity=labels.verbosity,
        track=labels.track,
        book=book,
        start_over=True,
        command=command_of(setup, labels, book),
    ) as run:
        Trainer(setup, machine, run, tell).train()
    from rollbook.book.book import open_book

    return open_book(run.book).run(run.id)


def _find_machine(setup: Setup, machines: dict[Setup, Machine]) -> Machine:
    """The one for this setup, whatever its seed."""
    without_seed = dataclasses.replace(setup, seed=0, capture_video=False)
    if without_seed not in machines:
        machines[without_seed] = make_machine(setup)
    return machines[without_seed]


def command_of(setup: Setup, labels: Labels, book: str | None) -> list[str]:
    """The command line that makes this one run again, whatever becomes of presets and defaults of the training."""
    command = [sys.executable, "-m", "rollbook", "train", setup.algorithm, setup.env, "--preset", "none"]
    own = {field.name: getattr(setup, field.name) for field in dataclasses.fields(setup)}
    defaults = {field.name: field.default for field in dataclasses.fields(setup)}
    del own["algorithm"], own["env"], own["config"], own["seed"]
    command += ["--seeds", str(setup.seed)]
    kept = ("steps", "eval_every", "checkpoint_every")  # their defaults depend on presets and on each other
    for name, value in own.items():
        if name in kept or value != defaults[name]:
            command += [_option(name)] if value is True else [_option(name), str(value)]
    for field in dataclasses.fields(setup.config):
        value = getattr(setup.config, field.name)
        if value != field.default:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            command += [_option(field.name), text]
    if labels.task:
        command += ["--task", labels.task]
    return command + (["--book", book] if book else [])


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
