"""What the gate's statistics cost.

python benchmarks/gate.py --write
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from report import Target, document, publish, table, target_table

from rollbook import stats
from rollbook.gate import judge
from rollbook.gate.selftest import selftest
from rollbook.stats.intervals import Statistic

RUNS, TASKS, REPETITIONS = 10, 26, 50_000
OTHERS: tuple[Statistic, ...] = ("mean", "median", "optimality_gap")
TIMES = 5


def seconds(work: Callable[[], object]) -> float:
    """The median of a few, after one that warms up."""
    work()
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[TIMES // 2]


def bootstrap(statistic: Statistic) -> float:
    scores = np.random.default_rng(0).normal(size=(RUNS, TASKS))
    return seconds(
        lambda: stats.bootstrap_interval(scores, statistic, rng=np.random.default_rng(1), repetitions=REPETITIONS)
    )


def one_verdict() -> float:
    """Of the gate itself, on as many cells as there are tasks."""
    rng = np.random.default_rng(2)
    candidate, baseline = ({f"task-{number}": rng.normal(size=RUNS) for number in range(TASKS)} for _ in range(2))
    return seconds(lambda: judge(candidate, baseline))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="save benchmarks/results/gate.md")
    options = parser.parse_args()
    iqm = bootstrap("iqm")
    sizes = f"{REPETITIONS:,} repetitions of {RUNS} runs x {TASKS} tasks"
    rows = [
        [f"bootstrap interval of the IQM, {sizes}", f"{iqm:.3f} s"],
        *([f"the same of the {name.replace('_', ' ')}", f"{bootstrap(name):.3f} s"] for name in OTHERS),
        [f"`judge`, {TASKS} cells with {RUNS} seeds each", f"{1000 * one_verdict():.2f} ms"],
        ["`selftest`", f"{seconds(selftest):.2f} s"],
    ]
    targets = [Target(figure=f"bootstrap interval of the IQM, {sizes}", limit=1, measured=iqm, unit="s")]
    sections = [table(["what", "took"], rows), f"The median of {TIMES}.", target_table(targets)]
    publish("gate", document("What the gate costs", ["numpy", "scipy"], sections), write=options.write)


if __name__ == "__main__":
    main()
