"""Live outputs besides the book, each with its own verbosity."""

from __future__ import annotations

import csv
import math
import sys

import pytest
from makers import points

import rollbook
from rollbook.errors import UsageError
from rollbook.track import outputs


def log_each_level(run):
    run.log({"e": 1.0}, step=1, level="essential")
    run.log({"i": 2.0}, step=2, level="info")
    run.log(lambda: {"d": 3.0}, step=3, level="debug")


def csv_rows(run):
    with open(run.folder / "files" / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def scalars(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.folder / "files" / "tensorboard"))
    events.Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_the_console_table_goes_to_stderr_and_nothing_to_stdout(book, capsys):
    with rollbook.start("task", config={"algo": "sac"}, outputs=["console"], save_code=False) as run:
        run.log({"losses/critic": 0.25, "charts/SPS": 1000}, step=1_500)

    out, err = capsys.readouterr()
    assert out == ""
    assert f"{run.name}  step 1,500" in err
    assert "  losses/critic          0.25\n" in err


def test_the_console_prints_the_newest_values_every_few_seconds(book, capsys, monkeypatch):
    monkeypatch.setattr(outputs, "CONSOLE_SECONDS", 0.0)
    table = outputs.ConsoleTable("run", 1)

    table.write([(1, 0.0, {"x": 1.0, "y": math.nan}), (2, 0.0, {"x": 2.0})])

    assert capsys.readouterr().err == "run  step 2\n  x             2\n  y           nan\n"


def test_a_console_without_values_says_nothing(book, capsys):
    rollbook.start("task", outputs="console", save_code=False).finish()

    assert capsys.readouterr().err == ""


def test_the_csv_file_has_a_line_a_point_exact_to_the_last_digit(book):
    with rollbook.start("task", outputs=["csv"], save_code=False) as run:
        run.log({"a,b": 0.1 + 0.2, "c": math.nan}, step=1)
        run.log({"late": -math.inf}, step=2)

    rows = csv_rows(run)
    assert [(row["step"], row["name"], row["value"]) for row in rows] == [
        ("1", "a,b", "0.30000000000000004"),
        ("1", "c", "nan"),
        ("2", "late", "-inf"),
    ]
    assert all(abs(float(row["time"]) - run._started_at) < 60 for row in rows)


def test_a_resumed_run_goes_on_in_its_csv_file(book):
    with rollbook.start("task", outputs=["csv"], save_code=False) as run:
        run.log({"x": 1.0}, step=1)
    with rollbook.start("task", outputs=["csv"], resume=run.id, save_code=False) as again:
        again.log({"x": 2.0}, step=2)

    assert [row["value"] for row in csv_rows(run)] == ["1.0", "2.0"]


def test_tensorboard_reads_the_events_back(book):
    with rollbook.start("task", outputs=["tensorboard"], save_code=False) as run:
        run.log({"charts/episodic_return": 12.5, "losses/critic": 0.5}, step=1_000)
        run.log({"charts/episodic_return": 13.5}, step=2_000)

    assert scalars(run) == {"charts/episodic_return": [(1_000, 12.5), (2_000, 13.5)], "losses/critic": [(1_000, 0.5)]}


def test_each_output_has_its_own_verbosity(book):
    chosen = {"csv": "essential", "tensorboard": "debug"}
    with rollbook.start("task", verbosity="info", outputs=chosen, save_code=False) as run:
        log_each_level(run)

    assert [row["name"] for row in csv_rows(run)] == ["e"]
    assert set(scalars(run)) == {"e", "i", "d"}
    assert rollbook.open(book).run(run.id).metric_names() == ["e", "i"]


def test_an_output_may_be_more_verbose_than_the_book(book):
    with rollbook.start("task", verbosity="essential", outputs={"csv": "debug"}, save_code=False) as run:
        log_each_level(run)

    assert [row["name"] for row in csv_rows(run)] == ["e", "i", "d"]
    assert rollbook.open(book).run(run.id).metric_names() == ["e"]


def test_outputs_come_from_the_environment_or_the_configuration(book, tmp_path, monkeypatch):
    (tmp_path / "rollbook.toml").write_text('[outputs]\ncsv = "info"\n')
    with rollbook.start("task", save_code=False) as configured:
        configured.log({"x": 1.0})
    monkeypatch.setenv("ROLLBOOK_OUTPUTS", "tensorboard")
    with rollbook.start("task", save_code=False) as told:
        told.log({"x": 1.0})

    assert csv_rows(configured)
    assert scalars(told) == {"x": [(0, 1.0)]}
    assert not (told.folder / "files" / "metrics.csv").exists()


def test_an_unknown_output_names_the_nearest_and_leaves_no_run(book):
    with pytest.raises(UsageError) as error:
        rollbook.start("task", outputs=["tensorbord"], save_code=False)

    assert error.value.hint == "did you mean 'tensorboard'?"
    assert rollbook.open(book).runs() == []


def test_an_unknown_verbosity_of_an_output_is_refused(book):
    with pytest.raises(UsageError, match="'loud' is no verbosity"):
        rollbook.start("task", outputs={"csv": "loud"}, save_code=False)


def test_without_the_package_the_hint_installs_it_and_no_run_is_left(book, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(UsageError) as error:
        rollbook.start("task", outputs=["tensorboard"], save_code=False)

    assert error.value.hint == "pip install 'rollbook[tensorboard]'"
    assert rollbook.open(book).runs() == []


def test_an_output_that_fails_does_not_stop_the_book(book, capsys, monkeypatch):
    def broken(self, rows):
        raise ValueError("no more ink")

    monkeypatch.setattr(outputs.CsvFile, "write", broken)
    with rollbook.start("task", outputs=["csv"], save_code=False) as run:
        run.log({"x": 1.0}, step=1)

    assert points(book, run.id, "x") == [(1, 1.0)]
    assert "no more ink" in capsys.readouterr().err
    (problem,) = rollbook.open(book).run(run.id).stored().last_status.problems
    assert "no more ink" in problem


def test_a_closed_stderr_does_not_fail_a_run(book, monkeypatch):
    monkeypatch.delenv("ROLLBOOK_QUIET")
    monkeypatch.setattr(sys, "stderr", open("/dev/null", "w"))  # noqa: SIM115
    sys.stderr.close()
    with rollbook.start("task", outputs=["console"], save_code=False) as run:
        run.log({"x": 1.0}, step=1)

    assert points(book, run.id, "x") == [(1, 1.0)]
