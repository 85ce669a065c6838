"""run, rerun, fork, resume, code, demo: programs as tracked runs, in the way users start them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from makers import points

import rollbook
from rollbook.bench.arguments import parse_arguments, program_arguments, with_arguments
from rollbook.cli import demo

# A program that knows nothing of Rollbook.
PLAIN = """
import sys
print("hello from the program")
print("and from stderr", file=sys.stderr)
sys.exit(3 if "--fail" in sys.argv else 0)
"""

# One that tracks itself, saves its state, and goes on from it.
TRACKED = """
import argparse
import numpy as np
import rollbook

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--crash-at", type=int, default=-1)
args = parser.parse_args()
with rollbook.start("tracked", config=args) as run:
    start = run.starting_point()
    first = start.step + 1 if start else 0
    for step in range(first, args.steps):
        run.log({"x": step * args.lr}, step=step)
        run.checkpoint(step, {"w": np.full(2, step)})
        if step == args.crash_at and not start:
            raise RuntimeError("crashed as told")
"""


@pytest.fixture
def project(book, tmp_path):
    """A project folder, which is the working folder."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "plain.py").write_text(PLAIN)
    (folder / "tracked.py").write_text(TRACKED)
    os.chdir(folder)
    return folder


def only_run(book):
    (run,) = rollbook.open(book).runs()
    return run


def newest_run(book):
    return rollbook.open(book).runs()[0]


# ---- run


def test_any_program_is_tracked_with_its_arguments_console_and_code(book, cli, project):
    answer = cli(
        "run", "--task", "plain", "--tags", "a,b", "--notes", "why", "--",
        sys.executable, "plain.py", "--lr", "1e-3", "--sizes", "64", "64", "--flag", "--env-id=Hopper-v5", "--n", "-3",
    )  # fmt: skip

    run = only_run(book)
    assert answer.code == 0
    assert answer.out == "hello from the program\n"
    assert answer.err == f"and from stderr\nrun {run.run_id}: finished\n"
    assert run.config == {"lr": 0.001, "sizes": [64, 64], "flag": True, "env_id": "Hopper-v5", "n": -3}
    assert (run.task, run.tags, run.notes, run.status, run.env) == ("plain", ["a", "b"], "why", "finished", "Hopper-v5")
    console = (run.folder / "console.log").read_text()
    assert sorted(console.splitlines()) == ["and from stderr", "hello from the program"]
    assert {row["path"] for row in cli("code", "list", run.run_id, "--json").json} == {"plain.py", "tracked.py"}


def test_a_failing_program_is_a_failed_run_and_exit_code_one(book, cli, project):
    answer = cli("run", "--", sys.executable, "plain.py", "--fail")

    run = only_run(book)
    assert answer.code == 1
    assert answer.err.endswith(f"run {run.run_id}: exit code 3\n")
    assert run.status == "failed"
    assert run.task == "project"
    assert "failed, exit code 3" in cli("show", run.run_id).out


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("raise SystemExit(1)", "failed"),
        ("raise SystemExit(0)", "finished"),
        ("run.finish(); raise SystemExit(1)", "finished"),
    ],
)
def test_a_tracked_program_that_raises_system_exit_ends_as_its_exit_code_says(book, cli, project, ending, status):
    program = f"import rollbook; run = rollbook.start('t', save_code=False); run.log({{'x': 1.0}}); {ending}"

    cli("run", "--", sys.executable, "-c", program)

    assert only_run(book).status == status


def test_a_program_that_is_not_there_makes_no_run(book, cli, project):
    answer = cli("run", "--", "no-such-program", "--lr", "1")

    assert answer.code == 2
    assert answer.err == (
        "error: there is no program 'no-such-program'\nhint: rollbook run -- python train.py --lr 1e-3\n"
    )
    assert not book.exists()


def test_a_program_that_tracks_itself_claims_the_run(book, process, project):
    answer = process("run", "--task", "mine", "--", sys.executable, "tracked.py", "--lr", "0.5")

    run = only_run(book)
    assert answer.code == 0, answer.err
    assert run.task == "mine"
    assert run.config == {"lr": 0.5, "steps": 5, "crash_at": -1}
    assert len(points(book, run.run_id, "x")) == 5


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        ([], {}),
        (["--a", "1", "-b", "x", "--c"], {"a": 1, "b": "x", "c": True}),
        (["--total-timesteps=100", "--x=a=b"], {"total_timesteps": 100, "x": "a=b"}),
        (["optim.lr=3e-4", "+new=true", "seed=null"], {"optim.lr": 3e-4, "new": True, "seed": None}),
        (["--nan", "nan", "--list", "[1, 2]", "--text", "1.2.3"], {"nan": "nan", "list": [1, 2], "text": "1.2.3"}),
        (["positional", "--a", "-1.5"], {"a": -1.5}),
        (["--", "-"], {}),
    ],
)
def test_arguments_become_a_config(arguments, config):
    assert parse_arguments(arguments) == config


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (["python", "train.py", "--lr", "1"], ["--lr", "1"]),
        (["/usr/bin/python3.11", "-u", "-W", "error", "train.py", "--lr", "1"], ["--lr", "1"]),
        (["python", "-m", "package.train", "--lr", "1"], ["--lr", "1"]),
        (["python"], []),
        (["./train", "--lr", "1"], ["--lr", "1"]),
    ],
)
def test_the_interpreters_own_options_are_no_config(command, arguments):
    assert program_arguments(command) == arguments


