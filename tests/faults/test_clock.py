"""The system's clock may be set back during a run: times in the book never run backwards."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from children import Complete, Launch, statuses, wait_ready, wait_until

import rollbook

# From the first row on, the clock is wrong by so many seconds.
CLOCK = """
    true_time, shift = time.time, [0.0]
    time.time = lambda: true_time() + shift[0]
    from rollbook.track import run as run_module
    run_module.HEARTBEAT_SECONDS = 0.2
    run = start()
    for step in range(50):
        run.log({"value": step}, step=step)
        shift[0] = float(sys.argv[1])
        time.sleep(0.002)
"""


@pytest.mark.parametrize("shift", [-3600.0, -1e6, 3600.0])
def test_metric_times_never_run_backwards_and_the_duration_is_the_true_one(
    complete: Complete, book: Path, shift: float
) -> None:
    ended = complete(CLOCK, shift)

    assert ended.returncode == 0, ended.stderr
    opened = rollbook.open(book)
    times = [moment for (moment,) in opened.sql("select time from metrics order by step").fetchall()]
    assert len(times) == 50
    assert times == sorted(times)
    (run,) = opened.runs()
    assert 0.1 <= run.duration_s < 60
    assert run.finished_at is not None
    assert run.started_at <= run.finished_at


@pytest.mark.parametrize("wrapper", [(), ("unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh")])
def test_a_run_whose_clock_was_set_back_does_not_show_as_lost(
    launch: Launch, book: Path, wrapper: tuple[str, ...]
) -> None:
    if wrapper and subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us have another host name")
    child = launch(CLOCK + "    time.sleep(1.0); ready(); time.sleep(60)", -3600.0, wrapper=wrapper)
    wait_ready(child)

    wait_until(lambda: statuses(book) == ["running"])
    (run,) = rollbook.open(book).runs()
    assert 0 <= run.duration_s < 60


def test_a_run_resumed_after_the_clock_was_set_back_keeps_its_rows_in_order(complete: Complete, book: Path) -> None:
    first = complete("run = start()\nfor step in range(10): run.log({'value': step}, step=step)")
    again = complete(
        """
        true_time = time.time
        time.time = lambda: true_time() - 86_400
        run = start(resume=sys.argv[1])
        for _ in range(10): run.log({"value": 1.0})
        """,
        rollbook.open(book).runs()[0].run_id,
    )

    assert (first.returncode, again.returncode) == (0, 0), again.stderr
    (run,) = rollbook.open(book).runs()
    assert run.status == "finished"
    assert run.duration_s >= 0
    assert run.metrics("value").column("step").to_pylist() == list(range(20))
