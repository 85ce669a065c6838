"""What the algorithms learn: their scores beside published ones, and beside a peer's that was trained on this machine.

Every training is a job of `rollbook bench` in a book of its own (build/learning), tagged by the sources that its
numbers come from: seeds that have finished are not trained again until their sources change, and those that were
stopped half-way go on. Scores are also kept in results/learning.csv, so that a page can be made of what was trained on
several machines.

    python benchmarks/learning.py --only ^sac-Pendulum        # train what is missing, and print the table
    python benchmarks/learning.py --peers peers/bin/python    # RL Zoo's tuned agents too, where that is quick
    python benchmarks/learning.py --no-training --write       # docs/benchmarks.md and the scores, from what there is
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import hashlib
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from report import RESULTS, document, table

import rollbook
from rollbook.book.videos import find_ffmpeg
from rollbook.domains import DOMAINS
from rollbook.errors import RollbookError
from rollbook.training.setup import Setup, load_algorithm, setup_from_record
from rollbook.training.train import make_setup

PROJECT = Path(__file__).parents[1]
BOOK = Path(os.environ.get("ROLLBOOK_LEARNING_BOOK", PROJECT / "build" / "learning"))
SEEDS = (1, 2, 3)
LAST_SHARE = 0.1  # of the steps: the returns of its training episodes, or of its evaluations, are averaged
GALLERY = PROJECT / "docs" / "gallery"
OURS, ZOO = "rollbook", "zoo"
TASK, PEERS_TASK = "learning", "learning-peers"
KEPT = RESULTS / "learning.csv"
SOURCES = "sources-"  # begins the tag of the sources that a training's numbers come from


class Bar(NamedTuple):
    """A score that an algorithm has to reach."""

    algo: str
    env: str
    steps: int
    score: float | None  # None: what it reaches is to be seen, not promised
    published: str = ""
    every_seed: bool = False
    metric: str = "charts/episodic_return"  # off-policy papers report evaluations without exploration
    peer: bool = False  # whether the same by RL Zoo takes less than half an hour
    of: int | None = None  # the steps of the whole training, where the score is one on its way

    @property
    def name(self) -> str:
        return f"{self.algo}-{self.env}-{self.steps}"

    @property
    def trained_steps(self) -> int:
        return self.of or self.steps


def evaluated(
    algo: str,
    env: str,
    steps: int,
    score: float | None,
    published: str = "",
    *,
    peer: bool = False,
    of: int | None = None,
) -> Bar:
    return Bar(algo, env, steps, score, published, metric="eval/return", peer=peer, of=of)


BARS = [
    Bar("ppo", "CartPole-v1", 500_000, 475, "CleanRL 490", every_seed=True, peer=True),
    Bar("ppo", "Acrobot-v1", 500_000, -92, "CleanRL -86", peer=True),
    Bar("ppo", "Pendulum-v1", 300_000, -250, "RL Zoo -172 at 100k", peer=True),
    Bar("ppo", "HalfCheetah-v5", 1_000_000, 2500, "CleanRL 1443, Tianshou 5784"),
    Bar("ppo", "Hopper-v5", 1_000_000, 2200, "CleanRL 2383, Tianshou 2609"),
    Bar("ppo", "Walker2d-v5", 1_000_000, 2500, "CleanRL 2288, Tianshou 3589"),
    Bar("trpo", "CartPole-v1", 200_000, 475, "RL Zoo 500 at 100k", peer=True),
    Bar("trpo", "HalfCheetah-v5", 1_000_000, 1500, "Spinning Up 720, Tianshou 4471"),
    Bar("trpo", "Hopper-v5", 1_000_000, 1800, "Spinning Up 1161, Tianshou 2046"),
    Bar("vpg", "CartPole-v1", 500_000, 400),
    Bar("vpg", "Hopper-v5", 1_000_000, 390, "Spinning Up 391"),
    Bar("vpg", "Swimmer-v5", 1_000_000, 36, "Spinning Up 36"),
    evaluated("ddpg", "Pendulum-v1", 20_000, -175, "RL Zoo -152", peer=True),
    evaluated("td3", "Pendulum-v1", 20_000, -175, "RL Zoo -152", peer=True),
    evaluated("sac", "Pendulum-v1", 20_000, -175, "RL Zoo -157", peer=True),
    evaluated("sac", "MountainCarContinuous-v0", 50_000, 90, "RL Zoo 94.7", peer=True),
    evaluated("dqn", "CartPole-v1", 50_000, 475, "RL Zoo 500", peer=True),
    evaluated("c51", "CartPole-v1", 50_000, 475, "500"),
    evaluated("qrdqn", "CartPole-v1", 50_000, 475, "RL Zoo 500", peer=True),
    evaluated("dqn", "Acrobot-v1", 100_000, -90, "RL Zoo -77", peer=True),
    evaluated("c51", "Acrobot-v1", 100_000, -90),
    evaluated("qrdqn", "Acrobot-v1", 100_000, -90, "RL Zoo -69", peer=True),
    evaluated("dqn", "MountainCar-v0", 120_000, -120, "RL Zoo -101", peer=True),
    evaluated("qrdqn", "MountainCar-v0", 120_000, -120, "RL Zoo -106", peer=True),
    evaluated("dqn", "LunarLander-v3", 100_000, 100, "RL Zoo 154, on v2", peer=True),
    evaluated("td3", "InvertedPendulum-v5", 50_000, 950, "1000"),
    evaluated("sac", "InvertedPendulum-v5", 50_000, 950, "1000"),
    evaluated("sac", "HalfCheetah-v5", 100_000, 4500, "Spinning Up 6081", peer=True, of=300_000),
    evaluated("td3", "HalfCheetah-v5", 100_000, 4300, "Spinning Up 5242, its author 5514", peer=True),
    evaluated("ddpg", "HalfCheetah-v5", 100_000, 3500, "Spinning Up 4339", peer=True),
    evaluated("sac", "HalfCheetah-v5", 300_000, 7000, "Spinning Up 9163"),
    evaluated("sac", "Hopper-v5", 300_000, 2000, "Spinning Up 2887"),
    evaluated("td3", "Hopper-v5", 300_000, 1800, "Spinning Up 2402"),
    evaluated("dqn", "ALE/Pong-v5", 250_000, -15, "random -20.7; CleanRL 20 at 10M"),
    evaluated("c51", "ALE/Pong-v5", 400_000, -15, "random -20.7; CleanRL 20 at 10M"),
    evaluated("qrdqn", "ALE/Pong-v5", 250_000, -15, "random -20.7; RL Zoo 20 at 10M"),
    evaluated("rsac", "HalfCheetah-v5-p", 300_000, None),
]

# Of each domain the metric, the last observations that stand in for a memory, and the bars.
PARTLY_SEEN: dict[str, tuple[str, str, dict[str, float]]] = {
    "pendulum-p-v0": ("eval/return", "+concat5", {"rdpg": -250, "rtd3": -200, "rsac": -200}),
    "pendulum-v-v0": ("eval/return", "+concat20", {"rtd3": -250}),
    "cartpole-continuous-long-p-v0": ("eval/return", "+concat5", {"rsac": 900}),
    "car-p-v0": ("eval/success_rate", "+concat20", {}),
    "water-maze-simple-pomdp-v0": ("eval/success_rate", "+concat20", {}),
    "bumps-1d-v0": ("eval/success_rate", "+concat20", {"rsac": 0.9}),
}
RECURRENT = ("rdpg", "rtd3", "rsac")
LEARNERS = ("ddpg", "td3", "sac", "sac+", *RECURRENT)  # with + instead of a memory the last observations


def partly_seen(env: str, learner: str) -> Bar:
    metric, frames, bars = PARTLY_SEEN[env]
    algo = learner.rstrip("+")
    return Bar(algo, env + frames if learner.endswith("+") else env, 50_000, bars.get(learner), metric=metric)


class Score(NamedTuple):
    """What a seed reached, and all that tells whether it would again: a line of the file of kept scores."""

    who: str  # rollbook or zoo
    bar: str
    seed: int
    value: float
    minutes: float
    commit: str
    sources: str  # the tag of the sources it was trained with
    parameters: str  # their digest
    run: str


# ---- training --------------------------------------------------------------------------------------------------------


def train_missing(
    bars: Sequence[Bar],
    peers: str | None = None,
    *,
    kept: bool = True,
    seeds: Sequence[int] = SEEDS,
    peers_only: bool = False,
) -> None:
    """Go on with what was stopped, then one benchmark of all trainings that neither the book nor, with `kept`, the file
    of scores has; a core each."""
    if not peers_only:
        go_on(bars)
    programs: list[str] = []
    for bar in bars:
        have = {score.seed for score in scores_of(bar, current=True, kept=kept)}
        missing = [seed for seed in seeds if seed not in have]
        if missing and not bar.of and not peers_only:  # of: what trains longer has it
            programs.append(_program(bar, f'algo = "{bar.algo}"', missing, TASK, [sources_tag(bar)]))
        have = {score.seed for score in scores_of_peer(bar)}
        if peers and bar.peer and (missing := [seed for seed in seeds if seed not in have]):
            command = f"{sys.executable} benchmarks/zoo.py --python {peers} {bar.algo} {{env}} {{steps}} {{seed}}"
            programs.append(_program(bar, f'algo = "zoo-{bar.algo}"\ncommand = "{command}"', missing, PEERS_TASK, []))
    if not programs:
        return
    with tempfile.TemporaryDirectory(prefix="rollbook-") as folder:
        suite = Path(folder) / f"{TASK}.toml"
        suite.write_text("\n".join(programs))
        bench = [sys.executable, "-m", "rollbook", "bench", str(suite), "--book", str(BOOK)]
        subprocess.run(bench, cwd=PROJECT, check=True)


def go_on(bars: Sequence[Bar]) -> None:
    """With the newest unfinished run of each seed that has a checkpoint and today's parameters and sources."""
    stopped: dict[tuple[str, int], str] = {}
    for bar in bars:
        have = {score.seed for score in scores_of(bar, current=True, kept=False)}
        for run, setup in _runs_of(bar, "status in ('lost', 'interrupted')"):
            if sources_tag(bar) in run.tags and setup.seed not in have and run.checkpoints():
                stopped[bar.name, setup.seed] = run.run_id
    cores: queue.SimpleQueue[int] = queue.SimpleQueue()
    for core in os.sched_getaffinity(0):
        cores.put(core)

    def resume(run_id: str) -> None:
        core = cores.get()
        command = [sys.executable, "-m", "rollbook", "resume", run_id, "--book", str(BOOK)]
        # As many cores as before, so that it goes on exactly as it would have.
        subprocess.run(["taskset", "-c", str(core), *command], cwd=PROJECT, check=True)
        cores.put(core)

    with ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(resume, stopped.values()))


