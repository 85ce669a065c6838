# ruff: noqa: E501 - hostile input reads best a line a kind
"""SQL from outside reads the book's views and nothing else, whatever it looks like."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rollbook
from rollbook.book.book import Book
from rollbook.errors import QueryInvalid, QueryRefused, RollbookError

SECRET = "the secret outside"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a book of one settled run, and files beside it that nobody may read or change."""
    home = tmp_path_factory.mktemp("sql")
    for kind, content in {"csv": f"a\n{SECRET}\n", "txt": SECRET, "json": f'[{{"a": "{SECRET}"}}]'}.items():
        (home / f"secret.{kind}").write_text(content)
    duckdb.sql(f"select '{SECRET}' as a").write_parquet(str(home / "secret.parquet"))
    with duckdb.connect(str(home / "secret.db")) as database:
        database.execute(f"create table secret as select '{SECRET}' as a")
    before = Path.cwd()
    os.chdir(home)
    run = rollbook.start("task", config={"algo": "sac", "env": "e"}, book=home / "book", save_code=False)
    run.log({"eval/return": 1.0}, step=1)
    run.finish()
    # A run whose folder has not changed for a while is kept in the cache, which is what an attacker would aim at.
    os.utime(run.folder, (1_700_000_000, 1_700_000_000))
    rollbook.open(home / "book").sql("select * from metrics").fetchall()
    yield home
    os.chdir(before)


@pytest.fixture
def opened(home: Path) -> Book:
    return rollbook.open(home / "book")


def fingerprint(home: Path) -> dict[str, str]:
    """Every file in and around the book, but not in its cache."""
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in home.rglob("*")
        if path.is_file() and not path.is_relative_to(home / "book" / "cache")
    }


def cache_files(home: Path, pattern: str) -> list[str]:
    return [str(path) for path in (home / "book" / "cache").rglob(pattern)]


def attempt(opened: Book, query: str) -> str:
    """What came of it: 'refused', or the answer as text."""
    try:
        return str(opened.sql(query).fetchall())
    except (QueryRefused, QueryInvalid):
        return "refused"


WRITES = [
    "create table t (a int)", "create view v as select 1", "create or replace view runs as select 1", "create macro m() as 1", "create schema s",
    "create temp table t as select 1", "create type t as enum ('a')", "create sequence s", "create secret (type s3)", "create index i on changes (run_id)",
    "insert into active_runs select * from active_runs", "update active_runs set name = 'x'", "delete from active_runs", "truncate active_runs", "drop view runs",
    "alter table active_runs add column x int", "merge into active_runs using active_runs as o on true when matched then delete",
    "copy (select 1) to 'out.csv'", "copy runs to 'out.parquet' (format parquet)", "copy active_runs from 'secret.csv'", "export database 'out'", "import database 'out'",
    "attach 'new.db'", "attach 'secret.db' as s", "detach memory", "use memory", "install httpfs", "load httpfs", "force install httpfs", "update extensions",
    "set memory_limit = '10GB'", "set global threads = 99", "reset memory_limit", "set variable x = 1", "pragma enable_profiling", "pragma threads = 4", "pragma database_list",
    "set enable_external_access = true", "set lock_configuration = false", "set allowed_directories = ['/']", "set session authorization x",
    "call pragma_version()", "checkpoint", "vacuum", "analyze", "begin", "commit", "rollback", "prepare p as select 1", "execute p", "deallocate p",
    "comment on view runs is 'x'", "select 1; drop view runs", "select 1; select 2", ";select 1; copy runs to 'out.csv'", "select 1;;copy (select 1) to 'out.csv'",
    "explain analyze copy (select 1) to 'out.csv'", "explain copy (select 1) to 'out.csv'", "explain analyze create table t as select 1", "EXPLAIN\nANALYZE\tCOPY (select 1) TO 'out.csv'",
    "/* c */ explain /* c */ analyze copy (select 1) to 'out.csv'", "-- c\nexplain analyze copy (select 1) to 'out.csv'", "explain analyze explain analyze copy (select 1) to 'out.csv'",
    "explain select 1; copy (select 1) to 'out.csv'", "explain analyze select 1; drop view runs", "explain (analyze) copy (select 1) to 'out.csv'",
    "with x as (copy (select 1) to 'out.csv') select 1", "with x as (insert into active_runs select * from active_runs returning *) select * from x",
    "with x as (delete from active_runs returning *) select * from x", "with x as (update active_runs set name = 'x' returning *) select * from x",
    "with x as (create table t (a int)) select 1", "select * from (insert into active_runs select * from active_runs returning *)",
    "explain analyze with x as (copy (select 1) to 'out.csv') select 1", "from (copy (select 1) to 'out.csv')",
    "select json_execute_serialized_sql(json_serialize_sql('copy (select 1) to ''out.csv'''))", "select * from json_execute_serialized_sql(json_serialize_sql('select 1'))",
    "pragma json_execute_serialized_sql(json_serialize_sql('select 1'))", "SELECT * FROM JSON_Execute_Serialized_SQL('{}')", 'select * from "json_execute_serialized_sql"(\'{}\')',
    "select * from query('select 1')", "select * from query_table('runs')", "select * from query('copy (select 1) to ''out.csv''')", "from QUERY('select 1')",
    "select * from force_checkpoint()", "select * from enable_logging()", "select * from enable_profiling()", "select write_log('x')", "select nextval('s')", "select setval('s', 1)",
    "select sleep_ms(10)", "select pg_sleep(0.01)", "select json_serialize_plan('select * from ''secret.csv''')",
    "select * from register_external_resource('x')", "select getenv('HOME')", "pivot runs on status", "\u00a0copy (select 1) to 'out.csv'", "\ufeffcopy (select 1) to 'out.csv'",
    "ｃopy (select 1) to 'out.csv'", "select 1 \0; copy (select 1) to 'out.csv'", "\0", "", "   ", ";", "--", "/*", "'", "select", "\udc80", "select '\udc80'",
    "select " + "(" * 3000 + "1" + ")" * 3000, "select " + "+".join(["1"] * 5000), "select " + "[" * 400 + "]" * 400,
]  # fmt: skip

