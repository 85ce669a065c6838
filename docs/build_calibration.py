"""Writes docs/gate-calibration.md: how often the gate errs, by simulation. It takes minutes.

python docs/build_calibration.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rollbook.gate.calibration import REPETITIONS, SEED, Figure, Grid, broken, calibrate, worst
from rollbook.gate.promises import FALSE_ALARMS, CheckedRate
from rollbook.gate.simulate import FAMILIES
from rollbook.gate.wrong_rules import WRONG_RULES

PAGE = Path(__file__).parent / "gate-calibration.md"
FEWER = 20_000  # repetitions beside the main tables
ERRORS = ("false regressions", "false passes", "false passes of a cell", "coverage")


def main() -> None:
    full = calibrate(Grid())
    sections = [
        about(full),
        fixed_section(full),
        adaptive_section(full),
        wide_scores_section(),
        wider_candidate_section(),
        other_baselines_section(),
        estimated_margin_section(),
        wrong_rules_section(),
        SELFTEST,
    ]
    PAGE.write_text("\n\n".join(sections) + "\n")


# ---- sections


def about(full: Sequence[Figure]) -> str:
    limit = CheckedRate(scenario="", promised=FALSE_ALARMS, measured=0, repetitions=REPETITIONS).limit
    kept = len(full) - len(broken(full))
    return f"""<!-- Written by docs/build_calibration.py. Change that, then run it again. -->

# How often the gate errs

A gate that cries wolf is switched off, and one that lets everything pass is none. So Rollbook says how often its
verdicts are wrong, and this page shows by simulation that it is so. The simulated gates and `rollbook gate` share their
arithmetic, and a test compares their verdicts gate by gate.

What is promised, at the default alpha of 5%:

- *False regressions*: a candidate that has not changed is called a regression in at most 5% of gates.
- *False passes*: one that is truly worse by exactly the margin passes in at most 5%; so does the cell that is worse.
- *Coverage*: a cell's interval, which means to hold the true difference in 90% of cases, does so in at least 89%.
- *Detection*: the adaptive gate finds a drop of twice the margin in at least 95%, where scores spread by at most the
  margin.

Each figure is of {REPETITIONS:,} gates (seed {SEED}). Scores are of six kinds:
{", ".join(FAMILIES)}.
Lognormal is e to a standard normal number; bimodal and rare failure have two levels, with noise of a tenth of their
distance, and half or a fifth of the seeds on the lower one; heavy tailed is Student's t with 3 degrees of freedom. The
baseline has 10 seeds, and the margin is the scores' standard deviation. A drop is in one cell of those that there are:
there it is hardest to find and most easily passed. The tables show the worst of the six kinds, and which it was.

A promise counts as kept when the figure is beyond it by no more than three standard errors of the simulation: for 5%
of {REPETITIONS:,} gates, up to {percent(limit)}. Figures farther beyond are bold. By this measure, of the {len(full)}
figures behind the first two tables, **{kept} keep their promise**."""


def fixed_section(figures: Sequence[Figure]) -> str:
    rows = [
        [str(cells), str(seeds), *worst_of_each(where(figures, cells=cells, seeds=seeds))]
        for cells in Grid().cells
        for seeds in Grid().seeds
        if seeds is not None
    ]
    return f"""## All seeds at once

`rollbook gate` with the seeds that there are.

{table(["cells", "seeds", *ERRORS], rows)}"""


def adaptive_section(figures: Sequence[Figure]) -> str:
    rows = []
    for cells in Grid().cells:
        chosen = where(figures, cells=cells, seeds=None)
        used = [seeds_used(chosen, name) for name in ("false regressions", "detection")]
        rows.append([str(cells), *worst_of_each(chosen), shown(worst(chosen, "detection")), passed(chosen), *used])
    return f"""## Adaptive

`rollbook gate --adaptive`: looks after 3, 5, 8, 12 and 20 seeds, and further seeds only in cells that are undecided.
*Seeds* is what a cell of the candidate takes on average, over the kinds of scores: of an unchanged candidate until all
cells have passed or 20 are used up, and of one that is worse by twice the margin in one cell until that is found.

*Unchanged: passed* is how often 20 seeds suffice for that: the more cells there are, the more often one of them stays
undecided with so narrow a margin. The rest is inconclusive, not wrong.

{table(["cells", *ERRORS, "detection", "unchanged: passed", "seeds, unchanged", "seeds, worse"], rows)}