def _program(bar: Bar, head: str, seeds: Sequence[int], task: str, tags: Sequence[str]) -> str:
    return (
        f'[[programs]]\n{head}\nenv_ids = ["{bar.env}"]\nsteps = {bar.steps}\n'
        f'seeds = {list(seeds)}\ntask = "{task}"\ntags = {list(tags)}\n'
    )


def sources_tag(bar: Bar) -> str:
    """Of all that a training's numbers come from, but the parameters: what its algorithm and its loops import."""
    source = PROJECT / "src"
    found: set[Path] = set()
    loop = load_algorithm(bar.algo).LOOP
    todo = [f"rollbook.algos.{bar.algo}", f"rollbook.training.{loop}"]
    domain, stacked = bar.env.partition("+")[::2]
    if domain in DOMAINS:  # its own file alone: a new domain trains no other anew
        todo.append(DOMAINS[domain].entry_point.partition(":")[0])
    if stacked:
        todo.append("rollbook.domains.stacking")
    while todo:
        file = (source / todo.pop().replace(".", "/")).with_suffix(".py")
        if file in found or not file.exists():
            continue
        found.add(file)
        imports = re.findall(
            r"^from (rollbook\.(?:algos|training|domains)[\w.]*) import (.*)", file.read_text(), re.MULTILINE
        )
        for package, names in imports:
            todo += [package, *(f"{package}.{name.strip()}" for name in names.split(","))]
    return SOURCES + hashlib.sha256(b"".join(file.read_bytes() for file in sorted(found))).hexdigest()[:12]


