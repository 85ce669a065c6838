"""bench: a matrix of programs as runs, in the way users start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rollbook

# A program that knows nothing of Rollbook: each start is a line of a file, a failure is asked for by files.
FOREIGN = """
import argparse, os, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--env-id")
parser.add_argument("--seed", type=int)
parser.add_argument("--lr", type=float, default=1.0)
args = parser.parse_args()
with open("starts", "a") as file:
    file.write(f"{args.env_id} {args.seed} {args.lr}\\n")
print("cores", len(os.sched_getaffinity(0)), "threads", os.environ.get("OMP_NUM_THREADS"))
while pathlib.Path(f"wait-{args.seed}").exists():
    time.sleep(0.02)
if pathlib.Path(f"fail-{args.seed}").exists():
    pathlib.Path(f"fail-{args.seed}").unlink()
    raise SystemExit("as bad as it gets")
"""

# One that tracks itself and starts from the beginning each time.
TRACKED = """
import argparse, pathlib, rollbook
parser = argparse.ArgumentParser()
parser.add_argument("--env-id")
parser.add_argument("--seed", type=int)
args = parser.parse_args()
with rollbook.start(config=args) as run:
    for step in range(5):
        run.log({"charts/episodic_return": 10.0 * args.seed + step}, step=step)
        if step == 2 and pathlib.Path(f"fail-{args.seed}").exists():
            pathlib.Path(f"fail-{args.seed}").unlink()
            raise RuntimeError("crashed as told")
