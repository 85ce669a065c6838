"""The best runs and configurations, and the newest of each cell."""

from __future__ import annotations

import math
import statistics

import pytest
from makers import finished

import rollbook
from rollbook.errors import MetricNotFound, QueryInvalid, RunNotFound, UsageError


def top(book, n=5, **options):
    return rollbook.open(book).top(n, **options)


def test_runs_are_ranked_by_auc_the_largest_first(book):
    low = finished(book, seed=1, returns=[1, 1, 1])
    high = finished(book, seed=2, returns=[5, 5, 0])

    entries = top(book)

    assert [(entry.rank, entry.run_ids, entry.score) for entry in entries] == [(1, [high], 5.0), (2, [low], 1.0)]


@pytest.mark.parametrize(("by", "best"), [("auc", "early"), ("final", "late"), ("max", "late"), ("last", "late")])
def test_the_figure_decides(book, by, best):
    runs = {
        "early": finished(book, seed=1, returns=[8.0, 8.0, 1.0]),
        "late": finished(book, seed=2, returns=[0.0, 0.0, 9.0]),
    }

    assert top(book, by=by)[0].run_ids == [runs[best]]


def test_ascending_puts_the_smallest_first(book):
    low = finished(book, returns=[1, 1])
    finished(book, returns=[2, 2])

    assert top(book, 1, ascending=True)[0].run_ids == [low]


def test_seeds_are_folded_with_their_number_and_spread(book):
    good = [finished(book, seed=seed, lr=1, returns=[score] * 2) for seed, score in ((1, 10.0), (2, 12.0), (3, 17.0))]
    bad = [finished(book, seed=seed, lr=2, returns=[1.0, 1.0]) for seed in (1, 2)]

    first, second = top(book, over="seed")

    assert (first.n, first.score, first.min, first.max) == (3, 13.0, 10.0, 17.0)
    assert first.std == pytest.approx(statistics.stdev([10, 12, 17]))
    assert first.run_ids == good
    assert first.params == {"lr": 1}
    assert (second.n, second.score, second.run_ids) == (2, 1.0, bad)


def test_one_seed_has_no_spread(book):
    finished(book)

    (entry,) = top(book, over="seed")
    assert (entry.n, entry.std) == (1, None)


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("over", [None, "seed"])
def test_a_diverged_run_never_wins(book, ascending, over):
    finished(book, seed=1, lr=1, returns=[100.0, 100.0, math.nan])
    finished(book, seed=1, lr=2, returns=[-100.0, -100.0, math.inf])
    finished(book, seed=1, lr=3, returns=[math.nan, math.nan])
    sound = finished(book, seed=1, lr=4, returns=[1.0, 1.0, 1.0])

    first, *others = top(book, over=over, ascending=ascending)

    assert first.run_ids == [sound]
    assert first.diverged == 0
    assert all(entry.diverged == 1 for entry in others)


def test_one_diverged_seed_spoils_its_configuration(book):
    finished(book, seed=1, lr=1, returns=[100.0])
    finished(book, seed=2, lr=1, returns=[100.0, math.nan])
    sound = finished(book, seed=1, lr=2, returns=[1.0])

    first, second = top(book, over="seed")

    assert first.run_ids == [sound]
    assert (second.n, second.diverged) == (2, 1)


def test_conditions_narrow_and_may_name_every_column_of_runs(book):
    finished(book, algo="td3", returns=[9.0])
    sac = finished(book, algo="sac", returns=[1.0], tags=["latest"])

    assert [entry.run_ids for entry in top(book, algo="sac")] == [[sac]]
    assert [entry.run_ids for entry in top(book, where="name like '%algo=sac%'")] == [[sac]]
    assert [entry.run_ids for entry in top(book, where="'latest' in tags -- a comment")] == [[sac]]
    assert [entry.run_ids for entry in top(book, env="Hopper-v5", task="task", where="run_id is not null")][1] == [sac]


def test_an_unknown_metric_names_the_nearest(book):
    finished(book, metric="eval/return")

    with pytest.raises(MetricNotFound) as error:
        top(book, metric="eval/retrun")

    assert error.value.message == "no run logged the metric 'eval/retrun'"
    assert error.value.hint == "did you mean 'eval/return'?"


def test_the_default_metric_is_the_evaluation_where_there_is_one(book):
    with rollbook.start("task", save_code=False) as run:
        run.log({"charts/episodic_return": 1.0, "eval/return": 7.0}, step=1)
    assert top(book)[0].score == 7.0

    finished(book, task="other", returns=[3.0])
    assert top(book, task="other")[0].score == 3.0


def test_without_a_default_metric_the_hint_lists_what_there_is(book):
    finished(book, metric="reward")

    with pytest.raises(MetricNotFound, match=r"eval/return or charts/episodic_return") as error:
        top(book)

    assert "there are: reward" in error.value.hint


def test_nothing_that_matches_is_an_error_with_a_hint(book):
    finished(book)

    with pytest.raises(RunNotFound, match="no run with metrics matches"):
        top(book, algo="ppo")


@pytest.mark.parametrize(("options", "said"), [({"by": "auk"}, "'auk'"), ({"over": "lr"}, "'lr'")])
def test_an_unknown_figure_or_fold_is_refused(book, options, said):
    finished(book)

    with pytest.raises(UsageError, match=said):
        top(book, **options)


def test_a_broken_condition_is_named(book):
    finished(book)

    with pytest.raises(QueryInvalid, match="there is no column 'alog'"):
        top(book, where="alog = 'sac'")


# ---- newest


def newest(book):
    return [run.run_id for run in rollbook.open(book).newest()]


def test_the_newest_group_of_seeds_of_a_cell_is_that_of_the_newest_configuration(book):
    finished(book, seed=1, lr=1)
    finished(book, seed=2, lr=1)
    new = [finished(book, seed=seed, lr=2) for seed in (1, 2, 3)]

    assert newest(book) == new


def test_each_cell_has_its_own_newest(book):
    cells = [
        finished(book, task=task, algo=algo, env=env)
        for task, algo, env in (("a", "sac", "x"), ("a", "sac", "y"), ("a", "td3", "x"), ("b", "sac", "x"))
    ]

    assert set(newest(book)) == set(cells)


def test_the_newest_benchmark_beats_an_older_one_whatever_its_configurations(book):
    finished(book, seed=1, benchmark="first")
    second = [finished(book, seed=seed, benchmark="second", gamma=seed) for seed in (1, 2)]

    assert newest(book) == second


def test_a_seed_that_was_run_again_counts_once_and_the_newer_one_counts(book):
    finished(book, seed=1, benchmark="b", state="failed")
    two = finished(book, seed=2, benchmark="b")
    one = finished(book, seed=1, benchmark="b")

    assert newest(book) == [one, two]


def test_runs_without_a_seed_all_count(book):
    runs = [finished(book, seed=None) for _ in range(2)]

    assert sorted(newest(book)) == sorted(runs)


def test_runs_without_algo_and_env_are_a_cell_too(book):
    run = finished(book, algo=None, env=None)

    assert newest(book) == [run]