Of six cells, each has a twelfth of alpha to be found worse with (half is for the aggregate, the rest is shared by
Holm's procedure). A drop in a single one of them, in scores of which a few are far worse than the rest, is found less
often than promised; what is not found is inconclusive."""


def wide_scores_section() -> str:
    grid = Grid(cells=(1,), seeds=(None,), sd=(0.5, 1.0, 1.5, 2.0, 3.0))
    figures = calibrate(grid, repetitions=FEWER)
    rows = []
    for sd in grid.sd:
        chosen = where(figures, sd=sd)
        rows.append(
            [
                f"{sd:g} margins",
                *(shown(worst(chosen, name)) for name in ("false regressions", "false passes", "detection")),
                passed(chosen),
                seeds_used(chosen, "false regressions"),
            ]
        )
    header = ["sd of scores", "false regressions", "false passes", "detection", "unchanged: passed", "seeds, unchanged"]
    return f"""## Scores that spread by more than the margin

Seeds then run out before the question is answered, and the gate says so: it is inconclusive more often, and hardly
wrong more often. One cell, adaptive; {FEWER:,} gates each.

{table(header, rows)}

The false regressions of rare failures are of baselines that were lucky: see *Margins that are estimated*."""


def wider_candidate_section() -> str:
    grid = Grid(cells=(1,), spread=(2.0,))
    figures = calibrate(grid, repetitions=FEWER)
    rows = [[seeds_text(seeds), *worst_of_each(where(figures, seeds=seeds))] for seeds in grid.seeds]
    return f"""## A candidate that spreads more than its baseline

A known weakness. If the candidate's scores truly spread more than the baseline's, few seeds often do not show it, and
the gate then errs more often than it promises, most of all with skewed scores. Here the candidate has twice the
standard deviation; one cell, {FEWER:,} gates each. The report shows the ratio of the variances, and warns where it is
large and the seeds are few.

{table(["seeds", *ERRORS], rows)}"""


def other_baselines_section() -> str:
    few = Grid(cells=(1,), seeds=(3, 5, 10, 20), baseline_seeds=(3, 5, 20))
    figures = calibrate(few, repetitions=FEWER)
    rows = [
        [str(size), str(seeds), *worst_of_each(where(figures, baseline_seeds=size, seeds=seeds))]
        for size in few.baseline_seeds
        for seeds in few.seeds
    ]
    return f"""## Baselines of other sizes

The same promises where the baseline has other than 10 seeds. One cell, {FEWER:,} gates each.

{table(["baseline", "seeds", *ERRORS], rows)}"""


def estimated_margin_section() -> str:
    grid = Grid(estimated=(True,))
    figures = calibrate(grid, repetitions=FEWER)
    rows = [
        [str(cells), seeds_text(seeds), *worst_of_each(where(figures, cells=cells, seeds=seeds))]
        for cells in grid.cells
        for seeds in grid.seeds
    ]
    return f"""## Margins that are estimated

Where no floor is known, the margin is one standard deviation of the baseline's scores at hand, not of all scores that
there could be. A drop is measured by the margin that was used; {FEWER:,} gates each.

{table(["cells", "seeds", *ERRORS], rows)}

A second weakness: a baseline that was lucky. If none of its ten seeds had the failure that one in five has, its mean is
too good and its standard deviation too small at once. The aggregate, which divides by it, then gives most weight to
that very cell. It shows with several cells, many seeds and scores that are skewed downwards. A floor avoids it, since
differences are then divided by the distance from it; and so do more seeds of the baseline."""


def wrong_rules_section() -> str:
    rows = []
    for name, rule in WRONG_RULES.items():
        figures = calibrate(Grid(cells=(1,)), repetitions=FEWER, rule=rule)
        rows.append([name, f"{len(broken(figures))} of {len(figures)}", *worst_of_each(figures)])
    return f"""## Rules that break the promise

The same calibration of what is often done instead, in one cell, {FEWER:,} gates each. It notices each of them.

{table(["rule", "figures beyond their promise", *ERRORS], rows)}

*All of alpha at each look* ends as soon as one of the five looks is significant. *Percentile bootstrap* is the interval
that the field's plots show. *Welch alone* believes three seeds that agree by luck. *Variances over n* are NumPy's
default. *Episodes as units* counts ten episodes of a run as ten seeds."""


SELFTEST = """## Try it

`rollbook gate selftest` runs the gate itself on synthetic scores, unchanged and worsened, in a few seconds, and prints
what it measured beside what is promised. It has fewer repetitions than this page and allows as many standard errors.
The same in Python:

```python
from rollbook.gate.selftest import selftest

rows = selftest(repetitions=200, seed=0)
for row in rows:
    print(row.scenario, row.promise, row.measured, row.ok)
print(rows.passed)
```

The calibration of this page is a test as well: `pytest -m slow tests/unit/gate/test_calibration.py`."""


# ---- tables


def where(figures: Sequence[Figure], **fields: float | None) -> list[Figure]:
    """Those whose scenario has these values."""
    return [
        figure for figure in figures if all(getattr(figure.scenario, field) == value for field, value in fields.items())
    ]


def worst_of_each(figures: Sequence[Figure]) -> list[str]:
    return [shown(worst(figures, name)) for name in ERRORS]


def shown(figure: Figure) -> str:
    text = f"{percent(figure.rate.measured)} {figure.scenario.family}"
    return text if figure.rate.ok else f"**{text}**"


def passed(figures: Sequence[Figure]) -> str:
    """Of unchanged candidates."""
    rates = [figure.rates.passes for figure in figures if figure.name == "false regressions"]
    return f"{100 * min(rates):.0f}% to {100 * max(rates):.0f}%"


def seeds_used(figures: Sequence[Figure], name: str) -> str:
    used = [figure.rates.seeds for figure in figures if figure.name == name]
    return f"{min(used):.1f} to {max(used):.1f}"


def seeds_text(seeds: int | None) -> str:
    return "adaptive" if seeds is None else str(seeds)


def percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *rows])


if __name__ == "__main__":
    main()
