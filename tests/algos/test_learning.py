"""Each algorithm solves a small task; each broken algorithm fails it. A test that both pass would be no test."""

from __future__ import annotations

from typing import Any

import pytest
from tasks import Mirror, Treadmill, learn, mirror_error, often, probability_to_stay

from rollbook.algos import ppo, trpo, vpg
from rollbook.algos.parts import actor_critic, distributions
from rollbook.algos.parts.gae import advantages

SMALL: dict[str, Any] = {"num_envs": 16, "rollout_steps": 16, "hidden_sizes": (16,), "gamma": 0.9}
ALGORITHMS = {
    "ppo": (ppo, ppo.Config(**SMALL, lr=1e-2, anneal_lr=False, entropy_coefficient=0.0, initial_log_std=-0.5)),
    "trpo": (trpo, trpo.Config(**SMALL, max_kl=0.03, value_steps=10, value_lr=1e-2)),
    "vpg": (vpg, vpg.Config(**SMALL, lr=2e-2, value_steps=10, value_lr=1e-2)),
}
ITERATIONS = 60


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> Any:
    return ALGORITHMS[request.param]


@pytest.fixture(params=often(ALGORITHMS, "ppo"))
def broken(request: pytest.FixtureRequest) -> Any:
    """What the algorithms share is broken, which one of them notices as well as all of them."""
    return ALGORITHMS[request.param]


def test_a_time_limit_is_not_the_end_of_the_task(algorithm: Any) -> None:
    assert probability_to_stay(learn(algorithm[0], Treadmill, algorithm[1], ITERATIONS)) > 0.9


def test_the_same_fails_if_truncation_is_taken_as_termination(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(reward: Any, value: Any, next_value: Any, terminated: Any, truncated: Any, **constants: Any) -> Any:
        return advantages(reward, value, next_value, terminated | truncated, truncated, **constants)

    monkeypatch.setattr(actor_critic, "advantages", mistaken)

    assert probability_to_stay(learn(broken[0], Treadmill, broken[1], ITERATIONS)) < 0.1


def test_continuous_actions_are_learned(algorithm: Any) -> None:
    assert mirror_error(learn(algorithm[0], Mirror, algorithm[1], ITERATIONS)) < 0.15


def test_nothing_is_learned_if_the_sign_of_the_advantage_is_flipped(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_critic, "advantages", lambda *args, **kwargs: -advantages(*args, **kwargs))

    assert mirror_error(learn(broken[0], Mirror, broken[1], ITERATIONS)) > 0.4


def test_nothing_is_learned_if_the_log_probability_is_of_another_action(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = distributions.Gaussian.log_prob
    monkeypatch.setattr(distributions.Gaussian, "log_prob", lambda self, action: right(self, -action))

    assert mirror_error(learn(broken[0], Mirror, broken[1], ITERATIONS)) > 0.4


DETAILS: list[dict[str, Any]] = [
    {"clip_values": False},
    {"normalise_advantages": False},
    {"activation": "relu", "anneal_lr": True},
    {"recompute_advantages": True},
    {"target_kl": 0.05},
    {"normalise_observations": True, "normalise_rewards": True},
    {"share_torso": True},
]


def learns_with(**details: Any) -> bool:
    config = ppo.Config(**{**SMALL, "lr": 1e-2, "entropy_coefficient": 0.0, "initial_log_std": -0.5, **details})
    return mirror_error(learn(ppo, Mirror, config, ITERATIONS)) < 0.2


@pytest.mark.parametrize("some", [slice(3), slice(3, None)], ids=["what is left out", "what is added"])
def test_ppo_learns_with_several_of_its_details(some: slice) -> None:
    assert learns_with(**{name: value for detail in DETAILS[some] for name, value in detail.items()})


@pytest.mark.slow
@pytest.mark.parametrize("detail", DETAILS, ids=lambda detail: next(iter(detail)))
def test_ppo_learns_with_each_of_its_details(detail: dict[str, Any]) -> None:
    assert learns_with(**detail)
