"""The gate: did this change make the agent worse?"""

from __future__ import annotations

from rollbook.gate.judge import CellVerdict, Verdict, judge
from rollbook.gate.margin import Constants

__all__ = ["CellVerdict", "Constants", "Verdict", "judge"]
