"""note, tag, delete, archive, restore, purge, thin, du: changes after the fact."""

from __future__ import annotations

import pytest
from makers import finished, record

import rollbook


def shown(book):
    return {run.run_id for run in rollbook.open(book).runs()}


def test_a_note_is_added_to_those_there_are(book, cli):
    run = finished(book)

    answer = cli("note", run, "the first run with the new buffer")
    cli("note", run, "and a second line")

    assert (answer.code, answer.out, answer.err) == (0, "", f"noted at {run}\n")
    assert record(book, run).notes == "the first run with the new buffer\nand a second line"


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_note_or_tag_is_refused(book, cli, text):
    run = finished(book)

    answers = [cli("note", run, text), cli("tag", "add", text, run), cli("tag", "move", text, run, "--yes")]

    assert [answer.code for answer in answers] == [2, 2, 2]
    assert answers[0].err.startswith("error: a note needs at least one character\nhint: ")
    assert all(answer.err.startswith("error: a tag needs at least one character\nhint: ") for answer in answers[1:])
    assert (record(book, run).notes, record(book, run).tags) == ("", [])


# ---- tags


def test_a_tag_is_added_to_one_run_without_a_question(book, cli):
    run = finished(book)

    answer = cli("tag", "add", "latest", run)

    assert (answer.code, answer.err) == (0, "1 run tagged latest\n")
    assert record(book, run).tags == ["latest"]


def test_a_tag_moves_with_a_source_tag_after_one_question(book, cli):
    runs = [finished(book, seed=seed, tags=["pilot"]) for seed in (1, 2)]
    other = finished(book, seed=3)

    no = cli("tag", "add", "latest", "--source-tag", "pilot", stdin="n\n")
    assert no.code == 0
    assert all(run in no.out for run in runs)
    assert record(book, runs[0]).tags == ["pilot"]

    yes = cli("tag", "add", "latest", "--source-tag", "pilot", stdin="y\n")
    assert "2 runs tagged latest" in yes.err
    assert record(book, runs[0]).tags == ["latest", "pilot"]
    assert record(book, other).tags == []


def test_a_tag_is_removed_from_all_that_carry_it(book, cli):
    runs = [finished(book, seed=seed, tags=["old", "kept"]) for seed in (1, 2)]

    answer = cli("tag", "remove", "old", "--yes")

    assert "2 runs untagged old" in answer.err
    assert [record(book, run).tags for run in runs] == [["kept"], ["kept"]]


def test_a_tag_that_is_there_already_is_an_error(book, cli):
    run = finished(book, tags=["latest"])

    answer = cli("tag", "add", "latest", run)

    assert answer.code == 4
    assert answer.err == "error: every matching run has the tag 'latest' already\n"


def test_tags_are_listed_with_how_many_runs_carry_them(book, cli):
    finished(book, seed=1, tags=["latest"])
    finished(book, seed=2, tags=["latest", "it's"])

    rows = {row["tag"]: (row["runs"], row["cells"]) for row in cli("tag", "list", "--json").json}
    table = cli("tag", "list").out

    assert rows == {"latest": (2, 1), "it's": (1, 1)}
    assert table.splitlines()[0].split() == ["tag", "runs", "cells", "newest"]
    assert cli("tag", "add", "x", "--source-tag", "it's").code == 0


def test_a_book_without_tags_says_how_to_add_one(book, cli):
    finished(book)

    assert cli("tag", "list").err == "no run carries a tag; `rollbook tag add NAME RUN` adds one\n"


# ---- delete, archive, restore, purge


