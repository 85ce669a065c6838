"""Going on with a run, going back in one, and branching off."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from makers import points, record

import rollbook
from rollbook.errors import CheckpointNotFound, RunIsLive, RunNotFound


def start(**options):
    return rollbook.start("task", save_code=False, **options)


def state(value):
    return {"w": np.full(2, float(value))}


def log_rows(run, first, stop, *, value, save_at=()):
    """A row a step; the run itself counts them, and must come to the same."""
    for step in range(first, stop):
        run.log({"x": value})
        if step in save_at:
            run.checkpoint(step, state(step), extra={"made_by": value})


def test_rows_after_the_checkpoint_no_longer_count_and_it_says_how_many(book, capsys):
    with start() as run:
        log_rows(run, 0, 10, value=0.0, save_at=[6])
    with start(resume=run.id) as again:
        assert again.starting_point().tensors["w"].tolist() == [6.0, 6.0]
        log_rows(again, 7, 9, value=1.0)

    assert points(book, run.id, "x") == [(step, 0.0 if step <= 6 else 1.0) for step in range(9)]
    assert "goes on from its checkpoint at step 6; 3 rows logged after it no longer count" in capsys.readouterr().err
    assert again.id == run.id
    assert again.attempt == 1
    assert record(book, run.id).status == "finished"


def test_sql_summaries_and_last_step_see_the_joined_run(book):
    with start() as run:
        log_rows(run, 0, 10, value=0.0, save_at=[4])
    with start(resume=run.id) as again:
        log_rows(again, 5, 7, value=2.0)

    opened = rollbook.open(book)
    assert opened.sql("select count(*), sum(value) from metrics").fetchall() == [(7, 4.0)]
    assert opened.sql("select count, max, last from summaries").fetchall() == [(7, 2.0, 2.0)]


def test_going_back_twice_joins_three_attempts(book, capsys):
    with start() as run:
        log_rows(run, 0, 20, value=0.0, save_at=[4, 9])
    with start(resume=run.id, resume_step=9) as second:
        log_rows(second, 10, 15, value=1.0, save_at=[12])
    capsys.readouterr()
    with start(resume=run.id, resume_step=4) as third:
        log_rows(third, 5, 8, value=2.0)

    assert points(book, run.id, "x") == [(step, 0.0 if step <= 4 else 2.0) for step in range(8)]
    # Ten rows of the first attempt still counted, and five of the second; five stay.
    assert "10 rows logged after it no longer count" in capsys.readouterr().err


def test_going_on_twice_keeps_what_each_attempt_added(book):
    with start() as run:
        log_rows(run, 0, 5, value=0.0, save_at=[3])
    with start(resume=run.id) as second:
        log_rows(second, 4, 9, value=1.0, save_at=[7])
    with start(resume=run.id) as third:
        log_rows(third, 8, 10, value=2.0)

    assert [value for _, value in points(book, run.id, "x")] == [0.0] * 4 + [1.0] * 4 + [2.0] * 2


def test_after_going_back_the_newest_checkpoint_is_the_one_of_the_new_way(book):
    with start() as run:
        log_rows(run, 0, 31, value=0.0, save_at=[10, 20, 30])
    with start(resume=run.id, resume_step=10) as again:
        log_rows(again, 11, 16, value=1.0, save_at=[15])

    seen = record(book, run.id)
    assert [checkpoint.step for checkpoint in seen.checkpoints()] == [10, 15]
    assert seen.load_checkpoint().extra == {"made_by": 1.0}
    with start(resume=run.id) as third:
        assert third.starting_point().step == 15


def test_a_step_saved_again_on_the_new_way_is_the_new_one(book):
    with start() as run:
        log_rows(run, 0, 21, value=0.0, save_at=[10, 20])
    with start(resume=run.id, resume_step=10) as again:
        log_rows(again, 11, 21, value=1.0, save_at=[20])

    assert record(book, run.id).load_checkpoint(20).extra == {"made_by": 1.0}
    with start(resume=run.id) as third:
        assert third.starting_point().extra == {"made_by": 1.0}


def test_a_run_without_a_checkpoint_keeps_everything_and_counts_on(book, capsys):
    with start() as run:
        log_rows(run, 0, 5, value=0.0)
    with start(resume=run.id) as again:
        assert again.starting_point() is None
        again.log({"x": 1.0})

    assert points(book, run.id, "x") == [*((step, 0.0) for step in range(5)), (5, 1.0)]
    assert "has no checkpoint: everything logged so far stays" in capsys.readouterr().err


def test_a_run_that_logged_nothing_can_be_resumed(book):
    start().finish()
    (run,) = rollbook.open(book).runs()
    with start(resume=run.run_id) as again:
        again.log({"x": 1.0})

    assert points(book, run.run_id, "x") == [(0, 1.0)]


def test_an_unknown_step_lists_the_checkpoints_that_there_are(book):
    with start() as run:
        log_rows(run, 0, 21, value=0.0, save_at=[10, 20])

    with pytest.raises(CheckpointNotFound, match="no checkpoint 15") as error:
        start(resume=run.id, resume_step=15)

    assert error.value.hint == "it has 10, 20"
    assert len(record(book, run.id).stored().attempts) == 1


def test_a_changed_config_is_recorded_with_the_attempt_that_changed_it(book):
    with start(config={"lr": 1e-3, "seed": 1}) as run:
        run.log({"x": 1.0})
    with start(config={"lr": 1e-4, "seed": 1}, resume=run.id) as again:
        assert again.config == {"lr": 1e-4, "seed": 1}

    seen = record(book, run.id)
    assert seen.config == {"lr": 1e-4, "seed": 1}
    assert seen.stored().info.config == {"lr": 1e-3, "seed": 1}
    assert seen.stored().attempts[1].status.config_changes == {"lr": 1e-4}


def test_a_resume_without_a_config_keeps_the_one_it_had(book):
    with start(config={"lr": 1e-3}) as run:
        pass
    with start(resume=run.id) as again:
        assert again.config == {"lr": 1e-3}


def test_a_live_run_cannot_be_resumed(book):
    with start() as run, pytest.raises(RunIsLive, match=f"is still running as process {os.getpid()}") as error:
        start(resume=run.id)

    assert "parent=" in error.value.hint


def test_an_attempt_that_is_just_being_opened_counts_as_live(book):
    with start() as run:
        run.log({"x": 1.0})
    info = run.folder / "run.json"
    info.write_text(info.read_text().replace('"started_at": ', '"started_at": 1'))  # started long ago
    (run.folder / "attempts" / "1").mkdir()

    with pytest.raises(RunIsLive):
        start(resume=run.id)


def test_an_attempt_that_was_killed_as_it_opened_does_not_block_the_run_for_ever(book):
    with start() as run:
        log_rows(run, 0, 3, value=0.0)
    (run.folder / "attempts" / "1").mkdir()
    long_ago = time.time() - 1_000
    os.utime(run.folder / "attempts" / "1", (long_ago, long_ago))

    with start(resume=run.id) as again:
        again.log({"x": 1.0})

    assert again.attempt == 2
    assert [value for _, value in points(book, run.id, "x")] == [0.0, 0.0, 0.0, 1.0]


RESUMES = """
import sys, time
import rollbook
while time.time() < float(sys.argv[2]):
    pass