# ---- what was learned ------------------------------------------------------------------------------------------------


def scores_of(bar: Bar, *, current: bool, kept: bool = True) -> list[Score]:
    """Of each seed with today's parameters, from the book and, with `kept`, from the file of scores; `current`: with
    today's sources only."""
    tag, today = sources_tag(bar), parameters_of(bar)
    scores = [score for score in kept_scores(OURS, bar) if score.parameters == today] if kept else []
    for run, setup in _runs_of(bar, "status = 'finished'"):
        scores.append(
            Score(
                who=OURS, bar=bar.name, seed=setup.seed, value=score_at(bar, run),
                minutes=minutes_of(bar, run), commit=(run.git_commit or "")[:7],
                sources=next((one for one in run.tags if one.startswith(SOURCES)), ""),
                parameters=today, run=run.run_id,
            )
        )  # fmt: skip
    # The last of a seed counts: one with today's sources, else the newest.
    found = {score.seed: score for score in sorted(scores, key=lambda score: score.sources == tag)}
    return [found[seed] for seed in sorted(found) if found[seed].sources == tag or not current]


def kept_scores(who: str, bar: Bar) -> list[Score]:
    if not KEPT.exists():
        return []
    with KEPT.open(newline="") as file:
        lines = [line for line in csv.reader(file) if line[:2] == [who, bar.name]]
    return [
        Score(who, name, int(seed), float(value), float(minutes), *rest)
        for who, name, seed, value, minutes, *rest in lines
    ]


