"""delete, archive, restore, purge, thin and du."""

from __future__ import annotations

import os
import time

import pytest
from makers import finished, points, record

import rollbook
from rollbook.book import objects, tidy
from rollbook.book.code import restore as restore_code
from rollbook.book.layout import Layout
from rollbook.errors import RunIsLive


@pytest.fixture
def layout(book):
    return Layout(book)


def shown(book):
    return {run.run_id for run in rollbook.open(book).runs()}


def views_with(book, run_id):
    opened = rollbook.open(book)
    views = ("runs", "params", "tags", "metrics", "summaries", "newest", "checkpoints", "media")
    return [view for view in views if opened.sql(f"select 1 from {view} where run_id = ?", [run_id]).fetchall()]


def with_everything(book):
    run = rollbook.start("task", config={"algo": "sac", "seed": 1}, tags=["t"], save_code=False)
    run.log({"x": 1.0}, step=1)
    run.checkpoint(1, {})
    run.text("plan", "hello")
    run.finish()
    return run


@pytest.mark.parametrize("hide", [tidy.delete, tidy.archive])
def test_a_hidden_run_is_in_no_view_and_comes_back_whole(book, layout, hide):
    run = with_everything(book)
    before = views_with(book, run.id)

    hide(layout, [run.id])
    assert views_with(book, run.id) == []
    assert [(hidden.run_id, hidden.state) for hidden in tidy.hidden_runs(layout)] == [
        (run.id, "deleted" if hide is tidy.delete else "archived")
    ]

    tidy.restore(layout, [run.id])
    assert views_with(book, run.id) == before
    assert len(before) == 8
    assert tidy.hidden_runs(layout) == []
    assert points(book, run.id, "x") == [(1, 1.0)]


def test_an_archived_run_lies_in_the_archive(book, layout):
    run = finished(book, task="a/b")

    tidy.archive(layout, [run])

    assert layout.archived_folder("a/b", run).is_dir()
    assert not layout.run_folder("a/b", run).exists()


def test_a_live_run_can_be_deleted_but_neither_archived_nor_purged(book, layout):
    with rollbook.start("task", save_code=False) as run:
        with pytest.raises(RunIsLive, match="cannot be archived"):
            tidy.archive(layout, [run.id])
        assert run.folder.is_dir()
        tidy.delete(layout, [run.id])
        with pytest.raises(RunIsLive, match="cannot be purged"):
            tidy.purge(layout, [run.id])
        assert run.folder.is_dir()


def test_a_purge_removes_only_what_was_deleted_and_asked_for(book, layout):
    kept, deleted, archived, purged = (finished(book, seed=seed) for seed in range(4))
    tidy.delete(layout, [deleted, purged])
    tidy.archive(layout, [archived])

    result = tidy.purge(layout, [purged, archived, kept, "unknown"])

    assert (result.runs, result.bytes > 500) == (1, True)
    assert shown(book) == {kept}
    assert {run.run_id for run in tidy.hidden_runs(layout)} == {deleted, archived}
    assert not list(layout.tasks.rglob(f"*{purged}*"))


def test_a_purged_run_does_not_come_back(book, layout):
    run = finished(book)
    tidy.delete(layout, [run])
    tidy.purge(layout, [run])
    tidy.restore(layout, [run])

    assert shown(book) == set()
    assert tidy.purge(layout, [run]).runs == 0


def test_of_two_purges_at_once_neither_fails(book, layout, monkeypatch):
    run = finished(book)
    tidy.delete(layout, [run])
    hidden = tidy.hidden_runs(layout)
    tidy.purge(layout, [run])
    monkeypatch.setattr(tidy, "hidden_runs", lambda _: hidden)  # the other one looked a moment before
    monkeypatch.setattr(tidy, "read_run", lambda folder: type("Ended", (), {"state": lambda self, now: "finished"})())

    assert tidy.purge(layout, [run]).runs == 0


# ---- code


def with_code(book, tmp_path, text):
    """A run of a project of one file."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True, exist_ok=True)
    (project / "train.py").write_text(text)
    os.chdir(project)
    run = rollbook.start("task", book=book)
    run.finish()
    return run


@pytest.fixture
def scripted(monkeypatch):
    """The project around the working folder is the program's."""
    monkeypatch.setattr("rollbook.track.start._script", lambda: None)


def age(layout, seconds=7_200):
    for path in layout.objects.rglob("*"):
        os.utime(path, (time.time() - seconds,) * 2)


def test_a_purge_removes_the_code_that_no_run_needs_any_more(book, layout, tmp_path, scripted):
    first = with_code(book, tmp_path, "print(1)\n")
    second = with_code(book, tmp_path, "print(2)\n")
    age(layout)
    tidy.delete(layout, [first.id])

    swept = tidy.purge(layout, [first.id]).objects

    assert swept.count == 2  # the file and its manifest; the list of packages is the second run's too
    assert restore_code(layout, record(book, second.id).stored().provenance.code, tmp_path / "out") == 1
    assert (tmp_path / "out" / "train.py").read_text() == "print(2)\n"


@pytest.mark.parametrize("hide", [tidy.delete, tidy.archive])
def test_the_code_of_a_hidden_run_stays(book, layout, tmp_path, scripted, hide):
    run = with_code(book, tmp_path, "print(1)\n")
    age(layout)
    hide(layout, [run.id])

    assert tidy.purge(layout, []).objects.count == 0
    tidy.restore(layout, [run.id])
    assert restore_code(layout, record(book, run.id).stored().provenance.code, tmp_path / "out") == 1


