"""How fast the algorithms train: Rollbook beside the libraries in use, on the same work.

Every library trains with the same hyper-parameters in a fresh process; its steps a second are taken between a fifth of
the training and its end, so that compiling and warming up are left out (ours is shown beside). Ours is the whole
product: tracked, in a book. Peers run without a tracker. They need an environment of their own:

    python -m venv peers && peers/bin/pip install torch==2.13.0 stable-baselines3 sbx-rl 'gymnasium[mujoco]'
    python benchmarks/training.py --peers peers/bin/python --cleanrl ../cleanrl --write
    python benchmarks/training.py --only ppo-cartpole
    python benchmarks/training.py --only sac-halfcheetah --peers ... --write    # the other rows stay as they were
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import RESULTS, Target, ask_worker, document, publish, table, target_table, three_digits

WARM_UP_SHARE = 0.2
KEPT = RESULTS / "training.json"  # every figure of the page, so that a part of them can be measured anew


@dataclass(frozen=True, kw_only=True)
class Work:
    """One training that every library can do."""

    algo: str
    env: str
    cores: int
    our_steps: int
    their_steps: int
    ours: dict[str, Any]  # of our configuration
    sb3: dict[str, Any] | None  # of SB3's and SBX's constructor
    num_envs: int
    normalise: bool
    cleanrl: tuple[str, ...] | None  # script and arguments
    times: dict[str, float]  # how many times as fast we promise to be
    backend: str = "auto"
    hidden: tuple[int, ...] = (64, 64)
    policy: str = "MlpPolicy"
    prints_from: int = 0  # the step after which CleanRL prints its speed, at every hundredth; 0: at every update


def off_policy(algo: str, times: dict[str, float], every: int = 1) -> Work:
    """Networks of 2x256, batches of 256, one update a step: after each, or after some steps as many."""
    started = 1_000
    return Work(
        algo=algo,
        env="HalfCheetah-v5",
        cores=2,
        our_steps=8_000,
        their_steps=5_000,
        ours={"learning_starts": started, "hidden_sizes": (256, 256), "batch_size": 256, "train_every": every,
              "lr": 3e-4, "critic_lr": 3e-4},
        sb3={"learning_starts": started, "batch_size": 256, "train_freq": every, "gradient_steps": every,
             "learning_rate": 3e-4, "gamma": 0.99, "tau": 0.005},
        num_envs=1,
        normalise=False,
        cleanrl=(f"{algo}_continuous_action.py", "--env-id", "HalfCheetah-v5", "--batch-size", "256",
                 "--learning-starts", str(started)) if every == 1 else None,
        times=times,
        hidden=(256, 256),
        prints_from=started,
    )  # fmt: skip


def value_based(algo: str, times: dict[str, float], backend: str = "auto") -> Work:
    """Networks of 120 and 84, batches of 128, an update after ten steps: CleanRL's."""
    started = 5_000
    return Work(
        algo=algo,
        env="CartPole-v1",
        cores=1,
        our_steps=400_000 if backend == "auto" else 60_000,
        their_steps=30_000,
        ours={"learning_starts": started, "hidden_sizes": (120, 84), "batch_size": 128, "train_every": 10,
              "updates_per_step": 0.1, "buffer_size": 10_000, "lr": 2.5e-4},
        sb3={"learning_starts": started, "batch_size": 128, "train_freq": 10, "gradient_steps": 1,
             "buffer_size": 10_000, "learning_rate": 2.5e-4, "target_update_interval": 500} if algo == "dqn" else None,
        num_envs=1,
        normalise=False,
        # CleanRL has no QR-DQN: its C51, which does the same work but for the loss, stands in for it.
        cleanrl=("dqn.py" if algo == "dqn" else "c51.py", "--env-id", "CartPole-v1", "--learning-starts", str(started)),
        times=times,
        backend=backend,
        hidden=(120, 84),
        prints_from=started,
    )  # fmt: skip


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
    "sac-halfcheetah": off_policy("sac", {"cleanrl": 3, "sb3": 3, "sbx": 1.4}),
    "sac-halfcheetah-by-50": off_policy("sac", {}, every=50),  # Spinning Up's schedule
    "td3-halfcheetah": off_policy("td3", {"sb3": 3, "sbx": 1.5}),
    "ddpg-halfcheetah": off_policy("ddpg", {"sb3": 3, "sbx": 1.5}),
    "dqn-cartpole": value_based("dqn", {"cleanrl": 15}),
    "dqn-cartpole-host": value_based("dqn", {"cleanrl": 3}, backend="host"),
    "c51-cartpole": value_based("c51", {"cleanrl": 15}),
    "qrdqn-cartpole": value_based("qrdqn", {"cleanrl": 15}),
    "dqn-pong": Work(
        algo="dqn",
        env="ALE/Pong-v5",
        cores=2,
        our_steps=4_000,
        their_steps=3_000,
        ours={"learning_starts": 500, "batch_size": 32, "train_every": 4, "updates_per_step": 0.25,
              "buffer_size": 20_000, "lr": 1e-4},
        sb3={"learning_starts": 500, "batch_size": 32, "train_freq": 4, "gradient_steps": 1, "buffer_size": 20_000,
             "learning_rate": 1e-4},
        num_envs=1,
        normalise=False,
        cleanrl=None,  # its wrappers are of an older Gymnasium
        times={"sb3": 1.3},
        policy="CnnPolicy",
    ),
}  # fmt: skip