def keep(bars: Sequence[Bar]) -> None:
    """Write the scores of all bars down; those of parameters or bars that are no more go."""
    scores = [score for bar in bars for score in (*scores_of(bar, current=False), *scores_of_peer(bar))]
    with KEPT.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(Score._fields)
        for who, name, seed, value, minutes, *rest in scores:
            lines.writerow([who, name, seed, f"{value:.4f}", f"{minutes:.1f}", *rest])


def parameters_of(bar: Bar) -> str:
    """The digest of what it is trained with today."""
    setup = make_setup(bar.algo, bar.env, steps=bar.trained_steps)
    config = {"steps": setup.steps, **dataclasses.asdict(setup.config)}
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


def _runs_of(bar: Bar, where: str) -> list[tuple[rollbook.RunRecord, Setup]]:
    """With today's parameters; the oldest first."""
    if not (BOOK / "book.toml").exists():
        return []
    wanted = make_setup(bar.algo, bar.env, steps=bar.trained_steps)
    runs = rollbook.open(BOOK).runs(f"{where} and algo = '{bar.algo}' and env = '{bar.env}'")
    return [
        (run, setup)
        for run in sorted(runs, key=lambda run: run.started_at)
        if (setup := _setup_of(run)) and (setup.steps, setup.config) == (wanted.steps, wanted.config)
    ]


def scores_of_peer(bar: Bar) -> list[Score]:
    found = {score.seed: score for score in kept_scores(ZOO, bar)}
    if (BOOK / "book.toml").exists():
        runs = rollbook.open(BOOK).runs(
            f"status = 'finished' and task = '{PEERS_TASK}' and algo = 'zoo-{bar.algo}' and env = '{bar.env}'"
            f" and config->>'steps' = '{bar.steps}'"
        )
        for run in runs:
            seed, minutes = run.seed or 0, run.duration_s / 60
            found[seed] = Score(ZOO, bar.name, seed, score_at(bar, run), minutes, "", "", "", run.run_id)
    return [found[seed] for seed in sorted(found)]


