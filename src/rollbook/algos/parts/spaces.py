"""What an algorithm has to know about an environment: the shape of what it sees, and what it can do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rollbook.algos.parts.networks import namespace


@dataclass(frozen=True, kw_only=True)
class Spaces:
    """Observations of one shape; actions that are one choice of n, or numbers within bounds."""

    observation: tuple[int, ...]
    discrete: bool
    actions: int  # choices, or dimensions
    first_action: int = 0  # the number of the first choice
    low: tuple[float, ...] = ()  # of continuous actions; infinite where there is no bound
    high: tuple[float, ...] = ()

    @property
    def image(self) -> bool:
        return len(self.observation) == 3

    def to_environment(self, action: Any) -> Any:
        """An algorithm's action, if continuous nominally from -1 to 1, on the environment's scale and in its bounds."""
        if self.discrete:
            return action + self.first_action if self.first_action else action
        if self._scale is None:
            return action
        xp = namespace(action)
        lowest, highest, half, centre = self._scale
        return xp.minimum(xp.maximum(action, lowest), highest) * half + centre

    @cached_property
    def _scale(self) -> tuple[Any, Any, Any, Any] | None:
        """Limits of an action, its factor and what is added to it; None where nothing is bounded."""
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        bounded = np.isfinite(low) & np.isfinite(high)
        if not (np.isfinite(low) | np.isfinite(high)).any():
            return None
        lowest, highest = np.where(bounded, -1, low), np.where(bounded, 1, high)
        with np.errstate(invalid="ignore"):
            half, centre = np.where(bounded, (high - low) / 2, 1), np.where(bounded, (high + low) / 2, 0)
        return lowest.astype(np.float32), highest.astype(np.float32), half.astype(np.float32), centre.astype(np.float32)
