"""The report as one HTML file: figures inline, no script, light and dark, printable."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rollbook.gate.report.details import Details
from rollbook.gate.text import COLUMNS, advice, cell_rows, number, probability, runs_of
from rollbook.plot.style import GRID, INK, MUTED, PAPER

_CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --muted: #667079; --grid: #d9dee3; --paper: #ffffff;
  --panel: #f5f7f9; --good: #11734b; --bad: #b42318; --open: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --muted: #9aa4ad; --grid: #3a424a; --paper: #14181c;
  --panel: #1d2328; --good: #5fd0a0; --bad: #ff8a7a; --open: #f0c05a; } }
@media print { :root { color-scheme: light; --ink: #000; --muted: #555; --grid: #ccc; --paper: #fff; --panel: #fff; }
  details { display: none; } figure, tr { break-inside: avoid; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; line-height: 1.3; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
.outcome { border-radius: .3rem; padding: .1rem .5rem; color: var(--paper); background: var(--good); }
.regression { background: var(--bad); } .invalid, .inconclusive { background: var(--open); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } .wide { overflow-x: auto; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td.regression, td.invalid, td.inconclusive { background: none; font-weight: 600; }
td.regression { color: var(--bad); } td.invalid, td.inconclusive { color: var(--open); }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; } p.note, figcaption { color: var(--muted); }
pre { background: var(--panel); padding: .8rem; overflow-x: auto; font-size: .85rem; } summary { cursor: pointer; }
ins { color: var(--good); text-decoration: none; } del { color: var(--bad); text-decoration: none; }
"""
_CAPTIONS = {
    "forest": "Difference of each cell in units of its margin, with its interval. The band is what is acceptable.",
    "curves": "Learning curves: a thin line a seed, the mean, and a pointwise 95% t interval; nothing is extrapolated.",
    "profiles": "Performance profiles: the share of runs with a normalised score above each value. Descriptive.",
}


def to_html(plain: Mapping[str, Any], figures: Mapping[str, str], details: Details) -> str:
    body = [
        _heading(plain),
        "<h2>Cells</h2>",
        _table(COLUMNS, cell_rows(plain), outcome_column=len(COLUMNS) - 1),
        _list(advice(plain)),
        *(_figure(name, svg) for name, svg in figures.items()),
        *_looks(plain),
        *_measures(plain),
        "<h2>Runs</h2>",
        _runs(plain),
        *_details(details),
    ]
    title = html.escape(plain["sentence"])
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_CSS}</style>\n" + "\n".join(body) + "\n</html>\n"
    )


def _heading(plain: Mapping[str, Any]) -> str:
    outcome, _, rest = plain["sentence"].partition(": ")
    kind = html.escape(outcome.replace(" ", "-"))
    sides = "; ".join(f"{who} {plain[who]['name']} ({runs_of(plain[who])})" for who in ("candidate", "baseline"))
    terms = f"{sides}. Margin {plain['margin']}, {plain['margin_from']}; alpha {plain['alpha']:g}, one-sided."
    return (
        f'<h1><span class="outcome {kind}">{html.escape(outcome)}</span> {html.escape(rest)}</h1>'
        f'<p class="note">{html.escape(terms)}</p>'
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, outcome_column: int | None = None) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "\n".join(f"<tr>{_cells(row, outcome_column)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _cells(row: Sequence[Any], outcome_column: int | None) -> str:
    return "".join(
        f'<td class="{html.escape(str(value).replace(" ", "-"))}">{html.escape(str(value))}</td>'
        if place == outcome_column
        else f"<td>{html.escape(str(value))}</td>"
        for place, value in enumerate(row)
    )


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _figure(name: str, svg: str) -> str:
    """Colours of the theme become variables, so that one drawing serves light and dark."""
    themed = svg[svg.index("<svg") :]
    for colour, variable in ((INK, "ink"), (MUTED, "muted"), (GRID, "grid"), (PAPER, "paper")):
        themed = re.sub(re.escape(colour), f"var(--{variable})", themed, flags=re.IGNORECASE)
    # Two drawings in one page must not share the names of their parts.
    themed = re.sub(r'((?:id="|xlink:href="#|href="#|url\(#))', rf"\1{name}-", themed)
    return f"<figure>{themed}<figcaption>{html.escape(_CAPTIONS[name])}</figcaption></figure>"


def _looks(plain: Mapping[str, Any]) -> list[str]:
    adaptive = plain.get("adaptive")
    if not adaptive:
        return []
    rows = [
        [look["seeds"], look["undecided"], f"{look['level']:.4f}", f"{look['spent']:.4f}", look["outcome"]]
        for look in adaptive["looks"]
    ]
    return ["<h2>Looks</h2>", _table(["seeds", "cells undecided", "level", "alpha spent", "verdict"], rows)]


def _measures(plain: Mapping[str, Any]) -> list[str]:
    measures = plain["measures"]
    if not measures:
        return []
    rows = [
        [
            name.replace("_", " "),
            *(_with_interval(row[who], row[f"{who}_interval"]) for who in ("baseline", "candidate")),
        ]
        for name, row in measures["rows"].items()
    ]
    few = " Below ten seeds these bootstrap intervals are too narrow." if measures["few_seeds"] else ""
    note = (
        f"Descriptive, over all cells; 1 is {measures['unit']}. Percentile bootstrap, 95%.{few} "
        f"A run of the candidate beats one of the baseline with probability {measures['improvement']:.2f}; "
        f"IQM difference {number(measures['iqm_difference'])}, stratified permutation p {probability(measures['p'])}."
    )
    return [
        "<h2>Aggregate measures</h2>",
        _table(["measure", "baseline", "candidate"], rows),
        f'<p class="note">{html.escape(note)}</p>',
    ]


def _with_interval(value: float, interval: Mapping[str, float]) -> str:
    return f"{number(value)} [{number(interval['low'])}, {number(interval['high'])}]"


def _runs(plain: Mapping[str, Any]) -> str:
    rows = [
        [
            cell["cell"],
            who,
            run["run_id"],
            "-" if run["seed"] is None else run["seed"],
            run["status"],
            number(run["score"]),
            number(run["auc"]),
            "-" if run["last_step"] is None else f"{run['last_step']:,}",
            f"{run['seconds']:.0f} s",
            run["version"] or "-",
        ]
        for cell in plain["cells"]
        for who in ("candidate", "baseline")
        for run in cell[f"{who}_runs"]
    ]
    columns = ["cell", "side", "run", "seed", "status", "score", "auc", "steps", "time", "version"]
    return f"<details><summary>{len(rows)} runs</summary>{_table(columns, rows)}</details>"


def _details(details: Details) -> list[str]:
    commands = "\n".join(f"{run_id}  {command}" for run_id, command in details.commands)
    found = [f"<details><summary>Commands</summary><pre>{html.escape(commands)}</pre></details>"]
    if details.diff:
        lines = "\n".join(map(_diff_line, details.diff.splitlines()))
        cut = f"\n… {details.cut} more lines: rollbook code diff" if details.cut else ""
        found.append(f"<details><summary>Change of the code</summary><pre>{lines}{cut}</pre></details>")
    return found


def _diff_line(line: str) -> str:
    text = html.escape(line)
    if line.startswith("+") and not line.startswith("+++"):
        return f"<ins>{text}</ins>"
    if line.startswith("-") and not line.startswith("---"):
        return f"<del>{text}</del>"
    return text
