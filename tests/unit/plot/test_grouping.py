from __future__ import annotations

import pytest
from makers import finished

import rollbook
from rollbook.book.settings import DEFAULT_ALIASES
from rollbook.errors import UsageError
from rollbook.plot.grouping import Grouping

NAMES = {name for names in DEFAULT_ALIASES.values() for name in names}


def grouping(book, tags=()) -> Grouping:
    return Grouping(rollbook.open(book).runs(), NAMES, tags)


def lines(book, tags=()) -> dict[str, list[str]]:
    """{panel: labels} of the default grouping."""
    found = grouping(book, tags)
    return {title: list(some) for title, some in found.panels(found.default_keys()).items()}


def test_lines_are_algorithms_and_panels_environments(book):
    for algo in ("td3", "sac"):
        for env in ("Hopper-v5", "Ant-v5"):
            for seed in (2, 1):
                finished(book, algo=algo, env=env, seed=seed)
    found = grouping(book)

    panels = found.panels(found.default_keys())

    assert {title: list(some) for title, some in panels.items()} == {
        "Ant-v5": ["sac", "td3"],
        "Hopper-v5": ["sac", "td3"],
    }
    assert [run.seed for run in panels["Ant-v5"]["sac"]] == [1, 2]
    assert found.doubts(panels) == []


def test_a_parameter_that_seeds_share_and_others_do_not_makes_lines(book):
    for lr in (0.001, 0.0001, 3e-5):
        for seed in (1, 2):
            finished(book, lr=lr, gamma=0.99, seed=seed)

    assert lines(book) == {"Hopper-v5": ["lr=3e-05", "lr=0.0001", "lr=0.001"]}


def test_what_is_another_for_each_seed_makes_no_lines(book):
    for seed in (1, 2, 3):
        finished(book, seed=seed, folder=f"out/{seed}")

    assert lines(book) == {"Hopper-v5": ["sac"]}


def test_several_algorithms_with_a_sweep_are_named_by_both(book):
    for algo in ("sac", "td3"):
        for lr in (1, 2):
            finished(book, algo=algo, lr=lr)

    assert lines(book) == {"Hopper-v5": ["sac lr=1", "sac lr=2", "td3 lr=1", "td3 lr=2"]}


def test_several_tags_make_lines_and_one_does_not(book):
    finished(book, tags=["latest"])
    finished(book, tags=["pr-1"], lr=2)

    assert lines(book, ["latest", "pr-1"]) == {"Hopper-v5": ["latest", "pr-1"]}
    assert lines(book, ["latest"]) == {"Hopper-v5": ["lr=2", "no lr"]}


def test_a_run_with_two_of_the_tags_is_in_both_lines(book):
    finished(book, tags=["latest", "pr-1"])

    found = grouping(book, ["latest", "pr-1"])

    assert {label: len(runs) for label, runs in found.panels(["tag"])["Hopper-v5"].items()} == {"latest": 1, "pr-1": 1}


def test_too_many_differences_are_folded_and_doubted(book):
    for number in range(4):
        finished(book, seed=1, **{f"p{key}": number for key in range(5)})
    found = grouping(book)

    assert found.default_keys() == ["algo"]
    (doubt,) = found.doubts(found.panels(["algo"]))
    assert "sac on Hopper-v5 folds runs that differ in p0, p1" in doubt
    assert "--group-by p0" in doubt


def test_a_seed_that_is_there_twice_is_doubted(book):
    finished(book, seed=1)
    finished(book, seed=1)
    found = grouping(book)

    (doubt,) = found.doubts(found.panels(["algo"]))
    assert "seed 1 2 times; --newest" in doubt


def test_lines_can_be_made_by_columns_and_nested_parameters(book):
    finished(book, seed=3, net={"size": 64, "deep": True})
    finished(book, seed=10, net={"size": 256, "deep": True})
    found = grouping(book)

    assert found.labels(["seed", "net.size"]) == ["seed=3 net.size=64", "seed=10 net.size=256"]
    assert found.labels(["net.deep"]) == ["net.deep=true"]
    assert found.labels(["status", "tags"]) == ["finished no tags"]


def test_an_unknown_key_is_answered_with_the_nearest(book):
    finished(book, batch_size=1)

    with pytest.raises(UsageError, match="batch_sise") as error:
        grouping(book).check(["batch_sise"])

    assert error.value.hint == "did you mean 'batch_size'?"


def test_a_run_without_an_environment_is_in_the_panel_of_its_task(book):
    finished(book, env=None, task="maze")

    assert list(lines(book)) == ["maze (no environment)"]
