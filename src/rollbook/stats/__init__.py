"""Statistics of reinforcement learning: pure functions of scores, with randomness as an argument."""

from __future__ import annotations

from rollbook.stats.aggregate import iqm, mean, median, optimality_gap, probability_of_improvement
from rollbook.stats.intervals import (
    Difference,
    Differences,
    Interval,
    bootstrap_interval,
    difference,
    differences,
    mean_difference,
    permutation_p,
)
from rollbook.stats.profiles import performance_profile, sample_efficiency
from rollbook.stats.sequential import LOOKS, nominal_levels, spent

__all__ = [
    "LOOKS",
    "Difference",
    "Differences",
    "Interval",
    "bootstrap_interval",
    "difference",
    "differences",
    "iqm",
    "mean",
    "mean_difference",
    "median",
    "nominal_levels",
    "optimality_gap",
    "performance_profile",
    "permutation_p",
    "probability_of_improvement",
    "sample_efficiency",
    "spent",
]