@pytest.mark.parametrize("command", ["delete", "archive"])
@pytest.mark.parametrize(("answer", "gone"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_runs_are_shown_first_and_hidden_only_after_a_yes(book, cli, command, answer, gone):
    run = finished(book)

    said = cli(command, run, stdin=answer)

    assert said.code == 0
    assert run in said.out
    assert f"{command} {run}?" in said.err
    assert shown(book) == (set() if gone else {run})


@pytest.mark.parametrize("command", ["delete", "archive", "purge"])
def test_without_anybody_to_ask_nothing_happens_and_the_hint_is_yes(book, process, command):
    run = finished(book)
    if command == "purge":
        process("delete", run, "--yes")

    answer = process(command, run)

    assert answer.code == 2
    assert answer.err.splitlines()[-2:] == ["error: nobody answered the question", "hint: --yes answers it"]
    assert list(book.rglob(run))


def test_runs_are_chosen_by_regex_condition_task_and_steps(book, cli):
    short = finished(book, task="a", algo="sac", returns=[1.0])
    long = finished(book, task="a", algo="sac", returns=[1.0] * 50)
    other = finished(book, task="b", algo="td3", returns=[1.0] * 50)

    cli("delete", "--regex", "algo=sac", "--min-steps", 10, "--yes")
    assert shown(book) == {long, other}
    cli("restore", "--all")
    cli("delete", "--where", "algo = 'sac' -- all of them", "--task", "a", "--yes")
    assert shown(book) == {other}
    cli("restore", "--regex", "algo=sac")
    assert shown(book) == {short, long, other}


def test_restore_and_purge_take_a_condition_on_hidden_runs_alone(book, cli):
    shown_run = finished(book, algo="sac", seed=1)
    deleted = [finished(book, algo=algo, seed=2, tags=[algo]) for algo in ("sac", "td3")]
    archived = [finished(book, algo=algo, seed=3) for algo in ("sac", "td3")]
    cli("delete", "--where", "seed = 2", "--yes")
    cli("archive", "--where", "seed = 3", "--yes")

    assert cli("restore", "--where", "seed = 1").code == 4
    assert cli("restore", "--where", "algo = 'sac' -- all of them").err == "restored 2 runs\n"
    assert shown(book) == {shown_run, deleted[0], archived[0]}
    assert cli("purge", "--where", "algo = 'sac'", "--yes").code == 4
    assert cli("purge", "--where", "seed = 3", "--yes").code == 4  # archived, which purge leaves alone
    assert "purged 1 run " in cli("purge", "--where", "'td3' in tags and last_step = 2", "--yes").err
    assert {row["run_id"] for row in cli("runs", "--hidden", "--json").json} == {archived[1]}
    assert shown(book) == {shown_run, deleted[0], archived[0]}


def test_a_purge_of_one_task_keeps_the_deleted_runs_of_others(book, cli):
    runs = [finished(book, task=task) for task in ("a", "b")]
    cli("delete", "--where", "true", "--yes")

    cli("purge", "--task", "a", "--yes")

    assert [row["run_id"] for row in cli("runs", "--hidden", "--json").json] == [runs[1]]


@pytest.mark.parametrize("option", ["--where", "--regex", "--task"])
def test_an_empty_condition_does_not_purge_everything(book, cli, option):
    run = finished(book)
    cli("delete", run, "--yes")

    answer = cli("purge", option, "", "--yes")

    assert (answer.code, answer.err.splitlines()[0]) == (2, f"error: {option} is empty")
    assert list(book.rglob(run))


def test_a_condition_on_hidden_runs_may_ask_their_metrics(book, cli):
    good, bad = finished(book, returns=[9.0]), finished(book, returns=[1.0])
    cli("delete", good, "--yes")
    cli("archive", bad, "--yes")

    cli("restore", "--where", "run_id in (select run_id from metrics where value > 5)")

    assert shown(book) == {good}


def test_what_is_hidden_is_listed_and_comes_back(book, cli):
    deleted, archived = finished(book, seed=1), finished(book, seed=2)
    cli("delete", deleted, "--yes")
    cli("archive", archived, "--yes")

    states = {row["run_id"]: row["state"] for row in cli("runs", "--hidden", "--json").json}
    assert states == {deleted: "deleted", archived: "archived"}
    assert cli("runs", "--hidden").out.count("deleted") == 1

    answer = cli("restore", deleted, archived.split("-")[-1])
    assert answer.err == "restored 2 runs\n"
    assert shown(book) == {deleted, archived}
    assert cli("runs", "--hidden").err == "no run is deleted or archived\n"


def test_purge_asks_and_removes_deleted_runs_for_good(book, cli):
    run, kept = finished(book, seed=1), finished(book, seed=2)
    cli("delete", run, "--yes")

    no = cli("purge", stdin="n\n")
    assert no.code == 0
    assert "cannot be undone" in no.err
    assert list(book.rglob(run))

    yes = cli("purge", stdin="y\n")
    assert "purged 1 run" in yes.err
    assert not list(book.rglob(run))
    assert shown(book) == {kept}
    assert cli("restore", run).code == 4


def test_purge_with_nothing_deleted_needs_no_question(book, cli):
    finished(book)

    assert cli("purge").err.startswith("purged 0 runs")


def test_a_live_run_cannot_be_archived(book, cli):
    with rollbook.start("task", save_code=False) as run:
        answer = cli("archive", run.id, "--yes")

    assert answer.code == 2
    assert "is still at work and cannot be archived" in answer.err


# ---- thin, du


def test_thin_removes_old_debug_metrics_after_a_question(book, cli):
    with rollbook.start("task", verbosity="debug", save_code=False) as run:
        run.log({"d": 1.0}, step=1, level="debug")
        run.log({"i": 1.0}, step=1)

    assert cli("thin", "--level", "debug", "--older-than", "1h", "--yes").code == 4
    assert cli("thin", "--level", "debug", stdin="n\n").code == 0
    assert record(book, run.id).metric_names() == ["d", "i"]

    answer = cli("thin", "--level", "debug", "--where", "task = 'task'", stdin="y\n")
    assert "removed 1 point" in answer.err
    assert record(book, run.id).metric_names() == ["i"]


def test_du_says_what_takes_room(book, cli):
    run = finished(book, task="my task")

    answer = cli("du", "-n", 1)
    rows = cli("du", "--json").json

    assert answer.out.splitlines()[0].split() == ["run", "task", "metrics", "checkpoints", "media", "other", "total"]
    assert run in answer.out and "my task" in answer.out
    assert answer.err.startswith("1 run")
    assert rows[0]["total"] == sum(rows[0][part] for part in ("metrics", "checkpoints", "media", "other"))
    assert {row["folder"] for row in rows[1:]} == {"objects", "journal", "cache"}


# ---- tag move, tag log


def test_a_tag_moves_cell_by_cell_in_one_step(book, cli):
    old = [finished(book, env=env, tags=["latest"]) for env in ("A", "B")]
    new = finished(book, env="A", tags=["v2"])
    answer = cli("tag", "move", "latest", "--to", "v2", "--yes")

    tagged = {run.run_id for run in rollbook.open(book).runs("'latest' in tags")}
    assert answer.code == 0
    assert answer.err == "latest: added to 1 runs, removed from 1\n"
    assert tagged == {old[1], new}
    assert len(list((book / "journal").glob("*.json"))) == 1
    assert cli("tag", "move", "latest", "--to", "v2", "--yes").code == 4


def test_the_log_of_tags_says_who_moved_what_when(book, cli):
    first = finished(book)
    second = finished(book)
    cli("tag", "add", "latest", first)
    cli("tag", "move", "latest", second, "--yes")
    cli("tag", "add", "other", first)

    moved, added = cli("tag", "log", "latest", "--json").json
    assert (added["tag"], added["added"], added["removed"]) == ("latest", [first], [])
    assert (moved["added"], moved["removed"]) == ([second], [first])
    assert moved["user"]
    assert len(cli("tag", "log").out.splitlines()) == 4
