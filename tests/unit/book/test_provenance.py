from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from rollbook.book import objects, provenance
from rollbook.book.code import read_manifest
from rollbook.book.layout import Layout
from rollbook.book.provenance import gather, pr_number, pr_of_refs
from rollbook.book.settings import Settings


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
    (root / "train.py").write_text("print(1)\n")
    return root


@pytest.fixture
def layout(project: Path) -> Layout:
    """A book inside the checkout, where it is by default."""
    layout = Layout(project / "book")
    layout.create()
    return layout


@pytest.fixture
def checkout(project: Path) -> Path:
    git(project, "init", "-q", "-b", "trunk")
    git(project, "add", "train.py")
    git(project, "commit", "-qm", "first")
    return project


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def put_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_clean_checkout_is_known_by_commit_branch_and_tag(layout, checkout):
    git(checkout, "tag", "v1.2")

    found = gather(layout, Settings(), checkout / "train.py")

    assert found.git is not None
    assert found.git.commit == git(checkout, "rev-parse", "HEAD")
    assert (found.git.describe, found.git.branch, found.git.dirty, found.git.diff) == ("v1.2", "trunk", False, None)
    assert found.project_root == str(checkout)
    assert found.problems == []


def test_describe_says_what_git_says(layout, checkout):
    git(checkout, "tag", "v1.2")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "second")
    (checkout / "train.py").write_text("print(2)\n")

    found = gather(layout, Settings(), checkout / "train.py")

    assert found.git is not None
    assert found.git.describe == git(checkout, "describe", "--tags", "--always", "--dirty")


def test_uncommitted_work_is_kept_as_a_diff(layout, checkout):
    (checkout / "train.py").write_text("print(2)\n")

    found = gather(layout, Settings(), checkout / "train.py")

    assert found.git is not None
    assert found.git.dirty
    assert found.git.diff is not None
    assert b"-print(1)\n+print(2)\n" in objects.get(layout, found.git.diff)


def test_staged_work_is_uncommitted_work(layout, checkout):
    (checkout / "new.py").touch()
    git(checkout, "add", "new.py")

    found = gather(layout, Settings(), checkout / "train.py")

    assert found.git is not None
    assert found.git.dirty


@pytest.mark.parametrize("committed", [False, True])
def test_the_book_does_not_make_the_work_dirty(layout, checkout, committed):
    (layout.tasks / "status.json").write_text("1")
    if committed:
        git(checkout, "add", ".")
        git(checkout, "commit", "-qm", "with the book")
        (layout.tasks / "status.json").write_text("2")

    found = gather(layout, Settings(), checkout / "train.py")

    assert found.git is not None
    assert found.git.dirty is False
    assert not (found.git.describe or "").endswith("-dirty")


def test_a_users_git_settings_do_not_change_the_diff(layout, checkout):
    (checkout / "train.py").write_text("print(2)\n")
    for key, value in [("diff.noprefix", "true"), ("color.ui", "always"), ("diff.external", "false")]:
        git(checkout, "config", key, value)

    found = gather(layout, Settings(), checkout / "train.py")

    assert found.git is not None and found.git.diff is not None
    assert objects.get(layout, found.git.diff).startswith(b"diff --git a/train.py b/train.py\n")


def test_a_diff_over_the_limit_is_not_kept_and_said(layout, checkout, monkeypatch):
    monkeypatch.setattr(provenance, "MAX_DIFF_BYTES", 1000)
    (checkout / "train.py").write_text("x\n" * 1000)

    found = gather(layout, Settings(), checkout / "train.py")

    assert found.git is not None
    assert found.git.dirty
    assert found.git.diff is None
    assert any("larger than 1000 bytes" in problem for problem in found.problems)


def test_a_checkout_without_commits_works(layout, project):
    git(project, "init", "-q", "-b", "trunk")

    found = gather(layout, Settings(), project / "train.py")

    assert found.git == provenance.Git(branch="trunk", dirty=True)
    assert found.code is not None
    assert found.problems == []