# ---- workers: one training each, in a process of its own ---------------------------------------------------------


def train_rollbook(work: Work, folder: Path) -> dict[str, float]:
    os.environ |= {"ROLLBOOK_QUIET": "1", "XDG_CACHE_HOME": str(folder)}  # nothing compiled yet
    from rollbook.training.train import Labels, make_setup, train_one

    setup = make_setup(
        work.algo, work.env, steps=work.our_steps, preset="none", sources=[work.ours], eval_every=0, checkpoint_every=0,
        backend=work.backend, no_save_replay=True, cores=len(os.sched_getaffinity(0)),
    )  # fmt: skip
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
    assert work.sb3 is not None
    if work.policy == "CnnPolicy":
        vec_env = importlib.import_module("stable_baselines3.common.vec_env")
        make_atari_env = importlib.import_module("stable_baselines3.common.env_util").make_atari_env
        gymnasium = importlib.import_module("gymnasium")
        gymnasium.register_envs(importlib.import_module("ale_py"))
        env = vec_env.VecFrameStack(make_atari_env(work.env, n_envs=1, seed=1, env_kwargs={"frameskip": 1}), n_stack=4)
    else:
        env = make_vec_env(work.env, n_envs=work.num_envs, seed=1)
    if work.normalise:
        env = importlib.import_module("stable_baselines3.common.vec_env").VecNormalize(env)
    seen: list[tuple[int, float]] = []

    class Watch(callbacks.BaseCallback):  # type: ignore[misc, name-defined]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            seen.append((self.num_timesteps, time.perf_counter()))

    shape = {} if work.policy == "CnnPolicy" else {"policy_kwargs": {"net_arch": list(work.hidden)}}
    model = getattr(package, work.algo.upper())(work.policy, env, seed=1, device="cpu", **shape, **work.sb3)
    model.learn(work.their_steps, callback=Watch())
    return {"steps_per_second": steady(seen, work.their_steps)}


