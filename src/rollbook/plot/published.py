"""Scores that others have published, to be drawn beside ours (published.toml)."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rollbook.plot.scales import value_text

_TABLE = Path(__file__).with_name("published.toml")
_SAME_BUDGET = 1.25  # steps that differ by no more than this factor are comparable


@dataclass(frozen=True)
class Source:
    name: str
    kind: str
    """What its scores are: final, best, smoothed, evaluation, or of one run."""
    about: str
    url: str


@dataclass(frozen=True)
class Published:
    algo: str
    env: str
    steps: int
    score: float
    std: float | None
    source: Source

    def label(self, env: str, *, with_algo: bool) -> str:
        """`Tianshou best 2,609 on v3`, beside runs on another version."""
        parts = [self.source.name, *([self.algo] if with_algo else []), value_text(self.score)]
        if self.source.kind in ("best", "one run"):
            parts.insert(-1, self.source.kind)
        return " ".join(parts) + (f" on {_shortly(self.env, env)}" if self.env != env else "")


@functools.cache
def published_scores() -> tuple[Published, ...]:
    """All of the table."""
    found = []
    for table in tomllib.loads(_TABLE.read_text("utf-8"))["sources"]:
        source = Source(table["name"], table["kind"], table["about"], table["url"])
        for row in table["scores"]:
            std = row.get("std")
            score, spread = float(row["score"]), None if std is None else float(std)
            found.append(Published(row["algo"], row["env"], row["steps"], score, spread, source))
    return tuple(found)


def comparable_scores(algo: str, env: str, steps: int) -> list[Published]:
    """At about these steps, the nearest of each source; other versions of the environment included."""
    nearest: dict[Source, Published] = {}
    for one in scores_of(algo, env):
        ratio = max(one.steps / max(steps, 1), steps / one.steps)
        if ratio > _SAME_BUDGET:
            continue
        other = nearest.get(one.source)
        if other is None or abs(one.steps - steps) < abs(other.steps - steps):
            nearest[one.source] = one
    return sorted(nearest.values(), key=lambda one: -one.score)


def scores_of(algo: str, env: str) -> list[Published]:
    """Of an algorithm on an environment, in any version and at any number of steps."""
    wanted = _algorithm(algo), _environment(env)
    return [one for one in published_scores() if (one.algo, _environment(one.env)) == wanted]


def sources_of(scores: Iterable[Published]) -> list[Source]:
    return list(dict.fromkeys(one.source for one in scores))


def _algorithm(name: str) -> str:
    """`PPO`, `QR-DQN`, `ppo_continuous_action`, `dqn_atari_jax`: as the table has them."""
    name = re.sub(r"(_continuous_action|_atari)?(_jax)?$", "", name.lower())
    return re.sub(r"[^a-z0-9]", "", name)


def _environment(name: str) -> str:
    """Without its version, and an Atari game without how it is wrapped."""
    return re.sub(r"-v\d+$", "", name).removeprefix("ALE/").removesuffix("NoFrameskip").lower()


def _shortly(published: str, ours: str) -> str:
    """The version alone where that is all that differs."""
    name, _, version = published.rpartition("-")
    return version if name and name == ours.rpartition("-")[0] else published
