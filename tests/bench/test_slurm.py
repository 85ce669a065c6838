"""Benchmarks under a real Slurm: an array of jobs, a node that is lost, a runner that is killed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from adaptive_gate import check_adaptive_gate
from bench_cluster import Slurm, missing, running_slurm
from bench_traces import start_bench, traces, wait_for

import rollbook


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if absent := missing():
        pytest.skip(f"{', '.join(absent)} not installed: apt-get install slurm-wlm munge")
    with running_slurm(tmp_path_factory.mktemp("slurm") / "cluster") as slurm:
        yield slurm


def statuses(book: Path) -> list[str]:
    return [run.status for run in rollbook.open(book).runs()]


def test_an_array_of_jobs_ends_with_every_cell_a_run(book, project, slurm):
    bench = start_bench("--num-seeds", 6, "--on", "slurm", "--workers", 2, "--json", "--time", "5m", "--tags", "night")
    said = bench.communicate(timeout=180)

    # More cells than the cluster has in an array: they come as several.
    runs = rollbook.open(book).runs()
    assert bench.returncode == 0, said
    assert sorted(traces("ended")) == list(range(1, 7))
    assert [run.status for run in runs] == ["finished"] * 6
    assert {tuple(run.tags) for run in runs} == {("night",)}


def test_a_lost_node_costs_a_try_and_nothing_else(book, project, slurm):
    (project / "wait-1").touch()
    (project / "wait-2").touch()
    bench = start_bench("--num-seeds", 4, "--on", "slurm")
    wait_for(lambda: len(traces("begun")) == 2)
    slurm.kill_node("n1")
    time.sleep(1)
    (project / "wait-1").unlink()
    (project / "wait-2").unlink()
    slurm.bring_back("n1")
    said = bench.communicate(timeout=180)

    assert bench.returncode == 0, said
    assert sorted(set(traces("ended"))) == [1, 2, 3, 4]
    assert statuses(book) == ["finished"] * 4


def test_a_requeued_job_is_the_same_run(book, project, slurm):
    (project / "wait-1").touch()
    bench = start_bench("--num-seeds", 2, "--on", "slurm")
    wait_for(lambda: 1 in traces("begun"))
    (job,) = {line.split("_")[0] for line in slurm.ask("squeue", "-h", "-r", "-o", "%i").split()}
    slurm.ask("scontrol", "requeue", f"{job}_0")
    wait_for(lambda: traces("begun").count(1) == 2)
    (project / "wait-1").unlink()
    said = bench.communicate(timeout=180)

    assert bench.returncode == 0, said
    assert traces("ended").count(1) == 1
    assert statuses(book) == ["finished"] * 2


def test_jobs_go_on_without_their_runner_and_are_found_again(book, project, slurm):
    for seed in (1, 2):
        (project / f"wait-{seed}").touch()
    bench = start_bench("--num-seeds", 3, "--on", "slurm")
    wait_for(lambda: len(traces("begun")) == 2)
    bench.kill()
    bench.communicate()
    again = start_bench("--num-seeds", 3, "--on", "slurm")
    time.sleep(2)
    for seed in (1, 2):
        (project / f"wait-{seed}").unlink()
    said = again.communicate(timeout=180)

    assert again.returncode == 0, said
    assert sorted(traces("begun")) == sorted(traces("ended")) == [1, 2, 3]
    assert statuses(book) == ["finished"] * 3


def test_jobs_whose_number_was_not_written_down_are_found_by_their_comment(book, project, slurm):
    (project / "wait-1").touch()
    bench = start_bench("--num-seeds", 1, "--on", "slurm")
    wait_for(lambda: len(traces("begun")) == 1)
    bench.kill()
    bench.communicate()
    (written,) = book.glob("benchmarks/*/slurm/*.json")
    written.write_text(json.dumps({**json.loads(written.read_text()), "job": None}))
    again = start_bench("--num-seeds", 1, "--on", "slurm")
    time.sleep(2)
    (project / "wait-1").unlink()
    said = again.communicate(timeout=180)

    assert again.returncode == 0, said
    assert traces("begun") == traces("ended") == [1]


def test_cancel_takes_what_nobody_runs_out_of_the_queue(book, cli, project, slurm):
    (project / "wait-1").touch()
    bench = start_bench("--num-seeds", 1, "--on", "slurm")
    wait_for(lambda: len(traces("begun")) == 1)
    bench.kill()
    bench.communicate()
    name = cli("bench", "status", "--json").json[0]["benchmark"]
    cli("bench", "cancel", name)

    wait_for(lambda: not slurm.ask("squeue", "-h").strip())
    wait_for(lambda: cli("bench", "status", name, "--json").json["cells"][0]["status"] == "stopped")


def test_a_slurm_that_does_not_answer_is_one_clear_line(book, cli, project, monkeypatch, tmp_path):
    (tmp_path / "nothing.conf").write_text("ClusterName=nothing\nSlurmctldHost=nobody(127.0.0.1)\nSlurmctldPort=1\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "nothing.conf"))
    monkeypatch.setenv("PATH", f"{tmp_path}/empty:/usr/bin:/bin")
    answer = cli("bench", "--command", "true", "--num-seeds", 1, "--on", "slurm")

    assert answer.code == 2
    assert answer.err.splitlines()[-2].startswith("error: Slurm does not answer: ")
    assert answer.err.splitlines()[-1].startswith("hint: ")


def test_an_adaptive_gate_trains_under_slurm_look_by_look(book, process, git_project, slurm):
    check_adaptive_gate(book, process, git_project, "--on", "slurm", "--workers", 2)
