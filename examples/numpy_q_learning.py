"""Tabular Q-learning on a grid world, in plain numpy and tracked with Rollbook.

python examples/numpy_q_learning.py --steps 20000 --seed 1
python examples/numpy_q_learning.py --steps 40000 --resume RUN    # go on from its newest checkpoint
rollbook top --over seed
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

import rollbook

GRID = ("S..#....", "...#..#.", ".#...#..", ".#.#...#", "...#.#..", ".#.....G")
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
TIME_LIMIT = 100


@dataclass
class GridWorld:
    """Walk from S to G around the walls; each step costs 1, and one move in ten slips into a random direction."""

    rng: np.random.Generator
    place: tuple[int, int] = (0, 0)
    states: int = field(default=len(GRID) * len(GRID[0]), init=False)

    def reset(self) -> int:
        self.place = (0, 0)
        return 0

    def step(self, action: int) -> tuple[int, float, bool]:
        """(next state, reward, whether the goal is reached)"""
        slipped = self.rng.random() < 0.1
        row, column = self.place + MOVES[self.rng.integers(4) if slipped else action]
        if 0 <= row < len(GRID) and 0 <= column < len(GRID[0]) and GRID[row][column] != "#":
            self.place = (int(row), int(column))
        reached = GRID[self.place[0]][self.place[1]] == "G"
        return self.place[0] * len(GRID[0]) + self.place[1], -1.0, reached


def choose(q: NDArray[np.float64], state: int, epsilon: float, rng: np.random.Generator) -> int:
    """Epsilon-greedy."""
    return int(rng.integers(4) if rng.random() < epsilon else q[state].argmax())


def train(run: rollbook.Run, args: argparse.Namespace) -> None:
    saved = run.starting_point()
    first = saved.step if saved else 0
    rng = np.random.default_rng([args.seed, first])
    world = GridWorld(rng)
    q = saved.tensors["q"] if saved else np.zeros((world.states, 4))  # (states, actions)
    state, episode_return, length = world.reset(), 0.0, 0
    for step in range(first + 1, args.steps + 1):
        epsilon = max(0.05, 1.0 - step / 5_000)
        action = choose(q, state, epsilon, rng)
        next_state, reward, terminated = world.step(action)
        # A time limit is not the end of the task: only the goal cuts the future off.
        target = reward + args.gamma * (0.0 if terminated else q[next_state].max())
        error = target - q[state, action]
        q[state, action] += args.lr * error
        state, episode_return, length = next_state, episode_return + reward, length + 1
        if terminated or length == TIME_LIMIT:
            run.log({"charts/episodic_return": episode_return, "charts/episodic_length": length}, step=step)
            run.log({"losses/td_error": abs(error), "charts/epsilon": epsilon}, step=step, level="debug")
            state, episode_return, length = world.reset(), 0.0, 0
        if step % 5_000 == 0 or step == args.steps:
            run.checkpoint(step, {"q": q}, keep=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--book", help="folder of the book")
    parser.add_argument("--resume", metavar="RUN", help="go on with this run")
    args = parser.parse_args()
    config = {"algo": "q-learning", "env": "grid-world", "seed": args.seed, "lr": args.lr, "gamma": args.gamma}
    with rollbook.start("examples", config=config, track=["seed"], book=args.book, resume=args.resume) as run:
        train(run, args)


if __name__ == "__main__":
    main()