READS = [
    "from '{file}'", "select * from '{file}'", 'select * from "{file}"', "select * from '{file}' t", "with x as (from '{file}') select * from x",
    "select (select a from '{file}')", "select * from runs where exists (from '{file}')", "select 1 union all select count(*) from '{file}'", "select * from runs, '{file}'",
    "select * from runs left join '{file}' on true", "describe '{file}'", "describe select * from '{file}'", "summarize '{file}'", "summarize select * from '{file}'", "show '{file}'",
    "explain select * from '{file}'", "explain analyze select * from '{file}'", "values ((select a from '{file}'))", "table '{file}'", "from (from '{file}')", "select * from ('{file}')",
    "pivot '{file}' on a", "unpivot '{file}' on a", "select * from glob('{file}')", "select * from read_text('{file}')", "select * from read_blob('{file}')",
    "select * from read_csv('{file}')", "select * from read_csv_auto('{file}')", "select * from read_json('{file}')", "select * from read_json_auto('{file}')", "select * from read_ndjson('{file}')",
    "select * from read_ndjson_objects('{file}')", "select * from read_json_objects('{file}')", "select * from read_parquet('{file}')", "select * from parquet_scan('{file}')",
    "select * from parquet_metadata('{file}')", "select * from parquet_schema('{file}')", "select * from parquet_file_metadata('{file}')", "select * from parquet_kv_metadata('{file}')",
    "select * from parquet_full_metadata('{file}')", "select * from sniff_csv('{file}')", "select * from read_duckdb('{file}')", "select * from Read_Text('{file}')",
    'select * from "read_text"(\'{file}\')', "select * from main.read_text('{file}')", "select * from system.main.read_text('{file}')", "select * from/**/read_text/**/('{file}')",
    "select * from read_text(['{file}'])", "select * from read_text('{file}') limit 0", "select * from (select 1) t, lateral (from read_text('{file}'))", "from read_text(getvariable('x'))",
    "select * from runs where name in (select content from read_text('{file}'))", "with recursive x as (select 1 as a union all select a from x, read_text('{file}') where false) from x",
    "select list_transform([1], x -> (select count(*) from read_text('{file}')))", "select * from runs order by (select count(*) from '{file}')",
    "select count(*) filter (exists (from '{file}')) from runs", "select * from query('from ''{file}''')", "from query_table('{file}')", "select * from runs semi join '{file}' on true",
    "select * from read_single_csv_file('{file}')", "select * from read_single_parquet_file('{file}')", "select * from duckdb_external_file_cache()", "select * from positional join '{file}'",
]  # fmt: skip


@pytest.mark.parametrize("query", WRITES, ids=lambda query: ascii(query)[:60])
def test_a_statement_that_is_not_one_plain_question_is_refused(opened: Book, home: Path, query: str) -> None:
    before = fingerprint(home)

    with pytest.raises((QueryRefused, QueryInvalid)):
        opened.sql(query).fetchall()

    assert fingerprint(home) == before
    assert opened.sql("select count(*) from runs").fetchall() == [(1,)]


@pytest.mark.parametrize("query", READS)
def test_a_file_outside_the_book_is_not_read(opened: Book, home: Path, query: str) -> None:
    for kind in ("csv", "txt", "json", "parquet", "db"):
        for path in (
            f"secret.{kind}",
            f"./secret.{kind}",
            str(home / f"secret.{kind}"),
            f"file://{home}/secret.{kind}",
        ):
            assert attempt(opened, query.replace("{file}", path)) == "refused"


@pytest.mark.parametrize("query", READS)
def test_a_file_inside_the_book_is_not_read_either(opened: Book, home: Path, query: str) -> None:
    files = [
        *cache_files(home, "runs.parquet")[:1],
        str(home / "book" / "book.toml"),
        str(home / "book" / "cache" / "*"),
    ]
    files += [str(path) for path in (home / "book").rglob("metrics.parquet")]

    assert len(files) == 4
    assert {attempt(opened, query.replace("{file}", file)) for file in files} == {"refused"}


