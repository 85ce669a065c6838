from __future__ import annotations

import functools

import pytest

from rollbook.gate import judge
from rollbook.gate.selftest import selftest


def test_the_gate_keeps_its_promises_on_synthetic_scores():
    rows = selftest(repetitions=100, seed=3)

    assert rows.passed, [row for row in rows if not row.ok]
    assert {row.at_least for row in rows} == {True, False}
    assert all(row.repetitions == 100 and 0 <= row.measured <= 1 for row in rows)


def test_the_same_seed_gives_the_same_rows():
    first, second, other = (selftest(repetitions=20, seed=seed) for seed in (1, 1, 2))

    assert first == second
    assert first != other


def never_fails(candidate, baseline, **options):
    return judge(baseline, baseline, **options)


def always_fails(candidate, baseline, **options):
    return judge({name: scores - 100 for name, scores in candidate.items()}, baseline, **options)


def blind_to_looks(candidate, baseline, *, look=None, **options):
    return judge(candidate, baseline, alpha=0.2 if look else 0.05, **options)


def generous(candidate, baseline, *, margin, **options):
    return judge(candidate, baseline, margin=2 * margin, **options)


@pytest.mark.parametrize(
    "broken", [never_fails, always_fails, blind_to_looks, generous, functools.partial(judge, alpha=0.2)]
)
def test_a_broken_gate_does_not_pass_its_own_test(broken):
    assert not selftest(repetitions=60, seed=3, judge=broken).passed
