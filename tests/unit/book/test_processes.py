from __future__ import annotations

import ctypes
import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollbook.book import processes
from rollbook.book.processes import is_alive, this_process

SAY_WHO_I_AM = """
import dataclasses, json, sys
from rollbook.book.processes import this_process
print(json.dumps(dataclasses.asdict(this_process())), flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")


def start_another() -> tuple[subprocess.Popen[str], processes.Process]:
    import json

    other = subprocess.Popen(
        [sys.executable, "-c", SAY_WHO_I_AM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert other.stdout is not None
    return other, processes.Process(**json.loads(other.stdout.readline()))


def test_this_process_is_alive():
    me = this_process()

    assert me.pid == os.getpid()
    assert me.boot_id and me.pid_namespace.startswith("pid:[") and me.pid_started > 0
    assert is_alive(me) is True


def test_another_process_is_alive_until_it_ends():
    other, process = start_another()

    with other:
        alive_before = is_alive(process)
        other.kill()
        other.wait()

        assert alive_before is True
        assert is_alive(process) is False


def test_a_zombie_is_not_alive():
    other, process = start_another()

    with other:
        other.kill()
        until = time.monotonic() + 10
        while is_alive(process) and time.monotonic() < until:  # killed, but nobody has waited for it
            time.sleep(0.01)

        assert Path(f"/proc/{process.pid}/stat").exists()
        assert is_alive(process) is False


def test_a_pid_that_another_process_got_later_is_not_alive():
    assert is_alive(dataclasses.replace(this_process(), pid_started=1)) is False


def test_a_process_of_another_boot_may_be_of_another_machine_of_that_name():
    assert is_alive(dataclasses.replace(this_process(), boot_id="of another boot")) is None


@pytest.mark.parametrize(
    "unknown",
    [{"host": "elsewhere"}, {"pid_namespace": "pid:[1]"}, {"pid_namespace": ""}, {"boot_id": ""}, {"pid_started": 0}],
)
def test_what_cannot_be_told_from_here_is_none(unknown):
    assert is_alive(dataclasses.replace(this_process(), **unknown)) is None


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**70])
def test_a_pid_that_nothing_can_have_is_not_alive(pid):
    assert is_alive(dataclasses.replace(this_process(), pid=pid)) is False


def test_without_proc_nothing_can_be_told(monkeypatch, tmp_path):
    me = this_process()
    monkeypatch.setattr(processes, "_PROC", tmp_path)

    assert is_alive(me) is None
    assert this_process().pid_started == 0


def test_a_process_that_proc_hides_cannot_be_told(monkeypatch):
    me = this_process()
    monkeypatch.setattr(processes, "_look_up", lambda pid: None)

    assert is_alive(me) is None


def test_a_process_name_may_hold_spaces_and_parentheses():
    libc = ctypes.CDLL(None)
    before = this_process()
    name = Path("/proc/self/comm").read_bytes().rstrip(b"\n")
    try:
        libc.prctl(15, b") Z (a b) 1", 0, 0, 0)  # PR_SET_NAME
        renamed = this_process()
    finally:
        libc.prctl(15, name, 0, 0, 0)

    assert renamed == before