try:
    run = rollbook.start("task", resume=sys.argv[1], save_code=False)
except rollbook.RollbookError as error:
    print(type(error).__name__)
else:
    print("won", flush=True)
    sys.stdin.read()
    run.finish()
"""


def test_of_two_processes_that_resume_at_once_one_wins(book):
    with start() as run:
        run.log({"x": 1.0})
    at = str(time.time() + 2.0)
    both = [
        subprocess.Popen(
            [sys.executable, "-c", RESUMES, run.id, at], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    # Whoever loses says so while the winner is still at it.
    said = sorted(process.stdout.readline().strip() for process in both)
    for process in both:
        process.communicate()

    assert said == ["RunIsLive", "RunIsLive", "won"]
    assert len(record(book, run.id).stored().attempts) == 2


def test_an_unknown_run_is_named(book):
    start().finish()

    with pytest.raises(RunNotFound, match="no run matches 'nowhere'"):
        start(resume="nowhere")


def test_a_fork_knows_its_parent_and_starts_from_its_newest_checkpoint(book):
    with start(config={"lr": 1.0}) as parent:
        log_rows(parent, 0, 21, value=0.0, save_at=[10, 20])
    with start(config={"lr": 0.5}, parent=parent.id) as fork:
        assert fork.starting_point().step == 20
        fork.log({"x": 1.0})

    seen = record(book, fork.id)
    assert fork.id != parent.id
    assert seen.parent == parent.id
    assert seen.stored().info.parent_step == 20
    assert points(book, fork.id, "x") == [(0, 1.0)]
    assert len(points(book, parent.id, "x")) == 21


def test_a_fork_may_start_from_an_older_checkpoint_with_the_metrics_up_to_it(book):
    with start() as parent:
        log_rows(parent, 0, 31, value=0.0, save_at=[10, 20])
    with start(parent=parent.id, parent_step=10, copy_metrics=True) as fork:
        assert fork.starting_point().step == 10
        fork.log({"x": 1.0})

    assert points(book, fork.id, "x") == [*((step, 0.0) for step in range(11)), (11, 1.0)]
    assert rollbook.open(book).sql(f"select count from summaries where run_id = '{fork.id}'").fetchall() == [(12,)]


def test_without_a_step_the_copied_metrics_end_at_the_newest_checkpoint(book):
    with start() as parent:
        log_rows(parent, 0, 31, value=0.0, save_at=[20])
    with start(parent=parent.id, copy_metrics=True) as fork:
        fork.log({"x": 1.0})

    assert [step for step, _ in points(book, fork.id, "x")] == list(range(22))


def test_copied_metrics_keep_their_levels(book):
    with start(verbosity="debug") as parent:
        parent.log({"d": 1.0}, step=1, level="debug")
        parent.log({"e": 1.0}, step=1, level="essential")
    with start(parent=parent.id, copy_metrics=True) as fork:
        pass

    levels = rollbook.open(book).sql("select name, level from metrics where run_id = ? order by name", [fork.id])
    assert levels.fetchall() == [("d", "debug"), ("e", "essential")]


def test_a_fork_with_copied_metrics_can_be_resumed(book, capsys):
    with start() as parent:
        log_rows(parent, 0, 11, value=0.0, save_at=[10])
    with start(parent=parent.id, copy_metrics=True) as fork:
        log_rows(fork, 11, 16, value=1.0, save_at=[13])
    with start(resume=fork.id) as again:
        assert again.starting_point().step == 13
        again.log({"x": 2.0})

    assert points(book, fork.id, "x") == [
        *((step, 0.0) for step in range(11)), (11, 1.0), (12, 1.0), (13, 1.0), (14, 2.0),
    ]  # fmt: skip
    assert "2 rows logged after it no longer count" in capsys.readouterr().err


def test_a_live_run_can_be_forked(book):
    with start() as parent:
        log_rows(parent, 0, 11, value=0.0, save_at=[10])
        with start(parent=parent.id) as fork:
            assert fork.starting_point().step == 10


def test_a_killed_run_goes_on_after_the_last_row_that_can_be_read(book):
    program = """
