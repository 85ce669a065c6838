"""Each off-policy algorithm learns values that are known exactly; each broken algorithm learns others."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tasks import Mirror, Rent, Sale, Treadmill, learn_values, often

from rollbook.algos import c51, ddpg, dqn, qrdqn, sac, td3
from rollbook.training import device, off_policy

SMALL: dict[str, Any] = {
    "num_envs": 4, "train_every": 4, "updates_per_step": 0.25, "learning_starts": 64, "buffer_size": 2048,
    "batch_size": 64, "hidden_sizes": (32,), "gamma": 0.9, "log_every": 64,
}  # fmt: skip
OF_CHOICES = {**SMALL, "lr": 5e-3, "target_every": 10, "epsilon_start": 1.0, "epsilon_end": 0.5}
OF_NUMBERS = {**SMALL, "lr": 3e-3, "critic_lr": 5e-3, "tau": 0.1}
DISCRETE: dict[str, Any] = {
    "dqn": (dqn, dqn.Config(**OF_CHOICES)),
    "double dqn": (dqn, dqn.Config(**OF_CHOICES, double=True, huber=False)),
    "c51": (c51, c51.Config(**OF_CHOICES, atoms=31, value_min=-1.0, value_max=5.0)),
    "double c51": (c51, c51.Config(**OF_CHOICES, atoms=31, value_min=-1.0, value_max=5.0, double=True)),
    "qrdqn": (qrdqn, qrdqn.Config(**OF_CHOICES, quantiles=8)),
}
CONTINUOUS: dict[str, Any] = {
    "ddpg": (ddpg, ddpg.Config(**OF_NUMBERS, exploration_noise=0.3)),
    # With more noise on the target's actions, what follows is worth as much less as the noise costs.
    "td3": (td3, td3.Config(**OF_NUMBERS, exploration_noise=0.3, target_noise=0.02)),
    "sac": (sac, sac.Config(**OF_NUMBERS, alpha=1e-3, learn_alpha=False)),
}
ITERATIONS = 60  # of 64 steps, with 16 updates each
ANYWHERE = jnp.ones((1, 1))


@pytest.fixture(params=often(DISCRETE, "dqn", "c51", "qrdqn"))
def discrete(request: pytest.FixtureRequest) -> Any:
    return DISCRETE[request.param]


@pytest.fixture(params=CONTINUOUS)
def continuous(request: pytest.FixtureRequest) -> Any:
    return CONTINUOUS[request.param]


@pytest.fixture(params=often({**DISCRETE, **CONTINUOUS}, "dqn", "sac"))
def broken(request: pytest.FixtureRequest) -> Any:
    """What each algorithm does with an end is tested with its target; here, that what learns notices."""
    return {**DISCRETE, **CONTINUOUS}[request.param]


def values(algorithm: Any, iterations: int = ITERATIONS) -> Any:
    """Of staying on the treadmill, which is worth 2, and of leaving it, which is worth 1."""
    return np.asarray(learn_values(algorithm[0], Treadmill, algorithm[1], iterations).actor(ANYWHERE))[0]


def value_of(algorithm: Any, task: Any) -> float:
    state = learn_values(algorithm[0], task, algorithm[1], ITERATIONS)
    return float(algorithm[0].value(state, ANYWHERE)[0])


def take_truncation_as_termination(monkeypatch: pytest.MonkeyPatch) -> None:
    right = device.DeviceEnvs.step

    def mistaken(*args: Any) -> Any:
        state, made = right(*args)
        return state, made._replace(terminated=made.terminated | made.truncated)

    monkeypatch.setattr(device.DeviceEnvs, "step", mistaken)


def forget_termination(monkeypatch: pytest.MonkeyPatch) -> None:
    right = off_policy.sample
    monkeypatch.setattr(off_policy, "sample", lambda *args, **kwargs: _without_termination(right(*args, **kwargs)))


def _without_termination(batch: Any) -> Any:
    return batch._replace(terminated=jnp.zeros_like(batch.terminated))


# ---- discrete actions -----------------------------------------------------------------------------------------------


def test_values_of_choices_are_learned_and_a_time_limit_is_not_the_end_of_the_task(discrete: Any) -> None:
    np.testing.assert_allclose(values(discrete, 120), [2, 1], atol=0.25)


# ---- continuous actions ---------------------------------------------------------------------------------------------


def test_a_time_limit_is_not_the_end_of_the_task(continuous: Any) -> None:
    assert value_of(continuous, Rent) == pytest.approx(2, abs=0.3)


def test_nothing_lies_beyond_the_end_of_the_task(continuous: Any) -> None:
    assert value_of(continuous, Sale) == pytest.approx(0.2, abs=0.1)


def test_what_goes_on_seems_to_end_if_truncation_is_taken_as_termination(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_truncation_as_termination(monkeypatch)

    if broken[0] in (dqn, c51, qrdqn):
        stay, leave = values(broken)
        assert stay < 0.5 < leave
    else:
        assert value_of(broken, Rent) < 0.5


def test_what_ends_seems_to_go_on_if_termination_is_forgotten(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_termination(monkeypatch)

    if broken[0] in (dqn, c51, qrdqn):
        stay, leave = values(broken)
        assert leave > max(stay, 2)
    else:
        assert value_of(broken, Sale) > 1


def mirror_error(algorithm: Any) -> float:
    module, config = algorithm
    state = learn_values(module, Mirror, config, 100)
    x = jnp.linspace(-0.8, 0.8, 33)[:, None]
    return float(jnp.sqrt(jnp.square(module.act(state.actor, x, None) - x).mean()))


def test_continuous_actions_are_learned(continuous: Any) -> None:
    assert mirror_error(continuous) < 0.15


@pytest.mark.parametrize("name", often(CONTINUOUS, "sac"))
def test_nothing_is_learned_if_the_actor_goes_down_the_critics_slope(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    continuous = CONTINUOUS[name]
    right = continuous[0].actor_loss

    def flipped(*args: Any) -> Any:
        loss = right(*args)
        return (-loss[0], loss[1]) if isinstance(loss, tuple) else -loss

    monkeypatch.setattr(continuous[0], "actor_loss", flipped)

    assert mirror_error(continuous) > 0.4


def test_the_temperature_brings_the_entropy_to_its_target() -> None:
    config = sac.Config(**OF_NUMBERS, alpha=0.1, alpha_lr=1e-2, target_entropy=-1.5)
    state = learn_values(sac, Rent, config, 150)

    policy = state.actor(jnp.ones((1000, 1)))
    _, log_prob = policy.sample_with_log_prob(jnp.asarray(np.random.default_rng(1).normal(size=(1000, 1))))

    assert float(-log_prob.mean()) == pytest.approx(-1.5, abs=0.4)
    assert 1e-3 < float(jnp.exp(state.log_alpha)) < 1


@pytest.mark.parametrize("n_step", [1, 3])
def test_n_steps_lead_to_the_same_values(n_step: int) -> None:
    """Of the treadmill with a limit of four steps: n steps end there, and look on from there."""

    class Longer(Treadmill):
        limit = 4

    config = dqn.Config(**{**OF_CHOICES, "epsilon_end": 1.0}, n_step=n_step)
    found = np.asarray(learn_values(dqn, Longer, config, 120).actor(ANYWHERE))[0]

    # Acting is random throughout: with several steps, staying is worth less, for it is followed by random choices.
    if n_step == 1:
        np.testing.assert_allclose(found, [2, 1], atol=0.25)
    else:
        assert found[1] == pytest.approx(1, abs=0.2)
        assert 0.9 < found[0] < 1.8
