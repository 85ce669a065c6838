"""rollbook.toml, pyproject.toml, and where the book is."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.book.settings import DEFAULT_ALIASES, Settings, find_book, load_settings
from rollbook.errors import InvalidConfig


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("ROLLBOOK_BOOK", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_file_the_defaults_hold(folder):
    assert load_settings() == Settings()


def test_every_key_is_read(folder):
    (folder / "rollbook.toml").write_text(
        'book = "b"\ntask = "hopper"\ninclude = ["*.bin"]\nexclude = ["big/"]\nmax_file_bytes = 5\n'
        'anchor = "v1"\nmemory_limit = "1GB"\nquery_seconds = 3\n[outputs]\nconsole = "info"\n[aliases]\nseed = ["s"]\n'
    )

    settings = load_settings()

    assert settings == Settings(
        book="b",
        task="hopper",
        include=("*.bin",),
        exclude=("big/",),
        max_file_bytes=5,
        anchor="v1",
        memory_limit="1GB",
        query_seconds=3,
        outputs={"console": "info"},
        aliases=DEFAULT_ALIASES | {"seed": ("s", *DEFAULT_ALIASES["seed"])},
        root=folder,
    )


def test_an_unknown_key_names_the_nearest(folder):
    (folder / "rollbook.toml").write_text('memory_limt = "x"')

    with pytest.raises(InvalidConfig, match="unknown key 'memory_limt'") as error:
        load_settings()

    assert error.value.hint == "did you mean 'memory_limit'?"


@pytest.mark.parametrize(
    "text",
    [
        "book = 3",
        'include = "*.py"',
        "include = [1]",
        "max_file_bytes = true",
        'query_seconds = "5"',
        '[aliases]\nalgo = "method"',
        "[aliases]\nalgo = [1]",
        '[aliases]\ncolour = ["x"]',
        "book = ",
    ],
)
def test_a_wrong_value_is_refused_with_the_files_name(folder, text):
    (folder / "rollbook.toml").write_text(text)

    with pytest.raises(InvalidConfig, match=r"rollbook\.toml"):
        load_settings()


def test_pyproject_has_its_own_table(folder):
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.rollbook]\ntask = "walker"\n')

    assert load_settings().task == "walker"


@pytest.mark.parametrize("text", ['[project]\nname = "x"\n', "[tool.ruff]\n", 'tool = "x"\n', "[tool]\nrollbook = 3\n"])
def test_a_pyproject_without_our_table_is_passed_over(folder, text):
    (folder / "rollbook.toml").write_text('task = "above"')
    (folder / "inner").mkdir()
    (folder / "inner" / "pyproject.toml").write_text(text)

    assert load_settings(folder / "inner").task == "above"


def test_the_nearest_file_upwards_wins_and_rollbook_toml_before_pyproject(folder):
    deep = folder / "a" / "b"
    deep.mkdir(parents=True)
    (folder / "rollbook.toml").write_text('task = "top"')
    (folder / "a" / "pyproject.toml").write_text('[tool.rollbook]\ntask = "pyproject"')
    assert load_settings(deep).task == "pyproject"

    (folder / "a" / "rollbook.toml").write_text('task = "own"')
    assert load_settings(deep).task == "own"


def test_the_book_is_looked_for_in_the_documented_order(folder, monkeypatch):
    inner = folder / "repo" / "src"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert find_book() == inner / "book"

    (folder / "repo" / ".git").mkdir()
    assert find_book() == folder / "repo" / "book"

    (folder / "rollbook.toml").write_text('book = "data/runs"')
    assert find_book() == folder / "data" / "runs"

    monkeypatch.setenv("ROLLBOOK_BOOK", "from-environment")
    assert find_book() == inner / "from-environment"
    assert find_book("explicit") == inner / "explicit"
    assert find_book(Path("/somewhere/else")) == Path("/somewhere/else")


def test_a_tilde_is_the_home_folder(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder / "home"))
    assert find_book("~/book") == folder / "home" / "book"

    (folder / "rollbook.toml").write_text('book = "~/other"')
    assert find_book() == folder / "home" / "other"
