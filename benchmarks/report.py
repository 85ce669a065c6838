"""How a benchmark reports: Markdown tables of figures and targets, with the machine and the command beside them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

RESULTS = Path(__file__).parent / "results"

# An installed package has its modules compiled, as those of peers are; without this, each of our processes would do it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure that we promise to stay below, or to reach."""

    figure: str
    limit: float
    measured: float
    unit: str
    at_least: bool = False

    def row(self) -> list[str]:
        met = self.measured >= self.limit if self.at_least else self.measured < self.limit
        limit = f"{'>=' if self.at_least else '<'} {self.limit:g} {self.unit}"
        return [self.figure, limit, f"{three_digits(self.measured)} {self.unit}", "yes" if met else "**no**"]


def ask_worker(command: Sequence[str], threads: int, what: str) -> dict[str, float]:
    """What a worker process prints as JSON in its last line; numerical libraries get so many threads."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{what} failed:\n{done.stderr[-3000:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def three_digits(number: float) -> str:
    """1234567 -> 1,230,000; 12.345 -> 12.3; 0.012345 -> 0.0123"""
    if abs(number) >= 100:
        return f"{float(f'{number:.3g}'):,.0f}"
    return f"{number:#.3g}" if abs(number) >= 1 else f"{number:.3g}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def target_table(targets: Sequence[Target]) -> str:
    return table(["figure", "target", "measured", "met"], [target.row() for target in targets])


def versions(*packages: str) -> str:
    found = []
    for package in packages:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join([f"Python {platform.python_version()}", *found])


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def command() -> str:
    """The line that repeats this measurement from the repository's root; places elsewhere are seen from there."""
    root = Path(__file__).parents[1]
    arguments = [os.path.relpath(word, root) if word.startswith("/") else word for word in sys.argv[1:]]
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments])


def document(title: str, packages: Sequence[str], sections: Sequence[str]) -> str:
    about = [
        f"# {title}",
        f"Written by `{command()}` on {datetime.date.today().isoformat()}.",
        f"{os.cpu_count()} cores of {cpu_model()}; {versions(*packages)}.",
    ]
    return "\n\n".join([*about, *sections]) + "\n"


def publish(name: str, text: str, *, write: bool) -> None:
    print(text, end="")
    if write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.md").write_text(text)