import os, time, rollbook
run = rollbook.start("task", save_code=False)
run.log({"x": 0.0}, step=0)
time.sleep(1.0)
for step in range(1, 500):
    run.log({"x": 0.0}, step=step)
time.sleep(1.2)
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program])
    (killed,) = rollbook.open(book).runs()
    with start(resume=killed.run_id) as again:
        again.log({"x": 1.0})

    assert points(book, killed.run_id, "x")[-1] == (500, 1.0)


def test_nothing_of_the_first_attempt_is_rewritten(book):
    with start() as run:
        log_rows(run, 0, 10, value=0.0, save_at=[5])
    files = {path: path.read_bytes() for path in Path(run.folder, "attempts", "0").iterdir()}
    with start(resume=run.id) as again:
        again.log({"x": 1.0})

    assert {path: path.read_bytes() for path in Path(run.folder, "attempts", "0").iterdir()} == files


def test_an_attempt_that_was_killed_as_it_opened_hides_nothing(book):
    with start() as run:
        log_rows(run, 0, 3, value=0.0)
    (run.folder / "attempts" / "1").mkdir()

    assert len(points(book, run.id, "x")) == 3


def test_after_going_back_keep_counts_the_checkpoints_of_the_new_way(book):
    with start() as run:
        log_rows(run, 0, 31, value=0.0, save_at=[10, 20, 30])
    with start(resume=run.id, resume_step=10) as again:
        for step in range(11, 16):
            again.log({"x": 1.0}, step=step)
            again.checkpoint(step, state(step), keep=3)

    assert [checkpoint.step for checkpoint in record(book, run.id).checkpoints()] == [13, 14, 15]
