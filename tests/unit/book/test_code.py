from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from rollbook.book import code, objects
from rollbook.book.code import CodeManifest, diff, read_manifest, referenced_objects, restore, snapshot
from rollbook.book.layout import Layout
from rollbook.book.settings import Settings
from rollbook.errors import BookUnwritable, CodeNotFound, CorruptFile, UsageError

LABELS = ("old", "new")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "book")
    layout.create()
    return layout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


def write(root: Path, files: dict[str, bytes | str]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())


def manifest(layout: Layout, files: dict[str, bytes | str], mode: str = "644") -> str:
    """A manifest as anyone could have written it."""
    table = {
        path: {"id": objects.put(layout, content if isinstance(content, bytes) else content.encode()), "mode": mode}
        for path, content in files.items()
    }
    return objects.put(layout, json.dumps({"files": table, "skipped": {}}).encode())


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_snapshot_holds_each_file_by_content_with_its_mode(layout, project):
    write(project, {"train.py": "import jax\n", "run.sh": "#!/bin/sh\n"})
    (project / "run.sh").chmod(0o755)

    stored = read_manifest(layout, snapshot(layout, project, Settings()))

    assert {path: file.mode for path, file in stored.files.items()} == {"run.sh": "755", "train.py": "644"}
    assert objects.get(layout, stored.files["train.py"].id) == b"import jax\n"
    assert stored.skipped == {}


def test_the_same_files_have_the_same_id_wherever_and_whenever_they_lie(layout, project, tmp_path):
    other = tmp_path / "elsewhere"
    write(project, {"b.py": "b", "a/x.py": "x"})
    write(other, {"a/x.py": "x", "b.py": "b"})

    assert snapshot(layout, project, Settings()) == snapshot(layout, other, Settings())


def test_the_manifest_is_json_with_sorted_keys(layout, project):
    write(project, {"b.py": "b", "a.py": "a"})

    text = objects.get(layout, snapshot(layout, project, Settings())).decode()

    sha = {name: hashlib.sha256(name.encode()).hexdigest() for name in "ab"}
    assert json.loads(text) == {
        "files": {f"{name}.py": {"id": sha[name], "mode": "644"} for name in "ab"},
        "skipped": {},
    }
    assert text == json.dumps(json.loads(text), sort_keys=True)


def test_a_second_snapshot_stores_nothing_new(layout, project):
    write(project, {"a.py": "a"})
    snapshot(layout, project, Settings())
    before = sorted(layout.objects.rglob("*"))

    snapshot(layout, project, Settings())

    assert sorted(layout.objects.rglob("*")) == before


def test_a_file_over_the_limit_is_named_and_left_out(layout, project):
    write(project, {"fits.bin": b"x" * 10, "large.bin": b"x" * 11})

    stored = read_manifest(layout, snapshot(layout, project, Settings(max_file_bytes=10)))

    assert list(stored.files) == ["fits.bin"]
    assert stored.skipped == {"large.bin": "larger than max_file_bytes = 10"}


def test_a_file_that_vanishes_meanwhile_is_named(layout, project, monkeypatch):
    write(project, {"stays.py": ""})
    monkeypatch.setattr(code, "project_files", lambda *_, **__: [Path("gone.py"), Path("stays.py")])

    stored = read_manifest(layout, snapshot(layout, project, Settings()))

    assert list(stored.files) == ["stays.py"]
    assert stored.skipped == {"gone.py": "vanished while the code was being saved"}


def test_an_unreadable_file_is_named(layout, project, monkeypatch):
    write(project, {"stays.py": "", "secret.py": ""})
    really_open = os.open

    def refuse(path, *arguments):
        if str(path).endswith("secret.py"):
            raise PermissionError(13, "Permission denied")
        return really_open(path, *arguments)

    monkeypatch.setattr(os, "open", refuse)

    stored = read_manifest(layout, snapshot(layout, project, Settings()))

    assert stored.skipped == {"secret.py": "unreadable: Permission denied"}