# CleanRL's scripts expect the vector environments of Gymnasium 0.29: a reset in the same step, the last observation
# under its old name. What else they were told of an episode's end goes only to the screen.
AS_BEFORE = """
import runpy, sys
import gymnasium as gym
class Vector(gym.vector.SyncVectorEnv):
    def __init__(self, makers, **options):
        super().__init__(makers, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP, **options)
    def step(self, actions):
        *made, infos = super().step(actions)
        if "final_obs" in infos:
            infos["final_observation"] = infos.pop("final_obs")
        infos.pop("final_info", None)
        return (*made, infos)
if sys.argv[1] == "off-policy":
    gym.vector.SyncVectorEnv = Vector
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def train_cleanrl(work: Work, checkout: Path) -> dict[str, float]:
    """CleanRL prints its mean speed since the start; from two of these follows the speed between them."""
    assert work.cleanrl
    script, *arguments = work.cleanrl
    kind = "off-policy" if work.prints_from else "on-policy"
    command = [sys.executable, "-c", AS_BEFORE, kind, str(checkout / "cleanrl" / script), *arguments, "--no-cuda"]
    done = subprocess.run(
        [*command, "--total-timesteps", str(work.their_steps)],
        cwd=tempfile.mkdtemp(prefix="rollbook-"), capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(checkout)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    rates = [float(rate) for rate in re.findall(r"SPS:\s*(\d+)", done.stdout)]
    if work.prints_from:
        steps = [work.prints_from + 100.0 * (number + 1) for number in range(len(rates))]
    else:
        per = work.their_steps / len(rates)
        steps = [(number + 1) * per for number in range(len(rates))]
    seen = [(step, step / rate) for step, rate in zip(steps, rates, strict=True)]
    return {"steps_per_second": steady(seen, work.their_steps)}


def steady(seen: list[tuple[int, float]] | list[tuple[float, float]], steps: int) -> float:
    """Steps a second from the first look after the warm-up to the last."""
    warm = next(look for look in seen if look[0] > steps * WARM_UP_SHARE)
    return (seen[-1][0] - warm[0]) / (seen[-1][1] - warm[1])


# ---- the parent process -------------------------------------------------------------------------------------------


def measure(python: str, library: str, name: str, cores: int, threads: int, cleanrl: Path | None) -> dict[str, float]:
    command = [python, __file__, "--worker", library, "--only", name, "--cores", str(cores)]
    if cleanrl:
        command += ["--cleanrl", str(cleanrl)]
    return ask_worker(command, threads, f"{library} on {name}")


def measure_in_turns(name: str, peers: Sequence[str], rounds: int, options: argparse.Namespace) -> dict[str, Any]:
    """The best of some tries of every library: a machine's speed changes within minutes, so all take turns, and ours
    has as many tries as a peer has with all of its numbers of threads.
    """
    work = WORKS[name]
    tries: dict[str, list[dict[str, float]]] = {}
    for turn in range(rounds):
        for threads in range(1, work.cores + 1):
            for library in ("rollbook", *peers):
                ours = library == "rollbook"
                print(f"measuring {name}: {library}, try {turn * work.cores + threads}", file=sys.stderr)
                python, used = (sys.executable, work.cores) if ours else (options.peers, threads)
                answer = measure(python, library, name, work.cores, used, None if ours else options.cleanrl)
                tries.setdefault(library, []).append(answer)
    return {library: max(answers, key=lambda answer: answer["steps_per_second"]) for library, answers in tries.items()}


def side_by_side(name: str) -> float:
    """How many times the steps of one process pinned to a core two make at once, each on a core of its own."""

    def speeds(cores: Sequence[int]) -> list[float]:
        command = [sys.executable, __file__, "--worker", "rollbook", "--only", name, "--cores", "1", "--first-core"]
        workers = [
            subprocess.Popen([*command, str(core)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for core in cores
        ]
        answers = [worker.communicate()[0] for worker in workers]
        return [json.loads(answer.splitlines()[-1])["steps_per_second"] for answer in answers]

    tries = [(speeds([0]) + speeds([1]), speeds([0, 1])) for _ in range(2)]
    return max(sum(both) / (sum(alone) / 2) for alone, both in tries)


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


@dataclass(frozen=True)
class Other:
    """A figure that is not a library's speed."""

    measure: Callable[[], float]
    limit: float
    unit: str
    at_least: bool = False


OTHERS = {
    "10 seeds x 500k steps of PPO CartPole-v1, empty compile cache": Other(ten_seeds, 60, "s"),
    "tracking's share of training time, PPO CartPole-v1": Other(tracking_share, 3, "%"),
    "two seeds of SAC HalfCheetah-v5 on a core each: times the steps of one": Other(
        lambda: side_by_side("sac-halfcheetah"), 1.8, "x", at_least=True
    ),
}

