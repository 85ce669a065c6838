"""runs, show, top, newest, sql: what is in the book."""

from __future__ import annotations

import csv
import io
import subprocess
import sys

import numpy as np
import pytest
from makers import RETURN, finished

import rollbook


def test_runs_lists_the_newest_first_with_a_count_on_stderr(book, cli):
    ids = [finished(book, seed=seed) for seed in range(3)]

    answer = cli("runs")

    assert answer.code == 0
    header, *lines = answer.out.splitlines()
    assert header.split() == ["run", "task", "algo", "env", "seed", "status", "step", "started", "took"]
    assert [line.split()[0] for line in lines] == ids[::-1]
    assert answer.err == "3 runs: 3 finished\n"


def test_runs_shows_twenty_of_many_and_says_how_to_see_the_rest(book, cli):
    for seed in range(23):
        finished(book, seed=seed)

    assert len(cli("runs").out.splitlines()) == 21
    assert cli("runs").err == "the newest 20 of 23 runs: 23 finished; --limit 0 shows all, --where narrows\n"
    assert len(cli("runs", "--limit", 0).out.splitlines()) == 24
    assert [run["seed"] for run in cli("runs", "-n", 2, "--json").json] == [22, 21]


def test_runs_can_be_narrowed_and_show_final_values(book, cli):
    finished(book, task="a", seed=1, returns=[1.0, 5.5])
    finished(book, task="it's", seed=2, state="failed")

    narrowed = cli("runs", "--where", "status = 'finished'", "--task", "a", "--metric", RETURN)

    assert narrowed.out.splitlines()[0].split()[7] == RETURN
    assert "5.5" in narrowed.out
    assert [run["task"] for run in cli("runs", "--task", "it's", "--json").json] == ["it's"]
    assert cli("runs", "--where", "false").err == "no run matches\n"


def test_an_empty_book_says_how_to_begin(book, cli):
    rollbook.start("task", save_code=False).finish()
    (run,) = rollbook.open(book).runs()
    cli("delete", run.run_id, "--yes")

    assert cli("runs").out == ""
    assert "rollbook run --" in cli("runs").err
    assert cli("runs", "--json").json == []


def test_show_has_everything_about_a_run(book, cli):
    with rollbook.start(
        "hopper", config={"algo": "sac", "net": {"size": 64}}, tags=["pilot"], notes="why", save_code=False
    ) as run:
        run.log({"losses/critic": 0.25}, step=1_000)
        run.checkpoint(1_000, {"w": np.zeros(3)})
        run.text("plan", "hello")

    answer = cli("show", run.id)

    assert answer.code == 0
    for part in (run.name, "hopper", "finished", "1,000", "pilot", "why", "net.size", "losses/critic", "0.25", "plan"):
        assert part in answer.out
    (details,) = cli("show", run.id, "--json").json
    assert details["run_id"] == run.id
    assert details["config"] == {"algo": "sac", "net": {"size": 64}}
    assert details["metrics"][0]["auc"] == 0.25
    assert details["checkpoints"][0]["step"] == 1_000
    assert [one["state"] for one in details["attempts"]] == ["finished"]


def test_show_of_a_failed_run_ends_with_the_traceback(book, cli):
    with pytest.raises(ZeroDivisionError), rollbook.start("task", save_code=False) as run:
        1 / 0  # noqa: B018

    out = cli("show", run.id).out
    assert "failed" in out
    assert "ZeroDivisionError: division by zero" in out.splitlines()[-1]


def test_show_of_a_fork_says_what_differs_from_its_parent(book, cli):
    parent = finished(book, lr=1)
    with rollbook.start("task", config={"lr": 2, "new": True}, parent=parent, save_code=False) as fork:
        pass

    (details,) = cli("show", fork.id, "--json").json
    assert details["differs_from_parent"]["lr"] == ["1", "2"]
    assert "differs from its parent" in cli("show", fork.id).out


