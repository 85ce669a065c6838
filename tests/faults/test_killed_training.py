"""A training that is killed with -9 at random moments, and resumed, ends as one that was never stopped."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollbook

SMALL = ["--num-envs", "2", "--hidden-sizes", "8", "--preset", "none", "--checkpoint-every", "256"]
FROM_ROLLOUTS = ["--rollout-steps", "64", "--normalise-observations", "true", "--normalise-rewards", "true"]
OF_PPO = ["--minibatches", "2", "--epochs", "2"]
OF_OTHERS = ["--value-steps", "5"]
# Returns of two steps, and a ring that goes round many times.
FROM_A_REPLAY = [
    "--train-every", "4", "--updates-per-step", "0.25", "--learning-starts", "128", "--buffer-size", "500",
    "--batch-size", "16", "--n-step", "2", "--log-every", "64",
]  # fmt: skip
OWN_OPTIONS = {
    "vpg": FROM_ROLLOUTS + OF_OTHERS,
    "trpo": FROM_ROLLOUTS + OF_OTHERS,
    "ppo": FROM_ROLLOUTS + OF_PPO,
    "dqn": FROM_A_REPLAY,
    "td3": FROM_A_REPLAY,
}


def rollbook_command(*arguments: object) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "rollbook", *map(str, arguments)]


def train_command(book: Path, algo: str, env: str, steps: int) -> list[str]:
    options = ["--steps", steps, "--eval-every", 1024, "--eval-episodes", 2, "--cores", 1, "--book", book]
    return rollbook_command("train", algo, env, *SMALL, *OWN_OPTIONS[algo], *options)


def kill_and_resume(book: Path, algo: str, env: str, steps: int, kills: int, rng: random.Random) -> rollbook.RunRecord:
    """The run after as many kills as there was time for, each at a random moment after its first new checkpoint."""
    command = train_command(book, algo, env, steps)
    for _ in range(kills):
        before = _checkpoints(book)
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None and _checkpoints(book) == before:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.3))
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        command = rollbook_command("resume", _only_run(book).run_id, "--book", book)
    else:
        subprocess.run(command, check=True, capture_output=True)
    return _only_run(book)


def _checkpoints(book: Path) -> list[str]:
    return sorted(str(path) for path in book.glob("tasks/*/*/checkpoints/*/manifest.json"))


def _only_run(book: Path) -> rollbook.RunRecord:
    (run,) = rollbook.open(book).runs("true")
    return run


def everything(book: Path, run: rollbook.RunRecord) -> tuple[list[Any], dict[str, Any]]:
    """All metrics but the timing, and the tensors of the last checkpoint and of its replay if it has one."""
    rows = rollbook.open(book).sql(
        f"select name, step, value from metrics where run_id = '{run.run_id}' and name <> 'charts/SPS' order by all"
    )
    from rollbook.book.trees import flatten

    checkpoint = run.load_checkpoint()
    tensors = {name: tensor.array for name, tensor in flatten(checkpoint.tensors["learner"]).tensors.items()}
    for name, saved in checkpoint.growing.items():
        chunks = [columns for _, columns in saved]
        tensors |= {f"{name}.{column}": np.concatenate([chunk[column] for chunk in chunks]) for column in chunks[0]}
    return rows.fetchall(), tensors


def check(tmp_path: Path, algo: str, env: str, steps: int, kills: int, seed: int) -> None:
    whole_book, killed_book = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(train_command(whole_book, algo, env, steps), check=True, capture_output=True)

    killed = kill_and_resume(killed_book, algo, env, steps, kills, random.Random(seed))

    assert killed.status == "finished"
    assert len(killed.stored().attempts) > 1, "it was never killed: make it longer"
    whole_rows, whole_tensors = everything(whole_book, _only_run(whole_book))
    rows, tensors = everything(killed_book, killed)
    assert rows == whole_rows
    assert tensors.keys() == whole_tensors.keys()
    for name, tensor in whole_tensors.items():
        np.testing.assert_array_equal(tensor, tensors[name], name)


# On the device and on the host, from rollouts and from a replay.
@pytest.mark.parametrize(
    ("algo", "env"),
    [
        ("ppo", "CartPole-v1"),
        ("trpo", "HalfCheetah-v5"),
        pytest.param("dqn", "CartPole-v1", marks=pytest.mark.slow),
        pytest.param("td3", "HalfCheetah-v5", marks=pytest.mark.slow),
    ],
)
def test_a_killed_training_goes_on_bit_for_bit(book: Path, tmp_path: Path, algo: str, env: str) -> None:
    check(tmp_path, algo, env, steps=20_480 if env == "CartPole-v1" else 5_120, kills=2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["vpg", "trpo", "ppo"])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5", "Hopper-v5", "Ant-v5"])
@pytest.mark.parametrize("seed", range(3))
def test_killed_many_times(book: Path, tmp_path: Path, algo: str, env: str, seed: int) -> None:
    check(tmp_path, algo, env, steps=40_960 if env in ("CartPole-v1", "Pendulum-v1") else 10_240, kills=6, seed=seed)
