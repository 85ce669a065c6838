"""The examples run as they are documented, and learn."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rollbook

EXAMPLES = Path(__file__).parents[2] / "examples"
RETURN = "charts/episodic_return"


def run_example(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done


def thirds(record):
    """The mean return of the first and of the last third of the episodes."""
    values = record.metrics(RETURN)["value"].to_pylist()
    third = len(values) // 3
    return sum(values[:third]) / third, sum(values[-third:]) / third


def test_q_learning_learns_and_goes_on_from_its_checkpoint(book):
    run_example("numpy_q_learning.py", "--steps", 10_000, "--seed", 3, "--book", book)
    (first,) = rollbook.open(book).runs()
    before, after = thirds(first)
    assert after > before + 20
    assert (first.algo, first.env, first.seed, first.last_step) == ("q-learning", "grid-world", 3, first.last_step)
    assert first.stored().provenance.code

    run_example("numpy_q_learning.py", "--steps", 15_000, "--seed", 3, "--resume", first.run_id)
    (resumed,) = rollbook.open(book).runs()
    assert [checkpoint.step for checkpoint in resumed.checkpoints()] == [5_000, 10_000, 15_000]
    assert resumed.last_step > 14_000
    assert thirds(resumed)[1] > -40


def test_reinforce_learns_and_keeps_its_state_and_curve(book):
    if not importlib.util.find_spec("torch"):
        assert os.environ.get("CI") != "true", "the example needs torch, and nothing in CI may be left untried"
        pytest.skip("torch is not installed")
    run_example("torch_reinforce.py", "--steps", 5_000, "--seed", 1, "--book", book)

    (run,) = rollbook.open(book).runs()
    before, after = thirds(run)
    assert after > before * 1.5
    saved = run.load_checkpoint()
    assert saved.tensors["policy"]["0.weight"].shape == (32, 4)
    assert saved.extra["episodes"] == len(run.metrics(RETURN))
    media = rollbook.open(book).sql("select name, kind from media").fetchall()
    assert media == [("return of each episode", "figure")]
