"""`kill -9` at any moment loses at most the last second and nothing older."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from children import Complete, Launch, statuses, steps_of, wait_ready, wait_until

import rollbook
from rollbook.book.checkpoints import list_checkpoints, load_checkpoint

# Each line of the side file: when, and how many rows had been logged by then.
LOGS_ALL_THE_TIME = """
    diary = open(sys.argv[1], "w", buffering=1)
    run = start()
    for step in range(10**9):
        run.log({"value": step * 0.5, "twice": step * 2.0}, step=step)
        if step == 0:
            ready()
        if step % 20 == 0:
            diary.write(f"{time.time()} {step + 1}\\n")
            time.sleep(0.005)
"""

SAVES_ALL_THE_TIME = """
    import numpy as np
    run = start()
    for step in range(10**9):
        run.log({"value": step}, step=step)
        # Step 0 is replaced again and again; the others come and go.
        run.checkpoint(step if step % 3 else 0, {"weights": np.full(50_000, step), "step": np.array(step)}, keep=3)
        if step == 0:
            ready()
"""

FINISHES = """
    run = start()
    for step in range(60_000):
        run.log({"value": step, **{f"other/{i}": 1.0 for i in range(10)}}, step=step)
    time.sleep(1.0)
    ready()
    run.finish()
"""


def rows_due(diary: Path, killed_at: float) -> int:
    """How many rows had been logged one second before the kill. The last line may be half written."""
    lines = [line.split() for line in diary.read_text().splitlines()[:-1]]
    return max((int(rows) for when, rows in lines if float(when) <= killed_at - 1.0), default=0)


def kill_while_logging(launch: Launch, book: Path, folder: Path, moments: list[float]) -> None:
    """One process for each moment, all in one book; each is killed so long after its first row."""
    children = [launch(LOGS_ALL_THE_TIME, folder / f"diary_{number}") for number in range(len(moments))]
    for child in children:
        wait_ready(child)
    began, killed = time.time(), {}
    for moment, number in sorted(zip(moments, range(len(moments)), strict=True)):
        time.sleep(max(0.0, began + moment - time.time()))
        killed[number] = time.time()
        children[number].send_signal(signal.SIGKILL)
    for child in children:
        child.wait()

    opened = rollbook.open(book)
    assert opened.sql("select distinct status from runs").fetchall() == [("lost",)]
    assert opened.problems() == []
    for number, at in killed.items():
        points = opened.sql(
            "select step, m.name, value from metrics m join runs using (run_id) where command like ? order by all",
            [f"%diary_{number}"],
        ).fetchall()
        rows = len(points) // 2
        assert rows >= rows_due(folder / f"diary_{number}", at)
        expected = [
            (step, name, step * factor) for step in range(rows) for name, factor in (("twice", 2.0), ("value", 0.5))
        ]
        assert points == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_a_kill_loses_at_most_the_last_second(launch: Launch, book: Path, tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed).choices([step / 1000 for step in range(2500)], k=10)

    kill_while_logging(launch, book, tmp_path, moments)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_a_kill_loses_at_most_the_last_second_at_two_hundred_moments(
    launch: Launch, book: Path, tmp_path: Path, seed: int
) -> None:
    moments = random.Random(seed).choices([step / 1000 for step in range(7000)], k=10)

    kill_while_logging(launch, book, tmp_path, moments)


def kill_while_saving(launch: Launch, book: Path, moment: float) -> None:
    child = launch(SAVES_ALL_THE_TIME)
    wait_ready(child)
    time.sleep(moment)
    child.send_signal(signal.SIGKILL)
    child.wait()

    (run,) = rollbook.open(book).runs()
    assert run.status == "lost"
    saved = list_checkpoints(run.folder)
    assert saved
    for checkpoint in saved:
        loaded = load_checkpoint(run.folder, checkpoint.step).tensors
        assert (loaded["weights"] == loaded["step"]).all()
    steps = steps_of(book)
    assert steps == list(range(len(steps)))
    assert max(checkpoint.rows for checkpoint in saved) <= len(steps)


@pytest.mark.parametrize("case", range(4))
def test_a_kill_during_a_save_leaves_only_checkpoints_that_load(launch: Launch, book: Path, case: int) -> None:
    kill_while_saving(launch, book, random.Random(case).uniform(0.0, 0.6))


@pytest.mark.slow
@pytest.mark.parametrize("case", range(100, 150))
def test_fifty_kills_during_saves_leave_only_checkpoints_that_load(launch: Launch, book: Path, case: int) -> None:
    kill_while_saving(launch, book, random.Random(case).uniform(0.0, 1.5))


def kill_while_finishing(launch: Launch, book: Path, moment: float) -> None:
    child = launch(FINISHES)
    wait_ready(child)
    time.sleep(moment)
    child.send_signal(signal.SIGKILL)
    child.wait()

    assert steps_of(book) == list(range(60_000))
    assert statuses(book)[0] in ("lost", "finished")
    (figures,) = rollbook.open(book).sql("select count, min, max from summaries where name = 'value'").fetchall()
    assert figures == (60_000, 0.0, 59_999.0)


@pytest.mark.parametrize("moment", [0.0, 0.04, 0.1, 0.2, 0.4])
def test_a_kill_during_finish_loses_nothing(launch: Launch, book: Path, moment: float) -> None:
    kill_while_finishing(launch, book, moment)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(60))
def test_sixty_kills_during_finish_lose_nothing(launch: Launch, book: Path, case: int) -> None:
    kill_while_finishing(launch, book, case * 0.012)


def test_a_killed_run_can_be_resumed_and_counts_on(
    launch: Launch, book: Path, tmp_path: Path, complete: Complete
) -> None:
    child = launch(LOGS_ALL_THE_TIME, tmp_path / "diary")
    wait_ready(child)
    wait_until(lambda: bool(steps_of(book)))
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = len(steps_of(book))

    again = complete(
        """
        run = start(resume=sys.argv[1])
        for _ in range(100):
            run.log({"value": 1.0})
        """,
        rollbook.open(book).runs()[0].run_id,
    )

    assert again.returncode == 0, again.stderr
    assert len(steps_of(book)) == before + 100
    assert statuses(book) == ["finished"]