def test_top_ranks_runs_and_names_the_parameters_that_differ(book, cli):
    finished(book, seed=1, lr=0.1, gamma=0.9, returns=[1.0, 1.0])
    best = finished(book, seed=1, lr=0.2, gamma=0.9, returns=[2.0, 2.0])

    answer = cli("top", 1, "--algo", "sac", "--env", "Hopper-v5", "--by", "final", "--metric", RETURN)

    header, line = answer.out.splitlines()
    assert header.split() == ["rank", "final", "algo", "env", "differing", "parameters", "run"]
    assert line.split()[:4] == ["1", "2", "sac", "Hopper-v5"]
    assert best in line
    assert "lr=0.2" in cli("top", 2).out
    assert "gamma" not in cli("top", 2).out


def test_top_over_seeds_has_n_and_spread(book, cli):
    for seed in (1, 2, 3):
        finished(book, seed=seed, returns=[seed, seed])

    (entry,) = cli("top", "--over", "seed", "--json").json
    header, line = cli("top", "--over", "seed").out.splitlines()

    assert (entry["n"], entry["score"], entry["std"]) == (3, 2.0, 1.0)
    assert header.split()[:6] == ["rank", "auc", "n", "sd", "min", "max"]
    assert "and 2 more" in line


def test_a_mistyped_metric_is_answered_with_the_nearest(book, cli):
    finished(book, metric="eval/return")

    answer = cli("top", "--metric", "eval/retrun")

    assert (answer.code, answer.out) == (4, "")
    assert answer.err == "error: no run logged the metric 'eval/retrun'\nhint: did you mean 'eval/return'?\n"


def test_a_metric_that_no_run_logged_is_an_error_in_the_list_of_runs_too(book, cli):
    finished(book, metric="eval/return")

    answer = cli("runs", "--metric", "eval/retrun")

    assert (answer.code, answer.out) == (4, "")
    assert answer.err == "error: no run logged the metric 'eval/retrun'\nhint: did you mean 'eval/return'?\n"
    assert cli("runs", "--metric", "eval/retrun", "--json").code == 4


def test_a_metric_that_only_other_runs_logged_has_an_empty_column(book, cli):
    finished(book, algo="td3", metric="eval/return")
    finished(book, algo="sac", metric="other")

    answer = cli("runs", "--where", "algo = 'sac'", "--metric", "eval/return")

    assert answer.code == 0
    assert "eval/return" in answer.out.splitlines()[0]


@pytest.mark.parametrize(("option", "wrong", "nearest"), [("--algo", "sax", "sac"), ("--env", "Hoper-v5", "Hopper-v5")])
def test_a_mistyped_algorithm_or_environment_is_answered_with_the_nearest(book, cli, option, wrong, nearest):
    finished(book)

    answer = cli("top", option, wrong)

    assert answer.code == 4
    assert answer.err.splitlines()[1] == f"hint: no run has the {option[2:]} {wrong!r}; did you mean {nearest!r}?"


def test_long_tags_and_metrics_are_shortened_in_tables_and_whole_in_json(book, cli):
    metric, tag = "m" * 300, "t" * 300
    run = finished(book, metric=metric, tags=[tag])

    tables = [cli("runs", "--metric", metric).out, cli("show", run).out]

    for out in tables:
        assert "m" * 47 + "…" in out and "t" * 47 + "…" in out
        assert "m" * 48 not in out and "t" * 48 not in out
    assert cli("runs", "--json").json[0]["tags"] == [tag]
    assert cli("show", run, "--json").json[0]["metrics"][0]["name"] == metric


def test_newest_folds_the_seeds_of_each_cell(book, cli):
    for seed in (1, 2, 3, 7):
        finished(book, seed=seed, returns=[0.0, seed])
    finished(book, task="other", algo="td3", seed=1, state="failed")

    both = cli("newest", "--json").json
    out = cli("newest", "--task", "task").out

    assert [(one["task"], one["n"], one["mean"], one["unfinished"]) for one in both] == [
        ("other", 1, 3.0, 1),
        ("task", 4, 3.25, 0),
    ]
    assert "1-3, 7" in out
    assert "td3" not in out


def test_newest_takes_any_metric_name(book, cli):
    finished(book, metric='it\'s "odd"', returns=[4.0])

    (one,) = cli("newest", "--metric", 'it\'s "odd"', "--json").json
    assert one["mean"] == 4.0