def test_young_code_stays_since_its_run_may_be_about_to_name_it(book, layout):
    layout.create()
    object_id = objects.put(layout, b"of a run that starts now")

    assert tidy.purge(layout, []).objects.count == 0
    assert objects.contains(layout, object_id)


def test_a_damaged_manifest_keeps_everything(book, layout, tmp_path, scripted):
    run = with_code(book, tmp_path, "print(1)\n")
    manifest = layout.object_path(record(book, run.id).stored().provenance.code)
    manifest.write_bytes(b"damaged")
    orphan = objects.put(layout, b"nobody's")
    age(layout)

    assert tidy.purge(layout, []).objects.count == 0
    assert objects.contains(layout, orphan)


def test_a_damaged_attempt_keeps_everything(book, layout, tmp_path, scripted):
    run = with_code(book, tmp_path, "print(1)\n")
    code = record(book, run.id).stored().provenance.code
    (run.folder / "attempts" / "0" / "attempt.json").write_text("{")
    age(layout)

    tidy.purge(layout, [])

    assert objects.contains(layout, code)


# ---- thin


def verbose(book):
    with rollbook.start("task", verbosity="debug", save_code=False) as run:
        for step in range(2_000):
            run.log({"d": step * 0.1}, step=step, level="debug")
        run.log({"i": 1.0}, step=5, level="info")
        run.log({"e": 2.0, "both": 1.0}, step=6, level="essential")
        run.log({"both": 3.0}, step=7, level="debug")
    return run


@pytest.mark.parametrize(
    ("level", "removed", "left"), [("debug", 2_001, ["both", "e", "i"]), ("info", 2_002, ["both", "e"])]
)
def test_thinning_removes_a_level_and_those_above_for_good(book, layout, level, removed, left):
    run = verbose(book)

    thinned = tidy.thin(layout, run.id, run.folder, level)

    assert thinned.points == removed
    assert thinned.bytes > 0
    seen = record(book, run.id)
    assert seen.metric_names() == left
    assert points(book, run.id, "both") == [(6, 1.0)]
    names = rollbook.open(book).sql("select name, count from summaries order by name").fetchall()
    assert names == [(name, 1) for name in left]
    assert tidy.thin(layout, run.id, run.folder, level).points == 0


def test_a_question_asked_before_sees_the_thinned_run_afterwards(book, layout):
    run = verbose(book)
    opened = rollbook.open(book)
    assert opened.sql("select count(*) from metrics where name = 'd'").fetchall() == [(2_000,)]

    tidy.thin(layout, run.id, run.folder, "debug")

    assert opened.sql("select count(*) from metrics where name = 'd'").fetchall() == [(0,)]


def test_a_live_run_is_not_thinned(book, layout):
    with rollbook.start("task", verbosity="debug", save_code=False) as run:
        run.log({"d": 1.0}, step=1, level="debug")
        assert tidy.thin(layout, run.id, run.folder, "debug").points == 0

    assert points(book, run.id, "d") == [(1, 1.0)]


LOST = """
import os, signal, time
import rollbook
run = rollbook.start("task", save_code=False)
run.log({"e": 1.0}, step=1, level="essential")
for step in range(50):
    run.log({"i": 1.0}, step=step)
run.checkpoint(49, {})
os.kill(os.getpid(), signal.SIGKILL)
"""


def settle(folder):
    """As it is a minute later: the catalogue then takes its figures from the files, and keeps them."""
    os.utime(folder, (time.time() - 60,) * 2)


def test_thinning_a_lost_run_keeps_its_last_step(book, layout, program):
    program(LOST)
    ((lost, folder),) = [(run.run_id, run.folder) for run in rollbook.open(book).runs()]
    settle(folder)
    assert (record(book, lost).status, record(book, lost).last_step) == ("lost", 49)

    assert tidy.thin(layout, lost, folder, "info").points == 50

    assert record(book, lost).last_step == 49
    settle(folder)
    assert record(book, lost).last_step == 49
    assert rollbook.open(book).runs("coalesce(last_step, 0) < 10") == []


@pytest.mark.parametrize("further", [0, 5])
def test_thinning_a_run_that_was_resumed_from_a_checkpoint_keeps_its_last_step(book, layout, further):
    with rollbook.start("task", save_code=False) as run:
        run.log({"e": 1.0}, step=1, level="essential")
        for step in range(20):
            run.log({"i": 1.0}, step=step)
        run.checkpoint(15, {})
        run.log({"i": 1.0}, step=30)  # no longer counts
    with rollbook.start("task", resume=run.id, save_code=False) as again:
        for _ in range(further):
            again.log({"i": 1.0})
    settle(run.folder)
    before = record(book, run.id).last_step

    assert tidy.thin(layout, run.id, run.folder, "info").points

    assert before >= 15
    assert record(book, run.id).last_step == before
    settle(run.folder)
    assert record(book, run.id).last_step == before


# ---- du


def test_usage_says_what_takes_room_largest_first_archived_ones_too(book, layout):
    import numpy as np

    small = finished(book, task="my task")
    with rollbook.start("task", save_code=False) as large:
        large.checkpoint(1, {"w": np.zeros(100_000)})
        large.text("t", "x" * 5_000)
    tidy.archive(layout, [small])

    first, second = tidy.usage(layout)

    assert (first.run_id, first.checkpoints > 800_000, first.media >= 5_000) == (large.id, True, True)
    assert (second.run_id, second.task, second.checkpoints) == (small, "my task", 0)
    assert first.total == tidy.size_of(large.folder)


def test_a_folder_that_is_not_there_takes_no_room(tmp_path):
    assert tidy.size_of(tmp_path / "nowhere") == 0