def test_a_named_pipe_does_not_hold_a_snapshot_up(layout, project, monkeypatch):
    os.mkfifo(project / "pipe.py")
    monkeypatch.setattr(code, "project_files", lambda *_, **__: [Path("pipe.py")])

    stored = read_manifest(layout, snapshot(layout, project, Settings()))

    assert stored.skipped == {"pipe.py": "not a regular file"}


def test_a_cut_in_a_lone_scripts_folder_is_named(layout, project):
    write(project, {f"{number}.py": "" for number in range(501)})

    stored = read_manifest(layout, snapshot(layout, project, Settings(), lone_script=project / "7.py"))

    assert len(stored.files) == 500
    assert "500" in stored.skipped["."]


def test_an_object_that_is_swept_during_the_snapshot_is_stored_again(layout, project, monkeypatch):
    write(project, {"a.py": "a", "b.py": "b"})
    really_put = objects.put
    swept = []

    def sweep_once(layout: Layout, data: bytes) -> str:
        if data.startswith(b"{") and not swept:
            swept.append(objects.sweep(layout, set(), time.time() + 1, grace_seconds=0))
        return really_put(layout, data)

    monkeypatch.setattr(code, "put", sweep_once)

    manifest_id = snapshot(layout, project, Settings())

    assert swept[0].count == 2
    assert all(objects.contains(layout, object_id) for object_id in referenced_objects(layout, manifest_id))


def test_a_book_whose_objects_always_vanish_is_an_error_and_not_a_loop(layout, project, monkeypatch):
    write(project, {"a.py": "a"})
    monkeypatch.setattr(code, "contains", lambda *_: False)

    with pytest.raises(BookUnwritable, match="vanish"):
        snapshot(layout, project, Settings())


def test_a_second_snapshot_of_500_small_files_takes_well_under_100_ms(layout, project):
    write(project, {f"pkg{number % 20}/module{number}.py": f"x = {number}\n" * 50 for number in range(500)})
    settings = Settings(root=project)
    snapshot(layout, project, settings)

    def seconds() -> float:
        start = time.process_time()  # the wall clock would time the tests beside this one too
        snapshot(layout, project, settings)
        return time.process_time() - start

    assert min(seconds() for _ in range(5)) < 0.1


def test_a_manifest_refers_to_itself_and_its_files(layout, project):
    write(project, {"a.py": "a"})
    manifest_id = snapshot(layout, project, Settings())

    assert referenced_objects(layout, manifest_id) == {manifest_id, hashlib.sha256(b"a").hexdigest()}


def test_a_manifest_that_is_not_there_is_named(layout):
    with pytest.raises(CodeNotFound, match="0" * 64):
        read_manifest(layout, "0" * 64)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "{}",
        '{"files": []}',
        '{"files": {"a.py": "x"}}',
        '{"files": {"a.py": {"id": "../../../etc/passwd", "mode": "644"}}}',
        '{"files": {"a.py": {"id": "%s", "mode": "4755"}}}' % ("0" * 64),
        '{"files": {"a.py": {"id": "%s", "mode": ["755"]}}}' % ("0" * 64),
        '{"files": {}, "skipped": 3}',
        "[" * 100_000,
    ],
)
def test_what_is_no_manifest_is_refused(layout, text):
    object_id = objects.put(layout, text.encode())

    with pytest.raises(CorruptFile, match="manifest"):
        read_manifest(layout, object_id)


def test_restore_writes_the_files_with_their_modes_and_counts_them(layout, project, tmp_path):
    write(project, {"train.py": "import jax\n", "bin/run.sh": "#!/bin/sh\n"})
    (project / "bin/run.sh").chmod(0o755)
    manifest_id = snapshot(layout, project, Settings())

    count = restore(layout, manifest_id, tmp_path / "deep" / "restored")

    assert count == 2
    assert contents(tmp_path / "deep" / "restored") == contents(project)
    assert os.access(tmp_path / "deep/restored/bin/run.sh", os.X_OK)
    assert (tmp_path / "deep/restored/train.py").stat().st_mode & 0o111 == 0


