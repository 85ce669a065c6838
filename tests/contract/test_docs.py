"""The documentation says what there is, all of it and nothing else."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import click
import pytest

import rollbook
from rollbook.book.settings import Settings
from rollbook.book.views import VIEWS
from rollbook.cli.app import app

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
TOLD = [
    ROOT / "README.md",
    *(page for folder in ("guide", "algorithms") for page in (ROOT / "docs" / folder).glob("*.md")),
]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = ["cli.md", "sql.md", "configuration.md", "python.md"]

Command = tuple[tuple[str, ...], click.Command]


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def load_builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_reference", ROOT / "docs" / "build_reference.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[Command]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in sorted(command.commands.items()):
            yield from walk(child, (*path, name))


COMMANDS = list(walk(app, ("rollbook",)))


# ---- the reference is complete ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GENERATED)
def test_the_generated_reference_is_up_to_date(name):
    written = (REFERENCE / name).read_text()

    assert written == load_builder().pages()[name], "run `python docs/build_reference.py`"


def test_the_reference_does_not_depend_on_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")

    assert load_builder().pages()["cli.md"] == (REFERENCE / "cli.md").read_text()


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS], ids=" ".join)
def test_every_command_is_documented(path):
    assert f"## {' '.join(path)}\n" in (REFERENCE / "cli.md").read_text()


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_option_is_documented(path, command):
    section = (REFERENCE / "cli.md").read_text().split(f"## {' '.join(path)}\n")[1].split("\n## ")[0]

    for option in options_of(command):
        assert option in section


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_and_column_is_documented(view):
    section = (REFERENCE / "sql.md").read_text().split(f"\n## {view}\n")[1].split("\n## ")[0]

    for column in VIEWS[view].columns:
        assert f"| `{column}` |" in section or (column == "*" and "[runs](#runs)" in section)


def test_every_view_has_the_documented_columns(tmp_path):
    with rollbook.start("task", book=tmp_path / "book", save_code=False) as run:
        run.log({"x": 1.0})
    book = rollbook.open(tmp_path / "book")

    for name, view in VIEWS.items():
        expected = VIEWS["runs"].columns if "*" in view.columns else view.columns
        relation = book.sql(f"select * from {name}")
        documented = {column: about.split(":")[0] for column, about in expected.items()}
        assert documented == dict(zip(relation.columns, map(str, relation.types), strict=True))


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Settings) if field.name != "root"])
def test_every_setting_is_documented(field):
    row = re.search(rf"^\| `{field}` \|.*\| (.*) \|$", (REFERENCE / "configuration.md").read_text(), re.MULTILINE)

    assert row and row[1]


def test_every_environment_variable_is_documented():
    text = (REFERENCE / "configuration.md").read_text()

    for name in load_builder().variables_in_code():
        assert f"| `{name}` |" in text


@pytest.mark.parametrize("name", rollbook.__all__)
def test_every_public_name_is_documented(name):
    assert f"| `{name}` |" in (REFERENCE / "python.md").read_text()


@pytest.mark.parametrize("kind", [rollbook.Run, rollbook.Book, rollbook.RunRecord])
def test_every_public_method_is_documented_and_says_what_it_does(kind):
    text = (REFERENCE / "python.md").read_text()
    public = [name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")]

    for name in public:
        assert f"### {kind.__name__}.{name}\n" in text
    assert [name for name in public if not getattr(kind, name).__doc__] == []


# ---- links ------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_no_link_is_dead(page):
    links = re.findall(r"\]\(([^)\s]+)\)", without_blocks(page.read_text()))

    for link in links:
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(path), f"{link}: there is no such heading"


@pytest.mark.parametrize("folder", ["guide", "adr", "algorithms"])
def test_every_page_can_be_reached(folder):
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    }

    for page in (ROOT / "docs" / folder).glob("*.md"):
        assert page in linked or page.parent in linked


# ---- what is shown works ----------------------------------------------------------------------------------------


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str


def blocks(language: str) -> list[Block]:
    found = []
    for page in TOLD:
        text = page.read_text()
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            found.append(Block(page_name(page), text.count("\n", 0, match.start()) + 1, language, match[1]))
    return found


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: f"{block.page}:{block.line}")
def test_python_examples_parse(block):
    ast.parse(block.text)


def commands_in(line: str) -> list[str]:
    """The parts of a shell line between `&&`, `|` and `<` that call rollbook."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("&|<>;"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [shlex.join(words) for words in parts if words[:1] == ["rollbook"]]


def shown_commands() -> list[tuple[str, str]]:
    """(page, command line) of every `rollbook ...` in consoles, shell blocks and running text."""
    shell = blocks("bash")
    found = []
    for page in TOLD:
        text = page.read_text()
        lines = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
        lines += [line for block in shell if block.page == page_name(page) for line in block.text.splitlines()]
        lines += re.findall(r"`(rollbook [^`]+)`", without_blocks(text).replace("\n", " "))
        found += [(page_name(page), command) for line in lines for command in commands_in(line)]
    return found


def options_of(command: click.Command) -> dict[str, click.Option]:
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return {name: option for option in options for name in (*option.opts, *option.secondary_opts)}


def fault_in(line: str) -> str | None:
    """What a command line names that does not exist."""
    command: click.Command = app
    words = shlex.split(line)[1:]
    while words:
        word = words.pop(0)
        known = options_of(command) | {"--help": click.Option(["--help"], is_flag=True)}
        if word in ("--", "..."):
            return None
        if word.startswith("-") and len(word) > 1:
            name, equals, _ = word.partition("=")
            if name not in known:
                return f"there is no option {name}"
            if not (known[name].is_flag or equals):
                words = words[1:]
        elif isinstance(command, click.Group):
            if word not in command.commands:
                return f"there is no command {word}"
            command = command.commands[word]
        default = getattr(command, "default", None)
        if default and words and words[0] not in command.commands:
            command = command.commands[default]
    return None


@pytest.mark.parametrize(("page", "line"), sorted(set(shown_commands())))
def test_shown_commands_and_their_options_exist(page, line):
    assert fault_in(line) is None


def test_the_check_of_commands_sees_faults():
    assert fault_in("rollbook tag ad latest") == "there is no command ad"
    assert fault_in("rollbook top 5 --algoo sac") == "there is no option --algoo"
    assert fault_in("rollbook top 5 --algo sac --over seed") is None
    assert fault_in("rollbook run --tags a -- python train.py --whatever") is None
    assert commands_in("pip install x && rollbook sql 'a < b' | head") == ["rollbook sql 'a < b'"]


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_help_has_an_example_that_works(path, command):
    examples = re.findall(r"^ +(rollbook .*)$", command.epilog or "", re.MULTILINE)

    own = [example for example in examples if example.startswith(" ".join(path).removesuffix(" run"))]
    assert own, "the epilog has no example of this command"
    assert [fault_in(line) for example in examples for line in commands_in(example)] == [None] * len(examples)