"""


@pytest.fixture
def project(book, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "foreign.py").write_text(FOREIGN)
    (folder / "tracked.py").write_text(TRACKED)
    os.chdir(folder)
    return folder


def bench(cli, *arguments, script="foreign.py"):
    return cli("bench", "--command", f"{sys.executable} {script}", *arguments)


def starts() -> list[str]:
    return Path("starts").read_text().splitlines() if Path("starts").exists() else []


def test_an_unmodified_script_is_benchmarked_end_to_end(book, cli, project):
    answer = bench(cli, "--env-ids", "A-v1", "B-v1", "--num-seeds", 2, "--grid", "lr=0.1,0.2", "--workers", 2)

    runs = rollbook.open(book).runs()
    assert answer.code == 0, answer.err
    assert sorted(starts()) == sorted(
        f"{env} {seed} {lr}" for env in ("A-v1", "B-v1") for seed in (1, 2) for lr in (0.1, 0.2)
    )
    assert {(run.algo, run.env, run.seed, run.config["lr"]) for run in runs} == {
        ("foreign", env, seed, lr) for env in ("A-v1", "B-v1") for seed in (1, 2) for lr in (0.1, 0.2)
    }
    assert {run.status for run in runs} == {"finished"}
    assert all(run.name.endswith(f"&algo=foreign&env={run.env}&lr={run.config['lr']}") for run in runs)
    assert len({run.benchmark for run in runs}) == 1
    assert [cell["env"] for cell in cli("newest", "--json").json] == ["A-v1", "B-v1"]
    assert "project-" in answer.err
    assert "foreign A-v1 lr=0.1" in answer.out


def test_a_worker_has_its_share_of_the_cores(book, cli, project, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = len(os.sched_getaffinity(0))
    bench(cli, "--num-seeds", 1, "--workers", 1)
    bench(cli, "--num-seeds", 1, "--start-seed", 5, "--workers", cores)

    consoles = [
        (run.folder / "console.log").read_text() for run in sorted(rollbook.open(book).runs(), key=lambda run: run.seed)
    ]
    assert consoles == [f"cores {cores} threads {cores}\n", "cores 1 threads 1\n"]


def test_the_same_benchmark_again_has_nothing_to_do_until_it_is_to_be_fresh(book, cli, project):
    bench(cli, "--num-seeds", 2)
    again = bench(cli, "--num-seeds", 2)
    fresh = bench(cli, "--num-seeds", 2, "--fresh")

    assert (again.code, fresh.code) == (0, 0)
    assert "2 of 2 finished earlier, nothing to do" in again.err
    assert len(starts()) == 4
    assert len({run.benchmark for run in rollbook.open(book).runs()}) == 2


def test_other_code_is_another_benchmark(book, cli, project):
    bench(cli, "--num-seeds", 1)
    (project / "foreign.py").write_text(FOREIGN + "\n# changed\n")
    bench(cli, "--num-seeds", 1)

    assert len(starts()) == 2
    assert len({run.benchmark for run in rollbook.open(book).runs()}) == 2


def test_a_failing_job_is_shown_retried_and_exit_code_one(book, cli, project):
    (project / "fail-2").touch()
    once = bench(cli, "--num-seeds", 2, "--json")
    (project / "fail-3").touch()
    retried = bench(cli, "--num-seeds", 3, "--retries", 1)

    assert once.code == 1
    assert "foreign seed 2 failed with exit code 1 after" in once.err
    assert "  | as bad as it gets" in once.err
    assert once.json["complete"] is False
    assert [(cell["seed"], cell["status"], cell["exit_code"]) for cell in once.json["cells"]] == [
        (1, "finished", 0),
        (2, "failed", 1),
    ]
    assert retried.code == 0
    assert "foreign seed 3 failed with exit code 1 after" in retried.err
    assert "1 more try" in retried.err


def test_what_failed_is_run_again_by_the_same_command_as_the_same_run(book, cli, project):
    (project / "fail-2").touch()
    bench(cli, "--num-seeds", 2)
    again = bench(cli, "--num-seeds", 2)

    runs = rollbook.open(book).runs()
    assert again.code == 0
    assert sorted(starts()) == ["None 1 1.0", "None 2 1.0", "None 2 1.0"]
    assert [run.status for run in runs] == ["finished", "finished"]


def test_a_retry_of_a_tracked_program_counts_once(book, cli, project):
    (project / "fail-2").touch()
    answer = bench(cli, "--env-ids", "A-v1", "--num-seeds", 2, "--retries", 1, script="tracked.py")

    found = rollbook.open(book)
    assert answer.code == 0, answer.err
    assert {(run.seed, run.status, run.algo, run.env) for run in found.runs()} == {
        (1, "finished", "tracked", "A-v1"),
        (2, "finished", "tracked", "A-v1"),
    }
    steps = found.rows(
        "select seed, list(step order by step) as steps from metrics join runs using (run_id) group by seed"
    )
    assert {row["seed"]: row["steps"] for row in steps} == {1: [0, 1, 2, 3, 4], 2: [0, 1, 2, 3, 4]}


def test_returns_are_in_the_table(book, cli, project):
    answer = bench(cli, "--env-ids", "A-v1", "--num-seeds", 2, script="tracked.py")

    assert answer.out.splitlines()[-1].split() == ["project", "tracked", "A-v1", "2/2", "19", "7.07107"]


def test_a_job_beyond_its_time_limit_is_stopped_and_has_failed(book, cli, project):
    (project / "wait-1").touch()
    answer = bench(cli, "--num-seeds", 1, "--time", "0.5")

    assert answer.code == 1
    assert "foreign seed 1 reached its time limit after" in answer.err
    assert cli("bench", "status", "--json").json[0]["stopped"] == 1


def start_bench(*arguments) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rollbook", "bench", "--command", f"{sys.executable} foreign.py", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def wait_for(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)


def test_ctrl_c_stops_the_children_and_the_same_command_goes_on(book, cli, project):
    (project / "wait-2").touch()
    runner = start_bench("--num-seeds", "3", "--workers", "1")
    wait_for(lambda: len(starts()) == 2)
    runner.send_signal(signal.SIGINT)
    said = runner.communicate(timeout=30)[1].decode()
    standing = cli("bench", "status", "--json").json[0]
    (project / "wait-2").unlink()
    again = bench(cli, "--num-seeds", "3", "--workers", "1")

    assert runner.returncode == 130
    assert "the same command goes on with it" in said
    assert (standing["finished"], standing["stopped"], standing["queued"]) == (1, 1, 1)
    assert again.code == 0
    assert [line.split()[1] for line in starts()] == ["1", "2", "2", "3"]


def test_after_kill_9_of_the_benchmark_nothing_is_run_twice(book, cli, project):
    (project / "wait-2").touch()
    runner = start_bench("--num-seeds", "3", "--workers", "1")
    wait_for(lambda: len(starts()) == 2)
    runner.kill()
    runner.communicate()
    standing = cli("bench", "status", "--json").json[0]
    runner = start_bench("--num-seeds", "3", "--workers", "1")
    time.sleep(1)
    (project / "wait-2").unlink()
    runner.communicate(timeout=60)

    assert (standing["finished"], standing["running"], standing["queued"]) == (1, 1, 1)
    assert runner.returncode == 0
    assert [line.split()[1] for line in starts()] == ["1", "2", "3"]
    assert [run.status for run in rollbook.open(book).runs()] == ["finished"] * 3


def test_what_ended_while_nobody_watched_is_not_run_again(book, cli, project):
    (project / "wait-1").touch()
    runner = start_bench("--num-seeds", "1")
    wait_for(lambda: len(starts()) == 1)
    runner.kill()
    runner.communicate()
    (project / "wait-1").unlink()
    wait_for(lambda: cli("bench", "status", "--json").json[0]["finished"] == 1)
    again = bench(cli, "--num-seeds", 1)

    assert again.code == 0
    assert len(starts()) == 1
    assert [run.status for run in rollbook.open(book).runs()] == ["finished"]


def test_two_runners_of_one_benchmark_are_one_too_many(book, cli, project):
    (project / "wait-1").touch()
    runner = start_bench("--num-seeds", "1")
    wait_for(lambda: len(starts()) == 1)
    second = bench(cli, "--num-seeds", "1")
    (project / "wait-1").unlink()
    runner.communicate(timeout=30)

    assert second.code == 2
    assert f"is being run by process {runner.pid}" in second.err
    assert len(starts()) == 1


def test_cancel_from_another_terminal(book, cli, project):
    (project / "wait-1").touch()
    runner = start_bench("--num-seeds", "2", "--workers", "1")
    wait_for(lambda: len(starts()) == 1)
    name = cli("bench", "status", "--json").json[0]["benchmark"]
    answer = cli("bench", "cancel", name[:10])
    runner.communicate(timeout=30)

    assert answer.code == 0
    assert runner.returncode == 1
    assert [cell["status"] for cell in cli("bench", "status", name, "--json").json["cells"]] == ["stopped", "queued"]


def test_cancel_stops_what_a_killed_benchmark_left_behind(book, cli, project):
    (project / "wait-1").touch()
    runner = start_bench("--num-seeds", "1")
    wait_for(lambda: len(starts()) == 1)
    runner.kill()
    runner.communicate()
    name = cli("bench", "status", "--json").json[0]["benchmark"]
    answer = cli("bench", "cancel", name)

    assert "1 programs left behind" in answer.err
    wait_for(lambda: cli("bench", "status", name, "--json").json["cells"][0]["exit_code"] is not None)


def test_dry_run_prints_the_commands_and_makes_nothing(book, cli, project):
    answer = cli("bench", "--dry-run", "--command", "p", "--env-ids", "A", "B", "--num-seeds", 1)

    assert answer.out == "p --env-id A --seed 1\np --env-id B --seed 1\n"
    assert not book.exists()


def test_runs_carry_the_version_of_the_code_and_the_tags_asked_for(book, cli, project, monkeypatch):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "foreign.py"], ["commit", "-qm", "x"], ["tag", "v1.0"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setenv("GITHUB_REF", "refs/pull/308/merge")
    monkeypatch.setenv("WANDB_TAGS", "pilot")
    clean = bench(cli, "--num-seeds", 1, "--tags", "nightly")
    (project / "foreign.py").write_text(FOREIGN + "\n# changed\n")
    dirty = bench(cli, "--num-seeds", 1)

    tags = [run.tags for run in sorted(rollbook.open(book).runs(), key=lambda run: run.started_at)]
    assert tags == [["nightly", "pilot", "v1.0", "pr-308"], ["pilot", "v1.0-dirty", "pr-308"]]
    assert "uncommitted" not in clean.err
    assert "warning: the code has uncommitted changes: its version v1.0-dirty cannot be checked out again" in dirty.err


def test_tags_of_a_later_call_are_for_the_earlier_runs_too(book, cli, project):
    bench(cli, "--num-seeds", 2)
    bench(cli, "--num-seeds", 2, "--tags", "release")

    assert [run.tags for run in rollbook.open(book).runs()] == [["release"], ["release"]]
    assert len(starts()) == 2


def test_code_that_changes_while_it_runs_is_noticed(book, cli, project):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "foreign.py"], ["commit", "-qm", "x"], ["tag", "v1.0"]):
        subprocess.run([*git, *command], check=True)
    (project / "wait-1").touch()
    runner = start_bench("--num-seeds", "2", "--workers", "1")
    wait_for(lambda: len(starts()) == 1)
    (project / "foreign.py").write_text(FOREIGN + "\n# changed\n")
    time.sleep(2.1)
    (project / "wait-1").unlink()
    said = runner.communicate(timeout=30)[1].decode()

    assert "warning: the code has changed meanwhile: jobs from here on are of v1.0-dirty" in said
    assert {run.seed: run.git_describe for run in rollbook.open(book).runs()} == {1: "v1.0", 2: "v1.0-dirty"}


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--num-seeds", 1], "no program was given", "--command"),
        (["--command", "no-such-program", "--num-seeds", 1], "there is no program 'no-such-program'", ""),
        (["--command", "true {sede}"], "unknown placeholder {sede}", "'seed'"),
        (["--command", "true", "--workers", 0], "--workers is 0", "--workers 1"),
        (["--command", "true", "--cpus", 999], "--cpus is 999, and this machine has", "--cpus"),
        (["--command", "true", "--time", "soon"], "--time 'soon' is no length of time", "2h"),
        (["--command", "true", "--time", "0"], "--time '0' leaves no time", "2h"),
        (["--command", "true", "--grid", "lr"], "--grid 'lr' is not KEY=A,B", "--grid lr=1e-3,3e-4"),
        (["--command", "true", "--num-seeds", 0], "num_seeds is 0", "at least 1"),
        (["--command", "true", "--retries", -1], "--retries is -1", "--retries 2"),
        (["--command", "true", "--memory", "much"], "--memory 'much' is no size", "--memory 4GB"),
        (["--command", "true", "--memory", "1GB"], "--memory is not for --on local", "--on ray"),
        (["--command", "true", "--on", "ray", "--time", "1h"], "--time is not for --on ray", "timeout"),
        (["--command", "true", "--gpus", "99"], "--gpus is 99, and this machine has", "leave --gpus out"),
        (["clasic"], "there is no suite 'clasic'", "'classic'"),
        (["classic", "--command", "true"], "a suite and --command were given", "file"),
        (["status", "nothing"], "there is no benchmark 'nothing'", "rollbook bench status"),
        (["cancel", "nothing"], "there is no benchmark 'nothing'", "rollbook bench status"),
    ],
)
def test_bad_input_is_one_clear_line_and_a_hint(book, cli, project, arguments, message, hint):
    answer = cli("bench", *arguments)

    assert answer.code in (2, 4)
    error, _, advice = answer.err.partition("\nhint: ")
    assert error.startswith("error: ")
    assert message in error
    assert hint in advice
    assert "\n" not in error
