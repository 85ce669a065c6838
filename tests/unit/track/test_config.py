"""What `start` is told: config, names, where the book is, and what a launcher says through the environment."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from makers import record

import rollbook
from rollbook.bench.launch import Job, launch
from rollbook.book.layout import Layout
from rollbook.book.settings import Settings
from rollbook.errors import RunNotFound, UsageError
from rollbook.track.config import as_config


@dataclasses.dataclass(frozen=True)
class Optimizer:
    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)


@dataclasses.dataclass
class Config:
    algo: str = "sac"
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)


class Kind(enum.Enum):
    fast = 1


def start(**options):
    run = rollbook.start("task", save_code=False, **options)
    run.finish()
    return run


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, {}),
        ({"lr": 3e-4, "layers": (64, 64)}, {"lr": 3e-4, "layers": [64, 64]}),
        (Config(), {"algo": "sac", "optimizer": {"lr": 3e-4, "betas": [0.9, 0.999]}}),
        (argparse.Namespace(lr=1, flag=True), {"lr": 1, "flag": True}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 1}}}),
        ({"n": np.float32(0.5), "i": np.int64(3), "b": np.bool_(True)}, {"n": 0.5, "i": 3, "b": True}),
        ({"array": np.arange(3)}, {"array": [0, 1, 2]}),
        ({"nan": math.nan, "inf": -math.inf, "np": np.float64("nan")}, {"nan": "nan", "inf": "-inf", "np": "nan"}),
        ({"path": Path("/data"), "kind": Kind.fast}, {"path": "/data", "kind": "Kind.fast"}),
        ({"names": {"b", "a"}}, {"names": ["a", "b"]}),
        ({3: "three"}, {"3": "three"}),
        ({"none": None}, {"none": None}),
    ],
)
def test_a_config_becomes_plain_json(given, kept):
    assert as_config(given) == kept
    assert json.loads(json.dumps(as_config(given), allow_nan=False)) == kept


@pytest.mark.parametrize("given", [3, "lr=3", [("lr", 3)], Config])
def test_a_config_of_another_kind_is_refused(given):
    with pytest.raises(UsageError, match="config must be"):
        as_config(given)


def test_a_large_array_in_a_config_becomes_text_not_a_million_numbers():
    assert isinstance(as_config({"w": np.zeros(100_000)})["w"], str)


def test_the_config_comes_back_as_it_went_in(book):
    config = {"algo": "sac", "lr": 3e-4, "net": {"layers": [64, 64]}, "none": None, "text": "ä\n'\""}

    run = start(config=config)

    assert record(book, run.id).config == config
    assert run.config == config


def test_text_that_is_not_valid_unicode_does_not_stop_a_run(book):
    run = start(config={"path": "\udcff"}, notes="\udcff", tags=["\udcff"])

    assert record(book, run.id).status == "finished"


def test_the_readable_name_adds_what_is_tracked(book):
    config = {"exp_name": "sac", "env_id": "Hopper-v5", "lr": 3e-4, "net": {"size": 64}}

    run = start(config=config, track=["lr", "net.size", "unknown"], name="second try")

    assert run.name == f"{run.id}&algo=sac&env=Hopper-v5&lr=0.0003&net.size=64&unknown=None&second try"
    assert record(book, run.name).run_id == run.id


def test_other_peoples_names_are_understood(book, tmp_path):
    (tmp_path / "rollbook.toml").write_text('[aliases]\nalgo = ["method"]\n')
    run = start(config={"method": "mine", "exp_name": "other", "gym_id": "Ant-v5", "rng_seed": 7}, book=tmp_path / "b")

    seen = record(tmp_path / "b", run.id)
    assert (seen.algo, seen.env, seen.seed) == ("mine", "Ant-v5", 7)


@pytest.mark.parametrize("task", ["a/b", "..", "näme mit leer", "x" * 300, ".hidden", "con%2F"])
def test_a_task_may_be_any_text_and_comes_back_the_same(book, task):
    run = rollbook.start(task, save_code=False)
    run.finish()

    (seen,) = rollbook.open(book).runs()
    assert seen.task == task
    assert seen.folder.is_dir()
    assert seen.folder.resolve().is_relative_to((book / "tasks").resolve())


def test_without_a_task_the_project_names_it(book, tmp_path):
    (tmp_path / "walker" / ".git").mkdir(parents=True)
    os.chdir(tmp_path / "walker")
    run = rollbook.start(save_code=False)
    run.finish()

    assert run.task == "walker"


def test_the_environment_adds_tags_and_the_benchmark(book, monkeypatch):
    monkeypatch.setenv("ROLLBOOK_TAGS", "ci, pilot")
    monkeypatch.setenv("ROLLBOOK_BENCHMARK", "bench-1")

    run = start(tags=["pilot"])

    seen = record(book, run.id)
    assert seen.tags == ["pilot", "ci"]
    assert seen.benchmark == "bench-1"


CLAIMS = """
import os, subprocess, sys
import rollbook
first = rollbook.start("other", config={"lr": 2}, tags=["own"])
assert "ROLLBOOK_RUN_ID" not in os.environ
child = subprocess.run([sys.executable, "-c", "import os; print('ROLLBOOK_RUN_ID' in os.environ)"],
                       capture_output=True, text=True)