def _setup_of(run: rollbook.RunRecord) -> Setup | None:
    """None if its algorithm no longer takes its parameters."""
    try:
        return setup_from_record(run.config)
    except RollbookError:
        return None


def score_at(bar: Bar, run: rollbook.RunRecord) -> float:
    found = run.metrics(bar.metric)
    step, value = found["step"].to_numpy(), found["value"].to_numpy()
    end = bar.steps if bar.of else step.max()
    return float(value[(step >= end * (1 - LAST_SHARE)) & (step <= end)].mean())


def minutes_of(bar: Bar, run: rollbook.RunRecord) -> float:
    """By the median speed: a run may have been stopped and gone on with later."""
    return bar.steps / float(np.median(run.metrics("charts/SPS")["value"].to_numpy())) / 60


def is_met(bar: Bar, scores: Sequence[Score]) -> bool:
    values = [score.value for score in scores]
    if bar.score is None or len(values) < len(SEEDS):
        return False
    return (min(values) if bar.every_seed else float(np.mean(values))) >= bar.score


# ---- the page --------------------------------------------------------------------------------------------------------


ABOUT = """Each row repeats with `rollbook bench --algo ALGORITHM --env-ids ENVIRONMENT --steps STEPS --num-seeds 3`,
with the preset of that algorithm and environment. *Score* is the mean over seeds, with the standard deviation between
them: of the returns of the training episodes in the last tenth of the steps for VPG, TRPO and PPO, and of the
evaluations in the last tenth (10 episodes each, without exploration) for all others. *Bar* is what we promise to
reach, on average or (*each*) with every seed; where it is empty, nothing is promised. *Published* is what others
report; their protocols and versions of the environments differ. *RL Zoo here* is Stable-Baselines3 with RL Zoo's
tuned parameters, trained on this machine and scored in the same way. *Minutes* are what one seed takes on one core at
its median speed, without evaluations (C51 on Pong: with other work on the machine). *Code* is the commit that was
trained; in brackets, its sources have changed since. What is empty was not trained yet."""
ABOUT_MEMORY = """## With and without memory

Domains that hide a part of their state (see [Domains](domains.md)), 50,000 steps each, scored by evaluations as above:
returns, or where the domain knows success, the share of episodes that end with it. *sac+* sees the last 5 or 20
observations at once. **Bold**: below its bar. Empty: not trained yet. `rollbook bench pomdp` trains these and more.
The presets have update ratios, segments and networks. HalfCheetah-v5-p, without velocities, has a row above, beside SAC
on the full state.
The presets of RSAC, and of RTD3 on the pendulums, were chosen by one seed or two, which are among these three;
on the cart-pole the last choice was by two others, after seven settings were tried on these. RDPG and RTD3 have RSAC's
elsewhere, and those without a memory were not tuned: all these may reach more."""

ABOUT_GALLERY = """## Gallery

An episode of the best of them with a memory on each domain, by `rollbook eval RUN --video`."""


def row(bar: Bar) -> list[str]:
    scores, tag = scores_of(bar, current=False), sources_tag(bar)
    if bar.score is None:
        promised = met = ""
    else:
        promised = f"{bar.score:g}{', each' if bar.every_seed else ''}"
        met = "yes" if is_met(bar, scores) else "**no**" if len(scores) >= len(SEEDS) else "not run whole"
    return [
        bar.algo,
        bar.env,
        f"{bar.steps:,}",
        spread(scores, each=True),
        promised,
        met,
        bar.published,
        spread(scores_of_peer(bar)),
        f"{np.mean([score.minutes for score in scores]):.1f}" if scores else "",
        ", ".join(sorted({score.commit if score.sources == tag else f"({score.commit})" for score in scores})),
    ]


def memory_row(env: str) -> list[str]:
    metric, frames, _ = PARTLY_SEEN[env]
    cells = []
    for learner in LEARNERS:
        bar = partly_seen(env, learner)
        scores = scores_of(bar, current=False)
        missed = scores and bar.score is not None and not is_met(bar, scores)
        cells.append(f"**{spread(scores)}**" if missed else spread(scores))
    return [env, metric.removeprefix("eval/"), frames.removeprefix("+concat"), *cells]


