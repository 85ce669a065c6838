"""A decision as JSON. Everything that the gate prints or draws is made from it, so that no two of them disagree; the
same inputs give the same bytes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rollbook.gate.adaptive import Look
from rollbook.gate.decide import CellDecision, Decision
from rollbook.gate.measures import Measures
from rollbook.gate.scores import Choice, ScoredRun

FORMAT = 1


def to_plain(decision: Decision, looks: Sequence[Look] = ()) -> dict[str, Any]:
    """`looks` are those that an adaptive gate took."""
    question, verdict = decision.question, decision.verdict
    return {
        "format": FORMAT,
        "outcome": decision.outcome,
        "exit_code": decision.exit_code,
        "sentence": decision.sentence,
        "candidate": _side(question.candidate, decision.cells, ours=True),
        "baseline": _side(question.baseline, decision.cells, ours=False),
        "alpha": question.alpha,
        "margin": verdict.margin,
        "margin_from": _margin_from(decision),
        "allow_failed": question.allow_failed,
        "frozen": None if decision.frozen is None else decision.frozen.number,
        "cells": [_cell(cell) for cell in decision.cells],
        "aggregate": None if verdict.aggregate is None else dataclasses.asdict(verdict.aggregate),
        "measures": None if decision.measures is None else _measures(decision.measures),
        "warnings": decision.warnings,
        "adaptive": {"looks": [dataclasses.asdict(look) for look in looks]} if looks else None,
        "anchor": None if decision.anchor is None else to_plain(decision.anchor),
    }


def _side(choice: Choice, cells: Sequence[CellDecision], *, ours: bool) -> dict[str, Any]:
    runs = [run for cell in cells for run in (cell.pair.candidate if ours else cell.pair.baseline)]
    versions = Counter(run.version or "" for run in runs)
    return {
        "name": choice.name,
        "where": choice.where,
        "runs": len(runs),
        "versions": dict(sorted(versions.items())),
        "seconds": sum(run.duration_s for run in runs),
    }


def _margin_from(decision: Decision) -> str:
    if decision.chosen_later:
        return "chosen after the fact"
    if decision.frozen is not None:
        return f"frozen with {decision.frozen.tag}"
    return "given" if decision.question.margin else "default"


def _cell(cell: CellDecision) -> dict[str, Any]:
    pair = cell.pair
    return {
        **dataclasses.asdict(cell.verdict),
        **vars(pair.cell),
        "metric": pair.metric,
        "floor": cell.constants.floor if cell.constants else None,
        "candidate_runs": [_run(run, pair.metric) for run in pair.candidate],
        "baseline_runs": [_run(run, pair.metric) for run in pair.baseline],
        "left_out": [run.run_id for run in pair.left_out],
        "warnings": list(cell.warnings),
    }


def _run(run: ScoredRun, metric: str) -> dict[str, Any]:
    figures = run.figures.get(metric)
    return {
        "run_id": run.run_id,
        "seed": run.seed,
        "status": run.status,
        "score": run.score(metric),
        "auc": figures.auc if figures else None,
        "last_step": run.last_step,
        "seconds": run.duration_s,
        "version": run.version,
    }


def _measures(measures: Measures) -> dict[str, Any]:
    plain = dataclasses.asdict(measures)
    rows = {row.pop("name"): row for row in plain.pop("rows")}
    return {"descriptive": True, **plain, "rows": rows}
