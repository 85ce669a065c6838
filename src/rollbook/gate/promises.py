"""What the gate promises about its errors, and whether a measured rate keeps it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

FALSE_ALARMS = 0.05  # regressions of what has not changed: alpha
FALSE_PASSES = 0.05  # passes of what is worse by exactly the margin: alpha
DETECTION = 0.95  # regressions of what is worse by twice the margin, where scores spread by at most the margin
COVERAGE = 0.89  # of intervals that promise 90%, one-sided 95% on either side
_STANDARD_ERRORS = 3


@dataclass(frozen=True, kw_only=True)
class CheckedRate:
    """A rate that is promised to be at most so much, or at least, and the share of simulated gates that had it.

    The limit is what is promised and three standard errors of such a share: a rate that is just as promised crosses it
    by chance in one of 700 checks.
    """

    scenario: str
    promised: float
    measured: float
    repetitions: int
    at_least: bool = False
    limit: float = field(init=False)
    ok: bool = field(init=False)

    def __post_init__(self) -> None:
        slack = _STANDARD_ERRORS * math.sqrt(self.promised * (1 - self.promised) / self.repetitions)
        limit = self.promised - slack if self.at_least else self.promised + slack
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "ok", self.measured >= limit if self.at_least else self.measured <= limit)

    @property
    def promise(self) -> str:
        """at most 5%"""
        return f"{'at least' if self.at_least else 'at most'} {100 * self.promised:g}%"
