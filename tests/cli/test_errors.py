"""Errors are one line of what is wrong and one with the remedy; help has examples; names cannot steer a terminal."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from makers import finished

import rollbook
from rollbook.cli.app import app


def commands(group, path=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield (*path, name), command
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = list(commands(app))


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_help_has_an_example_of_its_own_command(cli, path, command):
    answer = cli(*path, "--help")

    assert answer.code == 0
    assert "Example" in answer.out
    # `bench` alone is `bench run`, `gate` alone is `gate run`.
    assert f"  rollbook {' '.join(path).removesuffix(' run')}" in answer.out.split("Example")[1]


def test_the_program_itself_has_a_help_and_a_version(cli):
    assert "rollbook demo" in cli("--help").out
    assert cli("--version").out.strip().endswith(rollbook.__version__)


@pytest.mark.parametrize("path", [(), ("tag",), ("code",)])
def test_a_group_without_a_command_prints_its_help(cli, path):
    answer = cli(*path)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Usage: rollbook")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["unknown"], 2),
        (["runs", "--colour"], 2),
        (["runs", "--limit", "many"], 2),
        (["top", "five"], 2),
        (["show"], 2),
        (["show", "nowhere"], 4),
        (["show", "2"], 2),  # ambiguous
        (["top", "--by", "auk"], 2),
        (["top", "--over", "lr"], 2),
        (["top", "--algo", "ppo"], 4),
        (["runs", "--where", "alog = 1"], 2),
        (["runs", "--where", "1); drop view runs; --"], 2),
        (["sql", "delete from runs"], 2),
        (["plot", "nowhere"], 4),
        (["plot", "--where", "false"], 4),
        (["plot", "--algo", "sca"], 4),
        (["plot", "--metric", "eval/retrun"], 4),
        (["plot", "--group-by", "alog"], 2),
        (["plot", "--group-by", "tag"], 2),
        (["plot", "--smooth", "2"], 2),
        (["plot", "--points", "1"], 2),
        (["plot", "--out", "curves.jpg"], 2),
        (["plot", "--out", "nowhere/curves.png"], 2),
        (["plot", "--out"], 2),
        (["code", "list", "sac"], 2),
        (["code", "restore", "{run}", "out"], 4),
        (["code", "diff", "{run}", "{run}"], 4),
        (["note", "nowhere", "text"], 4),
        (["verbosity", "{run}", "loud"], 2),
        (["tag", "add", "x"], 2),
        (["tag", "add", " ", "{run}"], 2),
        (["tag", "remove", "unknown"], 4),
        (["tag", "add", "x", "--regex", "("], 2),
        (["delete"], 2),
        (["delete", "nowhere"], 4),
        (["delete", "--where", "false"], 4),
        (["archive", "--regex", "["], 2),
        (["restore"], 2),
        (["restore", "nowhere"], 4),
        (["purge", "nowhere"], 4),
        (["thin", "--level", "debug", "--older-than", "long"], 2),
        (["thin", "--level", "debug", "--older-than", "900w"], 4),
        (["thin"], 2),
        (["run"], 2),
        (["run", "--", "no-such-program"], 2),
        (["resume", "nowhere"], 4),
        (["fork", "{run}", "--set", "lr"], 2),
        (["rerun", "{run}"], 4),
        (["demo", "--seeds", "0"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_an_error_is_a_line_and_a_hint_without_a_traceback(book, cli, arguments, code):
    run = finished(book, algo="sac")
    finished(book, algo="sac")

    answer = cli(*(argument.format(run=run) for argument in arguments))

    assert (answer.code, answer.out) == (code, "")
    lines = answer.err.splitlines()
    assert lines[0].startswith("error: ")
    assert all(line.startswith("hint: ") for line in lines[1:])
    assert len(lines) <= 2


def test_a_book_that_is_not_there_is_named_with_the_flag_that_fixes_it(book, cli):
    answer = cli("runs", "--book", "elsewhere")

    assert answer.code == 4
    assert answer.err.splitlines()[0] == f"error: there is no book at {book.parent / 'elsewhere'}"
    assert "--book DIR" in answer.err.splitlines()[1]
    assert not (book.parent / "elsewhere").exists()


def test_a_book_that_is_a_file_is_named_with_the_flag_that_fixes_it(book, cli):
    (book.parent / "notes.txt").write_text("x")

    answer = cli("runs", "--book", "notes.txt")

    assert answer.code == 4
    assert answer.err.splitlines()[0] == f"error: {book.parent / 'notes.txt'} is a file, and a book is a folder"
    assert "--book DIR" in answer.err.splitlines()[1]


def test_the_choices_of_a_missing_option_are_on_its_line(book, cli):
    assert cli("thin").err.splitlines()[0] == "error: Missing option '--level'. Choose from: debug, info"


def test_the_traceback_is_there_with_debug(book, cli):
    finished(book)

    assert "Traceback" in cli("--debug", "show", "nowhere").err
    assert "Traceback" not in cli("show", "nowhere").err


def test_the_real_program_fails_in_the_same_words(book, process):
    finished(book)

    answer = process("show", "nowhere")

    assert (answer.code, answer.out) == (4, "")
    assert answer.err == "error: no run matches 'nowhere'\nhint: `rollbook runs` lists them\n"


def test_a_broken_configuration_is_named(book, cli, tmp_path):
    finished(book)
    (book / "rollbook.toml").write_text("colour = 3")

    answer = cli("runs")

    assert answer.code == 2
    assert "unknown key 'colour'" in answer.err


NASTY = ["[bold red]x[/bold red]", "[/]", "\x1b[31mred\x1b]0;title\x07", "a\nb\rc\u202e"]


@pytest.mark.parametrize("name", NASTY)
def test_what_users_named_is_printed_harmlessly(book, cli, name):
    run = finished(book, task=name, algo=name, env=name, metric=name, tags=[name], param=name, note=name)
    cli("note", run, name)
    cli("tag", "add", name + "2", run)
    printed = [
        cli(*arguments)
        for arguments in (
            ["runs", "--metric", name],
            ["show", run],
            ["top", "--metric", name, "--over", "seed"],
            ["newest"],
            ["sql", "select name, task, tags, notes from runs"],
            ["sql", 'select 1 as "' + name.replace('"', "") + '"'],
            ["tag", "list"],
            ["du"],
            ["delete", run, "--yes"],
            ["runs", "--hidden"],
            ["purge", "--yes"],
        )
    ]

    for answer in printed:
        assert answer.code == 0, answer.err
        for text in (answer.out, answer.err):
            assert not any(character in text for character in "\x1b\x07\r\u202e")
    visible = name.encode("unicode_escape").decode() if not name.isprintable() else name
    assert visible in printed[0].out
    assert visible in printed[5].out


@pytest.mark.parametrize("name", NASTY)
def test_an_error_about_a_nasty_name_stays_on_its_lines(book, cli, name):
    finished(book)

    for answer in (cli("show", name), cli("top", "--metric", name), cli("tag", "remove", name), cli(name)):
        assert answer.code in (2, 4)
        assert len(answer.err.splitlines()) <= 2
        assert "\x1b" not in answer.err


def test_a_terminal_gets_colours_but_never_the_users_own(book):
    import pty

    run = finished(book, algo="\x1b[35mviolet")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rollbook", "runs"],
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"},
    )
    os.close(follower)
    out = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        out += chunk
    os.close(leader)

    assert process.wait() == 0
    assert run.encode() in out
    assert b"\x1b[32m" in out  # finished is green
    assert b"\x1b[35m" not in out
    assert b"\\x1b[35mviolet" in out