@pytest.mark.parametrize(
    ("command", "changes", "changed"),
    [
        ("p --lr 1 --b 2", {"lr": "3"}, "p --lr 3 --b 2"),
        ("p --lr=1", {"lr": "3"}, "p --lr=3"),
        ("p --env-id x", {"env_id": "y"}, "p --env-id y"),
        ("p lr=1", {"lr": "3"}, "p lr=3"),
        ("p", {"new_one": "3"}, "p --new-one 3"),
        ("p --flag --lr 1", {"flag": "false"}, "p --flag false --lr 1"),
        ("p --lr -1", {"lr": "2"}, "p --lr 2"),
        ("p --flag", {"flag": "true"}, "p --flag true"),
    ],
)
def test_arguments_are_changed_where_they_stand(command, changes, changed):
    assert with_arguments(command.split(), changes) == changed.split()


# ---- rerun, fork, resume


def track(*arguments, script="tracked.py"):
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=120)


def test_a_rerun_uses_the_stored_code_although_the_checkout_has_changed(book, cli, project):
    track("--lr", "2.0")
    original = only_run(book)
    (project / "tracked.py").write_text("raise SystemExit('the checkout is broken now')")

    answer = cli("rerun", original.run_id)

    again = newest_run(book)
    assert answer.code == 0, answer.err
    assert again.run_id != original.run_id
    assert again.parent == original.run_id
    assert again.config == original.config
    # The same again from the beginning: not from where the original stopped.
    assert points(book, again.run_id, "x") == points(book, original.run_id, "x")
    assert cli("code", "diff", original.run_id, again.run_id).out == ""
    assert cli("rerun", original.run_id, "--here").code == 1


def test_a_rerun_can_be_made_again_from_another_folder(book, cli, project, tmp_path):
    os.chdir(tmp_path)
    track(script="project/tracked.py")
    original = only_run(book)

    assert cli("rerun", original.run_id).code == 0
    second = newest_run(book)
    answer = cli("rerun", second.run_id)

    assert answer.code == 0, answer.err
    assert newest_run(book).parent == second.run_id
    assert len(rollbook.open(book).runs("status = 'finished'")) == 3


def test_a_rerun_of_an_absolute_script_runs_the_stored_one(book, cli, project):
    (project / "where.py").write_text("print(__file__)\nimport rollbook\nrollbook.start('w').finish()\n")
    track(script=str(project / "where.py"))
    first = only_run(book)

    answer = cli("rerun", first.run_id)
    again = cli("rerun", newest_run(book).run_id)

    assert answer.code == again.code == 0, again.err
    assert str(project) not in answer.out + again.out


def test_a_fork_changes_arguments_and_starts_from_the_parents_checkpoint(book, cli, project):
    track("--lr", "1.0", "--steps", "6")
    parent = only_run(book)

    answer = cli("fork", parent.run_id, "--set", "lr=10.0", "--at", 2, "--copy-metrics")

    fork = newest_run(book)
    assert answer.code == 0, answer.err
    assert "lr: 1.0 -> 10.0" in answer.err
    assert (fork.parent, fork.config["lr"]) == (parent.run_id, 10.0)
    assert points(book, fork.run_id, "x") == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0), (5, 50.0)]


def test_a_fork_at_a_step_without_a_checkpoint_starts_nothing_and_names_the_steps_there_are(book, cli, project):
    track("--steps", "3")
    parent = only_run(book)

    answer = cli("fork", parent.run_id, "--at", 41)

    assert answer.code == 4
    assert answer.err == f"error: run {parent.run_id} has no checkpoint 41\nhint: it has 0, 1, 2\n"
    assert only_run(book).run_id == parent.run_id


def test_resume_goes_on_from_the_newest_checkpoint_as_a_new_attempt(book, cli, project):
    crashed = track("--crash-at", "2", "--steps", "5", "--lr", "1")
    assert crashed.returncode == 1
    run = only_run(book)
    assert run.status == "failed"

    answer = cli("resume", run.run_id)

    assert answer.code == 0, answer.err
    assert points(book, run.run_id, "x") == [(step, float(step)) for step in range(5)]
    resumed = only_run(book)
    assert resumed.status == "finished"
    (details,) = cli("show", run.run_id, "--json").json
    assert [attempt["state"] for attempt in details["attempts"]] == ["failed", "finished"]