def test_restore_refuses_a_folder_that_is_not_empty_without_force(layout, tmp_path):
    target = tmp_path / "target"
    write(target, {"mine.py": "mine", "a.py": "mine"})
    manifest_id = manifest(layout, {"a.py": "theirs"})

    with pytest.raises(UsageError, match="not empty"):
        restore(layout, manifest_id, target)
    assert (target / "a.py").read_text() == "mine"

    restore(layout, manifest_id, target, force=True)
    assert contents(target) == {"mine.py": b"mine", "a.py": b"theirs"}


def test_restore_takes_an_empty_folder_and_refuses_a_file(layout, tmp_path):
    manifest_id = manifest(layout, {"a.py": "a"})
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()

    assert restore(layout, manifest_id, tmp_path / "empty") == 1
    with pytest.raises(UsageError, match="is a file"):
        restore(layout, manifest_id, tmp_path / "file", force=True)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../evil.py",
        "a/../../evil.py",
        "a/..",
        "./a.py",
        "a//b.py",
        "",
        ".",
        "a\0b",
        ".git/hooks/post-checkout",
        "sub/.GIT/config",
        "\ud800.py",
    ],
)
def test_a_hostile_manifest_cannot_leave_the_target_and_nothing_is_restored(layout, tmp_path, path):
    manifest_id = manifest(layout, {"a_good.py": "x", path: "evil"})

    with pytest.raises(CorruptFile, match="nothing was restored"):
        restore(layout, manifest_id, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert not (tmp_path / "evil.py").exists()


@pytest.mark.parametrize("link", ["folder", "folder/file.py"])
def test_a_hostile_manifest_cannot_leave_the_target_through_a_symlink(layout, tmp_path, link):
    outside = tmp_path / "outside"
    write(outside, {"file.py": "mine"})
    target = tmp_path / "target"
    (target / link).parent.mkdir(parents=True)
    (target / link).symlink_to(outside if link == "folder" else outside / "file.py")
    manifest_id = manifest(layout, {"folder/file.py": "evil"})

    with pytest.raises(CorruptFile, match="does not stay inside"):
        restore(layout, manifest_id, target, force=True)
    assert contents(outside) == {"file.py": b"mine"}


def test_a_manifest_with_a_file_below_a_file_is_refused(layout, tmp_path):
    with pytest.raises(CorruptFile, match="below a file"):
        restore(layout, manifest(layout, {"a": "x", "a/b/c": "y"}), tmp_path / "target")


def test_the_target_itself_may_be_reached_through_a_symlink(layout, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    restore(layout, manifest(layout, {"a.py": "a"}), tmp_path / "link")

    assert contents(tmp_path / "real") == {"a.py": b"a"}


def test_a_damaged_object_costs_its_file_and_is_named(layout, tmp_path):
    manifest_id = manifest(layout, {"a.py": "a", "b.py": "b", "c.py": "c"})
    damaged = hashlib.sha256(b"b").hexdigest()
    layout.object_path(damaged).write_bytes(b"?")

    with pytest.raises(CorruptFile, match=rf"1 of 3 files .*'b\.py'.*{damaged}"):
        restore(layout, manifest_id, tmp_path / "target")
    assert contents(tmp_path / "target") == {"a.py": b"a", "c.py": b"c"}


def test_equal_code_has_no_diff(layout):
    same = manifest(layout, {"a.py": "a\n"})

    assert diff(layout, same, same, labels=LABELS) == ""


def test_a_diff_shows_changed_added_and_removed_files_sorted_by_path(layout):
    old = manifest(layout, {"c.py": "gone\n", "b.py": "one\ntwo\n", "same.py": "same"})
    new = manifest(layout, {"b.py": "one\n2\n", "same.py": "same", "a.py": "new\n"})

    assert diff(layout, old, new, labels=LABELS) == (
        "diff --git a/a.py b/a.py\n"
        "new file mode 100644\n"
        "--- /dev/null\told\n"
        "+++ b/a.py\tnew\n"
        "@@ -0,0 +1 @@\n"
        "+new\n"
        "diff --git a/b.py b/b.py\n"
        "--- a/b.py\told\n"
        "+++ b/b.py\tnew\n"
        "@@ -1,2 +1,2 @@\n"
        " one\n"
        "-two\n"
        "+2\n"
        "diff --git a/c.py b/c.py\n"
        "deleted file mode 100644\n"
        "--- a/c.py\told\n"
        "+++ /dev/null\tnew\n"
        "@@ -1 +0,0 @@\n"
        "-gone\n"
    )


def test_a_diff_says_where_a_file_does_not_end_in_a_newline(layout):
    text = diff(layout, manifest(layout, {"a": "x"}), manifest(layout, {"a": "x\n"}), labels=LABELS)

    assert text.endswith("-x\n\\ No newline at end of file\n+x\n")


def test_a_diff_names_mode_changes(layout):
    text = diff(layout, manifest(layout, {"a": "x"}), manifest(layout, {"a": "x"}, mode="755"), labels=LABELS)

    assert text == "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n"


@pytest.mark.parametrize("binary", [b"\0", b"\xff\xfe"])
def test_a_diff_names_binary_files(layout, binary):
    text = diff(layout, manifest(layout, {"a": "x"}), manifest(layout, {"a": binary}), labels=LABELS)

    assert text == "diff --git a/a b/a\nBinary files a/a and b/a differ\n"


def test_a_diff_names_a_damaged_object_and_shows_the_rest(layout):
    old = manifest(layout, {"a.py": "a\n", "b.py": "b\n"})
    new = manifest(layout, {"a.py": "A\n", "b.py": "B\n"})
    damaged = hashlib.sha256(b"A\n").hexdigest()
    layout.object_path(damaged).unlink()

    text = diff(layout, old, new, labels=LABELS)

    assert "Files a/a.py and b/a.py cannot be compared" in text
    assert damaged in text
    assert "+B\n" in text


def test_a_path_cannot_command_the_terminal_or_break_the_line(layout):
    old = manifest(layout, {})
    new = manifest(layout, {'\x1b[2J"\n\udcff\ud800.py': "x\n"})

    text = diff(layout, old, new, labels=("a\nb", "c\x1b"))

    assert text.startswith('diff --git "a/\\033[2J\\042\\012\\377')
    assert "\x1b" not in text
    assert "--- /dev/null\ta?b\n" in text
    text.encode()


def test_git_applies_a_diff(layout, tmp_path):
    old = {"a.py": "1\n2\n3", "gone.py": "x\n", "sub/ü b.py": "form\x0cfeed\r\nend\n", 'q"\n.py': "x\n"}
    new = {"a.py": "1\n2\n4\n", "new.py": "y", "sub/ü b.py": "form\x0cfeed\r\nEND\n", 'q"\n.py': "z\n"}
    patch = diff(layout, manifest(layout, old), manifest(layout, new, mode="755"), labels=("v1 of it", "v2"))
    write(tmp_path / "tree", old)

    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        input=patch.encode(),
        cwd=tmp_path / "tree",
        check=True,
        env=os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path), "GIT_CONFIG_GLOBAL": "/dev/null"},
    )

    assert contents(tmp_path / "tree") == {path: text.encode() for path, text in new.items()}
    assert os.access(tmp_path / "tree/a.py", os.X_OK)


def test_a_manifest_round_trips_through_its_bytes(layout):
    before = CodeManifest({"\udcff.py": code.CodeFile("0" * 64, "755")}, {"b": "why"})

    assert read_manifest(layout, objects.put(layout, before.to_bytes())) == before
