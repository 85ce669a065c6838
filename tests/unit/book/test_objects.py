from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollbook.book import objects
from rollbook.book.code import referenced_objects, snapshot
from rollbook.book.layout import Layout
from rollbook.book.settings import Settings
from rollbook.errors import CodeNotFound, CorruptFile

LONG_AGO = 2 * objects.GRACE_SECONDS


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "book")
    layout.create()
    return layout


def make_old(path: Path) -> None:
    past = time.time() - LONG_AGO
    os.utime(path, (past, past))


def old_object(layout: Layout, data: bytes) -> str:
    object_id = objects.put(layout, data)
    make_old(layout.object_path(object_id))
    return object_id


def set_aside(layout: Layout, object_id: str) -> Path:
    path = layout.object_path(object_id)
    return path.rename(path.with_name(f"{object_id}.0123abcd.purging"))


def stored_files(layout: Layout) -> list[str]:
    return sorted(path.name for path in layout.objects.rglob("*") if path.is_file())


def test_what_was_put_is_got_back_under_its_sha256(layout):
    object_id = objects.put(layout, b"import jax\n")

    assert object_id == hashlib.sha256(b"import jax\n").hexdigest()
    assert objects.get(layout, object_id) == b"import jax\n"


def test_equal_contents_are_one_file(layout):
    first = objects.put(layout, b"same")
    second = objects.put(layout, b"same")

    assert first == second
    assert stored_files(layout) == [first]


def test_putting_what_is_there_freshens_it(layout):
    object_id = old_object(layout, b"x")

    objects.put(layout, b"x")

    assert time.time() - layout.object_path(object_id).stat().st_mtime < 60


def test_another_users_object_that_cannot_be_touched_is_replaced(layout, monkeypatch):
    object_id = old_object(layout, b"x")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "utime", refuse)

    assert objects.put(layout, b"x") == object_id
    assert time.time() - layout.object_path(object_id).stat().st_mtime < 60


def test_a_half_written_object_is_replaced_by_the_next_put(layout):
    object_id = objects.put(layout, b"whole")
    layout.object_path(object_id).write_bytes(b"wh")

    objects.put(layout, b"whole")

    assert objects.get(layout, object_id) == b"whole"


def test_a_damaged_object_is_named(layout):
    object_id = objects.put(layout, b"right")
    layout.object_path(object_id).write_bytes(b"wrong")

    with pytest.raises(CorruptFile, match=object_id):
        objects.get(layout, object_id)


def test_an_object_that_cannot_be_read_is_named(layout):
    object_id = hashlib.sha256(b"").hexdigest()
    layout.object_path(object_id).mkdir(parents=True)

    with pytest.raises(CorruptFile, match=object_id):
        objects.get(layout, object_id)


def test_a_missing_object_is_named(layout):
    with pytest.raises(CodeNotFound, match="0" * 64):
        objects.get(layout, "0" * 64)


@pytest.mark.parametrize("object_id", ["", "..", "../../book.toml", "A" * 64, "0" * 63, "0" * 64 + "\n", 7, None])
def test_an_object_id_cannot_be_a_path(layout, object_id):
    with pytest.raises(CorruptFile, match="no object id"):
        objects.get(layout, object_id)


def test_a_deleted_book_does_not_come_back_as_a_stump(tmp_path):
    gone = Layout(tmp_path / "gone")

    with pytest.raises(FileNotFoundError):
        objects.put(gone, b"x")
    assert not gone.root.exists()


def test_a_sweep_removes_old_objects_that_nothing_refers_to_and_counts_them(layout):
    kept = old_object(layout, b"kept")
    old_object(layout, b"old")
    old_object(layout, b"older")

    swept = objects.sweep(layout, {kept}, time.time())

    assert swept == objects.Swept(count=2, bytes=len(b"old") + len(b"older"))
    assert stored_files(layout) == [kept]


def test_a_sweep_keeps_what_is_younger_than_the_grace(layout):
    young = objects.put(layout, b"a run is about to refer to this")

    assert objects.sweep(layout, set(), time.time()) == objects.Swept(0, 0)
    assert stored_files(layout) == [young]


def test_a_sweep_without_grace_removes_what_was_stored_before_its_scan(layout):
    objects.put(layout, b"x")

    assert objects.sweep(layout, set(), time.time() + 1, grace_seconds=0).count == 1


def test_a_sweep_of_a_book_without_objects_removes_nothing(tmp_path):
    assert objects.sweep(Layout(tmp_path / "none"), set(), time.time()) == objects.Swept(0, 0)


def test_an_object_touched_between_the_first_look_and_the_rename_comes_back(layout, monkeypatch):
    object_id = old_object(layout, b"x")
    rename = Path.rename

    def touched_just_before(path: Path, target: Path) -> Path:
        objects.put(layout, b"x")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", touched_just_before)

    assert objects.sweep(layout, set(), time.time()) == objects.Swept(0, 0)
    assert stored_files(layout) == [object_id]


def test_an_object_written_anew_after_the_rename_stays(layout, monkeypatch):
    object_id = old_object(layout, b"x")
    rename = Path.rename

    def written_just_after(path: Path, target: Path) -> Path:
        renamed = rename(path, target)
        objects.put(layout, b"x")
        return renamed

    monkeypatch.setattr(Path, "rename", written_just_after)

    objects.sweep(layout, set(), time.time())

    assert objects.get(layout, object_id) == b"x"
    assert stored_files(layout) == [object_id]