FIGURES = "figures"  # all of these, by the name that --only takes
NOTES = """*steps/s* in steady state; *compile* is what a first start waits for, and a second one reads from disk.
CartPole on one core, HalfCheetah and Pong on two; each peer with the number of threads that is best for it. Every
library has as many tries, in turns, and the best counts. Ours logs every episode and every update (of algorithms with
a replay, their means over 200 or 500 steps) into a book while it trains. *by-50*: 50 updates after every 50 steps,
where the others make one after every step. CleanRL's C51 stands in for a QR-DQN, which it has not. The command above
wrote the newest rows; rows of other days may be of other machines: compare within a work.

Such a virtual machine's speed changes by a third within minutes. In seven measurements of 18 and 19 November 2026, of
one to three rounds, TD3's ratio to SB3 was between 2.4 and 3.1; DDPG's was between 2.6 and 3.1 to SB3 (twice it was 4,
beside a slow SB3), and between 1.4 and 2.0 to SBX."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*WORKS, FIGURES], action="append", default=[])
    parser.add_argument("--peers", metavar="PYTHON", help="of an environment with SB3 and SBX")
    parser.add_argument(
        "--cleanrl",
        type=lambda path: Path(path).resolve(),
        metavar="PATH",
        help="a checkout of CleanRL, run by --peers",
    )
    parser.add_argument("--rounds", type=int, default=2, help="tries of every library with every number of threads")
    parser.add_argument("--write", action="store_true", help="save benchmarks/results/training.md")
    parser.add_argument("--worker", choices=["rollbook", "sb3", "sbx", "cleanrl"], help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--first-core", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(answer_as_worker(options)), flush=True)
        return

    figures: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    today = datetime.date.today().isoformat()
    for name in [work for work in WORKS if not options.only or work in options.only]:
        results = measure_in_turns(name, peers_of(WORKS[name], options), options.rounds, options)
        figures[name] = {"on": today, "tries": options.rounds * WORKS[name].cores, "libraries": results}
    if not options.only or FIGURES in options.only:
        for name in OTHERS:
            figures[name] = {"on": today, "measured": OTHERS[name].measure()}
    text = document(
        "How fast training is", ["jax", "gymnasium", "mujoco"],
        [table(HEADER, speed_rows(figures)), NOTES, target_table(speed_targets(figures))],
    )  # fmt: skip
    publish("training", text, write=options.write)
    if options.write:
        KEPT.write_text(json.dumps(figures, indent=1) + "\n")


HEADER = ["work", "library", "steps/s", "ours, times as fast", "compile", "tries", "measured"]


def speed_rows(figures: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name in WORKS:
        if name not in figures:
            continue
        libraries = figures[name]["libraries"]
        for library, result in libraries.items():
            rate, ours = result["steps_per_second"], libraries["rollbook"]["steps_per_second"]
            compile_seconds = f"{result['compile_seconds']:.1f} s" if "compile_seconds" in result else ""
            tries = str(figures[name].get("tries", ""))
            speed = [three_digits(rate), f"{ours / rate:.1f}", compile_seconds]
            rows.append([name, library, *speed, tries, figures[name]["on"]])
    return rows


def speed_targets(figures: dict[str, Any]) -> list[Target]:
    targets = []
    for name, work in WORKS.items():
        libraries = figures.get(name, {}).get("libraries", {})
        for library, times in work.times.items():
            if library in libraries:
                measured = libraries["rollbook"]["steps_per_second"] / libraries[library]["steps_per_second"]
                figure = f"{name}: times as fast as {library}"
                targets.append(Target(figure=figure, limit=times, measured=measured, unit="x", at_least=True))
    for name, other in OTHERS.items():
        if name in figures:
            measured = figures[name]["measured"]
            targets.append(
                Target(figure=name, limit=other.limit, measured=measured, unit=other.unit, at_least=other.at_least)
            )
    return targets


def peers_of(work: Work, options: argparse.Namespace) -> list[str]:
    if not options.peers:
        return []
    libraries = [] if work.sb3 is None else ["sb3"] if work.policy == "CnnPolicy" else ["sb3", "sbx"]
    return [*libraries, *(["cleanrl"] if options.cleanrl and work.cleanrl else [])]


def answer_as_worker(options: argparse.Namespace) -> dict[str, float]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[options.first_core :][: options.cores])
    work = WORKS[options.only[0]]
    if options.worker == "rollbook":
        with tempfile.TemporaryDirectory(prefix="rollbook-") as folder:
            return train_rollbook(work, Path(folder))
    if options.worker == "cleanrl":
        return train_cleanrl(work, options.cleanrl)
    return train_sb3(work, options.worker)


if __name__ == "__main__":
    main()
