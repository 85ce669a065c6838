"""Rules that look right and break the promise. The calibration runs on them too, to show that it would notice.

Each is what somebody does: rliable's default intervals, looks that cost nothing, Welch's test of three seeds, standard
deviations over n, every episode as if it were a seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from rollbook.gate.rule import compare
from rollbook.gate.simulate import Rule
from rollbook.stats.intervals import Differences, welch_differences
from rollbook.stats.scores import FloatArray
from rollbook.stats.sequential import LOOKS

_RESAMPLES = 200
_EPISODES = 10


@dataclass(frozen=True, kw_only=True)
class BootstrappedDifferences(Differences):
    """By percentiles of resampled differences, which are on the last axis of `draws`."""

    draws: FloatArray

    def limits(self, level: ArrayLike) -> tuple[FloatArray, FloatArray]:
        ordered = np.sort(self.draws, axis=-1)
        left_out = (np.asarray(level) * ordered.shape[-1]).astype(np.int64)
        low = np.broadcast_to(left_out, self.estimate.shape)[..., None]
        found = [np.take_along_axis(ordered, at, axis=-1)[..., 0] for at in (low, ordered.shape[-1] - 1 - low)]
        return found[0], found[1]

    def p_below(self, limit: float) -> FloatArray:
        return np.asarray((self.draws >= limit).mean(axis=-1))

    def mean(self, scale: FloatArray) -> Differences:
        draws = (self.draws / scale[..., None]).mean(axis=-2)
        return BootstrappedDifferences(**vars(super().mean(scale)), draws=draws)


def _bootstrapped(ours: FloatArray, theirs: FloatArray, *, adaptive: bool) -> Differences:
    rng = np.random.default_rng(0)
    draws = _resampled_means(ours, rng) - _resampled_means(theirs, rng)
    return BootstrappedDifferences(**vars(compare(ours, theirs, adaptive=adaptive)), draws=draws)


def _resampled_means(scores: FloatArray, rng: np.random.Generator) -> FloatArray:
    runs = scores.shape[-1]
    weights = rng.multinomial(runs, np.full(runs, 1 / runs), size=_RESAMPLES) / runs  # the same for all comparisons
    return np.asarray(scores @ weights.T)


def _welch(ours: FloatArray, theirs: FloatArray, **_: bool) -> Differences:
    return welch_differences(ours, theirs)


def _over_n(ours: FloatArray, theirs: FloatArray, *, adaptive: bool) -> Differences:
    """The rule, with variances over n instead of n - 1."""
    return compare(_drawn_together(ours), _drawn_together(theirs), adaptive=adaptive)


def _drawn_together(scores: FloatArray) -> FloatArray:
    """So that their variance over n - 1 is what it was over n."""
    runs, mean = scores.shape[-1], scores.mean(axis=-1, keepdims=True)
    return np.asarray(mean + (scores - mean) * np.sqrt((runs - 1) / runs))


def _by_episode(ours: FloatArray, theirs: FloatArray, *, adaptive: bool) -> Differences:
    return compare(_episodes(ours), _episodes(theirs), adaptive=adaptive)


def _episodes(scores: FloatArray) -> FloatArray:
    """Of each run, around its score; they differ among themselves as much as runs do."""
    steps = np.linspace(-1, 1, _EPISODES)
    around = scores.std() * steps / steps.std()
    return np.asarray((scores[..., None] + around).reshape(*scores.shape[:-1], -1))


def _all_at_each_look(alpha: float) -> tuple[float, ...]:
    return (alpha,) * len(LOOKS)


_RIGHT = Rule()
WRONG_RULES = {
    "all of alpha at each look": replace(_RIGHT, levels=_all_at_each_look),
    "percentile bootstrap": replace(_RIGHT, compare=_bootstrapped),
    "Welch alone": replace(_RIGHT, compare=_welch),
    "variances over n": replace(_RIGHT, compare=_over_n),
    "episodes as units": replace(_RIGHT, compare=_by_episode),
}
