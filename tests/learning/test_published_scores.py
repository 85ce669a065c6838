"""Each algorithm reaches published scores. Takes hours; `pytest -m slow tests/learning -n 0` runs it.

The bars are those of benchmarks/learning.py, which trains as benchmarks of our own: what has finished is not trained
again, and `python benchmarks/learning.py` does all of it two at a time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from learning import BARS, Bar, is_met, scores_of, train_missing


@pytest.mark.slow
@pytest.mark.parametrize("bar", [bar for bar in BARS if bar.score is not None], ids=lambda bar: bar.name)
def test_the_score_is_reached(bar: Bar) -> None:
    train_missing([bar], kept=False)

    scores = scores_of(bar, current=True, kept=False)
    values = [score.value for score in scores]
    print(f"{bar.name}: {np.mean(values):.0f} ± {np.std(values):.0f}, {[round(value) for value in values]}")
    assert is_met(bar, scores), f"{values}, the bar is {bar.score}; published: {bar.published}"
