"""Names become paths that cannot leave the book, and files are replaced whole."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.book.layout import (
    RUN_ID,
    Layout,
    attempt_folders,
    decode_name,
    encode_name,
    new_run_id,
    read_json,
    readable_name,
    write_atomically,
    write_json,
)
from rollbook.errors import BookNotFound, BookUnwritable, CorruptFile, InvalidName

# Texts that come near each other's encodings, beside any text at all.
near = st.text(alphabet="aA.%~/\\2Ee\0 é", min_size=1, max_size=6)
long = st.text(alphabet="ab%é.", min_size=100, max_size=400)
names = st.one_of(near, long, st.text(min_size=1).filter(lambda text: text.isprintable() or True))


def is_valid(name):
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@given(st.lists(names.filter(is_valid), unique=True, min_size=2, max_size=8))
def test_no_two_names_share_a_folder(several):
    assert len({encode_name(name) for name in several}) == len(several)


@given(names.filter(is_valid))
def test_no_name_leaves_its_folder_or_hides_in_it(name):
    encoded = encode_name(name)

    assert re.fullmatch(r"[A-Za-z0-9_+=%~-][A-Za-z0-9._+=%~-]*", encoded)
    assert len(encoded) <= 120
    assert os.path.normpath(f"/book/{encoded}") == f"/book/{encoded}"


@given(near.filter(is_valid))
def test_a_short_name_can_be_read_back(name):
    assert decode_name(encode_name(name)) == name


@pytest.mark.parametrize("name", ["hopper", "charts+x=1", "A_b-c.d", "-x"])
def test_a_plain_name_is_its_own_folder(name):
    assert encode_name(name) == name


@pytest.mark.parametrize(
    ("name", "folder"),
    [("..", "%2E."), (".git", "%2Egit"), ("a/b", "a%2Fb"), ("~", "%7E"), ("100%", "100%25"), ("ä", "%C3%A4")],
)
def test_other_names_are_percent_encoded(name, folder):
    assert encode_name(name) == folder


@pytest.mark.parametrize("name", ["", None, 3, b"x", "\udcff"])
def test_what_is_no_text_is_no_name(name):
    with pytest.raises(InvalidName):
        encode_name(name)


def test_a_run_id_tells_when_and_where(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Lab-3.example.org")

    run_id = new_run_id(0.0)

    assert RUN_ID.fullmatch(run_id)
    assert run_id.split("-")[2] == "lab3"


def test_a_host_without_letters_still_makes_an_id(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "---")

    assert RUN_ID.fullmatch(new_run_id(0.0))


def test_a_readable_name_has_no_separators_inside_its_values():
    assert readable_name("id", {"a b": "x&y=z/w\\v", "lr": 0.0003}) == "id&a_b=x_y_z_w_v&lr=0.0003"
    assert len(readable_name("id", {"k": "v" * 1_000})) < 50


def test_making_a_book_twice_is_making_it_once(tmp_path):
    layout = Layout(tmp_path / "deep" / "book")
    layout.create()
    marker = (tmp_path / "deep" / "book" / "book.toml").read_text()
    layout.create()
    layout.check()

    assert (tmp_path / "deep" / "book" / "book.toml").read_text() == marker
    assert "format = 1" in marker


def test_a_folder_that_is_no_book_is_refused_with_a_hint(tmp_path):
    with pytest.raises(BookNotFound, match="there is no book at") as error:
        Layout(tmp_path).check()

    assert "--book" in error.value.hint


@pytest.mark.parametrize(
    ("text", "said"), [(b"format = 99\n", "has format 99"), (b"", "names no format"), (b"\xff", "cannot read")]
)
def test_a_book_of_another_format_is_refused(tmp_path, text, said):
    (tmp_path / "book.toml").write_bytes(text)

    with pytest.raises(CorruptFile, match=said):
        Layout(tmp_path).check()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(BookUnwritable, match="cannot write the book"):
        Layout(tmp_path / "file" / "book").create()


def test_attempts_are_in_the_order_of_their_numbers(tmp_path):
    for name in ("10", "9", "0", ".hidden", "x", "-1"):
        (tmp_path / "attempts" / name).mkdir(parents=True)

    assert [number for number, _ in attempt_folders(tmp_path)] == [0, 9, 10]
    assert attempt_folders(tmp_path / "nowhere") == []


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    write_json(tmp_path / "a.json", {"old": 1})

    def full(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(tmp_path / "a.json", b"new")

    assert read_json(tmp_path / "a.json") == {"old": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "a.json").write_text("{")

    with pytest.raises(CorruptFile, match=r"a\.json is not valid JSON"):
        read_json(tmp_path / "a.json")
