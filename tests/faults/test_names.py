# ruff: noqa: E501 - hostile input reads best a line a kind
"""Names, texts and parameters from outside stay inside the book, stay apart, and come back as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from children import files_below

import rollbook
from rollbook.book.layout import encode_name
from rollbook.errors import RollbookError

HOSTILE = [
    "../../x", "..", ".", "...", "/etc/passwd", "a/../../b", "a\\..\\b", ".hidden", "..%2f..%2fx", "%2e%2e", "%", "%00", "%2F", "/", "\\",
    "a\nb", "a\r\nb", "\t", " ", " lead", "trail ", "\0", "a\0b", "\x1b[31mred\x1b[0m", "\x7f", "x" * 300, "x" * 299 + "y", "é" * 300, "~" * 130,
    "🤖", "👩‍🔬", "e\u0301", "é", "\u202eevil", "CON", "con", "nul.txt", "COM1", "[bold]rich[/bold]", "[/]", "{x}", "$HOME", "`id`", "$(id)", "-rf", "--help",
    "'", "''", '"', "'; drop table runs; --", "') or 1=1 --", "select * from runs", "a,b", "a&b=c", "a=b", "a:b", "a|b", "a*b?", "<script>", "None", "null", "true", "1", "1e5",
]  # fmt: skip
NOT_TEXT = ["\udc80", "a\udcff", "\ud83d"]


@pytest.fixture
def outside(book: Path) -> set[str]:
    """What lies around the book before the test."""
    book.parent.mkdir()
    (book.parent / "neighbour").mkdir()
    (book.parent / "neighbour" / "file").write_text("untouched")
    return files_below(book.parent)


def nothing_got_out(book: Path, before: set[str]) -> bool:
    return {name for name in files_below(book.parent) if not name.startswith("book")} == before


def start(book: Path, **options: object) -> rollbook.Run:
    return rollbook.start(**{"task": "task", "book": book, "save_code": False} | options)


def test_any_task_name_gives_a_folder_of_its_own_inside_the_book(book: Path, outside: set[str]) -> None:
    for name in HOSTILE:
        start(book, task=name).finish()

    assert nothing_got_out(book, outside)
    tasks = [task for (task,) in rollbook.open(book).sql("select task from runs").fetchall()]
    assert sorted(tasks) == sorted(HOSTILE)
    assert len(list((book / "tasks").iterdir())) == len(HOSTILE)
    for run in rollbook.open(book).runs():
        assert (run.folder / "run.json").is_file()
    assert rollbook.open(book).problems() == []


@pytest.mark.parametrize("name", NOT_TEXT)
def test_a_task_that_is_not_text_is_refused_before_anything_is_made(book: Path, outside: set[str], name: str) -> None:
    with pytest.raises(RollbookError):
        start(book, task=name)

    assert nothing_got_out(book, outside)
    assert list((book / "tasks").iterdir()) == []


def test_folder_names_differ_even_where_the_file_system_ignores_case_or_is_limited_to_255_bytes() -> None:
    encoded = [encode_name(name) for name in HOSTILE]

    assert len(set(encoded)) == len(HOSTILE)
    assert all(0 < len(name.encode()) <= 200 and "/" not in name and not name.startswith(".") for name in encoded)
    assert all(name.isascii() and name.isprintable() for name in encoded)


def test_any_metric_name_comes_back_as_it_was_while_running_and_when_sealed(book: Path, outside: set[str]) -> None:
    run = start(book)
    for number, name in enumerate(HOSTILE):
        run.log({name: float(number)}, step=number)
    run.log(dict.fromkeys(HOSTILE, 0.5), step=1000)
    run.checkpoint(1, {})
    expected = sorted(
        [(name, float(number)) for number, name in enumerate(HOSTILE)] + [(name, 0.5) for name in HOSTILE]
    )

    live = rollbook.open(book).sql("select name, value from metrics").fetchall()
    run.finish()
    sealed = rollbook.open(book).sql("select name, value from metrics").fetchall()
    summaries = rollbook.open(book).sql("select name, count from summaries").fetchall()

    assert sorted(live) == sorted(sealed) == expected
    assert sorted(summaries) == sorted((name, 2) for name in HOSTILE)
    assert nothing_got_out(book, outside)
    (record,) = rollbook.open(book).runs()
    assert all(len(record.metrics(name)) == 2 for name in HOSTILE)


@pytest.mark.parametrize("name", NOT_TEXT)
def test_a_metric_that_is_not_text_is_refused_and_the_run_goes_on(book: Path, name: str) -> None:
    run = start(book)
    with pytest.raises(RollbookError):
        run.log({name: 1.0})
    run.log({"value": 1.0})
    run.finish()

    assert rollbook.open(book).sql("select name, value from metrics").fetchall() == [("value", 1.0)]


def test_any_media_name_gives_a_folder_of_its_own_inside_the_run(book: Path, outside: set[str]) -> None:
    run = start(book)
    for number, name in enumerate(HOSTILE):
        path = run.text(name, f"text {number}", step=number)
        assert path is not None
        assert path.resolve().is_relative_to(run.folder.resolve())
    run.finish()

    rows = rollbook.open(book).sql("select name, step, path from media").fetchall()
    assert sorted((name, step) for name, step, _ in rows) == sorted((name, n) for n, name in enumerate(HOSTILE))
    assert all(Path(path).read_text() == f"text {step}" for _, step, path in rows)
    assert nothing_got_out(book, outside)


def test_saved_files_stay_inside_the_run_whatever_they_are_called(
    book: Path, outside: set[str], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_text("content")
    run = start(book)
    saved = 0
    for name in HOSTILE:
        try:
            path = run.save(source, name)
        except RollbookError:
            continue  # refused is fine, too
        saved += 1
        assert path is not None
        assert path.resolve().is_relative_to(run.folder.resolve())
    run.finish()

    assert saved > len(HOSTILE) / 2
    assert nothing_got_out(book, outside)


def test_any_tag_and_note_comes_back_as_it_was(book: Path, outside: set[str]) -> None:
    tags = [tag for tag in HOSTILE if tag == tag.strip()]
    run = start(book, tags=tags, notes="\n".join(HOSTILE))
    later = [f"later {tag}" for tag in tags]
    run.tag(*later)
    for text in HOSTILE:
        run.note(text)
    run.finish()

    (record,) = rollbook.open(book).runs()
    assert set(record.tags) == {*tags, *later}
    assert record.notes == "\n".join([*HOSTILE, *HOSTILE])
    found = rollbook.open(book).sql("select tag from tags where tag = ?", ["'; drop table runs; --"]).fetchall()
    assert found == [("'; drop table runs; --",)]
    assert nothing_got_out(book, outside)


def test_any_config_key_and_value_comes_back_as_it_was(book: Path, outside: set[str]) -> None:
    config = {name: name for name in HOSTILE} | {"nested": {name: [name] for name in HOSTILE}}
    start(book, config=config).finish()

    (record,) = rollbook.open(book).runs()
    assert record.config == config
    params = dict(rollbook.open(book).sql("select key, value from params").fetchall())
    assert all(params[name] == name for name in HOSTILE)
    assert all(json.loads(params[f"nested.{name}"]) == [name] for name in HOSTILE)
    assert nothing_got_out(book, outside)


def test_any_run_name_and_tracked_parameter_is_data_in_the_readable_name(book: Path, outside: set[str]) -> None:
    for name in HOSTILE:
        start(book, name=name, config={"algo": name, "env": name, name: name}, track=[name]).finish()

    rows = rollbook.open(book).sql("select run_id, name, algo, env from runs").fetchall()
    assert sorted(algo for _, _, algo, _ in rows) == sorted(HOSTILE)
    assert all(
        algo == env and readable.startswith(run_id) and readable.endswith(f"&{algo}")
        for run_id, readable, algo, env in rows
    )
    assert nothing_got_out(book, outside)


@pytest.mark.parametrize("text", NOT_TEXT)
def test_what_is_not_text_in_tags_notes_and_parameters_harms_neither_run_nor_book(book: Path, text: str) -> None:
    run = start(
        book, name=text, tags=[text], notes=text, config={"algo": text, text: text, "path": [text]}, track=[text]
    )
    run.log({"value": 1.0})
    run.tag(text)
    run.note(text)
    run.finish("failed", text)
    start(book, task="beside").finish()

    opened = rollbook.open(book)
    assert sorted(run.status for run in opened.runs()) == ["failed", "finished"]
    assert opened.sql("select value from metrics").fetchall() == [(1.0,)]
    for view in ("runs", "params", "tags", "summaries", "newest", "problems"):
        opened.sql(f"select * from {view}").fetchall()
    opened.sql("select config->>'algo', config->>'path' from runs").fetchall()


def test_two_values_that_are_not_text_stay_apart(book: Path) -> None:
    for text in NOT_TEXT:
        start(book, config={"algo": text}, tags=[text]).finish()

    opened = rollbook.open(book)
    assert opened.sql(
        "select count(distinct algo), count(distinct tags), count(distinct config_key) from runs"
    ).fetchall() == [(3, 3, 3)]


def test_hostile_names_do_not_upset_top_and_lookup(book: Path) -> None:
    for number, name in enumerate(HOSTILE[:20]):
        run = start(book, task=name, config={"algo": name, "env": name, "seed": number}, name=name)
        run.log({"eval/return": float(number)}, step=1)
        run.finish()

    opened = rollbook.open(book)
    for name in HOSTILE[:20]:
        (entry,) = opened.top(3, algo=name, env=name, task=name)
        assert (entry.algo, entry.task) == (name, name)
        try:
            opened.run(name)
        except RollbookError:
            continue


@pytest.mark.parametrize("output", ["csv", "console", "tensorboard"])
def test_live_outputs_take_hostile_names(
    book: Path, outside: set[str], output: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = start(book, outputs=[output])
    run.log(dict.fromkeys(HOSTILE, 1.0))
    run.finish()

    assert rollbook.open(book).sql("select count(*) from metrics").fetchall() == [(len(HOSTILE),)]
    assert rollbook.open(book).problems() == []
    assert nothing_got_out(book, outside)
