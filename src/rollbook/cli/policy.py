"""eval, export policy: what a run has learned."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollbook.cli.options import book_option, current_book, json_option
from rollbook.cli.output import number, print_json, relative, say
from rollbook.errors import UsageError

if TYPE_CHECKING:
    from rollbook.book.book import RunRecord
    from rollbook.training.policies import Policy


@click.command(
    "eval", epilog="\b\nExamples:\n  rollbook eval 9f2c --episodes 100\n  rollbook eval 9f2c --video --step 50000"
)
@click.argument("reference", metavar="RUN")
@click.option("--episodes", type=click.IntRange(1), default=10, show_default=True, metavar="N")
@click.option("--step", type=int, metavar="STEP", help="An older checkpoint [default: the newest].")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of the episodes' beginnings.")
@click.option("--video", is_flag=True, help="Save one episode as mp4 or gif, in the run and in --out.")
@click.option("--render", is_flag=True, help="Show the episodes in a window as they are played.")
@click.option("--out", type=click.Path(file_okay=False), default=".", metavar="DIR", help="[default: here]")
@json_option
@book_option
def evaluate(
    reference: str, episodes: int, step: int | None, seed: int, video: bool, render: bool, out: str, as_json: bool
) -> None:
    """Run the learned policy, without exploration."""
    gc.enable()
    policy, record = _load(reference, step)
    returns, lengths = _play(policy, episodes, seed, render=render)
    answer: dict[str, Any] = {
        "run_id": policy.run_id,
        "step": policy.step,
        "episodes": len(returns),
        "mean": float(returns.mean()),
        "std": float(returns.std()),
        "min": float(returns.min()),
        "max": float(returns.max()),
        "length": float(lengths.mean()),
    }
    if (above := policy.environment.success_above) is not None:
        answer["success"] = float((returns > above).mean())
    if video:
        answer["video"] = str(_save_video(policy, record, seed, Path(out)))
    if as_json:
        print_json([answer | {"returns": returns.tolist(), "lengths": lengths.tolist()}])
        return
    for name in ("episodes", "mean", "std", "min", "max", "length", "success"):
        if name in answer:
            print(f"{name:<9} {number(answer[name])}")
    if video:
        say(f"video: {relative(Path(answer['video']))}")


def _play(policy: Policy, episodes: int, seed: int, *, render: bool) -> tuple[Any, Any]:
    from rollbook.training.evaluate import Evaluator

    if render:
        return _show(policy, episodes, seed)
    evaluator = Evaluator(policy.algorithm, policy.environment, episodes, seed)
    try:
        found = evaluator(policy.actor, policy.normaliser, policy.step)
    finally:
        evaluator.close()
    return found.returns, found.lengths


def _show(policy: Policy, episodes: int, seed: int) -> tuple[Any, Any]:
    import numpy as np

    from rollbook.training.evaluate import host_policy, play

    act = host_policy(policy.algorithm, policy.environment, policy.actor, policy.normaliser)
    env = policy.environment.make(render="human", training=False)
    try:
        played = [play(env, act, seed + number) for number in range(episodes)]
    finally:
        env.close()
    return np.array([total for total, _ in played]), np.array([length for _, length in played])


def _save_video(policy: Policy, record: RunRecord, seed: int, out: Path) -> Path:
    import shutil

    from rollbook.book.layout import touch_run
    from rollbook.book.media import save_video
    from rollbook.training.evaluate import host_policy
    from rollbook.training.videos import record_episode

    act = host_policy(policy.algorithm, policy.environment, policy.actor, policy.normaliser)
    frames, fps, total, length = record_episode(policy.environment, act, seed)
    say(f"recorded an episode of {length} steps, return {number(total)}")
    stored = save_video(record.folder, "eval", frames, policy.step, fps)
    touch_run(record.folder)
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(stored, out / f"{policy.run_id}-{policy.step}{stored.suffix}"))


@click.group(epilog="\b\nExample:\n  rollbook export policy 9f2c --out my_policy")
def export() -> None:
    """Carry something out of the book."""


@export.command("policy", epilog="\b\nExample:\n  rollbook export policy 9f2c --out my_policy")
@click.argument("reference", metavar="RUN")
@click.option("--step", type=int, metavar="STEP", help="An older checkpoint [default: the newest].")
@click.option("--out", type=click.Path(file_okay=False), default="policy", show_default=True, metavar="DIR")
@json_option
@book_option
def policy(reference: str, step: int | None, out: str, as_json: bool) -> None:
    """A run's policy as safetensors and a JSON of the network, which a few lines of numpy can run."""
    from rollbook.training.policies import export_policy

    loaded, _ = _load(reference, step)
    weights, description = export_policy(loaded, Path(out))
    if as_json:
        print_json([{"weights": str(weights), "network": str(description), "step": loaded.step}])
    else:
        print(weights, description, sep="\n")


def _load(reference: str, step: int | None) -> tuple[Policy, RunRecord]:
    from rollbook.cli.train import check_installed

    check_installed()
    from rollbook.training.policies import load_policy
    from rollbook.training.videos import choose_headless_renderer

    choose_headless_renderer()
    record = current_book().run(reference)
    if not record.checkpoints():
        raise UsageError(f"run {record.run_id} has no checkpoint", "rollbook train --checkpoint-every N saves them")
    return load_policy(record, step), record
