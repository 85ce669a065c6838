"""The journal: numbered entries, appended by many at once, replayed in order."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.book import journal
from rollbook.errors import BookUnwritable, UsageError


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "journal"


def entries(folder):
    return list(journal.read_after(folder, 0))


def test_entries_are_numbered_from_one_and_say_who_and_when(folder):
    first = journal.append(folder, "tag", ["a"], tags=["latest"])
    second = journal.append(folder, "note", ["a"], text="ü\n")

    assert (first, second) == (1, 2)
    (_, entry), (_, note) = entries(folder)
    assert entry["tags"] == ["latest"]
    assert entry["user"] and entry["host"] and entry["time"] > 1e9
    assert note["text"] == "ü\n"
    assert {path.name for path in folder.iterdir()} == {"0000000001.json", "0000000002.json"}


@pytest.mark.parametrize(("kind", "details"), [("tag", {"tags": ["a", ""]}), ("note", {"text": ""})])
def test_an_empty_tag_or_note_is_not_written(folder, kind, details):
    with pytest.raises(UsageError, match=f"a {kind} needs at least one character"):
        journal.append(folder, kind, ["a"], **details)

    assert entries(folder) == []


def test_an_empty_or_missing_journal_has_no_entries(folder):
    assert journal.newest(folder) == 0
    assert entries(folder) == []
    assert journal.replay(folder) == journal.Changes()


def test_threads_that_append_at_once_each_get_a_number_of_their_own(folder):
    numbers = []

    def work(name):
        for count in range(15):
            numbers.append(journal.append(folder, "note", [name], text=str(count)))

    threads = [threading.Thread(target=work, args=(f"run{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(numbers) == list(range(1, 91))
    changes = journal.replay(folder)
    assert all(changes.notes[f"run{number}"] == [str(count) for count in range(15)] for number in range(6))


def test_processes_that_append_at_once_lose_nothing(folder):
    program = """
import sys
from pathlib import Path
from rollbook.book import journal
for count in range(20):
    journal.append(Path(sys.argv[1]), "note", [sys.argv[2]], text=str(count))
"""
    processes = [subprocess.Popen([sys.executable, "-c", program, folder, str(number)]) for number in range(3)]

    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert [number for number, _ in entries(folder)] == list(range(1, 61))
    assert all(len(notes) == 20 for notes in journal.replay(folder).notes.values())


def test_where_links_are_unknown_numbers_are_still_taken_once(folder, monkeypatch):
    def no_links(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", no_links)
    numbers = [journal.append(folder, "note", ["a"], text="x") for _ in range(3)]

    assert numbers == [1, 2, 3]
    assert len(entries(folder)) == 3


def test_the_last_word_on_a_tag_counts(folder):
    journal.append(folder, "tag", ["a", "b"], tags=["latest", "x"])
    journal.append(folder, "untag", ["a"], tags=["latest", "start"])
    journal.append(folder, "tag", ["a"], tags=["latest"])

    changes = journal.replay(folder)
    assert changes.current_tags("a", ["start", "kept"]) == ["kept", "latest", "x"]
    assert changes.current_tags("b", []) == ["latest", "x"]
    assert changes.current_tags("c", ["own"]) == ["own"]


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        (["delete"], "deleted"),
        (["archive"], "archived"),
        (["delete", "archive"], "archived"),
        (["delete", "restore"], None),
        (["archive", "restore", "delete"], "deleted"),
        (["delete", "purge"], None),
    ],
)
def test_hiding_and_restoring_replay_in_order(folder, kinds, state):
    for kind in kinds:
        journal.append(folder, kind, ["a"])

    assert journal.replay(folder).hidden.get("a") == state


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.sampled_from("xyz"))), st.data())
def test_replaying_in_two_parts_is_replaying_at_once(changes, data):
    split = data.draw(st.integers(0, len(changes)))
    made = [
        (number, {"kind": "tag" if add else "untag", "runs": [run], "tags": [tag]})
        for number, (add, run, tag) in enumerate(changes, start=1)
    ]
    whole, parts = journal.Changes(), journal.Changes()
    for number, entry in made:
        whole.apply(number, entry)
    for number, entry in [*made[:split], *made[split:]]:
        parts.apply(number, entry)

    for run in "ab":
        expected = {tag for add, name, tag in changes if name == run and add}
        expected = {
            tag for tag in expected if [add for add, name, other in changes if name == run and other == tag][-1]
        }
        assert set(whole.current_tags(run, [])) == expected
    assert whole == parts


def test_going_on_from_a_known_state_reads_only_what_is_new(folder):
    journal.append(folder, "note", ["a"], text="one")
    known = journal.replay(folder)
    journal.append(folder, "note", ["a"], text="two")

    assert journal.replay(folder, since=known).notes == {"a": ["one", "two"]}


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"kind": "tag"}',
        b'{"runs": ["a"]}',
        b'{"kind": "tag", "runs": "a", "tags": ["x"]}',
        b'{"kind": "tag", "runs": [["a"]], "tags": ["x"]}',
        b'{"kind": "tag", "runs": ["a"], "tags": null}',
        b'{"kind": "tag", "runs": ["a"], "tags": [{}]}',
        b'{"kind": {}, "runs": ["a"]}',
        b'{"kind": "verdict", "runs": []}',
        b'{"kind": "verdict", "runs": [], "time": "now", "user": "me"}',
    ],
)
def test_a_damaged_entry_is_named_and_costs_only_itself(folder, damage):
    journal.append(folder, "tag", ["a"], tags=["before"])
    (folder / "0000000002.json").write_bytes(damage)
    journal.append(folder, "tag", ["a"], tags=["after"])

    problems = []
    changes = journal.replay(folder, problems)

    assert changes.current_tags("a", []) == ["after", "before"]
    assert len(problems) == 1
    assert "0000000002.json" in problems[0]


@pytest.mark.parametrize("name", ["5.json", "notes.txt", "x.json", ".tmp", "٣.json"])
def test_a_stray_file_is_no_entry(folder, name):
    journal.append(folder, "tag", ["a"], tags=["x"])
    (folder / name).write_text("{}")

    assert journal.replay(folder).current_tags("a", []) == ["x"]


def test_an_entry_of_a_kind_from_the_future_is_passed_over(folder):
    journal.append(folder, "colour", ["a"], colour="red")
    journal.append(folder, "tag", ["a"], tags=["x"])

    problems = []
    assert journal.replay(folder, problems).current_tags("a", []) == ["x"]
    assert problems == []


def test_a_journal_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "journal").write_text("")

    with pytest.raises(BookUnwritable, match="cannot write to the journal"):
        journal.append(tmp_path / "journal", "tag", ["a"], tags=["x"])
