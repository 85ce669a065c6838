"""What a policy scores that acts at random: the floor that a margin in per cent is measured from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from rollbook.book.top import DEFAULT_METRICS
from rollbook.errors import RollbookError

_EPISODES = 20
_MOST_STEPS = 20_000  # of all episodes; the one at hand is played to its end
_LONGEST_EPISODE = 100_000
_SEED = 0


def is_return(metric: str) -> bool:
    """Whether a random policy's return can be compared with it."""
    return metric in DEFAULT_METRICS


def measure_floors(env_ids: Iterable[str], given: Mapping[str, float]) -> dict[str, float]:
    """By environment: as given, else measured. One that cannot be made here has none."""
    found = {}
    for env_id in dict.fromkeys(env_ids):
        floor = given[env_id] if env_id in given else random_score(env_id)
        if floor is not None:
            found[env_id] = floor
    return found


def random_score(env_id: str) -> float | None:
    """Mean return of random actions, the same at every call."""
    try:
        from rollbook.training.environments import find_environment
    except ImportError:  # without rollbook[train] there is no environment to be had
        return None
    try:
        env = find_environment(env_id, "host").make(training=False)
    except RollbookError:
        return None
    returns: list[float] = []
    steps = 0
    env.action_space.seed(_SEED)
    while len(returns) < _EPISODES and steps < _MOST_STEPS:
        total, length, ended = 0.0, 0, False
        env.reset(seed=_SEED + len(returns))
        while not ended and length < _LONGEST_EPISODE:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total += float(reward)
            length += 1
            ended = terminated or truncated
        returns.append(total)
        steps += length
    env.close()
    return float(np.mean(returns))