def test_python_variables_are_not_visible(opened: Book) -> None:
    hidden = duckdb.sql("select 42 as answer").to_arrow_table()

    with pytest.raises(QueryInvalid):
        opened.sql("select * from hidden_table").fetchall()
    assert attempt(opened, "select answer from hidden") == "refused"
    assert len(hidden) == 1


@pytest.mark.parametrize(
    "where",
    ["1 = 1); drop view runs; --", "true) ; copy (select 1) to 'out.csv' --", "exists (from 'secret.csv')", "1) union all (from 'secret.csv'", "true -- ", "true /*",
     "name = (select content from read_text('secret.txt'))", "(insert into active_runs values (1))", ")", "1;", "'", "\0", "\udc80", "true) order by (select 1 from 'secret.csv'"],
)  # fmt: skip
def test_a_condition_is_no_way_around_it(opened: Book, home: Path, where: str) -> None:
    before = fingerprint(home)

    for ask in (lambda: opened.runs(where), lambda: opened.top(1, metric="eval/return", where=where)):
        try:
            answer: Any = ask()
        except RollbookError:
            continue
        assert SECRET not in str(answer)
    assert fingerprint(home) == before
    assert len(opened.runs()) == 1


@pytest.mark.parametrize(
    "query",
    ["select * from runs", "from runs", "with x as (select 1 as a) select * from x", "describe runs", "show tables", "summarize metrics", "explain select * from runs",
     "explain analyze select * from runs", "EXPLAIN  Analyze\nselect 1", "values (1)", "select 1;", "-- why\nselect 1 -- c", "select * from range(3)", "select unnest([1, 2])",
     "select config->>'algo' from runs", "from runs select count(*)", "(select 1) union (select 2)", "select 'copy x to y; drop'", "select * from metrics where name = 'eval/return'",
     "with recursive x as (select 1 as a union all select a + 1 from x where a < 5) from x", "select list_transform([1], lambda x : x + 1)", "select * from information_schema.tables"],
)  # fmt: skip
def test_plain_questions_are_answered(opened: Book, query: str) -> None:
    assert opened.sql(query).fetchall()


WORDS = st.sampled_from(
    [
        "select",
        "from",
        "where",
        "runs",
        "metrics",
        "copy",
        "to",
        "attach",
        "insert",
        "into",
        "delete",
        "update",
        "drop",
        "create",
        "table",
        "view",
        "with",
        "as",
        "explain",
        "analyze",
        "install",
        "load",
        "set",
        "pragma",
        "call",
        "query",
        "read_text",
        "read_csv",
        "read_parquet",
        "glob",
        "'secret.csv'",
        "'secret.parquet'",
        "'out.csv'",
        '"secret.csv"',
        "(",
        ")",
        ",",
        ";",
        "*",
        "1",
        "=",
        "union",
        "all",
        "values",
        "describe",
        "show",
        "summarize",
        "pivot",
        "on",
        "x",
        "t",
        ".",
        "$1",
        "?",
        "::",
        "||",
        "--",
        "/*",
        "*/",
        "'",
        '"',
        "[",
        "]",
        "{",
        "}",
        "->",
        "lateral",
        "join",
        "using",
        "returning",
        "lambda",
        "getvariable('x')",
        "json_execute_serialized_sql",
        "query_table",
        "recursive",
        "order",
        "by",
        "limit",
        "not",
        "null",
        "cast('x'",
        "as",
        "int)",
        "@",
        "#",
        "\\",
        "\xa0",
        "\ufeff",
        "\u2003",
        "é",
        "🤖",
    ]
)
TEMPLATES = st.sampled_from(
    [*WRITES, *(query.replace("{file}", "secret.csv") for query in READS), "select * from runs", "select 1"]
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A statement with words put in, taken out or exchanged; or words at random."""
    words = draw(TEMPLATES).split(" ") if draw(st.booleans()) else draw(st.lists(WORDS, max_size=14))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(words)))
        words[place : place + draw(st.integers(0, 2))] = draw(st.lists(WORDS, max_size=2))
    return draw(st.sampled_from([" ", "\n", "\t", "/**/"])).join(words)


def fuzz(home: Path, opened: Book, query: str, before: dict[str, str]) -> None:
    try:
        relation = opened.sql(query)
    except RollbookError:
        relation = None
    if relation is not None:
        try:
            answer = relation.limit(1000).fetchall()
        except duckdb.Error:
            answer = []
        assert SECRET not in str(answer)
    assert fingerprint(home) == before


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=mutated())
def test_no_statement_changes_a_file_or_reads_one(home: Path, opened: Book, query: str) -> None:
    fuzz(home, opened, query, fingerprint(home))


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=mutated() | st.text(max_size=60))
def test_no_statement_of_twenty_thousand_changes_a_file_or_reads_one(home: Path, opened: Book, query: str) -> None:
    fuzz(home, opened, query, fingerprint(home))


def test_what_lies_behind_the_views_is_refused(opened: Book) -> None:
    with pytest.raises(QueryRefused, match="not one of the book's views"):
        opened.sql("select * from cached.runs")
