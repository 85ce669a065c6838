"""run.figure, video, text, save, checkpoint, tag and note: what is not a number."""

from __future__ import annotations

import numpy as np
import pytest

import rollbook
from rollbook.errors import UsageError


@pytest.fixture
def run(book):
    run = rollbook.start("task", tags=["pilot", "pilot"], notes="why", save_code=False)
    yield run
    run.finish()


def media(run):
    query = "select name, step, kind from media order by name, step"
    return rollbook.open(run.book).sql(query).fetchall()


def test_media_are_filed_by_name_and_step(run):
    run.log({"x": 1.0}, step=41)
    run.figure("eval/critic", np.zeros((8, 8, 3), dtype=np.uint8), step=10)
    run.figure("eval/critic", np.zeros((8, 8)), step=20)
    run.video("rollout", np.zeros((3, 16, 16, 3), dtype=np.uint8), fps=10, step=20)
    run.text("plan", "try a larger buffer")
    run.finish()

    assert media(run) == [
        ("eval/critic", 10, "figure"),
        ("eval/critic", 20, "figure"),
        ("plan", 41, "text"),
        ("rollout", 20, "video"),
    ]


def test_a_matplotlib_figure_is_saved_as_png(run):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2, 3])

    path = run.figure("curve", figure, step=1)

    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_file_and_a_folder_are_copied_into_the_run(run, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "logs" / "deep").mkdir(parents=True)
    (tmp_path / "logs" / "deep" / "a.txt").write_text("a")

    file = run.save("notes.txt")
    folder = run.save("logs", name="all-logs")

    assert file.read_text() == "hello"
    assert (folder / "deep" / "a.txt").read_text() == "a"
    assert file.is_relative_to(run.folder)


@pytest.mark.parametrize("name", ["../../escape", "..", "/etc/passwd", "a/../../../b"])
def test_no_name_leads_out_of_the_run(run, name, tmp_path):
    (tmp_path / "x").write_text("x")
    text = run.text(name, "hello", step=1)
    try:
        saved = run.save("x", name=name)
    except UsageError:
        saved = None

    assert text.resolve().is_relative_to(run.folder.resolve())
    assert saved is None or saved.resolve().is_relative_to(run.folder.resolve())
    assert {path.name for path in tmp_path.iterdir()} == {"book", "x"}
    assert {path.name for path in (run.book / "tasks").rglob("*") if not path.is_relative_to(run.folder)} == {"task"}


def test_a_file_that_is_not_there_is_named(run):
    with pytest.raises(UsageError, match=r"there is no file nowhere\.txt"):
        run.save("nowhere.txt")


def test_a_checkpoint_is_listed_and_loaded_with_its_extra(run):
    run.checkpoint(100, {"w": np.arange(3.0)}, extra={"epoch": 3})
    run.checkpoint(200, {"w": np.arange(3.0) + 1}, extra={"epoch": 6})
    run.finish()

    record = rollbook.open(run.book).run(run.id)
    assert [checkpoint.step for checkpoint in record.checkpoints()] == [100, 200]
    newest, older = record.load_checkpoint(), record.load_checkpoint(step=100)
    assert (newest.step, newest.extra) == (200, {"epoch": 6})
    assert older.tensors["w"].tolist() == [0.0, 1.0, 2.0]


def test_keep_keeps_the_newest(run):
    for step in range(5):
        run.checkpoint(step, {"w": np.zeros(1)}, keep=2)

    assert [checkpoint.step for checkpoint in rollbook.open(run.book).run(run.id).checkpoints()] == [3, 4]


def test_after_the_end_nothing_more_is_taken(run, tmp_path):
    run.finish()
    (tmp_path / "x").write_text("x")

    for call in (
        lambda: run.checkpoint(1, {}),
        lambda: run.text("t", "x"),
        lambda: run.figure("f", np.zeros((2, 2))),
        lambda: run.video("v", np.zeros((2, 2, 2, 3), dtype=np.uint8)),
        lambda: run.save("x"),
        lambda: run.tag("t"),
        lambda: run.note("n"),
        lambda: run.log_mean({"x": 1.0}),
    ):
        with pytest.raises(UsageError, match="has ended"):
            call()


def test_tags_and_notes_of_the_start_and_later_ones_add_up(run):
    run.tag("latest", "pr-308")
    run.note("the critic was too large")
    run.finish()

    record = rollbook.open(run.book).run(run.id)
    assert record.tags == ["latest", "pilot", "pr-308"]
    assert record.notes == "why\nthe critic was too large"


@pytest.mark.parametrize(("given", "tags"), [("a, b,,a", ["a", "b"]), (["x", " ", "x "], ["x"]), (None, []), ([], [])])
def test_tags_come_as_a_list_or_with_commas(book, given, tags):
    run = rollbook.start("task", tags=given, save_code=False)
    run.finish()

    assert rollbook.open(book).run(run.id).tags == tags


def test_a_failed_block_is_a_failed_run_with_its_traceback(book):
    with pytest.raises(ZeroDivisionError), rollbook.start("task", save_code=False) as run:
        run.log({"x": 1.0})
        1 / 0  # noqa: B018

    record = rollbook.open(book).run(run.id)
    assert record.status == "failed"
    assert "ZeroDivisionError" in record.stored().last_status.reason
