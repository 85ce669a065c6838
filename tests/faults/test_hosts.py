"""Two hosts on one file system: nobody can look into the other's process table, so the heartbeat decides."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from children import Launch, statuses, steps_of, wait_ready

import rollbook
from rollbook.records import LOST_AFTER_SECONDS

LOGS = """
    import socket
    if sys.argv[1:]:
        socket.gethostname = lambda: sys.argv[1]
    run = start()
    for step in range(20):
        run.log({"value": step}, step=step)
    time.sleep(0.6)
    ready()
    time.sleep(60)
"""


def launch_on(launch: Launch, host: str) -> subprocess.Popen[str]:
    """A process whose machine has that name; where that is not permitted, one that is told so."""
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode == 0:
        return launch(LOGS, wrapper=("unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh"))
    return launch(LOGS, host)


def kill(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.wait()


def age_heartbeat(book: Path, seconds: float) -> None:
    (file,) = book.glob("tasks/*/*/attempts/0/status.json")
    status = json.loads(file.read_text())
    file.write_text(json.dumps(status | {"heartbeat": time.time() - seconds}))


def test_two_hosts_write_one_task_and_each_run_says_where_it_ran(launch: Launch, book: Path) -> None:
    children = [launch_on(launch, host) for host in ("lab-one", "lab-two")]
    for child in children:
        wait_ready(child)

    rows = rollbook.open(book).sql("select run_id, host, task, status from runs order by host").fetchall()

    assert [row[1:] for row in rows] == [("lab-one", "task", "running"), ("lab-two", "task", "running")]
    assert len({row[0] for row in rows}) == 2
    assert "-labone-" in rows[0][0]
    assert steps_of(book) == sorted([*range(20), *range(20)])


@pytest.mark.parametrize(
    ("silent_seconds", "status"),
    [(0.0, "running"), (LOST_AFTER_SECONDS - 20, "running"), (LOST_AFTER_SECONDS + 1, "lost"), (30 * 86_400.0, "lost")],
)
def test_a_run_killed_on_another_host_is_lost_after_two_minutes_of_silence(
    launch: Launch, book: Path, silent_seconds: float, status: str
) -> None:
    child = launch_on(launch, "lab-one")
    wait_ready(child)
    kill(child)

    age_heartbeat(book, silent_seconds)

    assert statuses(book) == [status]
    assert steps_of(book) == list(range(20))


def test_a_run_of_another_host_that_was_taken_for_lost_counts_again_when_it_beats(launch: Launch, book: Path) -> None:
    child = launch_on(launch, "lab-one")
    wait_ready(child)
    opened = rollbook.open(book)

    age_heartbeat(book, LOST_AFTER_SECONDS + 1)
    before = opened.runs()[0].status
    age_heartbeat(book, 0.0)

    assert (before, opened.runs()[0].status) == ("lost", "running")
