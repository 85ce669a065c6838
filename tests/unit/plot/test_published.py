from __future__ import annotations

import pytest

from rollbook.plot.published import comparable_scores, published_scores, scores_of


def test_every_published_score_has_a_source_and_sane_steps():
    scores = published_scores()

    assert len(scores) > 300
    for one in scores:
        assert one.source.url.startswith("https://")
        assert one.source.about
        assert one.source.kind in ("final", "best", "smoothed", "evaluation", "one run")
        assert 20_000 <= one.steps <= 10_000_000
        assert one.std is None or one.std >= 0
        assert one.env.rpartition("-v")[2].isdigit(), f"{one.env} has no version"


def test_no_source_says_two_things_of_one_score():
    keys = [(one.source.name, one.algo, one.env, one.steps) for one in published_scores()]

    assert len(keys) == len(set(keys))


def test_scores_at_about_the_same_steps_are_comparable_the_nearest_of_each_source():
    found = comparable_scores("ppo", "Hopper-v4", 1_000_000)

    assert [(one.source.name, one.score) for one in found] == [
        ("Tianshou", 2609), ("rl-zoo3", 2410), ("CleanRL", 2383), ("Spinning Up", 1770),
    ]  # fmt: skip
    assert [one.steps for one in comparable_scores("td3", "Hopper-v5", 290_000)] == [300_000, 300_000]
    assert comparable_scores("ppo", "Hopper-v4", 30_000) == []


def test_another_version_of_the_environment_is_named():
    labels = {
        one.source.name: one.label("Hopper-v5", with_algo=False) for one in comparable_scores("ppo", "Hopper-v5", 10**6)
    }

    assert labels["CleanRL"] == "CleanRL 2,383 on v4"
    assert labels["Tianshou"] == "Tianshou best 2,609 on v3"
    assert labels["rl-zoo3"] == "rl-zoo3 one run 2,410 on v3"


def test_the_same_version_is_not_named_and_the_algorithm_where_there_are_several():
    (one,) = [one for one in comparable_scores("ppo", "CartPole-v1", 500_000) if one.source.name == "CleanRL"]

    assert one.label("CartPole-v1", with_algo=False) == "CleanRL 490"
    assert one.label("CartPole-v1", with_algo=True) == "CleanRL ppo 490"


@pytest.mark.parametrize(
    ("algo", "env"),
    [
        ("PPO", "Hopper-v5"),
        ("ppo_continuous_action", "Hopper-v4"),
        ("QR-DQN", "CartPole-v1"),
        ("dqn_atari_jax", "BreakoutNoFrameskip-v4"),
        ("c51", "ALE/Breakout-v5"),
    ],
)
def test_other_spellings_are_understood(algo, env):
    assert scores_of(algo, env)


@pytest.mark.parametrize(("algo", "env"), [("ppo_lstm", "Hopper-v4"), ("ppo", "HopperHop-v4"), ("td", "Hopper-v4")])
def test_something_else_is_not_taken_for_it(algo, env):
    assert scores_of(algo, env) == []


def test_another_wrapping_of_an_atari_game_is_named_in_full():
    found = comparable_scores("c51", "ALE/Breakout-v5", 10_000_000)

    assert found[0].label("ALE/Breakout-v5", with_algo=False).endswith("on BreakoutNoFrameskip-v4")
