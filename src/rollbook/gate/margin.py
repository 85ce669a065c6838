"""How much worse is still acceptable: a share of what the baseline has over a random policy, standard deviations, or an
absolute number of returns.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rollbook.errors import UsageError
from rollbook.stats.scores import FloatArray

DEFAULT_MARGIN = "10%"
_DEFAULT_IN_SD = 1.0
_FAR_FROM_RANDOM = 2.0  # standard deviations; nearer than this, a share of the distance means nothing


@dataclass(frozen=True)
class Margin:
    """As the user gives it."""

    amount: float
    unit: Literal["%", "sd", "returns"]

    def __str__(self) -> str:
        return f"{self.amount:.15g}{'' if self.unit == 'returns' else self.unit}"


def parse_margin(text: str | float) -> Margin:
    """10%, 1.0sd or 25."""
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(%|sd|)\s*", str(text))
    try:
        amount = float(match[1]) if match else math.nan
    except ValueError:
        amount = math.nan
    if match is None or not math.isfinite(amount) or amount <= 0:
        raise UsageError(f"the margin is {text!r}", "a positive number: --margin 10%, --margin 1.0sd or --margin 25")
    unit: Literal["%", "sd", "returns"] = "%" if match[2] == "%" else "sd" if match[2] == "sd" else "returns"
    return Margin(amount, unit)


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Of a cell, frozen with its baseline: never taken from the runs that are compared."""

    reference: float  # mean score of the baseline
    sd: float  # of a run of the baseline
    floor: float | None = None  # score of a random policy

    @property
    def distance(self) -> float | None:
        """From a random policy to the baseline, where it is large enough to measure by."""
        if self.floor is None or abs(self.reference - self.floor) < max(_FAR_FROM_RANDOM * self.sd, 1e-300):
            return None
        return abs(self.reference - self.floor)

    @property
    def scale(self) -> float:
        """What differences are divided by, so that cells can be averaged; 0 where there is nothing to measure by."""
        return self.sd if self.distance is None else self.distance


def constants_of(baseline: FloatArray, floor: float | None) -> Constants:
    return Constants(reference=float(np.mean(baseline)), sd=float(np.std(baseline, ddof=1)), floor=floor)


def in_returns(margin: Margin, constants: Constants) -> float:
    """The margin of a cell. A share needs a distance to be of; without one it is the default number of sd."""
    if margin.unit == "returns":
        return margin.amount
    if margin.unit == "sd":
        return margin.amount * constants.sd
    return _DEFAULT_IN_SD * constants.sd if constants.distance is None else margin.amount / 100 * constants.distance
