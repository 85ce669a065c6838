"""A git project whose agent scores what its code says, for gates that train it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMMAND = ["--command", f"{sys.executable} agent.py", "--env-ids", "A-v1", "--task", "t"]

# Its score follows from the seed and from a number in the code.
AGENT = """
import argparse, pathlib, rollbook
parser = argparse.ArgumentParser()
parser.add_argument("--env-id")
parser.add_argument("--seed", type=int)
args = parser.parse_args()
LEVEL = {level}
noise = ((args.seed * 7919) % 13 - 6) / 6
if pathlib.Path("crash").exists():
    raise SystemExit("as told")
with rollbook.start(config=args, save_code=False) as run:
    for step in (0, 50, 95, 100):
        run.log({{"charts/episodic_return": LEVEL + noise * {spread}}}, step=step)
"""


def git(*arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def commit(project: Path, *, level: float, spread: float = 1.0) -> None:
    (project / "agent.py").write_text(AGENT.format(level=level, spread=spread))
    git("add", "-A")
    git("commit", "--quiet", "--message", f"level {level}")
