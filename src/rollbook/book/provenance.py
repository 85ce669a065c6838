"""What produced the numbers: the code, its place in git, the packages and the machine.

Nothing here may stop a training: a part that fails is named in `problems` and the others go on.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rollbook.book.code import project_root, snapshot
from rollbook.book.layout import Layout
from rollbook.book.objects import put
from rollbook.book.programs import Program, start_git
from rollbook.book.project_files import book_paths
from rollbook.book.settings import Settings, git_root
from rollbook.records import Git, Provenance

MAX_DIFF_BYTES = 10_000_000

Value = TypeVar("Value")

_ABOUT_PRS = ("refs", "merges")  # questions to git

# Where CI services say which pull or merge request they build. Azure: the number on GitHub before its own id.
_PR_VARIABLES = (
    "CI_MERGE_REQUEST_IID",  # GitLab
    "CI_EXTERNAL_PULL_REQUEST_IID",
    "CHANGE_ID",  # Jenkins
    "CIRCLE_PULL_REQUEST",
    "CIRCLE_PR_NUMBER",
    "BITBUCKET_PR_ID",
    "TRAVIS_PULL_REQUEST",
    "BUILDKITE_PULL_REQUEST",
    "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER",
    "SYSTEM_PULLREQUEST_PULLREQUESTID",
    "DRONE_PULL_REQUEST",
    "APPVEYOR_PULL_REQUEST_NUMBER",
)


def gather(layout: Layout, settings: Settings, script: Path | None, save_code: bool = True) -> Provenance:
    """Never raises on anything that the environment does."""
    problems: list[str] = []
    no_gpus: list[str] = []

    def attempt(what: str, part: Callable[[], Value], otherwise: Value) -> Value:
        try:
            return part()
        except Exception as error:  # noqa: BLE001  whatever it is, the run goes on and its problems name it
            problems.append(f"{what}: {error or type(error).__name__}")
            return otherwise

    start = attempt("the folder of the script", lambda: _start_folder(script), None)
    checkout = attempt("git", lambda: git_root(start) if start else None, None)
    root = attempt("the project folder", lambda: project_root(start, settings) if start else None, None)
    # All programs are started before the first is waited for.
    asked = attempt("git", lambda: _ask_git(checkout, layout), None) if checkout else None
    smi = attempt("the GPUs", _ask_nvidia_smi, None)
    packages = attempt("the package versions", lambda: put(layout, _packages().encode()), None)
    code = attempt("the code", lambda: _save_code(layout, settings, root, script), None) if save_code else None
    git = attempt("git", lambda: _git(layout, asked, problems), None) if asked else None
    pr_of_git = attempt("the pull request", lambda: _pr(asked, git.branch if git else None), None) if asked else None
    return Provenance(
        git=git,
        pr=pr_number(os.environ) or pr_of_git,
        # Where the paths of the code manifest begin, also for a script that belongs to no project.
        project_root=str(root or start) if root or (start and script) else None,
        code=code,
        packages=packages,
        python=sys.version.split()[0],
        platform=attempt("the platform", _platform, ""),
        ip=attempt("the IP address", _ip, None),
        cpu=attempt("the CPU model", _cpu, ""),
        cpu_count=attempt("the number of cores", _cpu_count, 0),
        memory_bytes=attempt("the memory size", _memory_bytes, 0),
        gpus=attempt("the GPUs", lambda: _gpus(smi), no_gpus) if smi else no_gpus,
        problems=problems,
    )


def script_of(command: Sequence[str], cwd: Path) -> Path:
    """The program's own file, which says where its project is."""
    for part in command:
        path = cwd / part
        if path.suffix == ".py" and path.is_file():
            return path
    return cwd / "program"


def pr_number(environ: Mapping[str, str]) -> int | None:
    """The pull or merge request that a CI service says it builds."""
    # A branch may be called 12/merge too, so the short name counts only where the full one is missing.
    reference = environ.get("GITHUB_REF") or f"refs/pull/{environ.get('GITHUB_REF_NAME', '')}"
    github = re.fullmatch(r"refs/pull/([0-9]{1,9})/(merge|head)", reference)
    if github:
        return int(github[1])
    for name in _PR_VARIABLES:
        # A number, or an address that ends in one.
        number = re.fullmatch(r"(?:.*/)?([0-9]{1,9})/?", environ.get(name, "").strip())
        if number:
            return int(number[1])
    return None


def pr_of_refs(refs: str, merges: str, branch: str | None) -> int | None:
    """The pull or merge request that HEAD is, by the refs that point at it, or that its branch was checked out from.

    `merges` are lines such as `branch.fix.merge refs/pull/308/head`, which `gh pr checkout` leaves behind.
    """
    number = r"(?:pull|pr|merge-requests|pull-requests)/([0-9]{1,9})(?:/(?:head|merge|from))?"
    own = re.search(rf"^branch\.{re.escape(branch)}\.merge refs/{number}$", merges, re.MULTILINE) if branch else None
    found = own or re.search(rf"^refs/(?:remotes/[^/\n]+/)?{number}$", refs, re.MULTILINE)
    return int(found[1]) if found else None


