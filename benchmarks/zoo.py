"""One training by RL Zoo, Stable-Baselines3 with tuned parameters, as a run of ours: what our scores are compared with.

    python benchmarks/zoo.py --python peers/bin/python dqn CartPole-v1 50000 1

RL Zoo knows MuJoCo up to v4; on v5 it is given the parameters of v4.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import rollbook

EVALUATIONS, EPISODES = 20, 10  # as ours

OF_V4 = """
import pathlib, sys, yaml, rl_zoo3
algo, env, old, target = sys.argv[1:]
known = yaml.unsafe_load((pathlib.Path(rl_zoo3.__file__).parent / "hyperparams" / f"{algo}.yml").read_text())
pathlib.Path(target).write_text(yaml.safe_dump({env: known[env if env in known else old]}))
"""


def train(python: str, algo: str, env: str, steps: int, seed: int, folder: Path) -> None:
    config = folder / "parameters.yml"
    subprocess.run([python, "-c", OF_V4, algo, env, re.sub(r"-v5$", "-v4", env), str(config)], check=True)
    subprocess.run(
        [python, "-m", "rl_zoo3.train", "--algo", algo, "--env", env, "--conf-file", str(config), "-n", str(steps),
         "--seed", str(seed), "--eval-freq", str(steps // EVALUATIONS), "--eval-episodes", str(EPISODES),
         "--n-eval-envs", "1", "--device", "cpu", "--verbose", "0", "--log-folder", str(folder / "logs")],
        check=True,
    )  # fmt: skip


def log(run: rollbook.Run, folder: Path) -> None:
    """What it reached: at its evaluations, and in its training episodes."""
    (evaluations,) = folder.glob("logs/*/*/evaluations.npz")
    with np.load(evaluations) as found:
        for step, returns in zip(found["timesteps"].tolist(), found["results"], strict=True):
            run.log({"eval/return": float(returns.mean())}, step=step)
    episodes = []
    for monitor in folder.glob("logs/*/*/*.monitor.csv"):
        lines = monitor.read_text().splitlines()[1:]  # the first is about the environment
        episodes += [(float(line["t"]), int(line["l"]), float(line["r"])) for line in csv.DictReader(lines)]
    step = 0
    for _, length, total in sorted(episodes):  # by time: environments side by side end theirs in turns
        step += length
        run.log({"charts/episodic_return": total}, step=step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="python", help="of an environment with rl_zoo3")
    parser.add_argument("algo")
    parser.add_argument("env")
    parser.add_argument("steps", type=int)
    parser.add_argument("seed", type=int)
    options = parser.parse_args()
    config = {"algo": f"zoo-{options.algo}", "env": options.env, "steps": options.steps, "seed": options.seed}
    with rollbook.start(config=config) as run, tempfile.TemporaryDirectory(prefix="rollbook-") as name:
        train(options.python, options.algo, options.env, options.steps, options.seed, Path(name))
        log(run, Path(name))


if __name__ == "__main__":
    main()
