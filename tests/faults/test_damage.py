# ruff: noqa: E501 - hostile input reads best a line a kind
"""A corrupt file costs that piece and is named; the rest of the book answers, and never a wrong value."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rollbook
from rollbook.book.metric_log import KeyRows, encode, read_log

# ---- metrics.log ------------------------------------------------------------------------------------------------

Row = tuple[str, int, float, float]  # name, step, time, value


def make_frames(count: int) -> list[tuple[bytes, set[Row]]]:
    """Batches and the rows in each; values that look like the beginning of a batch are among them."""
    frames = []
    looks_like_magic = struct.unpack("<d", b"RBM1RBM1")[0]
    for number in range(count):
        blocks, rows = [], set()
        for level, names in [("info", ("a", "b")), ("debug", ("c",)), ("essential", ("RBM1",))][: 1 + number % 3]:
            keyed = KeyRows(level, names)
            for index in range(1 + (number * 7) % 5):
                step, time = number * 100 + index, 1e9 + number + index / 8
                values = [
                    looks_like_magic if (step + place) % 3 == 0 else step + place / 4 for place in range(len(names))
                ]
                keyed.append(step, time, values)
                rows |= {(name, step, time, value) for name, value in zip(names, values, strict=True)}
            blocks.append(keyed.take())
        frames.append((encode(blocks), rows))
    return frames


FRAMES = make_frames(9)
LOG = b"".join(frame for frame, _ in FRAMES)
BORDERS = [sum(len(frame) for frame, _ in FRAMES[:number]) for number in range(len(FRAMES) + 1)]


def rows_in(path: Path) -> tuple[set[Row], bool]:
    """What was read, and whether something is said to be missing."""
    contents = read_log(path)
    rows = {
        (name, step, time, value)
        for name, series in contents.series.items()
        for step, time, value in zip(series.steps.tolist(), series.times.tolist(), series.values.tolist(), strict=True)
    }
    assert sum(len(series.steps) for series in contents.series.values()) == len(rows), "a row was read twice"
    return rows, bool(contents.damaged or contents.torn_bytes)


def check(path: Path, data: bytes, intact: set[int]) -> None:
    """The batches in `intact` are read in full and none of another value; if one is missing, it is said."""
    path.write_bytes(data)
    rows, said = rows_in(path)
    for number, (_, expected) in enumerate(FRAMES):
        assert expected <= rows or number not in intact
    assert rows <= {row for _, expected in FRAMES for row in expected}
    missing = any(not expected <= rows for _, expected in FRAMES)
    cut_at_a_border = data in (LOG[:border] for border in BORDERS)
    assert said or not missing or cut_at_a_border


flips = st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.integers(1, 255)), min_size=1, max_size=12)


@settings(deadline=None, max_examples=300)
@given(flips=flips)
def test_flipped_bytes_cost_their_own_batches_and_no_others(
    tmp_path_factory: Any, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(LOG)
    for offset, mask in flips:
        data[offset] ^= mask
    touched = {
        number for number in range(len(FRAMES)) if data[BORDERS[number] : BORDERS[number + 1]] != FRAMES[number][0]
    }

    check(tmp_path_factory.getbasetemp() / "flipped.log", bytes(data), set(range(len(FRAMES))) - touched)


@settings(deadline=None, max_examples=200)
@given(length=st.integers(0, len(LOG)))
def test_a_log_cut_anywhere_gives_every_batch_before_the_cut(tmp_path_factory: Any, length: int) -> None:
    whole = {number for number in range(len(FRAMES)) if BORDERS[number + 1] <= length}

    check(tmp_path_factory.getbasetemp() / "cut.log", LOG[:length], whole)


@settings(deadline=None, max_examples=200)
@given(start=st.integers(0, len(LOG)), length=st.integers(0, 400), filling=st.binary(max_size=200))
def test_a_piece_that_is_lost_or_replaced_costs_only_the_batches_it_touches(
    tmp_path_factory: Any, start: int, length: int, filling: bytes
) -> None:
    data = LOG[:start] + filling + LOG[start + length :]
    whole = {
        number for number in range(len(FRAMES)) if BORDERS[number + 1] <= start or BORDERS[number] >= start + length
    }

    check(tmp_path_factory.getbasetemp() / "replaced.log", data, whole)


@settings(deadline=None, max_examples=200)
@given(data=st.binary(max_size=300) | st.binary(max_size=80).map(lambda tail: b"RBM1" + tail))
def test_any_bytes_at_all_are_read_without_an_error(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.log"
    path.write_bytes(data)

    assert rows_in(path) == (set(), bool(data))


# ---- the other files of a book ----------------------------------------------------------------------------------

VIEWS = ("metrics", "summaries", "runs", "params", "tags", "checkpoints", "newest", "media", "verdicts", "problems")
LONG_AGO = 1_700_000_000


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three finished runs and one whose log was never sealed, with tags, notes, a checkpoint and a text."""
    book = tmp_path_factory.mktemp("original") / "book"
    for number in range(4):
        config = {"algo": "sac", "env": "e", "seed": number}
        run = rollbook.start("task", config=config, book=book, tags=["first"], save_code=False)
        for step in range(200):
            run.log({"eval/return": number + step / 8, "losses/critic": step * 0.1 + number}, step=step)
        run.checkpoint(200, {"w": __import__("numpy").arange(5.0)})
        run.text("text", "words", step=1)
        run.tag("second")
        run.note(f"note {number}")
        run.finish()
        if number == 3:
            unseal(run.folder)
        os.utime(run.folder, (LONG_AGO, LONG_AGO))
    return book


