"""`rollbook demo`: what there is, in a few seconds and with nothing but numpy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rollbook.cli.options import book_option, chosen_path
from rollbook.cli.output import relative, say
from rollbook.cli.table import print_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TASK = "demo"
METRIC = "charts/episodic_return"
_QUESTION = f"""select config->>'elite' as elite, count(*) as seeds, round(avg(auc), 1) as auc,
       round(avg(final), 1) as final
from runs join summaries using (run_id)
where task = '{TASK}' and summaries.name = '{METRIC}'
group by all order by auc desc"""


@click.command(epilog="\b\nExample:\n  rollbook demo")
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Seeds of each configuration.")
@book_option
def demo(seeds: int) -> None:
    """Learn to balance a pole with two settings and a few seeds, and ask the book which was better."""
    from rollbook.book.book import open_book
    from rollbook.book.settings import find_book

    path = find_book(chosen_path() or Path.cwd() / "rollbook-demo")
    say(f"Training: cross-entropy search on a cart-pole, 2 configurations x {seeds} seeds, into {relative(path)}/\n")
    for elite in (2, 12):
        for seed in range(1, seeds + 1):
            _train(path, elite, seed)
    book = open_book(path)
    command = f"rollbook --book {relative(path)}"

    say("\nWhich configuration was better? Asked with")
    say(f"  {command} top 5 --algo cem --env cart-pole --by auc --over seed")
    entries = book.top(5, algo="cem", env="cart-pole", task=TASK, by="auc", metric=METRIC, over="seed")
    print_table(
        ["rank", "auc", "n", "sd", "elite"],
        [[entry.rank, entry.score, entry.n, entry.std, entry.params["elite"]] for entry in entries],
        right=["rank", "auc", "n", "sd", "elite"],
    )
    say(f'\nAnything else is SQL:\n  {command} sql "{_QUESTION}"')
    relation = book.sql(_QUESTION)
    print_table(relation.columns, relation.fetchall(), right=relation.columns)
    say(
        f"\nGo on with\n  {command} runs\n  {command} show {book.runs()[0].run_id}\n"
        "  rollbook run -- python your_training_script.py"
    )


def _train(path: Path, elite: int, seed: int) -> None:
    """Cross-entropy search over linear policies; a generation is a logged row."""
    import numpy as np

    from rollbook.track.start import start

    rng = np.random.default_rng(seed)
    config = {"algo": "cem", "env": "cart-pole", "seed": seed, "elite": elite, "population": 32}
    with start(TASK, config=config, track=["elite", "seed"], book=path, tags=["demo"], save_code=False) as run:
        mean, spread, steps = np.zeros(4), np.ones(4), 0
        for _ in range(20):
            policies = mean + spread * rng.standard_normal((32, 4))
            returns = _balance(policies, rng)
            best = policies[np.argsort(returns)[-elite:]]
            mean, spread = best.mean(axis=0), best.std(axis=0) + 0.01
            steps += int(returns.sum())
            run.log({METRIC: returns.mean(), "charts/best_return": returns.max()}, step=steps)


def _balance(policies: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Steps that each linear policy keeps the pole up, 500 at most: Barto, Sutton and Anderson's cart-pole."""
    import numpy as np

    state = rng.uniform(-0.05, 0.05, (len(policies), 4))
    returns, upright = np.zeros(len(policies)), np.ones(len(policies), bool)
    for _ in range(500):
        _, velocity, angle, spin = state.T
        force = np.where((policies * state).sum(axis=1) > 0, 10.0, -10.0)
        sine, cosine = np.sin(angle), np.cos(angle)
        pushed = (force + 0.05 * spin**2 * sine) / 1.1
        torque = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        thrust = pushed - 0.05 * torque * cosine / 1.1
        state = state + 0.02 * np.stack([velocity, thrust, spin, torque], axis=1)
        returns += upright
        upright &= (np.abs(state[:, 0]) < 2.4) & (np.abs(state[:, 2]) < 0.2095)
        if not upright.any():
            break
    return returns
