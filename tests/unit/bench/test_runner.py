"""Which tries a runner makes of a cell, with an executor that does as the test says."""

from __future__ import annotations

import pytest

from rollbook.bench.benchmark import find_or_plan
from rollbook.bench.executors import Ended
from rollbook.bench.matrix import Program, make_cells
from rollbook.bench.runner import Runner
from rollbook.book.layout import Layout
from rollbook.records import Provenance


class Fates:
    """Ends every try at once, as its number in the list of fates says; the last one is for all that follow."""

    def __init__(self, *fates):
        self.fates, self.tries, self._ended = fates, [], []

    def submit(self, cell, number):
        self.tries.append((cell, number))
        fate = self.fates[min(number, len(self.fates) - 1)]
        self._ended.append(Ended(cell, number, 137 if fate == "lost" else fate, 1.0, lost=fate == "lost"))

    def adopt(self, cell, number):
        return False

    def running(self):
        return {}

    def wait(self, seconds):
        ended, self._ended = self._ended, []
        return ended

    def stop(self, why):
        pass

    def kill(self):
        pass


@pytest.fixture
def benchmark(book):
    layout = Layout(book)
    layout.create()
    return find_or_plan(layout, make_cells([Program(command="true", seeds=(1,), task="t")]), Provenance())


def run(benchmark, *fates, retries=0):
    executor = Fates(*fates)
    told = []
    runner = Runner(
        benchmark, executor, workers=1, retries=retries, failed=lambda ended, left: told.append((ended.number, left))
    )
    return runner.run().standings, [number for _, number in executor.tries], told


def test_a_cell_that_is_lost_five_times_is_tried_a_sixth_time_and_then_has_failed(benchmark):
    standings, tries, told = run(benchmark, "lost")

    assert standings == ["failed"]
    assert tries == [0, 1, 2, 3, 4, 5]
    assert [left for _, left in told] == [5, 4, 3, 2, 1, 0]


def test_losses_do_not_use_up_the_retries_of_a_program_that_fails(benchmark):
    standings, tries, _ = run(benchmark, "lost", "lost", 1, 0, retries=1)

    assert standings == ["finished"]
    assert tries == [0, 1, 2, 3]


def test_a_program_that_fails_is_tried_as_often_as_was_asked_for(benchmark):
    assert run(benchmark, 1, retries=2)[:2] == (["failed"], [0, 1, 2])