def test_sql_answers_as_a_table_as_json_as_csv_and_from_stdin(book, cli):
    finished(book, seed=1, tags=["a", "b"], returns=[float("nan"), 1.5])
    query = "select seed, value, tags from runs join metrics using (run_id) order by step"

    table, as_json = cli("sql", query), cli("sql", query, "--json")
    as_csv, from_stdin = cli("sql", query, "--csv"), cli("sql", "-", "--json", stdin=query)

    assert table.out.split()[:3] == ["seed", "value", "tags"]
    assert as_json.json == [
        {"seed": 1, "value": "NaN", "tags": ["a", "b"]},
        {"seed": 1, "value": 1.5, "tags": ["a", "b"]},
    ]
    assert list(csv.reader(io.StringIO(as_csv.out)))[0::2] == [["seed", "value", "tags"], ["1", "1.5", "['a', 'b']"]]
    assert from_stdin.json == as_json.json
    assert table.err == as_json.err == as_csv.err == ""


def test_sql_lists_its_views_and_describes_them(book, cli):
    finished(book)

    names = {row["name"] for row in cli("sql", "show tables", "--json").json}
    columns = [row["column_name"] for row in cli("sql", "describe runs", "--json").json]

    assert {"runs", "metrics", "summaries", "newest"} <= names
    assert columns[:3] == ["run_id", "name", "task"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("drop view runs", "error: a book answers questions"),
        ("select 1; select 2", "error: one statement a call, got 2"),
        ("select * from read_csv('/etc/passwd')", "error: the table function read_csv()"),
        ("select * from '/etc/passwd'", "error: '/etc/passwd' would read a file"),
        ("copy runs to '/tmp/x'", "error: a book answers questions"),
        ("", "error: the query is empty"),
        ("selekt 1", "error: "),
        ("select alog from runs", "error: there is no column 'alog'\nhint: did you mean 'algo'"),
        ("select * from rnus", "error: there is no view 'rnus'\nhint: did you mean 'runs'"),
    ],
)
def test_sql_that_is_no_question_is_refused(book, cli, query, said):
    finished(book)

    answer = cli("sql", query)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(said)
    assert [line.split(":")[0] for line in answer.err.splitlines()] == ["error", "hint"][: len(answer.err.splitlines())]


def test_a_reader_that_goes_away_is_no_error(book):
    finished(book)
    answer = subprocess.run(
        f"{sys.executable} -m rollbook sql --csv 'select range from range(200000)' | head -1",
        shell=True,
        capture_output=True,
        text=True,
    )

    assert answer.stdout == "range\n"
    assert answer.stderr == ""


READING = [
    ["runs"],
    ["runs", "--hidden"],
    ["show", "{run}"],
    ["top"],
    ["newest"],
    ["plot"],
    ["sql", "select * from runs"],
    ["sql", "select * from media where false"],
    ["code", "list", "{coded}"],
    ["tag", "list"],
    ["du"],
]


@pytest.fixture(scope="module")
def a_book(tmp_path_factory):
    path = tmp_path_factory.mktemp("read") / "book"
    run = finished(path, tags=["latest"])
    program = path.parent / "train.py"
    program.write_text(f"import rollbook\nprint(rollbook.start('t', book={str(path)!r}).id)\n")
    coded = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout.strip()
    return path, {"run": run, "coded": coded}


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_json_of_every_reading_command_is_one_array_of_objects(a_book, cli, command):
    path, names = a_book

    answer = cli(*(part.format(**names) for part in command), "--json", "--book", path)

    assert answer.code == 0
    assert isinstance(answer.json, list)
    assert all(isinstance(row, dict) for row in answer.json)


@pytest.mark.parametrize(
    "command", [one for one in READING if not one[-1].endswith(("false", "--hidden"))], ids=" ".join
)
def test_data_goes_to_stdout_and_talk_to_stderr(a_book, cli, command):
    path, names = a_book

    answer = cli("--book", path, *(part.format(**names) for part in command))

    assert answer.code == 0
    assert answer.out.strip()
    assert "error" not in answer.err
