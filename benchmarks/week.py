"""What a week's job costs: SAC with 3 seeds on 6 MuJoCo tasks, 3 million steps each.

Measured is how many steps a second one seed makes on a core, alone and with the other core at the same work; the rest
is calculation, and the page says so. Evaluations and the first minutes of a training are left out.

    python benchmarks/week.py --write
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from report import document, publish, table, three_digits
from training import Work, off_policy, train_rollbook

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5", "Humanoid-v5")
SEEDS, STEPS = 3, 3_000_000
NODE_CORES, NODES = 64, 10
HOUR = 3600


def work_on(env: str) -> Work:
    return replace(off_policy("sac", {}, every=50), env=env, our_steps=5_000)


def speeds(env: str, cores: list[int]) -> list[float]:
    """Steps a second of a training on each of these cores, all at the same time."""
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", env, "--core", str(core)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for core in cores
    ]  # fmt: skip
    answers = [worker.communicate()[0] for worker in workers]
    return [json.loads(answer.splitlines()[-1])["steps_per_second"] for answer in answers]


def measured() -> tuple[dict[str, float], dict[str, float]]:
    """Steps a second of a seed on a core: with the other core idle, and with the same on it."""
    alone, beside = {}, {}
    for env in TASKS:
        print(f"measuring {env}", file=sys.stderr)
        (alone[env],) = speeds(env, [0])
        beside[env] = sum(speeds(env, [0, 1])) / 2
    return alone, beside


def costs(alone: dict[str, float], beside: dict[str, float]) -> list[list[str]]:
    jobs = SEEDS * len(TASKS)
    longest = max(STEPS / rate for rate in beside.values())
    one_core = sum(SEEDS * STEPS / rate for rate in alone.values())
    two_cores = sum(SEEDS * STEPS / rate / 2 for rate in beside.values())
    at_once = NODES * NODE_CORES // jobs
    return [
        ["one core", "measured speed x steps", days(one_core)],
        ["two cores, two seeds at a time", "measured speed x steps", days(two_cores)],
        [
            f"a node of {NODE_CORES} cores, a core for each of {jobs} seeds",
            "calculated: the slowest seed",
            days(longest),
        ],
        [
            f"{NODES} such nodes",
            f"calculated: no less for one such job, but {at_once} of them at once",
            days(longest),
        ],
    ]


def days(seconds: float) -> str:
    return f"{seconds / HOUR:.1f} hours ({seconds / HOUR / 24:.1f} days)"


ABOUT = f"""The job of a week: SAC (2x256, batches of 256, one update a step, 50 after every 50 steps), {SEEDS} seeds on
{len(TASKS)} tasks, {STEPS:,} steps each. Steps a second are of 4,000 steps with updates, without evaluations."""
CALCULATED = f"""A node is taken to have cores as fast as these, with all of them at work as fast as two are. One seed
uses one core: more of them for a seed would shorten the slowest one, and are not counted on. Such a job is
`rollbook bench --algo sac --env-ids {" ".join(TASKS)} --steps {STEPS} --num-seeds {SEEDS}`, with
`--on slurm --workers {SEEDS * len(TASKS)}` on a cluster."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="save benchmarks/results/week.md")
    parser.add_argument("--worker", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        os.sched_setaffinity(0, {options.core})
        with tempfile.TemporaryDirectory(prefix="rollbook-") as folder:
            print(json.dumps(train_rollbook(work_on(options.worker), Path(folder))), flush=True)
        return
    alone, beside = measured()
    rows = [[env, three_digits(alone[env]), three_digits(beside[env])] for env in TASKS]
    sections = [
        ABOUT,
        table(["task", "steps/s of a seed on a core", "with the other core at the same"], rows),
        table(["machine", "how", "the whole job"], costs(alone, beside)),
        CALCULATED,
    ]
    publish("week", document("What a week's job costs", ["jax", "gymnasium", "mujoco"], sections), write=options.write)


if __name__ == "__main__":
    main()