def test_a_launched_program_that_died_before_it_started_can_be_resumed(book, cli, project):
    (project / "late.py").write_text("raise SystemExit('not yet')")
    cli("run", "--notes", "why", "--tags", "t", "--", sys.executable, "late.py", "--lr", "1")
    before = only_run(book)
    (project / "late.py").write_text("import rollbook\nwith rollbook.start() as run:\n    run.log({'x': 1.0})\n")

    answer = cli("resume", before.run_id)

    assert answer.code == 0, answer.err
    after = only_run(book)
    assert (after.status, after.notes, after.started_at) == ("finished", "why", before.started_at)
    assert points(book, after.run_id, "x") == [(0, 1.0)]


def test_a_live_run_is_not_resumed(book, cli, project):
    with rollbook.start("task", save_code=False) as run:
        answer = cli("resume", run.id)

    assert answer.code == 2
    assert "is still running" in answer.err


def test_a_run_whose_folder_is_gone_hints_at_its_stored_code(book, cli, project, tmp_path):
    track()
    run = only_run(book)
    os.chdir(tmp_path)
    project.rename(tmp_path / "moved")

    answer = cli("resume", run.run_id)

    assert answer.code == 2
    assert f"hint: rollbook rerun {run.run_id}" in answer.err


# ---- code


def test_the_code_of_two_runs_is_compared_listed_and_restored(book, cli, project, tmp_path):
    track()
    first = only_run(book)
    (project / "tracked.py").write_text(TRACKED.replace("default=0.1", "default=0.2"))
    track()
    second = newest_run(book)

    diff = cli("code", "diff", first.run_id, second.run_id)
    assert '-parser.add_argument("--lr", type=float, default=0.1)\n' in diff.out
    assert '+parser.add_argument("--lr", type=float, default=0.2)\n' in diff.out
    assert diff.err == ""
    same = cli("code", "diff", first.run_id, first.run_id)
    assert (same.out, same.code) == ("", 0)
    assert "the same code" in same.err

    restored = cli("code", "restore", first.run_id, tmp_path / "as-it-was")
    assert (restored.code, restored.out) == (0, "")
    assert (tmp_path / "as-it-was" / "tracked.py").read_text() == TRACKED
    assert cli("code", "restore", first.run_id, tmp_path / "as-it-was").code == 2
    assert cli("code", "restore", second.run_id, tmp_path / "as-it-was", "--force").code == 0
    assert "default=0.2" in (tmp_path / "as-it-was" / "tracked.py").read_text()
    assert "tracked.py" in cli("code", "list", first.run_id).out


def test_a_diff_in_a_pipe_is_exact_even_where_the_code_has_escapes(book, cli, project):
    track()
    first = only_run(book)
    (project / "plain.py").write_text('RED = "\x1b[31m"\n')
    track()

    diff = cli("code", "diff", first.run_id, newest_run(book).run_id).out

    assert '+RED = "\x1b[31m"\n' in diff


def test_a_missing_object_is_listed_as_missing(book, cli, project):
    track()
    run = only_run(book)
    row = cli("code", "list", run.run_id, "--json").json[0]
    (book / "objects" / row["id"][:2] / row["id"]).unlink()

    answer = cli("code", "list", run.run_id)

    assert answer.code == 0
    assert "missing" in answer.out
    assert cli("code", "list", run.run_id, "--json").json[0]["bytes"] is None


# ---- demo


@pytest.mark.slow
def test_a_demo_that_did_not_learn_says_so_and_fails(book, cli, monkeypatch):
    """Too short to learn anything: nothing is worse, so the gate must not say that it is. CI runs the real one."""
    monkeypatch.setattr(demo, "STEPS", {"Pendulum-v1": 2048})
    monkeypatch.setattr(demo, "PARAMETERS", {"num_envs": 2, "rollout_steps": 128, "hidden_sizes": "8"})

    answer = cli("demo", "--seeds", 3)

    assert answer.code == 1, answer.err
    assert "identical: fixed against baseline" in answer.out
    assert "should have been a regression and then a pass" in answer.err
    assert not book.exists()
    versions = [run.tags for run in rollbook.open("rollbook-demo/book").runs()]
    assert sorted(versions) == [["baseline"]] * 3 + [["candidate"]] * 3 + [["fixed"]] * 2
    page = Path("rollbook-demo/report-candidate/report.html").read_text()
    assert "<del>-    return policy.mode() if noise is None else policy.sample(noise)</del>" in page
    assert "the torque is at most 2" in page
