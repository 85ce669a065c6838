"""The Python calls that other people's programs make. A change here breaks them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import rollbook


@pytest.fixture
def run(book):
    run = rollbook.start(
        "hopper",
        config={"algo": "sac", "env": "Hopper-v5", "seed": 1, "lr": 3e-4},
        tags=["pilot"],
        track=["lr"],
        verbosity="info",
        notes="why",
        save_code=False,
    )
    yield run
    run.finish()


def test_a_run_takes_metrics_checkpoints_media_and_ends(run, book, tmp_path):
    run.log({"charts/episodic_return": 812.5, "losses/critic": 0.3}, step=1000)
    run.log({"charts/episodic_return": 900.0}, step=2000, level="essential")
    run.log(lambda: {"debug/weight_norm": 1 / 0}, step=1000, level="debug")
    run.checkpoint(1000, {"w": np.ones(3)}, extra={"epoch": 3}, keep=3)
    run.watch("critic", {"w": np.ones(3)}, step=1000)
    run.figure("critic", np.zeros((4, 4, 3), dtype=np.uint8))
    run.video("rollout", np.zeros((2, 16, 16, 3), dtype=np.uint8), fps=30)
    (tmp_path / "notes.txt").write_text("hello")
    run.save("notes.txt")
    run.finish()

    (record,) = rollbook.open(book).runs()
    assert (record.run_id, record.task, record.status, record.notes) == (run.id, "hopper", "finished", "why")
    assert (record.algo, record.env, record.seed, record.tags) == ("sac", "Hopper-v5", 1, ["pilot"])
    assert record.name == f"{run.id}&algo=sac&env=Hopper-v5&lr=0.0003"
    assert record.metric_names() == ["charts/episodic_return", "losses/critic"]


def test_start_has_its_keywords():
    parameters = inspect.signature(rollbook.start).parameters

    assert {
        "task", "config", "tags", "track", "verbosity", "notes", "book", "name", "parent", "resume", "save_code",
    } <= set(parameters)  # fmt: skip


def test_with_ends_a_run_as_finished_or_failed(book):
    with rollbook.start("a", save_code=False) as good:
        pass
    with pytest.raises(KeyError), rollbook.start("a", save_code=False) as bad:
        raise KeyError("x")

    opened = rollbook.open(book)
    assert (opened.run(good.id).status, opened.run(bad.id).status) == ("finished", "failed")


def test_a_book_opens_by_path_or_by_the_environment(run, book):
    run.finish()

    assert rollbook.open(str(book)).path == rollbook.open(book).path == rollbook.open().path == book


def test_a_book_answers_sql_runs_and_top(run, book):
    run.log({"charts/episodic_return": 5.0}, step=1)
    run.finish()
    opened = rollbook.open()

    assert opened.sql("select algo, value from runs join metrics using (run_id)").fetchall() == [("sac", 5.0)]
    assert opened.sql("select algo from runs where seed = ?", [1]).fetchall() == [("sac",)]
    (record,) = opened.runs(where="algo = 'sac' and 'pilot' in tags")
    assert isinstance(record, rollbook.RunRecord)
    assert opened.runs("'latest' in tags") == []
    (best,) = opened.top(5, algo="sac", env="Hopper-v5", by="auc", metric="charts/episodic_return", over="seed")
    assert (best.rank, best.score, best.n, best.run_ids) == (1, 5.0, 1, [run.id])


def test_a_record_gives_metrics_checkpoints_and_their_arrays(run, book):
    run.log({"losses/critic": 0.5}, step=10)
    run.log({"losses/critic": 0.25}, step=20)
    run.checkpoint(10, {"w": np.zeros(2)})
    run.checkpoint(20, {"w": np.ones(2)}, extra={"epoch": 2})
    run.finish()
    record = rollbook.open().run(run.id)

    table = record.metrics("losses/critic")
    assert table.column_names == ["step", "time", "value"]
    assert table["value"].to_pylist() == [0.5, 0.25]
    assert [checkpoint.step for checkpoint in record.checkpoints()] == [10, 20]
    newest = record.load_checkpoint(step=None)
    assert (newest.step, newest.extra, newest.tensors["w"].tolist()) == (20, {"epoch": 2}, [1.0, 1.0])
    assert record.load_checkpoint(10).tensors["w"].tolist() == [0.0, 0.0]
    with pytest.raises(rollbook.RollbookError, match="did you mean 'losses/critic'"):
        record.metrics("losses/critc")


def test_every_error_is_a_rollbook_error_with_an_exit_code():
    from rollbook import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]

    assert len(kinds) > 15
    for kind in kinds:
        assert issubclass(kind, rollbook.RollbookError)
        if issubclass(kind, errors.TrainingFailed):
            assert kind.exit_code == 1
        else:
            assert kind.exit_code == (2 if issubclass(kind, errors.UsageError) else 4)
        assert kind.__name__ in errors.__doc__
    assert str(errors.DataError("what", "remedy")) == "what\nhint: remedy"
