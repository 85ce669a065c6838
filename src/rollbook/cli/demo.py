"""`rollbook demo`: a change, the gate that catches what is wrong with it, and the fix. About a minute on two cores.

The agent is a copy of our PPO in a file of its own. The candidate's change is an old mistake with action bounds:
actions from -1 to 1 are rescaled to what the environment takes already, and it scales them once more. It then acts at
half its strength, and learns about actions that its policy did not choose.
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
STEPS = {"Pendulum-v1": 50_000, "cartpole-continuous-v0": 50_000}
PARAMETERS = {
    "num_envs": 4,
    "rollout_steps": 512,
    "minibatches": 16,
    "epochs": 10,
    "lr": 1e-3,
    "gamma": 0.9,
    "entropy_coefficient": 0.0,
    "clip_values": False,
}
_LINE = "    return policy.mode() if noise is None else policy.sample(noise)\n"
_BUG = "    return (policy.mode() if noise is None else policy.sample(noise)) / 2  # the torque is at most 2\n"
_FIX = "    return policy.mode() if noise is None else policy.sample(noise)  # from -1 to 1; rescaled later\n"


@click.command(epilog="\b\nExample:\n  rollbook demo")
@click.option("--seeds", type=click.IntRange(min=3), default=5, show_default=True, help="Of each version.")
@book_option
def demo(seeds: int) -> int:
    """Train an agent, break it as many were broken, see the gate catch it, and pass the fix."""
    from rollbook.book.book import open_book
    from rollbook.cli.train import check_installed

    check_installed()
    began = time.monotonic()
    folder = Path.cwd() / "rollbook-demo"
    folder.mkdir(exist_ok=True)
    path = Path(chosen_path() or folder / "book")
    say(f"Versions of an agent, {seeds} seeds each on {' and '.join(STEPS)}, in {relative(folder)}/\n")

    say(f"1  The baseline: {AGENT} is our PPO.")
    _train(folder, path, "baseline", _LINE, seeds)
    say("\n2  The candidate changes one line. Actions are rescaled to the bounds later; it did not know:\n")
    say(f"   -{_LINE}   +{_BUG}")
    _train(folder, path, "candidate", _BUG, seeds)
    book = open_book(path)
    caught = _gate(book, "candidate", folder / "report-candidate")
    say(f"\n3  The fix. Two seeds will do, if they log the same numbers as the baseline's:\n\n   -{_BUG}   +{_FIX}")
    _train(folder, path, "fixed", _FIX, 2)
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


def _train(folder: Path, book: Path, tag: str, line: str, seeds: int) -> None:
    """All seeds, a process for each environment: it compiles once."""
    from rollbook.algos import ppo

    source = Path(ppo.__file__).read_text()
    assert source.count(_LINE) == 1
    (folder / AGENT).write_text(source.replace(_LINE, line))
    began = time.monotonic()
    listed = ",".join(str(seed) for seed in range(1, seeds + 1))
    parameters = [part for name, value in PARAMETERS.items() for part in ("--set", f"{name}={value}")]
    trainings = {
        env: subprocess.Popen(
            [
                *(sys.executable, "-m", "rollbook", "--book", str(book.absolute()), "train", AGENT, env),
                *("--seeds", listed, "--steps", str(steps), "--workers", "1", "--task", TASK, "--tags", tag),
                *("--preset", "none", "--eval-every", "0", "--checkpoint-every", "0"),
                *parameters,
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
