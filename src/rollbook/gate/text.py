"""A decision in a terminal: the sentence, a table of cells, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Plain = Mapping[str, Any]

COLUMNS = ["cell", "seeds", "baseline", "candidate", "difference", "interval", "margin", "p", "verdict"]


def cell_rows(plain: Plain) -> list[list[str]]:
    """One for each cell, and one for all of them together."""
    rows = [_cell_row(cell) for cell in plain["cells"]]
    together = plain["aggregate"]
    if together and len(rows) > 1:
        rows.append(
            [
                "all, each on its own scale",
                "",
                "",
                "",
                signed(together["difference"]),
                interval(together["low"], together["high"]),
                number(together["margin"]),
                "",
                together["outcome"],
            ]
        )
    return rows


def _cell_row(cell: Plain) -> list[str]:
    seeds = f"{cell['candidate_seeds']} / {cell['baseline_seeds']}"
    return [
        cell["cell"],
        seeds,
        number(cell["baseline_mean"]),
        number(cell["candidate_mean"]),
        with_share(cell["difference"], cell["baseline_mean"]),
        interval(cell["low"], cell["high"]),
        number(cell["margin"]),
        "-" if cell["p"] is None else probability(cell["p"]),
        cell["outcome"],
    ]


def advice(plain: Plain) -> Iterator[str]:
    """For cells that are not decided or not valid, what would help."""
    for cell in plain["cells"]:
        name = cell["cell"]
        if cell["outcome"] == "inconclusive":
            yield (
                f"{name}: these seeds can resolve a margin of {number(cell['resolvable'])}, "
                f"asked for is {number(cell['margin'])}: about {cell['seeds_needed']} seeds on each side would do"
            )
        elif cell["outcome"] in ("invalid", "new") or "slightly" in cell["reason"]:
            yield f"{name}: {cell['reason']}"
    if plain["adaptive"]:
        last = plain["adaptive"]["looks"][-1]
        yield (
            f"decided at {last['seeds']} seeds"
            if plain["outcome"] != "inconclusive"
            else f"open at {last['seeds']} seeds"
        ) + f", {last['spent']:.3f} of alpha {plain['alpha']:g} spent"
    for warning in plain["warnings"]:
        yield f"warning: {warning}"
    if plain["anchor"]:
        yield f"anchor {plain['anchor']['baseline']['name']}: {plain['anchor']['sentence']}"


def number(value: float | str | None) -> str:
    """Four digits are more than a handful of seeds can tell. What JSON has no number for is a text already."""
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def signed(value: float | None) -> str:
    return "-" if value is None else ("+" if value > 0 else "") + number(value)


def with_share(difference: float | None, baseline: float | None) -> str:
    """A difference, and what share of the baseline it is."""
    if difference is None or not baseline:
        return signed(difference)
    share = 100 * difference / abs(baseline)
    return f"{signed(difference)} ({share:+.1f}%)" if abs(share) < 1000 else signed(difference)


def interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"[{signed(low)}, {signed(high)}]"


def runs_of(side: Plain) -> str:
    """How many there are, and of which versions of the code."""
    versions = ", ".join(version for version in side["versions"] if version)
    return f"{side['runs']} runs of {versions or 'no known version'}"


def probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
