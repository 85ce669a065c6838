"""How fast the algorithms train: Rollbook beside the libraries in use, on the same work.

Every library trains with the same hyper-parameters in a fresh process; its steps a second are taken between a fifth of
the training and its end, so that compiling and warming up are left out (ours is shown beside). Ours is the whole
product: tracked, in a book. Peers run without a tracker. They need an environment of their own:

    python -m venv peers && peers/bin/pip install torch==2.13.0 stable-baselines3 sbx-rl 'gymnasium[mujoco]'
    python benchmarks/training.py --peers peers/bin/python --cleanrl ../cleanrl --write
    python benchmarks/training.py --only ppo-cartpole
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Target, document, publish, table, target_table, three_digits

WARM_UP_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Work:
    """One training that every library can do."""

    algo: str
    env: str
    cores: int
    our_steps: int
    their_steps: int
    ours: dict[str, Any]  # of our configuration
    sb3: dict[str, Any]  # of SB3's and SBX's constructor
    num_envs: int
    normalise: bool
    cleanrl: tuple[str, ...] | None  # script and arguments
    times: dict[str, float]  # how many times as fast we promise to be


PPO = {"gamma": 0.99, "gae_lambda": 0.95, "max_grad_norm": 0.5}
WORKS = {
    "ppo-cartpole": Work(
        algo="ppo",
        env="CartPole-v1",
        cores=1,
        our_steps=1_000_000,
        their_steps=60_000,
        ours={**PPO, "num_envs": 4, "rollout_steps": 128, "minibatches": 4, "epochs": 4, "lr": 2.5e-4},
        sb3={**PPO, "n_steps": 128, "batch_size": 128, "n_epochs": 4, "learning_rate": 2.5e-4, "ent_coef": 0.01},
        num_envs=4,
        normalise=False,
        cleanrl=("ppo.py", "--env-id", "CartPole-v1", "--num-envs", "4", "--num-steps", "128"),
        times={"cleanrl": 25, "sb3": 25},
    ),
    "ppo-halfcheetah": Work(
        algo="ppo",
        env="HalfCheetah-v5",
        cores=2,
        our_steps=300_000,
        their_steps=30_000,
        ours={
            **PPO, "num_envs": 1, "rollout_steps": 2048, "minibatches": 32, "epochs": 10, "lr": 3e-4,
            "entropy_coefficient": 0.0, "normalise_observations": True, "normalise_rewards": True,
        },
        sb3={**PPO, "n_steps": 2048, "batch_size": 64, "n_epochs": 10, "learning_rate": 3e-4, "ent_coef": 0.0},
        num_envs=1,
        normalise=True,
        cleanrl=None,  # its script fails on a Gymnasium that has v5: TransformObservation takes other arguments there
        times={"sb3": 4, "sbx": 4},
    ),
}  # fmt: skip


# ---- workers: one training each, in a process of its own ---------------------------------------------------------


def train_rollbook(work: Work, folder: Path) -> dict[str, float]:
    os.environ |= {"ROLLBOOK_QUIET": "1", "XDG_CACHE_HOME": str(folder)}  # nothing compiled yet
    from rollbook.training.train import Labels, make_setup, train_one

    setup = make_setup(
        work.algo, work.env, steps=work.our_steps, preset="none", sources=[work.ours], eval_every=0, checkpoint_every=0
    )
    seen: list[tuple[int, float]] = []
    compiled: list[float] = []

    def tell(progress: Any) -> None:
        if progress.compile_seconds is not None:
            compiled.append(progress.compile_seconds)
        elif not progress.compiling:
            seen.append((progress.step, time.perf_counter()))

    train_one(setup, Labels(task="speed"), str(folder / "book"), tell)
    return {"steps_per_second": steady(seen, work.our_steps), "compile_seconds": compiled[0]}


def train_sb3(work: Work, library: str) -> dict[str, float]:
    import importlib

    package = importlib.import_module("sbx" if library == "sbx" else "stable_baselines3")
    make_vec_env = importlib.import_module("stable_baselines3.common.env_util").make_vec_env
    callbacks = importlib.import_module("stable_baselines3.common.callbacks")
    env = make_vec_env(work.env, n_envs=work.num_envs, seed=1)
    if work.normalise:
        env = importlib.import_module("stable_baselines3.common.vec_env").VecNormalize(env)
    seen: list[tuple[int, float]] = []

    class Watch(callbacks.BaseCallback):  # type: ignore[misc, name-defined]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            seen.append((self.num_timesteps, time.perf_counter()))

    model = getattr(package, work.algo.upper())(
        "MlpPolicy", env, policy_kwargs={"net_arch": [64, 64]}, seed=1, device="cpu", **work.sb3
    )
    model.learn(work.their_steps, callback=Watch())
    return {"steps_per_second": steady(seen, work.their_steps)}


def train_cleanrl(work: Work, checkout: Path) -> dict[str, float]:
    """CleanRL prints its mean speed since the start; from two of these follows the speed between them."""
    assert work.cleanrl
    script, *arguments = work.cleanrl
    command = [sys.executable, str(checkout / "cleanrl" / script), *arguments, "--no-cuda"]
    done = subprocess.run(
        [*command, "--total-timesteps", str(work.their_steps)],
        cwd=tempfile.mkdtemp(prefix="rollbook-"), capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    rates = [float(rate) for rate in re.findall(r"SPS:\s*(\d+)", done.stdout)]
    per = work.their_steps / len(rates)
    return {
        "steps_per_second": steady(
            [((n + 1) * per, (n + 1) * per / rate) for n, rate in enumerate(rates)], work.their_steps
        )
    }


def steady(seen: list[tuple[int, float]] | list[tuple[float, float]], steps: int) -> float:
    """Steps a second from the first look after the warm-up to the last."""
    warm = next(look for look in seen if look[0] >= steps * WARM_UP_SHARE)
    return (seen[-1][0] - warm[0]) / (seen[-1][1] - warm[1])


# ---- the parent process -------------------------------------------------------------------------------------------


def measure(python: str, library: str, name: str, cores: int, threads: int, cleanrl: Path | None) -> dict[str, float]:
    command = [python, __file__, "--worker", library, "--only", name, "--cores", str(cores)]
    if cleanrl:
        command += ["--cleanrl", str(cleanrl)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{library} failed on {name}:\n{done.stderr[-3000:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def best_of_threads(python: str, library: str, name: str, cleanrl: Path | None) -> dict[str, float]:
    """Peers at the number of threads that is best for them."""
    cores = WORKS[name].cores
    tries = [measure(python, library, name, cores, threads, cleanrl) for threads in range(1, cores + 1)]
    return max(tries, key=lambda answer: answer["steps_per_second"])


def ten_seeds() -> float:
    """Seconds of the whole command, from an empty compile cache."""
    with tempfile.TemporaryDirectory(prefix="rollbook-") as folder:
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "rollbook", "train", "ppo", "CartPole-v1", "--seeds", "1-10", "--steps", "500000",
             "--book", f"{folder}/book"],
            check=True, capture_output=True, env=os.environ | {"XDG_CACHE_HOME": folder},
        )  # fmt: skip
        return time.perf_counter() - began


def tracking_share() -> float:
    """Percent of a training's time that its logging takes: time inside the calls of the run's handle."""
    os.environ["ROLLBOOK_QUIET"] = "1"
    from rollbook.track.run import Run
    from rollbook.training.train import Labels, make_setup, train_one

    inside = 0.0
    usual = Run.log

    def timed(self: Run, *args: Any, **kwargs: Any) -> None:
        nonlocal inside
        began = time.perf_counter()
        usual(self, *args, **kwargs)
        inside += time.perf_counter() - began

    Run.log = timed  # type: ignore[method-assign]
    looks: list[float] = []
    with tempfile.TemporaryDirectory(prefix="rollbook-") as folder:
        setup = make_setup("ppo", "CartPole-v1", steps=1_000_000, eval_every=0, checkpoint_every=0)
        train_one(setup, Labels(task="speed"), f"{folder}/book", lambda _: looks.append(time.perf_counter()))
    Run.log = usual  # type: ignore[method-assign]
    return 100 * inside / (looks[-1] - looks[1])


NOTES = """*steps/s* in steady state; *compile* is what a first start waits for, and a second one reads from disk.
CartPole on one core, HalfCheetah on two; each peer with the number of threads that is best for it. Ours logs every
episode and every update into a book while it trains."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*WORKS], action="append", default=[])
    parser.add_argument("--peers", metavar="PYTHON", help="of an environment with SB3 and SBX")
    parser.add_argument("--cleanrl", type=Path, metavar="PATH", help="a checkout of CleanRL, run by --peers")
    parser.add_argument("--write", action="store_true", help="save benchmarks/results/training.md")
    parser.add_argument("--worker", choices=["rollbook", "sb3", "sbx", "cleanrl"], help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(answer_as_worker(options)), flush=True)
        return

    rows, targets = [], []
    for name in options.only or WORKS:
        work = WORKS[name]
        print(f"measuring {name}", file=sys.stderr)
        results = {"rollbook": measure(sys.executable, "rollbook", name, work.cores, work.cores, None)}
        for peer in peers_of(work, options):
            print(f"measuring {name} with {peer}", file=sys.stderr)
            results[peer] = best_of_threads(options.peers, peer, name, options.cleanrl)
        ours = results["rollbook"]["steps_per_second"]
        for library, result in results.items():
            rate = result["steps_per_second"]
            compile_seconds = f"{result['compile_seconds']:.1f} s" if "compile_seconds" in result else ""
            rows.append([name, library, three_digits(rate), f"{ours / rate:.1f}", compile_seconds])
            if library in work.times:
                figure = f"{name}: times as fast as {library}"
                targets.append(
                    Target(figure=figure, limit=work.times[library], measured=ours / rate, unit="x", at_least=True)
                )
    if not options.only:
        targets += [
            Target(figure="10 seeds x 500k steps of PPO CartPole-v1, empty compile cache", limit=60,
                   measured=ten_seeds(), unit="s"),
            Target(figure="tracking's share of training time, PPO CartPole-v1", limit=3,
                   measured=tracking_share(), unit="%"),
        ]  # fmt: skip
    header = ["work", "library", "steps/s", "ours, times as fast", "compile"]
    text = document(
        "How fast training is", ["jax", "gymnasium", "mujoco"], [table(header, rows), NOTES, target_table(targets)]
    )
    publish("training", text, write=options.write)


def peers_of(work: Work, options: argparse.Namespace) -> list[str]:
    if not options.peers:
        return []
    return ["sb3", "sbx", *(["cleanrl"] if options.cleanrl and work.cleanrl else [])]


def answer_as_worker(options: argparse.Namespace) -> dict[str, float]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    work = WORKS[options.only[0]]
    if options.worker == "rollbook":
        with tempfile.TemporaryDirectory(prefix="rollbook-") as folder:
            return train_rollbook(work, Path(folder))
    if options.worker == "cleanrl":
        return train_cleanrl(work, options.cleanrl)
    return train_sb3(work, options.worker)


if __name__ == "__main__":
    main()
