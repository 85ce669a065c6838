"""Each algorithm reaches published scores. Takes hours; `pytest -m slow tests/learning -n 0` runs it.

Trained seeds are kept in the book that ROLLBOOK_LEARNING_BOOK names (build/learning), under a tag made of the sources
that they depend on: a suite that was stopped goes on where it was, and changed sources train anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import rollbook
from rollbook.domains import DOMAINS
from rollbook.errors import RollbookError
from rollbook.training.seeds import train_seeds
from rollbook.training.setup import Setup, load_algorithm, setup_from_record
from rollbook.training.train import Labels, make_setup

PROJECT = Path(__file__).parents[2]
SEEDS = (1, 2, 3)
LAST_SHARE = 0.1  # of the steps: the returns of its training episodes, or of its evaluations, are averaged


class Bar(NamedTuple):
    algo: str
    env: str
    steps: int
    score: float
    published: str
    every_seed: bool = False
    metric: str = "charts/episodic_return"  # off-policy papers report evaluations without exploration


def evaluated(algo: str, env: str, steps: int, score: float, published: str) -> Bar:
    return Bar(algo, env, steps, score, published, metric="eval/return")


BARS = [
    Bar("ppo", "CartPole-v1", 500_000, 475, "CleanRL 490", every_seed=True),
    Bar("ppo", "Acrobot-v1", 500_000, -92, "CleanRL -86"),
    Bar("ppo", "Pendulum-v1", 300_000, -250, "rl-zoo3 -172 at 100k"),
    Bar("ppo", "HalfCheetah-v5", 1_000_000, 2500, "CleanRL 1443, Tianshou 5784"),
    Bar("ppo", "Hopper-v5", 1_000_000, 2200, "CleanRL 2383, Tianshou 2609"),
    Bar("ppo", "Walker2d-v5", 1_000_000, 2500, "CleanRL 2288, Tianshou 3589"),
    Bar("trpo", "CartPole-v1", 200_000, 475, "rl-zoo3 500 at 100k"),
    Bar("trpo", "HalfCheetah-v5", 1_000_000, 1500, "Spinning Up 720, Tianshou 4471"),
    Bar("trpo", "Hopper-v5", 1_000_000, 1800, "Spinning Up 1161, Tianshou 2046"),
    Bar("vpg", "CartPole-v1", 500_000, 400, ""),
    Bar("vpg", "Hopper-v5", 1_000_000, 390, "Spinning Up 391"),
    Bar("vpg", "Swimmer-v5", 1_000_000, 36, "Spinning Up 36"),
    evaluated("ddpg", "Pendulum-v1", 20_000, -175, "rl-zoo3 -152"),
    evaluated("td3", "Pendulum-v1", 20_000, -175, "rl-zoo3 -152"),
    evaluated("sac", "Pendulum-v1", 20_000, -175, "rl-zoo3 -157"),
    evaluated("sac", "MountainCarContinuous-v0", 50_000, 90, "rl-zoo3 94.7"),
    evaluated("dqn", "CartPole-v1", 50_000, 475, "rl-zoo3 500"),
    evaluated("c51", "CartPole-v1", 50_000, 475, "500"),
    evaluated("qrdqn", "CartPole-v1", 50_000, 475, "rl-zoo3 500"),
    evaluated("dqn", "Acrobot-v1", 100_000, -90, "rl-zoo3 -77"),
    evaluated("c51", "Acrobot-v1", 100_000, -90, ""),
    evaluated("qrdqn", "Acrobot-v1", 100_000, -90, "rl-zoo3 -69"),
    evaluated("dqn", "MountainCar-v0", 120_000, -120, "rl-zoo3 -101"),
    evaluated("qrdqn", "MountainCar-v0", 120_000, -120, "rl-zoo3 -106"),
    evaluated("dqn", "LunarLander-v3", 100_000, 100, "rl-zoo3 154, on v2"),
    evaluated("td3", "InvertedPendulum-v5", 50_000, 950, "1000"),
    evaluated("sac", "InvertedPendulum-v5", 50_000, 950, "1000"),
    evaluated("sac", "HalfCheetah-v5", 100_000, 4500, "Spinning Up 6081"),
    evaluated("td3", "HalfCheetah-v5", 100_000, 4300, "Spinning Up 5242, its author 5514"),
    evaluated("ddpg", "HalfCheetah-v5", 100_000, 3500, "Spinning Up 4339"),
    evaluated("sac", "HalfCheetah-v5", 300_000, 7000, "Spinning Up 9163"),
    evaluated("sac", "Hopper-v5", 300_000, 2000, "Spinning Up 2887"),
    evaluated("td3", "Hopper-v5", 300_000, 1800, "Spinning Up 2402"),
]
EVALUATIONS, EPISODES = 10, 20  # of a training whose score is that of its evaluations


@pytest.mark.slow
@pytest.mark.parametrize("bar", BARS, ids=lambda bar: f"{bar.algo}-{bar.env}-{bar.steps}")
def test_the_score_is_reached(bar: Bar) -> None:
    scores = scores_of(bar)

    print(f"{bar.algo} {bar.env}: {np.mean(scores):.0f} ± {np.std(scores):.0f}, {[round(score) for score in scores]}")
    assert (min(scores) if bar.every_seed else np.mean(scores)) >= bar.score, f"{scores}; published: {bar.published}"


def scores_of(bar: Bar) -> list[float]:
    """Of each seed, from the book or trained now."""
    path = Path(os.environ.get("ROLLBOOK_LEARNING_BOOK", PROJECT / "build" / "learning"))
    evaluations = {"eval_every": 0}
    if bar.metric == "eval/return":
        evaluations = {"eval_every": bar.steps // EVALUATIONS, "eval_episodes": EPISODES}
    setup = dataclasses.replace(make_setup(bar.algo, bar.env, steps=bar.steps, **evaluations), cores=1)
    setups = [dataclasses.replace(setup, seed=seed) for seed in SEEDS]
    tag = f"sources-{sources_digest(bar)}"
    missing = [setup for setup in setups if _finished(path, setup, tag) is None]
    if missing:
        outcomes = train_seeds(missing, Labels(task="learning", tags=(tag,)), str(path))
        assert [outcome.error for outcome in outcomes if outcome.error] == []
    return [score_of(_finished(path, setup, tag), bar.metric) for setup in setups]


def _finished(path: Path, setup: Setup, tag: str) -> rollbook.RunRecord | None:
    """The run of exactly this setup, made by exactly these sources."""
    if not path.exists():
        return None
    runs = rollbook.open(path).runs(f"status = 'finished' and seed = {setup.seed} and '{tag}' in tags")
    return next((run for run in runs if _setup_of(run) == setup), None)


def _setup_of(run: rollbook.RunRecord) -> Setup | None:
    """None if its algorithm no longer takes its parameters."""
    try:
        return setup_from_record(run.config)
    except RollbookError:
        return None


def score_of(run: rollbook.RunRecord | None, metric: str) -> float:
    assert run
    found = run.metrics(metric)
    step, value = found["step"].to_numpy(), found["value"].to_numpy()
    return float(value[step >= step.max() * (1 - LAST_SHARE)].mean())


def sources_digest(bar: Bar) -> str:
    """Of all that a training's numbers come from, but the parameters: what its algorithm and its loops import."""
    source = PROJECT / "src"
    found: set[Path] = set()
    loop = load_algorithm(bar.algo).LOOP
    todo = [f"rollbook.algos.{bar.algo}", f"rollbook.training.{loop}"]
    if bar.env in DOMAINS:  # its own file alone: a new domain trains no other anew
        todo.append(DOMAINS[bar.env].entry_point.partition(":")[0])
    while todo:
        file = (source / todo.pop().replace(".", "/")).with_suffix(".py")
        if file in found or not file.exists():
            continue
        found.add(file)
        imports = re.findall(
            r"^from (rollbook\.(?:algos|training|domains)[\w.]*) import (.*)", file.read_text(), re.MULTILINE
        )
        for package, names in imports:
            todo += [package, *(f"{package}.{name.strip()}" for name in names.split(","))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(found))).hexdigest()[:12]
