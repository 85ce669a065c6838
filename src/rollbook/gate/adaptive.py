"""As few seeds as the answer needs: look after 3, 5, 8, 12 and 20, and go on only where nothing is decided.

Looking several times would raise more false alarms than promised; so alpha is spent look by look, and a cell that is
decided keeps the seeds and the level that it was decided by. It ends as soon as the verdict on the whole stands: with a
regression, or with every cell decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from rollbook.gate.decide import Decision
from rollbook.gate.judge import Outcome
from rollbook.gate.scores import Cell
from rollbook.stats.sequential import LOOKS, nominal_levels, spent


@dataclass(frozen=True, kw_only=True)
class Look:
    seeds: int
    undecided: int  # cells, after it
    outcome: Outcome
    level: float  # one-sided, of an interval
    spent: float  # of alpha, so far


RunSeeds = Callable[[Collection[Cell] | None, Sequence[int]], None]
DecideAt = Callable[[dict[Cell, int]], Decision]


def run_looks(
    run_seeds: RunSeeds, decide_at: DecideAt, *, start_seed: int, alpha: float, tell: Callable[[Look], None]
) -> tuple[Decision, list[Look]]:
    """`run_seeds` trains further seeds of cells (None: of all that there are), `decide_at` judges by the look that each
    cell has come to.
    """
    history: list[Look] = []
    undecided: list[Cell] | None = None
    come_to: dict[Cell, int] = {}
    before = 0
    for number, seeds in enumerate(LOOKS):
        run_seeds(undecided, range(start_seed + before, start_seed + seeds))
        come_to |= dict.fromkeys(undecided or (), number)
        decision = decide_at(come_to)
        undecided = [cell.pair.cell for cell in decision.cells if cell.verdict.outcome == "inconclusive"]
        look = Look(
            seeds=seeds,
            undecided=len(undecided),
            outcome=decision.outcome,
            level=nominal_levels(alpha)[number],
            spent=spent(seeds / LOOKS[-1], alpha),
        )
        history.append(look)
        tell(look)
        if decision.outcome != "inconclusive":
            break
        before = seeds
    return decision, history