def _start_folder(script: Path | None) -> Path:
    return script.absolute().parent if script else Path.cwd()


def _save_code(layout: Layout, settings: Settings, root: Path | None, script: Path | None) -> str:
    if root is not None:
        return snapshot(layout, root, settings)
    if script is None:
        raise FileNotFoundError(
            "not saved, since there is neither a script nor a project around the working folder "
            "(`git init` or a rollbook.toml makes one)"
        )
    return snapshot(layout, script.absolute().parent, settings, lone_script=script)


def _ask_git(checkout: Path, layout: Layout) -> dict[str, Program]:
    # A book that somebody has committed changes with every run, which is no uncommitted work.
    book = [f":(exclude,literal){path}" for path in book_paths(checkout, layout.root)]
    plain = ("--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")
    return {
        "commit": start_git(checkout, "rev-parse", "--verify", "-q", "HEAD"),
        "branch": start_git(checkout, "symbolic-ref", "--short", "-q", "HEAD"),
        "describe": start_git(checkout, "describe", "--tags", "--always"),
        "diff": start_git(checkout, "diff", "HEAD", *plain, "--", ".", *book),
        "inside": start_git(checkout, "rev-parse", "--is-inside-work-tree"),
        "refs": start_git(checkout, "for-each-ref", "--points-at", "HEAD", "--format=%(refname)"),
        "merges": start_git(checkout, "config", "--get-regexp", r"^branch\..*\.merge$", "^refs/(pull|merge-requests)/"),
    }


def _git(layout: Layout, asked: dict[str, Program], problems: list[str]) -> Git | None:
    answers = {name: program.answer(MAX_DIFF_BYTES) for name, program in asked.items() if name not in _ABOUT_PRS}
    if not answers["inside"].ok:
        problems.append(f"git: {answers['inside'].error}")
        return None
    commit, branch, describe = (answers[name].line for name in ("commit", "branch", "describe"))
    if commit is None:  # before the first commit all work is uncommitted, and there is nothing to compare it with
        return Git(branch=branch, dirty=True)
    if describe is None:
        problems.append(f"git describe: {answers['describe'].error}")
    work = answers["diff"]
    diff = None
    if not work.ok:
        problems.append(f"git diff, so the work is taken to be uncommitted: {work.error}")
    elif work.cut:
        problems.append(f"the diff of uncommitted work is not kept: it is larger than {MAX_DIFF_BYTES} bytes")
    elif work.output:
        diff = put(layout, work.output)
    dirty = not work.ok or bool(work.output)
    # What `git describe --dirty` says, but by the same diff as is kept.
    described = f"{describe}-dirty" if describe and dirty else describe
    return Git(commit=commit, describe=described, dirty=dirty, branch=branch, diff=diff)


def _pr(asked: dict[str, Program], branch: str | None) -> int | None:
    refs, merges = (asked[name].answer().output.decode(errors="replace") for name in _ABOUT_PRS)
    return pr_of_refs(refs, merges, branch)


def _packages() -> str:
    """`name==version` lines of all that is installed; of a name that occurs twice, the one that is imported."""
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    for distribution in distributions():
        # Reading two headers is ten times faster than `.metadata`, which parses the whole page with its readme.
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        head = text.partition("\n\n")[0]
        name, version = (re.search(rf"^{key}:[ \t]*(\S+)", head, re.MULTILINE) for key in ("Name", "Version"))
        if name and version:
            found.setdefault(re.sub(r"[-_.]+", "-", name[1]).lower(), f"{name[1]}=={version[1]}\n")
    return "".join(line for _, line in sorted(found.items()))


def _platform() -> str:
    import platform

    return platform.platform()


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    model = re.search(r"^model name\s*:\s*(\S.*)$", text, re.MULTILINE)
    if model:
        return model[1].strip()
    import platform

    return platform.processor() or platform.machine()


def _cpu_count() -> int:
    """Cores that this process may use, which on a shared machine are fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _ask_nvidia_smi() -> Program | None:
    from shutil import which

    program = which("nvidia-smi")
    return Program([program, "-L"]) if program else None


def _gpus(smi: Program) -> list[str]:
    answer = smi.answer()
    if not answer.ok:
        raise OSError(answer.error or answer.output.decode(errors="replace").strip())
    # "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-...)"
    return re.findall(r"^GPU \d+: (.*?)(?: \(UUID.*)?$", answer.output.decode(errors="replace"), re.MULTILINE)


def _ip() -> str | None:
    """The address that this machine would send from. Connecting a UDP socket chooses a route and sends nothing."""
    for family, documentation in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as udp:
                udp.connect((documentation, 9))
                return str(udp.getsockname()[0])
        except OSError:
            continue
    return None
