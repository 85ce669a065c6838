"""Books with two versions of an agent in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from makers import finished

STEPS = (0, 50, 95, 100)


def version(
    book: Path, tag: str, scores: Mapping[str, Sequence[float]], *, first_seed: int = 1, **run: Any
) -> list[str]:
    """A run a score, seeds counted up; the score is what the run ends with."""
    return [
        finished(
            book,
            **{"algo": "ppo", "env": env, "seed": first_seed + number, "tags": [tag], "steps": STEPS, **run},
            returns=[0.0, score / 2, score, score],
        )
        for env, of_env in scores.items()
        for number, score in enumerate(of_env)
    ]


GOOD = [100.0, 104.0, 96.0, 101.0, 99.0]
SAME = [101.0, 103.0, 97.0, 100.5, 98.5]
WORSE = [60.0, 63.0, 58.0, 61.0, 57.0]
