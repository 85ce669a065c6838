"""REINFORCE with a baseline on a cart-pole, in PyTorch and tracked with Rollbook.

python examples/torch_reinforce.py --steps 30000 --seed 1
rollbook show RUN
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import random

import torch
from torch import nn

import rollbook

TIME_LIMIT = 200


class CartPole:
    """Barto, Sutton and Anderson's cart-pole: keep the pole up by pushing the cart left or right."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.state = [0.0] * 4

    def reset(self) -> list[float]:
        self.state = [self.rng.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool]:
        """(next state, reward, whether the pole fell)"""
        place, velocity, angle, spin = self.state
        pushed = ((10.0 if action else -10.0) + 0.05 * spin**2 * math.sin(angle)) / 1.1
        torque = (9.8 * math.sin(angle) - math.cos(angle) * pushed) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        thrust = pushed - 0.05 * torque * math.cos(angle) / 1.1
        self.state = [place + 0.02 * velocity, velocity + 0.02 * thrust, angle + 0.02 * spin, spin + 0.02 * torque]
        return self.state, 1.0, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095


def play(policy: nn.Module, env: CartPole) -> tuple[list[list[float]], list[int], list[float]]:
    """One episode: the states seen, the actions taken and the rewards got."""
    states: list[list[float]] = []
    actions: list[int] = []
    rewards: list[float] = []
    state, terminated = env.reset(), False
    while not terminated and len(rewards) < TIME_LIMIT:
        with torch.inference_mode():
            left, right = policy(torch.tensor(state)).softmax(0).tolist()
        states.append(state)
        actions.append(int(env.rng.random() * (left + right) > left))
        state, reward, terminated = env.step(actions[-1])
        rewards.append(reward)
    return states, actions, rewards


def returns_to_go(rewards: list[float], gamma: float) -> list[float]:
    returns: list[float] = []
    for reward in reversed(rewards):
        returns.append(reward + gamma * (returns[-1] if returns else 0.0))
    return returns[::-1]


def policy_loss(policy: nn.Module, states: torch.Tensor, actions: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    """Williams (1992), with returns standardised over the batch as the baseline."""
    log_probs: torch.Tensor = policy(states).log_softmax(1).gather(1, actions[:, None])[:, 0]  # (steps,)
    advantages = (returns - returns.mean()) / (returns.std() + 1e-8)
    return -(log_probs * advantages).mean()


def train(run: rollbook.Run, args: argparse.Namespace) -> list[float]:
    """Returns the undiscounted return of each episode."""
    torch.manual_seed(args.seed)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr)
    env, history, step = CartPole(args.seed), list[float](), 0
    while step < args.steps:
        batch: list[tuple[list[float], int, float]] = []
        for _ in range(8):
            states, actions, rewards = play(policy, env)
            batch += zip(states, actions, returns_to_go(rewards, args.gamma), strict=True)
            step += len(rewards)
            history.append(sum(rewards))
            run.log_mean({"charts/episodic_return": history[-1]}, window=20, step=step, level="essential")
        loss = policy_loss(policy, *(torch.tensor(column) for column in zip(*batch, strict=True)))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        run.log({"losses/policy": loss.detach(), "charts/batch": torch.tensor([len(batch)])}, step=step)
        run.watch("policy", policy.state_dict(), step=step)
    state = {"policy": policy.state_dict(), "optimizer": optimizer.state_dict()}
    run.checkpoint(step, state, extra={"episodes": len(history)})
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--book", help="folder of the book")
    args = parser.parse_args()
    config = {"algo": "reinforce", "env": "cart-pole", "seed": args.seed, "lr": args.lr, "gamma": args.gamma}
    with rollbook.start("examples", config=config, track=["seed"], book=args.book) as run:
        history = train(run, args)
        if importlib.util.find_spec("matplotlib"):
            from matplotlib.figure import Figure

            figure = Figure(figsize=(5, 3))
            figure.subplots().plot(history)
            run.figure("return of each episode", figure)


if __name__ == "__main__":
    main()