def test_a_detached_head_has_no_branch(layout, checkout):
    git(checkout, "checkout", "-q", "--detach")

    found = gather(layout, Settings(), checkout / "train.py")

    assert found.git is not None
    assert found.git.branch is None
    assert found.problems == []


def test_no_checkout_is_no_problem(layout, project):
    found = gather(layout, Settings(), project / "train.py")

    assert found.git is None
    assert found.problems == []


def test_git_that_is_not_installed_is_named_and_the_rest_goes_on(layout, checkout, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    found = gather(layout, Settings(), checkout / "train.py")

    assert found.git is None
    assert any(problem.startswith("git: ") for problem in found.problems)
    assert found.code is not None
    assert "train.py" in read_manifest(layout, found.code).files


def test_git_that_hangs_is_stopped_and_named(layout, checkout, monkeypatch, tmp_path):
    put_on_path(monkeypatch, tmp_path / "bin", "git", "sleep 60")
    start_git = provenance.start_git
    monkeypatch.setattr(provenance, "start_git", lambda *args: start_git(*args, timeout_seconds=0.3))

    found = gather(layout, Settings(), checkout / "train.py", save_code=False)

    assert found.git is None
    assert any("longer than 0.3 s" in problem for problem in found.problems)


def test_the_code_is_saved_unless_it_is_unwanted(layout, checkout):
    wanted = gather(layout, Settings(), checkout / "train.py")
    unwanted = gather(layout, Settings(), checkout / "train.py", save_code=False)

    assert wanted.code is not None
    assert list(read_manifest(layout, wanted.code).files) == ["train.py"]
    assert unwanted.code is None


def test_a_lone_scripts_code_is_what_lies_beside_it(layout, project):
    (project / "model.bin").write_bytes(b"\0")

    found = gather(layout, Settings(), project / "train.py")

    assert found.code is not None
    assert list(read_manifest(layout, found.code).files) == ["train.py"]
    assert found.project_root == str(project)


def test_without_script_and_project_no_code_is_saved_and_that_is_said(layout, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")

    found = gather(layout, Settings(), None)

    assert (found.code, found.project_root) == (None, None)
    assert any("neither a script nor a project" in problem for problem in found.problems)


def test_a_working_folder_that_was_deleted_stops_nothing(layout, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    found = gather(layout, Settings(), None)

    assert found.python
    assert found.problems


def test_a_book_that_cannot_be_written_is_named_and_the_rest_goes_on(tmp_path, checkout):
    gone = Layout(tmp_path / "gone")

    found = gather(gone, Settings(), checkout / "train.py")

    assert (found.code, found.packages) == (None, None)
    assert found.git is not None
    assert [problem.partition(":")[0] for problem in found.problems] == ["the package versions", "the code"]


def test_a_part_that_breaks_in_an_unforeseen_way_is_named_and_the_rest_goes_on(layout, checkout, monkeypatch):
    def broken() -> str:
        raise KeyError("metadata")

    monkeypatch.setattr(provenance, "_packages", broken)

    found = gather(layout, Settings(), checkout / "train.py")

    assert found.packages is None
    assert found.problems == ["the package versions: 'metadata'"]
    assert found.code is not None


def test_package_versions_are_sorted_lines_without_doubles(layout, project):
    found = gather(layout, Settings(), project / "train.py")

    assert found.packages is not None
    lines = objects.get(layout, found.packages).decode().splitlines()
    names = [line.partition("==")[0].lower().replace("_", "-") for line in lines]
    assert f"pytest=={version('pytest')}" in lines
    assert names == sorted(set(names))


def test_the_machine_is_described(layout, project):
    found = gather(layout, Settings(), project / "train.py")

    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.platform
    assert found.cpu
    assert found.cpu_count == len(os.sched_getaffinity(0))
    assert found.memory_bytes > 2**27


def test_gpus_are_named_by_nvidia_smi(layout, project, monkeypatch, tmp_path):
    listing = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\nGPU 1: NVIDIA L4 (UUID: GPU-2)"
    put_on_path(monkeypatch, tmp_path / "bin", "nvidia-smi", f"echo '{listing}'")

    assert gather(layout, Settings(), project / "train.py").gpus == ["NVIDIA A100-SXM4-40GB", "NVIDIA L4"]


def test_a_failing_nvidia_smi_is_named(layout, project, monkeypatch, tmp_path):
    put_on_path(monkeypatch, tmp_path / "bin", "nvidia-smi", "echo 'driver mismatch'; exit 9")

    found = gather(layout, Settings(), project / "train.py")

    assert found.gpus == []
    assert found.problems == ["the GPUs: driver mismatch"]


def test_without_a_network_there_is_no_address_and_no_problem(layout, project, monkeypatch):
    def no_network(*_: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(provenance.socket, "socket", no_network)

    found = gather(layout, Settings(), project / "train.py")

    assert found.ip is None
    assert found.problems == []


@pytest.mark.parametrize(
    ("environ", "number"),
    [
        ({"GITHUB_REF": "refs/pull/308/merge", "GITHUB_REF_NAME": "308/merge"}, 308),
        ({"GITHUB_REF_NAME": "308/merge"}, 308),
        ({"GITHUB_REF": "refs/heads/12/merge", "GITHUB_REF_NAME": "12/merge"}, None),
        ({"GITHUB_REF": "refs/heads/main"}, None),
        ({"CI_MERGE_REQUEST_IID": "17"}, 17),
        ({"CHANGE_ID": "42"}, 42),
        ({"CIRCLE_PULL_REQUEST": "https://github.com/a/b/pull/9"}, 9),
        ({"BITBUCKET_PR_ID": "3"}, 3),
        ({"TRAVIS_PULL_REQUEST": "5"}, 5),
        ({"TRAVIS_PULL_REQUEST": "false"}, None),
        ({"BUILDKITE_PULL_REQUEST": "6"}, 6),
        ({"BUILDKITE_PULL_REQUEST": "false"}, None),
        ({"SYSTEM_PULLREQUEST_PULLREQUESTNUMBER": "8", "SYSTEM_PULLREQUEST_PULLREQUESTID": "99"}, 8),
        ({"SYSTEM_PULLREQUEST_PULLREQUESTID": "99"}, 99),
        ({"DRONE_PULL_REQUEST": "11"}, 11),
        ({"APPVEYOR_PULL_REQUEST_NUMBER": "12"}, 12),
        ({"CHANGE_ID": ""}, None),
        ({"CHANGE_ID": "١٢"}, None),
        ({"CHANGE_ID": "9" * 5000}, None),
        ({}, None),
    ],
)
def test_the_pull_request_is_the_one_that_the_ci_service_names(environ, number):
    assert pr_number(environ) == number


@pytest.mark.parametrize("module", ["objects", "code", "provenance", "processes"])
def test_importing_loads_nothing_heavy(module):
    script = (
        "import sys, rollbook; before = set(sys.modules);"
        f"import rollbook.book.{module}; print(*set(sys.modules) - before)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)

    heavy = {"numpy", "pathspec", "rich", "importlib.metadata", "subprocess", "tempfile", "platform"}
    assert heavy.isdisjoint(done.stdout.split())


@pytest.mark.parametrize(
    ("refs", "merges", "branch", "number"),
    [
        ("refs/heads/fix\nrefs/pull/308/head\n", "", "fix", 308),
        ("refs/remotes/origin/pr/12\n", "", None, 12),
        ("refs/remotes/upstream/merge-requests/7/head\n", "", None, 7),
        ("refs/pull-requests/5/from\n", "", None, 5),
        ("", "branch.fix.merge refs/pull/9/head\nbranch.other.merge refs/pull/8/head\n", "fix", 9),
        ("", "branch.other.merge refs/pull/8/head\n", "fix", None),
        ("refs/heads/pull/308\nrefs/tags/pr/1\nrefs/remotes/origin/main\n", "", "main", None),
    ],
)
def test_a_pull_request_is_known_by_its_refs(refs, merges, branch, number):
    assert pr_of_refs(refs, merges, branch) == number


def test_a_checked_out_pull_request_is_found_without_a_network(layout, checkout):
    git(checkout, "update-ref", "refs/pull/308/head", "HEAD")

    assert gather(layout, Settings(), checkout / "train.py").pr == 308
