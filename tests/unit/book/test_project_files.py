from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rollbook.book import project_files as module
from rollbook.book.project_files import project_files, project_root
from rollbook.book.settings import Settings
from rollbook.errors import InvalidConfig


@pytest.fixture(autouse=True)
def git_of_no_machine(monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "Ada")
        monkeypatch.setenv(f"{name}_EMAIL", "ada@example.org")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "protocol.file.allow=always", *arguments], cwd=root, check=True, capture_output=True)


def write(root: Path, *paths: str, text: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def listed(root: Path, settings: Settings | None = None, book: Path | None = None, **options: Path) -> list[str]:
    found = project_files(root, settings or Settings(), book or root / "book", **options)
    return [path.as_posix() for path in found]


@pytest.fixture(params=["git", "walk"])
def kind(request, project) -> str:
    """Each rule holds in a checkout and in a folder without git."""
    if request.param == "git":
        git(project, "init", "-q")
    return str(request.param)


def test_the_project_root_is_the_git_root_before_the_configuration_before_nothing(project):
    (project / "src").mkdir()
    without = project_root(project / "src", Settings())
    configured = project_root(project / "src", Settings(root=project / "src"))
    git(project, "init", "-q")

    assert without is None
    assert configured == project / "src"
    assert project_root(project / "src", Settings(root=project / "src")) == project


def test_nested_gitignore_files_are_obeyed(kind, project):
    write(project, ".gitignore", text="*.log\nout/\n/top.txt\n")
    write(project, "a/.gitignore", text="!kept.log\nsecret.py\n")
    write(project, "train.py", "x.log", "out/y.py", "top.txt", "a/top.txt", "a/kept.log", "a/b/kept.log", "a/secret.py")
    write(project, "secret.py", "a/b.log", "a/out/z.py")

    assert listed(project) == [
        *(".gitignore", "a/.gitignore", "a/b/kept.log", "a/kept.log", "a/top.txt", "secret.py", "train.py")
    ]


def test_a_file_below_an_ignored_folder_cannot_be_taken_back_by_gitignore(kind, project):
    write(project, ".gitignore", text="out/\n!out/keep.py\npart/*\n!part/keep.py\n")
    write(project, "out/keep.py", "part/keep.py", "part/drop.py")

    assert listed(project) == [".gitignore", "part/keep.py"]


def test_nothing_inside_the_book_is_taken(kind, project):
    write(project, "train.py", "my [book]*/book.toml", "my [book]*/tasks/t/run.json", "my b/x.py")

    assert listed(project, book=project / "my [book]*") == ["my b/x.py", "train.py"]


def test_a_book_that_is_committed_is_not_taken_either(project):
    git(project, "init", "-q")
    write(project, "train.py", "book/book.toml")
    git(project, "add", ".")

    assert listed(project) == ["train.py"]


def test_another_book_inside_the_project_is_not_taken_wherever_it_lies(kind, project):
    write(project, "train.py", "docs/book.toml", "docs/a.md")  # mdBook has a file of that name, too
    for folder in ("old book", "results/deep/book"):
        write(project, f"{folder}/tasks/t/run.json", f"{folder}/objects/ab/abc.py")
        write(project, f"{folder}/book.toml", text="# A Rollbook book\nformat = 1\n")
    (project / "linked.py").symlink_to("results/deep/book/objects/ab/abc.py")

    expected = ["docs/a.md", "docs/book.toml", "train.py"]
    assert listed(project) == expected
    assert listed(project, Settings(include=("*",), exclude=(".git",))) == expected
    assert listed(project, lone_script=project / "train.py") == expected


def test_a_project_folder_that_is_another_book_keeps_its_own_files(kind, project):
    write(project, "train.py", "tasks/t/r/run.json", "journal/1")
    write(project, "book.toml", text="format = 1\n")

    assert listed(project) == ["train.py"]


def test_where_the_project_folder_is_the_book_the_parts_of_the_book_are_left_out(kind, project):
    write(project, "train.py", "book.toml", "objects/ab/abc", "tasks/t/r/run.json", "journal/1", "cache/c", "archive/x")

    assert listed(project, book=project) == ["train.py"]


def test_a_project_restored_inside_a_book_is_taken(kind, project):
    write(project, "train.py")

    assert listed(project, book=project.parent) == ["train.py"]


def test_include_brings_in_what_is_ignored_and_exclude_wins(kind, project):
    write(project, ".gitignore", text="configs/\n*.npz\n")
    write(project, "train.py", "configs/a.yaml", "configs/deep/b.yaml", "configs/c.txt", "x.npz", "notes.md")
    settings = Settings(include=("configs/**/*.yaml", "*.npz"), exclude=("notes.md", "deep/"))

    assert listed(project, settings) == [".gitignore", "configs/a.yaml", "train.py", "x.npz"]


def test_include_does_not_bring_in_the_book(kind, project):
    write(project, "train.py", "book/book.toml")

    assert listed(project, Settings(include=("*",))) == ["train.py"]


def test_a_symlink_is_taken_only_if_it_stays_inside_the_project_and_outside_the_book(kind, project):
    write(project, "train.py", "book/status.json", "folder/a.py")
    write(project.parent, "outside.py")
    for name, target in [
        ("inner.py", "train.py"),
        ("outer.py", "../outside.py"),
        ("absolute.py", "/etc/hostname"),
        ("status.json", "book/status.json"),
        ("dangling.py", "nowhere.py"),
        ("loop.py", "loop.py"),
        ("linked_folder", "folder"),
    ]:
        (project / name).symlink_to(target)

    assert listed(project) == ["folder/a.py", "inner.py", "train.py"]


def test_file_names_need_not_be_text(kind, project):
    write(project, "üb er\n.py")
    with open(os.fsencode(project) + b"/\xff.py", "wb"):
        pass

    assert listed(project) == ["üb er\n.py", os.fsdecode(b"\xff.py")]


def test_a_bad_pattern_in_the_configuration_is_named(project):
    with pytest.raises(InvalidConfig, match="exclude"):
        listed(project, Settings(exclude=("!",)))


def test_a_bad_line_of_a_gitignore_costs_that_line(project):
    write(project, ".gitignore", text="!\n*.log\n")
    write(project, "a.log", "a.py")

    assert listed(project) == [".gitignore", "a.py"]


def test_tracked_files_that_were_deleted_are_left_out_and_new_ones_taken(project):
    git(project, "init", "-q")
    write(project, "gone.py", "stays.py")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    (project / "gone.py").unlink()
    write(project, "new.py")

    assert listed(project) == ["new.py", "stays.py"]


def test_submodules_and_repositories_inside_are_left_out(project):
    other = project.parent / "other"
    other.mkdir()
    git(other, "init", "-q")
    write(other, "lib.py")
    git(other, "add", ".")
    git(other, "commit", "-qm", "first")
    git(project, "init", "-q")
    git(project, "submodule", "add", "-q", str(other), "vendor")
    git(project, "clone", "-q", str(other), "cloned")
    write(project, "train.py")

    assert listed(project) == [".gitmodules", "train.py"]


def test_a_git_hooks_environment_does_not_mislead(project, monkeypatch):
    git(project, "init", "-q")
    write(project, "train.py")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")

    assert listed(project) == ["train.py"]


@pytest.mark.parametrize("broken", ["no git on the path", "a .git that is none"])
def test_where_git_cannot_say_the_folder_is_walked(project, monkeypatch, tmp_path, broken):
    write(project, ".gitignore", text="*.log\n")
    write(project, "train.py", "x.log")
    if broken == "no git on the path":
        git(project, "init", "-q")
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        write(project, ".git", text="gitdir: /nowhere\n")

    assert listed(project) == [".gitignore", "train.py"]


def test_a_walk_skips_environments_caches_and_hidden_folders(project):
    write(project, "train.py", ".editorconfig", ".cache/a.py", "__pycache__/train.pyc", "node_modules/x/y.js")
    write(project, "env/pyvenv.cfg", "env/lib/z.py", "conda/conda-meta/history", "sub/.git/config", "sub/a.py")

    assert listed(project) == [".editorconfig", "sub/a.py", "train.py"]


def test_of_a_lone_script_only_source_nearby_is_taken(project):
    write(
        project,
        "train.py",
        "conf/a.YAML",
        "model.bin",
        "conf/data.npz",
        ".ssh/config.txt",
        "env/pyvenv.cfg",
        "env/a.py",
    )

    assert listed(project, lone_script=project / "train.py") == ["conf/a.YAML", "train.py"]


def test_of_a_lone_script_in_a_crowded_folder_at_most_500_files_are_taken_the_script_and_the_nearest_first(project):
    write(project, "z.py", *(f"near{n}.py" for n in range(300)), *(f"a/far{n}.py" for n in range(400)))

    found = listed(project, lone_script=project / "z.py")

    assert len(found) == 500
    assert "z.py" in found
    assert sum(path.startswith("near") for path in found) == 300


def test_looking_for_source_around_a_lone_script_has_an_end(project, monkeypatch):
    monkeypatch.setattr(module, "_LONE_SCRIPT_ENTRIES", 10)
    write(project, "z.py", *(f"{n}.bin" for n in range(50)))

    assert listed(project, lone_script=project / "z.py") == ["z.py"]
