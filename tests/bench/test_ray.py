"""Benchmarks in a real Ray cluster of three nodes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator

import pytest
from adaptive_gate import check_adaptive_gate
from bench_traces import start_bench, traces, wait_for

import rollbook
from rollbook.bench.benchmark import open_benchmark
from rollbook.book.layout import Layout

# In a process of its own: Ray's test cluster leaves files and children behind, which would be errors here.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
# Addresses of their own: a program joins the cluster through the node of its own address, which must not be killed.
nodes = [cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{number}") for number in (2, 3)]
cluster.wait_for_nodes()
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes.pop(), allow_graceful=False)
    print("removed", flush=True)
cluster.shutdown()
"""


class RayCluster:
    """A head and two more nodes, with a core each."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.address = self._answer()

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def kill_node(self) -> None:
        assert self._process.stdin
        print("kill", file=self._process.stdin, flush=True)
        assert self._answer() == "removed"

    def stop(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    if not importlib.util.find_spec("ray"):
        pytest.skip("ray is not installed")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    made = RayCluster()
    yield made
    made.stop()


def test_a_killed_node_costs_a_try_and_nothing_else(book, project, cluster):
    bench = start_bench("--num-seeds", 6, "--on", "ray", "--ray-address", cluster.address, seconds=3)
    wait_for(lambda: len(traces("begun")) == 3)
    cluster.kill_node()
    said = bench.communicate(timeout=180)

    assert bench.returncode == 0, said
    assert sorted(traces("ended")) == [1, 2, 3, 4, 5, 6]
    assert [run.status for run in rollbook.open(book).runs()] == ["finished"] * 6


def test_ctrl_c_stops_what_runs_in_the_cluster(book, cli, project, cluster):
    (project / "wait-1").touch()
    bench = start_bench("--num-seeds", 1, "--on", "ray", "--ray-address", cluster.address)
    wait_for(lambda: len(traces("begun")) == 1)
    bench.terminate()
    said = bench.communicate(timeout=180)

    assert bench.returncode == 130, said
    assert traces("ended") == []
    wait_for(lambda: cli("bench", "status", "--json").json[0]["stopped"] == 1)


def test_a_job_stops_by_the_mark_of_its_runner_if_the_cluster_does_not_tell_it(book, cli, project, cluster):
    (project / "wait-1").touch()
    bench = start_bench("--num-seeds", 1, "--on", "ray", "--ray-address", cluster.address)
    wait_for(lambda: len(traces("begun")) == 1)
    (folder,) = (book / "benchmarks").iterdir()
    open_benchmark(Layout(book), folder.name).mark_stop(0, 0, "interrupted")
    said = bench.communicate(timeout=180)

    assert bench.returncode == 1, said
    assert traces("ended") == []


def test_a_ray_that_does_not_answer_is_one_clear_line(book, cli, project, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    bench = start_bench("--num-seeds", 1, "--on", "ray", "--ray-address", "127.0.0.1:1")
    error = bench.communicate(timeout=120)[1]

    assert bench.returncode == 2
    assert error.splitlines()[-2].startswith("error: Ray does not answer at 127.0.0.1:1: ")
    assert error.splitlines()[-1].startswith("hint: ")


def test_an_adaptive_gate_trains_in_the_cluster_look_by_look(book, process, git_project, cluster):
    check_adaptive_gate(book, process, git_project, "--on", "ray", "--ray-address", cluster.address)
