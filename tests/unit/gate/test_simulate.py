"""The simulation and the gate are one rule."""

from __future__ import annotations

import numpy as np
import pytest

from rollbook.gate import Constants, judge
from rollbook.gate.judge import EXIT_CODES
from rollbook.gate.rule import EQUIVALENT, IMPROVEMENT, INCONCLUSIVE, NO_REGRESSION, REGRESSION
from rollbook.gate.selftest import adaptive_verdict
from rollbook.gate.simulate import FAMILIES, Gates, MadeUp, Scenario, adaptive_gates, draw, fixed_gates, simulate

NAMES = {
    REGRESSION: "regression",
    IMPROVEMENT: "improvement",
    EQUIVALENT: "equivalent",
    NO_REGRESSION: "no regression",
    INCONCLUSIVE: "inconclusive",
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def verdicts(made_up: MadeUp, judged, *, estimated: bool):
    """Of the gate itself, one repetition at a time."""
    for ours, theirs, margins, scales in zip(made_up.ours, made_up.theirs, made_up.margin, made_up.scale, strict=True):
        candidate, baseline = ({str(number): runs for number, runs in enumerate(side)} for side in (ours, theirs))
        if estimated:
            yield judged(candidate, baseline, margin="1sd")
        else:
            constants = {str(number): Constants(reference=0.0, sd=scale) for number, scale in enumerate(scales)}
            yield judged(candidate, baseline, margin=float(margins[0]), constants=constants)


def assert_same(gates: Gates, found) -> set[str]:
    seen = set()
    for number, verdict in enumerate(found):
        assert [cell.outcome for cell in verdict.cells] == [NAMES[one] for one in gates.outcome[number].tolist()]
        assert [cell.low for cell in verdict.cells] == pytest.approx(gates.low[number], rel=1e-9, abs=1e-9)
        assert [cell.high for cell in verdict.cells] == pytest.approx(gates.high[number], rel=1e-9, abs=1e-9)
        assert [cell.candidate_seeds for cell in verdict.cells] == gates.seeds[number].tolist()
        assert verdict.exit_code == (1 if gates.failed[number] else 0 if gates.passed[number] else 3)
        seen.add(verdict.outcome)
    return seen


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cells", [1, 3])
def test_the_simulation_gives_the_verdicts_of_the_gate(family, cells):
    """Unchanged, better and worse, with few seeds and many: 1,440 gates."""
    seen = set()
    for number, (seeds, drop, estimated) in enumerate(
        [(3, 1.0, False), (5, 0.0, True), (12, 1.5, False), (20, -1.0, True)]
    ):
        scenario = Scenario(family=family, seeds=seeds, cells=cells, drop=drop, sd=0.8, estimated=estimated)
        made_up = draw(scenario, 30, rng(number))
        gates = fixed_gates(made_up.ours, made_up.theirs, made_up.margin, made_up.scale)
        seen |= assert_same(gates, verdicts(made_up, judge, estimated=estimated))

    assert {"regression", "inconclusive"} < seen
    assert any(EXIT_CODES[outcome] == 0 for outcome in seen)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cells", [1, 3])
def test_the_adaptive_simulation_gives_the_verdicts_of_the_gate(family, cells):
    """Look by look, with the seeds that the gate asks for: 720 gates."""
    seen = set()
    for number, (drop, estimated) in enumerate([(0.0, False), (1.0, True), (2.0, False)]):
        scenario = Scenario(family=family, cells=cells, drop=drop, sd=0.8, estimated=estimated)
        made_up = draw(scenario, 20, rng(number))
        gates = adaptive_gates(made_up.ours, made_up.theirs, made_up.margin, made_up.scale)
        seen |= assert_same(gates, verdicts(made_up, adaptive_verdict, estimated=estimated))

    assert "regression" in seen
    assert any(EXIT_CODES[outcome] == 0 for outcome in seen)


@pytest.mark.parametrize("family", FAMILIES)
def test_made_up_scores_have_mean_0_and_standard_deviation_1(family):
    drawn = FAMILIES[family](rng(), (400_000,))

    assert drawn.mean() == pytest.approx(0, abs=0.01)
    assert drawn.std() == pytest.approx(1, abs=0.15 if "lognormal" in family or "tail" in family else 0.01)


def test_a_drop_is_in_margins_and_in_the_first_cells():
    made_up = draw(Scenario(seeds=3, cells=3, drop=2.0, dropping=2), 5, rng())

    assert made_up.truth[0].tolist() == [-2.0, -2.0, 0.0]
    assert made_up.ours.shape == (5, 3, 3)


def test_an_estimated_margin_is_the_spread_of_the_baseline_at_hand():
    made_up = draw(Scenario(seeds=3, estimated=True, drop=1.0), 4, rng())

    assert made_up.margin[:, 0] == pytest.approx(made_up.theirs[:, 0].std(axis=-1, ddof=1))
    assert made_up.truth == pytest.approx(-made_up.margin)


def test_a_simulation_depends_on_its_seed_alone():
    first, second, other = (simulate(Scenario(cells=2), repetitions=300, seed=seed) for seed in (1, 1, 2))

    assert first == second
    assert first != other


def test_more_repetitions_than_are_drawn_at_once_all_count():
    rates = simulate(Scenario(seeds=3, cells=6, drop=5.0, dropping=6), repetitions=5000, seed=0)

    assert rates.repetitions == 5000
    assert rates.regressions == pytest.approx(1.0, abs=0.01)
    assert rates.seeds == 3


def test_an_adaptive_gate_uses_fewer_seeds_where_the_answer_is_plain():
    plain, unchanged = (simulate(Scenario(drop=drop), repetitions=500, seed=0).seeds for drop in (4.0, 0.0))

    assert 3 <= plain < 4
    assert plain < unchanged < 20
