from __future__ import annotations

import os

import pytest

from rollbook.bench.executors import local
from rollbook.bench.executors.local import share_out


@pytest.fixture
def machine(monkeypatch):
    """Four cores, two GPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 7")


def cores(**wishes) -> list[list[int]]:
    return [sorted(slot.cores) for slot in share_out(**{"workers": None, "cpus": None, "gpus": None, **wishes})]


def test_the_cores_are_shared_out(machine):
    assert cores() == [[0], [1], [2], [3]]
    assert cores(workers=1) == [[0, 1, 2, 3]]
    assert cores(workers=2) == [[0, 1], [2, 3]]
    assert cores(workers=3) == [[0], [1], [2, 3]]
    assert cores(cpus=2) == [[0, 1], [2, 3]]
    assert cores(workers=3, cpus=2) == [[0, 1], [2, 3], [0, 1]]
    assert cores(workers=6) == [[0], [1], [2], [3], [0], [1]]


def test_each_worker_has_its_own_gpus(machine):
    slots = share_out(2, None, 1)

    assert [slot.environment()["CUDA_VISIBLE_DEVICES"] for slot in slots] == ["5", "7"]


def test_thread_variables_follow_the_cores_unless_they_are_set(machine, monkeypatch):
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    environment = share_out(2, None, None)[0].environment()

    assert environment["OMP_NUM_THREADS"] == "2"
    assert "MKL_NUM_THREADS" not in environment
    assert "CUDA_VISIBLE_DEVICES" not in environment


def test_without_nvidia_smi_there_are_no_gpus(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")

    assert local._devices() == []
