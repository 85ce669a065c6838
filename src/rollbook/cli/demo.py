"""`rollbook demo`: a change, the gate that catches what is wrong with it, and the fix. About a minute on two cores.

The agent is a copy of our PPO in a file of its own. The candidate's change takes a time limit for the end of the task,
as many implementations have done: the last state of an episode is then worth 0 instead of what was still to come.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollbook.cli.options import book_option, chosen_path
from rollbook.cli.output import relative, say
from rollbook.errors import TrainingFailed

if TYPE_CHECKING:
    from rollbook.book.book import Book

TASK = "demo"
AGENT = "agent.py"
STEPS = {"CartPole-v1": 100_000, "Pendulum-v1": 100_000}
_PLACE = "    first = make_batch(*state.networks, rollout, config)\n"
_BUG = "    rollout = rollout._replace(terminated=rollout.terminated | rollout.truncated)\n"
_FIX = "    # A time limit is not the end of the task: truncated steps keep their future.\n"


@click.command(epilog="\b\nExample:\n  rollbook demo")
@click.option("--seeds", type=click.IntRange(min=3), default=5, show_default=True, help="Of each version.")
@book_option
def demo(seeds: int) -> int:
    """Train an agent, break it the way many were broken, see the gate catch it, and pass the fix."""
    from rollbook.book.book import open_book
    from rollbook.cli.train import check_installed

    check_installed()
    began = time.monotonic()
    folder = Path.cwd() / "rollbook-demo"
    folder.mkdir(exist_ok=True)
    path = Path(chosen_path() or folder / "book")
    say(f"Three versions of an agent, {seeds} seeds each on {' and '.join(STEPS)}, in {relative(folder)}/\n")

    say(f"1  The baseline: {AGENT} is our PPO.")
    _train(folder, path, "baseline", "", seeds)
    say(f"\n2  The candidate changes one line of it:\n   +{_BUG.rstrip()}")
    _train(folder, path, "candidate", _BUG, seeds)
    book = open_book(path)
    caught = _gate(book, "candidate", folder / "report-candidate")
    say(f"\n3  The fix:\n   -{_BUG.rstrip()}\n   +{_FIX.rstrip()}")
    _train(folder, path, "fixed", _FIX, seeds)
    passed = _gate(open_book(path), "fixed", folder / "report-fixed")

    if caught != "regression" or passed not in ("identical", "equivalent", "no regression", "improvement"):
        say(f"\nThis should have been a regression and then a pass, and was {caught} and {passed}.")
        return 1
    command = f"rollbook --book {relative(path)}"
    say(
        f"\nDone in {time.monotonic() - began:.0f} seconds. Go on with"
        f"\n  {command} top 5 --over seed\n  {command} plot --group-by tags"
        f"\n  rollbook run -- python your_training_script.py"
    )
    return 0


def _train(folder: Path, book: Path, tag: str, change: str, seeds: int) -> None:
    """All seeds, a process for each environment: it compiles once."""
    from rollbook.algos import ppo

    source = Path(ppo.__file__).read_text()
    assert source.count(_PLACE) == 1
    (folder / AGENT).write_text(source.replace(_PLACE, change + _PLACE))
    began = time.monotonic()
    listed = ",".join(str(seed) for seed in range(1, seeds + 1))
    trainings = {
        env: subprocess.Popen(
            [
                *(sys.executable, "-m", "rollbook", "--book", str(book.absolute()), "train", AGENT, env),
                *("--seeds", listed, "--steps", str(steps), "--workers", "1", "--task", TASK, "--tags", tag),
                *("--preset", "none", "--eval-every", "0", "--checkpoint-every", "0"),
            ],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for env, steps in STEPS.items()
    }
    for env, training in trainings.items():
        _, said = training.communicate()
        if training.returncode:
            raise TrainingFailed(f"training on {env} ended with {training.returncode}", said[-2000:])
    say(f"   trained in {time.monotonic() - began:.0f} seconds")


def _gate(book: Book, candidate: str, report: Path) -> str:
    from rollbook.cli.gate import print_verdict
    from rollbook.cli.output import to_plain
    from rollbook.gate.decide import Question, by_tag, decide, record
    from rollbook.gate.plain import to_plain as decision_to_plain
    from rollbook.gate.report import write_report

    say(f"   $ rollbook gate {candidate} --against baseline --report {relative(report)}\n")
    decision = decide(book, Question(candidate=by_tag(candidate), baseline=by_tag("baseline")))
    plain: dict[str, Any] = to_plain(decision_to_plain(decision))
    record(book, decision, plain)
    print_verdict(plain)
    say(f"\n   exit code {decision.exit_code}; the report: {relative(write_report(book, decision, plain, report))}")
    return decision.outcome