def film(env: str) -> None:
    """An episode of the best learner with a memory, as a small GIF, if its run is in the book."""
    bars = [partly_seen(env, learner) for learner in RECURRENT]
    scores = [score for bar in bars for score in scores_of(bar, current=False)]
    here = {score.run for bar in bars for score in scores_of(bar, current=False, kept=False)}
    run = max(scores, key=lambda score: score.value).run if scores else None
    ffmpeg = find_ffmpeg()
    if run not in here or ffmpeg is None:
        return
    with tempfile.TemporaryDirectory(prefix="rollbook-") as folder:
        evaluation = [sys.executable, "-m", "rollbook", "eval", run, "--episodes", "1", "--video", "--out", folder]
        subprocess.run([*evaluation, "--book", str(BOOK)], check=True, stdout=subprocess.DEVNULL)
        (video,) = Path(folder).iterdir()
        GALLERY.mkdir(exist_ok=True)
        hold = "tpad=stop_mode=clone:stop_duration=1"  # the last picture, before it begins again
        small = f"{hold},fps=12,scale=160:-1,split[a][b];[a]palettegen=max_colors=32[p];[b][p]paletteuse"
        convert = [ffmpeg, "-y", "-loglevel", "error", "-t", "8", "-i", str(video), "-vf", small]
        subprocess.run([*convert, str(GALLERY / f"{env}.gif")], check=True)


def spread(scores: Sequence[Score], *, each: bool = False) -> str:
    """The mean, its deviation if there are several, and if asked for, each of them."""
    if not scores:
        return ""
    values = [score.value for score in scores]
    digits = 0 if max(map(abs, values)) >= 100 else 1 if max(map(abs, values)) > 1 else 2
    if len(values) == 1:
        return f"{values[0]:.{digits}f} (one seed)"
    text = f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"
    if len(values) < len(SEEDS):
        text += f" ({len(values)} seeds)"
    return text + (f" ({', '.join(f'{value:.{digits}f}' for value in values)})" if each else "")


HEADER = ["algorithm", "environment", "steps", "score", "bar", "met", "published", "RL Zoo here", "minutes", "code"]
MEMORY_HEADER = ["domain", "score", "observations of sac+", *LEARNERS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="what has this regular expression in its name"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="train only these")
    parser.add_argument("--peers", metavar="PYTHON", help="of an environment with rl_zoo3: train its agents too")
    parser.add_argument("--peers-only", action="store_true", help="train nothing of ours")
    parser.add_argument("--no-training", action="store_true", help="report what there is")
    parser.add_argument("--gallery", action="store_true", help="film the best learner with a memory on each domain")
    parser.add_argument("--write", action="store_true", help="save docs/benchmarks.md")
    options = parser.parse_args()
    bars = [*BARS, *(partly_seen(env, learner) for env in PARTLY_SEEN for learner in LEARNERS)]
    if not options.no_training:
        chosen = [
            bar for bar in bars if not options.only or any(re.search(pattern, bar.name) for pattern in options.only)
        ]
        train_missing(chosen, options.peers, seeds=options.seeds, peers_only=options.peers_only)
    sections = [
        ABOUT,
        table(HEADER, [row(bar) for bar in BARS]),
        ABOUT_MEMORY,
        table(MEMORY_HEADER, [memory_row(env) for env in PARTLY_SEEN]),
    ]
    if options.gallery:
        for env in PARTLY_SEEN:
            film(env)
    if films := sorted(path.stem for path in GALLERY.glob("*.gif")):
        sections += [ABOUT_GALLERY, table(films, [[f"![{name}](gallery/{name}.gif)" for name in films]])]
    text = document("What the algorithms learn", ["jax", "gymnasium", "mujoco"], sections)
    print(text, end="")
    if options.write:
        keep(bars)
        (PROJECT / "docs" / "benchmarks.md").write_text(text)


if __name__ == "__main__":
    main()