def unseal(folder: Path) -> None:
    """As a run looks whose sealing failed: metrics.log, with one batch, and no figures in its status."""
    attempt = folder / "attempts" / "0"
    keyed = KeyRows("info", ("eval/return", "losses/critic"))
    for step in range(200):
        keyed.append(step, LONG_AGO + step, [3 + step / 8, step * 0.1 + 3])
    (attempt / "metrics.log").write_bytes(encode([keyed.take()]))
    (attempt / "metrics.parquet").unlink()
    status = json.loads((attempt / "status.json").read_text())
    (attempt / "status.json").write_text(json.dumps(status | {"summaries": None}))


@pytest.fixture
def book(original: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(original, tmp_path / "book")
    yield tmp_path / "book"


def answers(book: Path, views: tuple[str, ...] = VIEWS) -> dict[str, list[Any]]:
    """Everything that the book says; that nothing is raised is what most tests here are about."""
    opened = rollbook.open(book)
    said = {view: sorted(opened.sql(f"select * from {view}").fetchall(), key=str) for view in views}
    opened.problems()
    return said


def run_folders(book: Path) -> list[Path]:
    """The one with a log is the last."""
    folders = [path for path in (book / "tasks" / "task").iterdir() if (path / "run.json").exists()]
    return sorted(folders, key=lambda path: ((path / "attempts/0/metrics.log").exists(), path.name))


def of_others(said: dict[str, list[Any]], view: str, run_id: str) -> list[Any]:
    return [row for row in said[view] if run_id not in row]


Change = Callable[[bytes], bytes]


def damages(seed: int) -> Iterator[Change]:
    chance = random.Random(seed)

    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(chance.choice([1, 1, 3, 20]) if data else 0):
            changed[chance.randrange(len(changed))] ^= chance.randrange(1, 256)
        return bytes(changed)

    yield from (flip for _ in range(12))
    yield from (lambda data: data[: chance.randrange(len(data) + 1)] for _ in range(4))
    yield lambda data: b""
    yield lambda data: b"\0" * len(data)
    yield lambda data: data + data


def damage(path: Path, change: Change) -> None:
    """In place, as a failing disk does it: the run folder's own time stays."""
    folder = next((parent for parent in path.parents if parent.parent.name == "task"), None)
    path.write_bytes(change(path.read_bytes()))
    if folder:
        os.utime(folder, (LONG_AGO, LONG_AGO))


FILES_OF_RUNS = [
    ("run.json", 0), ("attempts/0/status.json", 0), ("attempts/0/attempt.json", 0), ("attempts/0/metrics.parquet", 0),
    ("attempts/0/metrics.log", 3), ("attempts/0/status.json", 3), ("checkpoints/200/manifest.json", 0),
    ("checkpoints/200/tensors.safetensors", 0), ("media/text/1.txt", 0),
]  # fmt: skip


def check_that_others_are_as_they_were(book: Path, place: str, number: int, changes: list[Change]) -> None:
    folder = run_folders(book)[number]
    expected, file = answers(book), folder / place
    sound = file.read_bytes()
    points = {row for row in expected["metrics"] if folder.name in row}
    for change in changes:
        shutil.rmtree(book / "cache", ignore_errors=True)
        damage(file, change)
        said = answers(book, VIEWS[:5])
        for view in VIEWS[:5]:
            assert of_others(said, view, folder.name) == of_others(expected, view, folder.name)
        if "metrics" in place:
            assert {row for row in said["metrics"] if folder.name in row} <= points
    assert rollbook.open(book).top(9, metric="eval/return")
    file.write_bytes(sound)


@pytest.mark.parametrize(("place", "number"), FILES_OF_RUNS)
def test_damage_to_a_file_of_a_run_leaves_all_other_runs_as_they_were(book: Path, place: str, number: int) -> None:
    check_that_others_are_as_they_were(book, place, number, list(damages(number))[::5])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("place", "number"), FILES_OF_RUNS)
