"""`rollbook verbosity RUN debug` reaches a run that is at work, through the journal."""

from __future__ import annotations

import time

import rollbook
from rollbook.book import journal
from rollbook.book.layout import Layout


def wait_for(run, verbosity):
    deadline = time.monotonic() + 10
    while run.verbosity != verbosity:
        assert time.monotonic() < deadline, "the switch did not arrive"
        time.sleep(0.02)


def test_a_live_run_changes_its_verbosity_and_back(book, cli):
    calls = []

    def costly():
        calls.append(1)
        return {"d": 1.0}

    with rollbook.start("task", save_code=False) as run:
        run.log(costly, step=1, level="debug")
        answer = cli("verbosity", run.id, "debug")
        wait_for(run, "debug")
        run.log(costly, step=2, level="debug")
        cli("verbosity", run.id, "essential")
        wait_for(run, "essential")
        run.log(costly, step=3, level="debug")
        run.log({"i": 1.0}, step=3)

    assert answer.code == 0
    assert calls == [1]
    assert rollbook.open(book).run(run.id).metrics("d")["step"].to_pylist() == [2]
    assert rollbook.open(book).run(run.id).metric_names() == ["d"]


def test_a_switch_for_another_run_or_to_an_unknown_level_changes_nothing(book):
    with rollbook.start("task", save_code=False) as run:
        journal.append(Layout(book).journal, "verbosity", ["another"], level="debug")
        journal.append(Layout(book).journal, "verbosity", [run.id], level="loud")
        (Layout(book).journal / "0000000003.json").write_text("{damaged")
        journal.append(Layout(book).journal, "verbosity", [run.id], level="debug")
        wait_for(run, "debug")

    assert run.verbosity == "debug"


def test_a_run_that_has_ended_cannot_change_its_verbosity(book, cli):
    run = rollbook.start("task", save_code=False)
    run.finish()

    answer = cli("verbosity", run.id, "debug")

    assert answer.code == 2
    assert answer.err.startswith(f"error: run {run.id} is finished\nhint: ")
