"""A program that leaves a trace of every beginning and every end, and a benchmark of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TRACED = """
import argparse, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--seconds", type=float, default=0.1)
args = parser.parse_args()
def trace(what):
    with open("trace", "a") as file:
        file.write(f"{what} {args.seed}\\n")
trace("begun")
time.sleep(args.seconds)
while pathlib.Path(f"wait-{args.seed}").exists():
    time.sleep(0.05)
trace("ended")
"""


def start_bench(*arguments: object, seconds: float = 0.1) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "rollbook",
        "bench",
        "--command",
        f"{sys.executable} traced.py --seconds {seconds}",
    ]
    return subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def traces(what: str) -> list[int]:
    """Seeds in the order in which they have begun, or ended."""
    lines = Path("trace").read_text().splitlines() if Path("trace").exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(what)]


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"it did not come; {os.listdir()}"
        time.sleep(0.05)