second = rollbook.start("other", config={"lr": 3})
print(first.id, second.id, child.stdout.strip())
first.log({"x": 1.0})
first.finish(); second.finish()
"""


def run_job(book, text, **options):
    Path("job.py").write_text(text)
    job = Job(command=[sys.executable, "job.py"], task="launched", config={"lr": 1, "wd": 0}, **options)
    return launch(Layout(book), Settings(), job)


def test_the_first_start_claims_the_launched_run_and_the_second_makes_its_own(book, capfd):
    done = run_job(book, CLAIMS, tags=["bench"], notes="why")

    first, second, child_sees_it = capfd.readouterr().out.split()
    assert first == done.run_id
    assert second != done.run_id
    assert child_sees_it == "False"
    claimed = record(book, first)
    assert claimed.task == "launched"
    assert claimed.config == {"lr": 2, "wd": 0}
    assert set(claimed.tags) == {"bench", "own"}
    assert claimed.notes == "why"
    assert "bench" in record(book, second).tags


def test_of_two_processes_that_claim_at_once_one_gets_the_run_and_the_other_a_new_one(book, capfd):
    text = """
import os, sys
import rollbook
environment = dict(os.environ)
pid = os.fork()
run = rollbook.start("x", save_code=False)
print(run.id, flush=True)
run.finish()
if pid:
    os.waitpid(pid, 0)
else:
    os._exit(0)
"""
    done = run_job(book, text)

    ids = capfd.readouterr().out.split()
    assert done.exit_code == 0
    assert len(set(ids)) == 2
    assert done.run_id in ids


def test_a_run_id_that_nobody_launched_is_not_taken(book, monkeypatch):
    monkeypatch.setenv("ROLLBOOK_RUN_ID", "20260101-000000-x-0000")
    monkeypatch.setenv("ROLLBOOK_TASK", "task")

    run = start()

    assert run.id != "20260101-000000-x-0000"


def test_an_unknown_parent_is_refused_before_a_run_is_made(book):
    start()

    with pytest.raises(RunNotFound):
        rollbook.start("task", parent="nothing-like-this", save_code=False)

    assert len(rollbook.open(book).runs()) == 1


def test_resume_and_parent_together_are_refused(book):
    run = start()

    with pytest.raises(UsageError, match="resumed or forked"):
        rollbook.start("task", parent=run.id, resume=run.id)


def test_start_says_where_the_run_is_unless_it_is_quiet(book, capsys, monkeypatch):
    start()
    assert capsys.readouterr() == ("", "")

    monkeypatch.delenv("ROLLBOOK_QUIET")
    run = start()
    out, err = capsys.readouterr()
    assert out == ""
    assert f"rollbook: run {run.name} in {book}" in err


def test_a_program_with_bytes_for_arguments_can_be_tracked(book):
    done = subprocess.run(
        [sys.executable, "-c", "import rollbook; rollbook.start('t', save_code=False).finish()", b"\xff"],
        capture_output=True,
    )

    assert done.returncode == 0, done.stderr
    assert len(rollbook.open(book).runs()) == 1
