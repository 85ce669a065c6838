"""Whatever the scores are: the terminal, JSON, Markdown, HTML and the exit code never disagree."""

from __future__ import annotations

import json
import math
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.cli.output import to_plain as finite
from rollbook.gate.decide import Question, decide_on
from rollbook.gate.judge import EXIT_CODES
from rollbook.gate.plain import to_plain
from rollbook.gate.report.details import Details
from rollbook.gate.report.html import to_html
from rollbook.gate.report.markdown import to_markdown
from rollbook.gate.scores import Cell, Choice, Figures, Pair, ScoredRun
from rollbook.gate.text import cell_rows

METRIC = "eval/return"
scores = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, 500.0, math.nan, 1e300]), min_size=0, max_size=6)
margins = st.sampled_from(["10%", "1.0sd", "25", "1e-9", "1e9"])


def runs(side: str, values: list[float]) -> tuple[ScoredRun, ...]:
    return tuple(
        ScoredRun(
            run_id=f"{side}-{seed}",
            seed=seed,
            status="finished",
            last_step=100,
            duration_s=1.0,
            version="v1",
            config_key="",
            figures={METRIC: _figures(value)},
        )
        for seed, value in enumerate(values)
    )


def _figures(value: float) -> Figures:
    """As summaries have them: finite, or none at all."""
    if math.isnan(value):
        return Figures(final=None, auc=None, diverged=True)
    return Figures(final=value, auc=value, diverged=False)


def _all_scored(pair: Pair) -> bool:
    return bool(pair.candidate) and all(run.score(METRIC) is not None for run in pair.candidate)


@st.composite
def pairs(draw):
    cells = draw(st.lists(st.sampled_from(["A-v1", "B-v1", "<b>|C*"]), unique=True, min_size=1))
    return [
        Pair(
            cell=Cell("task", "ppo", env),
            metric=METRIC,
            candidate=runs("candidate", draw(scores)),
            baseline=runs("baseline", draw(scores)),
            problem=draw(st.none() | st.just("seed 3 of the candidate has failed")),
        )
        for env in cells
    ]


@settings(max_examples=200)
@given(compared=pairs(), margin=margins, alpha=st.sampled_from([0.01, 0.05, 0.2]), same=st.booleans())
def test_every_form_of_an_answer_says_the_same(compared, margin, alpha, same):
    sides = {name: Choice(name=name, where="true") for name in ("candidate", "baseline")}
    identical = [pair.cell for pair in compared if same and not pair.problem and _all_scored(pair)]
    decision = decide_on(Question(**sides, margin=margin, alpha=alpha), compared, identical=identical)
    plain = finite(to_plain(decision))
    outcomes = [cell["outcome"] for cell in plain["cells"]]

    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["exit_code"] == decision.exit_code == EXIT_CODES[plain["outcome"]]
    assert plain["sentence"].startswith(f"{plain['outcome']}: candidate against baseline: ")
    assert [row[-1] for row in cell_rows(plain)][: len(outcomes)] == outcomes
    page = to_html(plain, {}, Details(commands=[], diff=None, cut=0))
    kind = plain["outcome"].replace(" ", "-")
    assert f'<span class="outcome {kind}">{plain["outcome"]}</span>' in page
    assert re.findall(r'<td class="([a-z-]+)">', page)[: len(outcomes)] == [one.replace(" ", "-") for one in outcomes]
    mark = {1: "❌", 3: "❔", 4: "⚠️"}.get(plain["exit_code"], "✅")
    assert to_markdown(plain).startswith(f"### {mark} {plain['outcome']}: ")
    assert finite(to_plain(decide_on(decision.question, compared, identical=identical))) == plain