def test_an_object_that_another_purge_took_first_is_not_counted(layout, monkeypatch):
    old_object(layout, b"x")

    def too_late(path: Path, target: Path) -> Path:
        path.unlink()
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "rename", too_late)

    assert objects.sweep(layout, set(), time.time()) == objects.Swept(0, 0)
    assert stored_files(layout) == []


def test_a_killed_purge_is_undone_for_objects_that_are_referred_to(layout):
    object_id = old_object(layout, b"x")
    set_aside(layout, object_id)

    objects.sweep(layout, {object_id}, time.time())

    assert stored_files(layout) == [object_id]


def test_a_killed_purge_is_finished_for_the_others(layout):
    set_aside(layout, old_object(layout, b"x"))

    assert objects.sweep(layout, set(), time.time()) == objects.Swept(1, 1)
    assert stored_files(layout) == []


def test_what_a_killed_purge_set_aside_fresh_is_restored_although_no_scan_saw_it(layout):
    object_id = objects.put(layout, b"x")
    set_aside(layout, object_id)

    objects.sweep(layout, set(), time.time())

    assert stored_files(layout) == [object_id]


def test_what_a_killed_purge_set_aside_goes_when_it_was_written_anew(layout):
    object_id = old_object(layout, b"x")
    set_aside(layout, object_id)
    objects.put(layout, b"x")

    objects.sweep(layout, {object_id}, time.time())

    assert stored_files(layout) == [object_id]


def test_an_object_set_aside_can_still_be_read(layout):
    object_id = objects.put(layout, b"x")
    set_aside(layout, object_id)

    assert objects.get(layout, object_id) == b"x"


def test_a_reader_waits_while_one_sweep_after_the_other_sets_the_object_aside(layout, monkeypatch):
    object_id = objects.put(layout, b"x")
    read = Path.read_bytes
    misses = iter(range(3))

    def just_renamed(path: Path) -> bytes:
        if next(misses, None) is not None:
            raise FileNotFoundError(path)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", just_renamed)

    assert objects.get(layout, object_id) == b"x"


def test_no_two_sweeps_set_an_object_aside_under_one_name(layout, monkeypatch):
    """A sweep that found its own one old, and then stalls, would remove the other's, which is fresh."""
    rename = Path.rename
    asides: list[Path] = []

    def noted(path: Path, target: Path) -> Path:
        asides.append(target)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", noted)
    for _ in range(2):
        old_object(layout, b"x")
        objects.sweep(layout, set(), time.time())

    assert len(set(asides)) == 2


def test_leftovers_of_killed_writers_go_once_they_are_old(layout):
    folder = layout.object_path(objects.put(layout, b"x")).parent
    (folder / ".old.1.abc").write_bytes(b"half")
    (folder / ".new.2.def").write_bytes(b"at work")
    make_old(folder / ".old.1.abc")

    swept = objects.sweep(layout, set(), time.time())

    assert swept == objects.Swept(1, 4)
    assert (folder / ".new.2.def").exists()


def test_a_sweep_leaves_files_alone_that_are_no_objects(layout):
    note = layout.object_path(objects.put(layout, b"x")).with_name("README")
    note.write_text("ours")
    make_old(note)

    objects.sweep(layout, set(), time.time())

    assert note.exists()


def test_what_is_put_back_late_does_not_replace_what_a_run_has_stored_meanwhile(layout, monkeypatch):
    object_id = objects.put(layout, b"x")
    set_aside(layout, object_id)
    touch = os.utime

    def touch_and_wait(place, *times):
        touch(place, *times)
        if str(place).endswith(".purging"):
            touch(place, (0, 0))  # as if hours went by
            objects.put(layout, b"x")

    monkeypatch.setattr(os, "utime", touch_and_wait)

    objects.sweep(layout, {object_id}, time.time())

    assert stored_files(layout) == [object_id]
    assert layout.object_path(object_id).stat().st_mtime > time.time() - 60


SWEEP_FOREVER = """
import sys, time
from pathlib import Path
from rollbook.book.layout import Layout
from rollbook.book.objects import sweep
layout = Layout(Path(sys.argv[1]))
print("sweeping", flush=True)
swept = 0
while not Path(sys.argv[2]).exists():
    swept += sweep(layout, set(), time.time()).count
print(swept, flush=True)
"""


def test_a_snapshot_keeps_every_object_that_it_names_while_others_sweep(layout, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    for number in range(8):
        (project / f"{number}.py").write_text(f"x = {number}\n")
    enough = tmp_path / "enough"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SWEEP_FOREVER, str(layout.root), str(enough)]
    sweepers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]

    try:
        for sweeper in sweepers:
            assert sweeper.stdout is not None
            sweeper.stdout.readline()
        until = time.monotonic() + 3
        while time.monotonic() < until:
            # The code of an old run that has been deleted is just being swept when a new run uses the same code.
            for path in list(layout.objects.glob("*/*")):
                try:
                    make_old(path)
                except FileNotFoundError:
                    continue
            manifest = snapshot(layout, project, Settings(root=project))
            for object_id in referenced_objects(layout, manifest):
                objects.get(layout, object_id)  # raises if it is gone
    finally:
        enough.touch()
        counts = [int(sweeper.communicate(timeout=30)[0]) for sweeper in sweepers]

    assert sum(counts) > 100
    assert set(stored_files(layout)) == referenced_objects(layout, manifest)