def test_many_kinds_of_damage_leave_all_other_runs_as_they_were(book: Path, place: str, number: int, seed: int) -> None:
    check_that_others_are_as_they_were(book, place, number, list(damages(seed)))


def test_damage_that_a_cache_hides_does_no_harm(book: Path) -> None:
    expected = answers(book)
    for place, number in FILES_OF_RUNS[:4]:
        damage(run_folders(book)[number] / place, lambda data: data[: len(data) // 2])

    said = answers(book)

    assert said["metrics"] == expected["metrics"]
    assert said["summaries"] == expected["summaries"]


@pytest.mark.parametrize(
    "place", ["run.json", "attempts/0/status.json", "attempts/0/attempt.json", "attempts/0/metrics.log"]
)
def test_a_damaged_file_is_named(book: Path, place: str) -> None:
    folder = run_folders(book)[3]
    damage(folder / place, lambda data: data[: len(data) // 2] + b"\0" + data[len(data) // 2 + 1 :])
    shutil.rmtree(book / "cache")

    problems = rollbook.open(book).problems()

    assert any(str(Path(folder.name) / place) in problem for problem in problems), problems


WRONG = (None, [], {}, "text", 1e300, -1, 2**70, [1], {"x": 1}, True, [["a", 1]], float("nan"))


def check_wrong_kinds(book: Path, place: str, sample: int) -> None:
    folder = run_folders(book)[0]
    path = folder / place
    sound = json.loads(path.read_text())
    cases = [(key, wrong) for key in sound for wrong in WRONG]
    for key, wrong in random.Random(place).sample(cases, min(sample, len(cases))):
        path.write_text(json.dumps(sound | {key: wrong}))
        shutil.rmtree(book / "cache", ignore_errors=True)
        opened = rollbook.open(book)
        rows = opened.sql("select run_id from runs join summaries using (run_id) join tags using (run_id)").fetchall()
        assert len([row for row in rows if folder.name not in row]) == 12, (key, wrong)


@pytest.mark.parametrize("place", ["run.json", "attempts/0/status.json", "attempts/0/attempt.json"])
def test_values_of_the_wrong_kind_are_damage_like_any_other(book: Path, place: str) -> None:
    check_wrong_kinds(book, place, 8)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["run.json", "attempts/0/status.json", "attempts/0/attempt.json"])
def test_every_value_of_a_wrong_kind_is_damage_like_any_other(book: Path, place: str) -> None:
    check_wrong_kinds(book, place, 10_000)


def test_damaged_sealed_metrics_are_named(book: Path) -> None:
    file = run_folders(book)[0] / "attempts" / "0" / "metrics.parquet"
    values = pq.ParquetFile(file).metadata.row_group(0).column(3)
    last_byte = values.data_page_offset + values.total_compressed_size - 1
    damage(file, lambda data: data[:last_byte] + bytes([data[last_byte] ^ 0xFF]) + data[last_byte + 1 :])
    answers(book)

    assert any("metrics.parquet" in problem for problem in rollbook.open(book).problems())


def test_a_copied_run_folder_is_a_run_of_its_own(book: Path) -> None:
    folder = run_folders(book)[0]
    shutil.copytree(folder, folder.with_name(folder.name + "0"))
    os.utime(folder.with_name(folder.name + "0"), (LONG_AGO, LONG_AGO))

    said = answers(book)

    assert len(said["runs"]) == 5
    assert len(said["metrics"]) == 5 * 400


def test_a_damaged_journal_entry_costs_that_change_and_is_named(book: Path) -> None:
    entries = sorted((book / "journal").iterdir())
    expected = answers(book)
    for number, change in enumerate(damages(1)):
        entry = entries[number % len(entries)]
        sound = entry.read_bytes()
        entry.write_bytes(change(sound))
        opened = rollbook.open(book)
        runs = opened.sql("select run_id from runs order by run_id").fetchall()
        assert [run_id for (run_id,) in runs] == [row[0] for row in expected["runs"]]
        opened.sql("select * from tags").fetchall()
        opened.sql("select * from verdicts").fetchall()
        entry.write_bytes(sound)


def test_a_damaged_journal_entry_is_named_every_time_one_asks(book: Path) -> None:
    entry = sorted((book / "journal").iterdir())[2]
    entry.write_bytes(entry.read_bytes()[:20])
    opened = rollbook.open(book)

    opened.sql("select * from runs").fetchall()

    assert any(entry.name in problem for problem in opened.problems())
    assert any(entry.name in problem for problem in opened.problems())


@pytest.mark.parametrize(
    "entry",
    [{}, {"kind": "tag"}, {"kind": "tag", "runs": 1}, {"kind": "tag", "runs": [[]], "tags": ["a"]}, {"kind": "tag", "runs": ["x"], "tags": [1]},
     {"kind": "note", "runs": ["x"], "text": {}}, {"kind": "verdict", "runs": []}, {"kind": "verdict", "runs": [], "time": 1e300, "user": "x"},
     {"kind": "verdict", "runs": [], "time": 1.0, "user": []}, {"kind": [], "runs": []}, {"kind": "delete", "runs": [{}]}, [], None, 1, "x"],
)  # fmt: skip
def test_a_journal_entry_of_another_shape_does_no_harm(book: Path, entry: Any) -> None:
    (book / "journal" / "0000000099.json").write_text(json.dumps(entry))
    opened = rollbook.open(book)

    runs, _ = opened.sql("select * from runs").fetchall(), opened.sql("select * from verdicts").fetchall()

    assert len(runs) == 4


# ---- the cache --------------------------------------------------------------------------------------------------


def cache_files(book: Path) -> list[Path]:
    return sorted(path for path in (book / "cache").rglob("*") if path.is_file())


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "removed":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "emptied":
        path.write_bytes(b"")
    elif data:
        place = int(len(data) * float(how))
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])


@pytest.mark.parametrize(
    "how", ["removed", "0.5", *(pytest.param(how, marks=pytest.mark.slow) for how in ("cut", "emptied", "0.1", "0.9"))]
)
def test_no_file_of_the_cache_matters(book: Path, how: str) -> None:
    expected = answers(book)
    names = {path.relative_to(book) for path in cache_files(book)}
    assert any(path.name == "current" for path in names)
    assert any(path.match("metrics/*.parquet") for path in names)

    for name in sorted(names):
        if (book / name).exists():
            spoil(book / name, how)
            said = rollbook.open(book)
            for view in ("metrics", "summaries", "params"):
                assert sorted(said.sql(f"select * from {view}").fetchall(), key=str) == expected[view]


def test_an_open_book_goes_on_when_its_cache_is_removed_or_damaged(book: Path) -> None:
    opened = rollbook.open(book)
    expected = opened.sql("select * from metrics order by all").fetchall()
    assert len(expected) == 4 * 400

    for path in cache_files(book):
        if path.suffix == ".parquet":
            path.write_bytes(b"PAR1 nothing PAR1")
    assert opened.sql("select * from metrics order by all").fetchall() == expected
    assert len(opened.sql("select * from summaries").fetchall()) == 8
    shutil.rmtree(book / "cache")

    assert opened.sql("select * from metrics order by all").fetchall() == expected
    assert len(opened.sql("select * from summaries").fetchall()) == 8


def test_a_book_that_was_moved_knows_where_it_is(book: Path) -> None:
    answers(book)
    moved = book.rename(book.with_name("moved"))

    said = answers(moved)

    assert all(Path(row[-1]).exists() for row in [*said["checkpoints"], *said["media"]])
    assert all(run.folder.exists() for run in rollbook.open(moved).runs())


def test_leftovers_and_strange_files_in_the_book_do_no_harm(book: Path) -> None:
    expected = answers(book)
    strange = ("tasks/file", "tasks/task/file", "tasks/.hidden", "journal/file", "journal/x.json", "journal/.part")
    for place in (*strange, "cache/file", "cache/metrics/x.parquet"):
        (book / place).write_bytes(b"\xff\0")
    (book / "tasks" / "task" / "no run").mkdir()
    (book / "tasks" / "empty").mkdir()
    (run_folders(book)[0] / "attempts" / "no number").mkdir()

    assert answers(book) == expected
