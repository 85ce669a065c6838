"""The views and columns that other people's queries name. A change here breaks them."""

from __future__ import annotations

import numpy as np
import pytest

import rollbook
from rollbook.book.views import VIEWS

RUNS = """run_id VARCHAR, name VARCHAR, task VARCHAR, algo VARCHAR, env VARCHAR, seed BIGINT, status VARCHAR,
benchmark VARCHAR, started_at TIMESTAMP, finished_at TIMESTAMP, duration_s DOUBLE, last_step BIGINT, host VARCHAR,
user VARCHAR, command VARCHAR, git_commit VARCHAR, git_describe VARCHAR, git_dirty BOOLEAN, pr BIGINT, parent VARCHAR,
notes VARCHAR, tags VARCHAR[], config JSON"""
CONTRACT = {
    "runs": RUNS,
    "newest": RUNS,
    "params": "run_id VARCHAR, key VARCHAR, value VARCHAR",
    "tags": "run_id VARCHAR, tag VARCHAR",
    "metrics": "run_id VARCHAR, name VARCHAR, step BIGINT, time TIMESTAMP, value DOUBLE",
    "summaries": """run_id VARCHAR, name VARCHAR, count BIGINT, nonfinite BIGINT, first DOUBLE, last DOUBLE, min DOUBLE,
        max DOUBLE, mean DOUBLE, auc DOUBLE, final DOUBLE""",
    "checkpoints": "run_id VARCHAR, step BIGINT, time TIMESTAMP, bytes BIGINT, path VARCHAR",
    "media": "run_id VARCHAR, name VARCHAR, step BIGINT, kind VARCHAR, bytes BIGINT, path VARCHAR",
    "verdicts": "number BIGINT, time TIMESTAMP, user VARCHAR, verdict JSON",
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    path = tmp_path_factory.mktemp("contract") / "book"
    config = {"algo": "sac", "env": "Hopper-v5", "seed": 1, "lr": 3e-4, "net": {"layers": [64, 64]}}
    with rollbook.start("hopper", config=config, tags=["latest", "x"], book=path, save_code=False) as run:
        run.log({"eval/return": 1.0, "loss": float("inf")}, step=1)
        run.log({"eval/return": float("nan")}, step=2)
        run.checkpoint(2, {"w": np.zeros(2)})
        run.text("plan", "hello")
    with rollbook.start("other", book=path, save_code=False):
        pass
    return rollbook.open(path)


@pytest.mark.parametrize("view", CONTRACT)
def test_every_view_has_its_columns_with_their_types(opened, view):
    described = {row["column_name"]: row["column_type"] for row in opened.rows(f"describe {view}")}

    for column in CONTRACT[view].split(","):
        name, kind = column.split()
        assert described.get(name) == kind, f"{view}.{name}"


@pytest.mark.parametrize("view", [view for view in VIEWS if view != "newest"])
def test_the_documented_columns_are_those_that_there_are(opened, view):
    described = {row["column_name"]: row["column_type"] for row in opened.rows(f"describe {view}")}

    assert {name: text.split(":")[0] for name, text in VIEWS[view].columns.items()} == described


def test_the_views_are_all_that_show_tables_lists_of_the_contract(opened):
    assert set(CONTRACT) <= {row["name"] for row in opened.rows("show tables")}


@pytest.mark.parametrize(
    ("condition", "tasks"),
    [
        ("'latest' in tags", ["hopper"]),
        ("list_contains(tags, 'x')", ["hopper"]),
        ("len(tags) = 0", ["other"]),
        ("config->>'lr' = '0.0003'", ["hopper"]),
        ("(config->>'lr')::double < 1e-3", ["hopper"]),
        ("(config->'net'->'layers'->>0) = '64'", ["hopper"]),
        ("config->>'$.net.layers[1]' = '64'", ["hopper"]),
        ("config->>'nothing' is null", ["hopper", "other"]),
        ("seed = 1", ["hopper"]),
        ("algo is null", ["other"]),
        ("started_at > now() - interval 1 hour", ["hopper", "other"]),
    ],
)
def test_conditions_as_people_write_them(opened, condition, tasks):
    assert [run.task for run in opened.runs(condition, order="task")] == tasks


def test_params_have_dotted_keys_and_text_values(opened):
    rows = opened.sql("select key, value from params order by key").fetchall()

    assert rows == [
        ("algo", "sac"), ("env", "Hopper-v5"), ("lr", "0.0003"), ("net.layers", "[64, 64]"), ("seed", "1"),
    ]  # fmt: skip


def test_nan_and_infinities_are_values_like_others(opened):
    (row,) = opened.sql("select count(*) filter (isnan(value)), count(*) filter (isinf(value)) from metrics").fetchall()

    assert row == (1, 1)


def test_the_question_of_the_field_is_one_select(opened):
    query = """
        select r.algo, r.env, r.config->>'lr' as lr, avg(s.auc) as score, count(*) as seeds
        from runs r join summaries s using (run_id)
        where r.algo = 'sac' and r.env = 'Hopper-v5' and s.name = 'eval/return'
        group by all order by score desc limit 5
    """

    assert opened.sql(query).fetchall() == [("sac", "Hopper-v5", "0.0003", 1.0, 1)]


def test_an_answer_goes_to_pandas_polars_arrow_and_python(opened):
    query = "select task, tags, config from runs order by task"

    assert opened.sql(query).df()["task"].tolist() == ["hopper", "other"]
    assert opened.sql(query).pl()["task"].to_list() == ["hopper", "other"]
    assert opened.sql(query).arrow().read_all().column("tags").to_pylist() == [["latest", "x"], []]
    assert opened.sql(query).fetchall()[0][0] == "hopper"
    assert opened.sql(query).columns == ["task", "tags", "config"]


@pytest.mark.parametrize("statement", ["explain select 1", "describe runs", "show tables", "summarize summaries"])
def test_questions_about_questions_are_answered(opened, statement):
    assert opened.sql(statement).fetchall()


@pytest.mark.parametrize(
    "statement",
    [
        "insert into runs values (1)",
        "create table x (a int)",
        "attach '/tmp/x.db'",
        "install httpfs",
        "load httpfs",
        "set threads = 1",
        "pragma version",
        "copy (select 1) to '/tmp/x.csv'",
        "select * from read_text('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('*')",
        "with x as (select 1) delete from runs",
        "select getenv('HOME')",
        "call pragma_version()",
        "use memory",
        "export database '/tmp/x'",
    ],
)
def test_what_writes_attaches_sets_or_reads_outside_is_refused(opened, statement):
    with pytest.raises(rollbook.RollbookError) as error:
        opened.sql(statement).fetchall()

    assert error.value.exit_code == 2


def test_python_variables_are_not_visible(opened):
    import pandas as pd

    secret = pd.DataFrame({"a": [1]})

    with pytest.raises(rollbook.RollbookError):
        opened.sql("select * from secret")
    assert len(secret) == 1
