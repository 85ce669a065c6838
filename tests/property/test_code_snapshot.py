from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.book.code import diff, restore, snapshot
from rollbook.book.layout import Layout
from rollbook.book.settings import Settings

# Names that no rule leaves out: nothing hidden, nothing that is special to .gitignore or to a file system.
part = st.text(st.characters(codec="utf-8", exclude_characters="/\0\\", exclude_categories=["Cs"]), min_size=1)
LEFT_OUT = {"node_modules", "__pycache__", "pyvenv.cfg", "conda-meta"}
name = part.filter(lambda name: not name.startswith(".") and name not in LEFT_OUT and len(name.encode()) < 60)
path = st.lists(name, min_size=1, max_size=3).map("/".join)
tree = st.dictionaries(path, st.tuples(st.binary(max_size=200), st.booleans()), max_size=8)


def write(root: Path, files: dict[str, tuple[bytes, bool]]) -> None:
    root.mkdir()
    for name, (content, executable) in files.items():
        full = root / name
        try:
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_bytes(content)
        except OSError:  # the name of a file is also that of a folder
            continue
        full.chmod(0o755 if executable else 0o644)


def read(root: Path) -> dict[str, tuple[bytes, bool]]:
    return {
        full.relative_to(root).as_posix(): (full.read_bytes(), os.access(full, os.X_OK))
        for full in root.rglob("*")
        if full.is_file()
    }


@settings(deadline=None)
@given(tree)
def test_restoring_a_snapshot_gives_the_same_files(files):
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        layout = Layout(base / "book")
        layout.create()
        write(base / "project", files)

        first = snapshot(layout, base / "project", Settings())
        restore(layout, first, base / "restored")

        assert read(base / "restored") == read(base / "project")
        assert snapshot(layout, base / "restored", Settings()) == first


@settings(deadline=None)
@given(tree, tree)
def test_two_snapshots_have_a_diff_if_and_only_if_their_files_differ(old, new):
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        layout = Layout(base / "book")
        layout.create()
        write(base / "old", old)
        write(base / "new", new)
        first, second = (snapshot(layout, base / name, Settings()) for name in ("old", "new"))

        text = diff(layout, first, second, labels=("old", "new"))

        assert bool(text) == (read(base / "old") != read(base / "new"))
        assert text == diff(layout, first, second, labels=("old", "new"))
