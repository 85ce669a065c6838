"""The shared maths of off-policy algorithms against closed forms and slow, independent versions in numpy."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.algos import c51, ddpg, dqn, qrdqn, sac, td3
from rollbook.algos.parts.distributional import Support, project, quantile_huber, softmax
from rollbook.algos.parts.exploration import best_of, epsilon, epsilon_greedy
from rollbook.algos.parts.squashed import SquashedGaussian, log_slope
from rollbook.algos.parts.targets import copy_of, moved_towards, moved_when
from rollbook.errors import InvalidConfig

SEEDS = st.integers(0, 2**32 - 1)


# ---- the categorical projection -------------------------------------------------------------------------------------


def projected_slowly(probabilities: Any, reward: Any, discount: Any, support: Support) -> Any:
    """Algorithm 1 of Bellemare et al. 2017, an atom at a time, in double precision."""
    returns = np.linspace(support.low, support.high, support.atoms)
    result = np.zeros(probabilities.shape)
    for sample in range(len(reward)):
        for atom, probability in enumerate(probabilities[sample].astype(np.float64)):
            moved = min(max(float(reward[sample]) + float(discount[sample]) * returns[atom], support.low), support.high)
            place = (moved - support.low) / support.gap
            lower, upper = math.floor(place), math.ceil(place)
            if lower == upper:
                result[sample, lower] += probability
            else:
                result[sample, lower] += probability * (upper - place)
                result[sample, upper] += probability * (place - lower)
    return result


@given(seed=SEEDS, atoms=st.sampled_from([2, 5, 51]), scale=st.sampled_from([0.0, 0.1, 3.0, 50.0, 1e9]))
def test_the_projection_is_that_of_the_paper(seed: int, atoms: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    support = Support(-10.0, 10.0, atoms)
    probabilities = softmax(rng.normal(size=(6, atoms)).astype(np.float32))
    reward = (scale * rng.normal(size=6)).astype(np.float32)
    discount = np.array([0, 0.5, 0.9, 0.99, 1, 1], np.float32)

    found = project(probabilities.T, reward, discount, support).T

    np.testing.assert_allclose(found, projected_slowly(probabilities, reward, discount, support), atol=2e-5)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)


def test_a_certain_reward_falls_between_its_two_neighbours() -> None:
    support = Support(0.0, 4.0, 5)

    found = project(jnp.full((5, 1), 0.2), jnp.array([1.25]), jnp.array([0.0]), support)

    np.testing.assert_allclose(found.T, [[0, 0.75, 0.25, 0, 0]], atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_reward_spoils_only_its_own_sample(bad: float) -> None:
    support = Support(-10.0, 10.0, 51)
    probabilities = jnp.full((51, 4), 1 / 51)
    discount = np.array([0.99, 0.99, 0, 0.5], np.float32)

    found = project(probabilities, jnp.array([bad, 3, 1, 2]), discount, support)

    expected = project(probabilities, jnp.array([0.0, 3, 1, 2]), discount, support)
    np.testing.assert_array_equal(found[:, 1:], expected[:, 1:])
    np.testing.assert_allclose(found[:, 1:].sum(0), 1, atol=1e-5)


def test_the_projection_keeps_the_mean_where_nothing_leaves_the_support() -> None:
    support = Support(-10.0, 10.0, 21)
    probabilities = softmax(np.random.default_rng(1).normal(size=(1, 21)).astype(np.float32))

    found = project(probabilities.T, jnp.array([0.3]), jnp.array([0.9]), support)

    assert float((found.T @ support.returns)[0]) == pytest.approx(
        0.3 + 0.9 * float((probabilities @ support.returns)[0]), abs=1e-4
    )


# ---- the quantile Huber loss ----------------------------------------------------------------------------------------


def quantile_huber_slowly(quantiles: Any, target: Any, kappa: float) -> Any:
    """Equation 10 of Dabney et al. 2018, a pair at a time."""
    losses = []
    for own, theirs in zip(quantiles, target, strict=True):
        total = 0.0
        for number, quantile in enumerate(own):
            middle = (2 * number + 1) / (2 * len(own))
            for sample in theirs:
                error = float(sample) - float(quantile)
                if kappa == 0:
                    huber = abs(error)
                elif abs(error) <= kappa:
                    huber = 0.5 * error**2 / kappa
                else:
                    huber = abs(error) - 0.5 * kappa
                total += abs(middle - (error < 0)) * huber / len(theirs)
        losses.append(total)
    return losses


@given(seed=SEEDS, kappa=st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_the_quantile_loss_is_that_of_the_paper(seed: int, kappa: float) -> None:
    rng = np.random.default_rng(seed)
    quantiles, target = rng.normal(size=(3, 4)), 2 * rng.normal(size=(3, 5))

    np.testing.assert_allclose(
        quantile_huber(jnp.asarray(quantiles), jnp.asarray(target), kappa),
        quantile_huber_slowly(quantiles, target, kappa),
        rtol=1e-4,
    )


@given(seed=SEEDS, kappa=st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_the_gradient_of_the_quantile_loss_is_its_slope(seed: int, kappa: float) -> None:
    rng = np.random.default_rng(seed)
    quantiles, target, small = rng.normal(size=(2, 4)), 2 * rng.normal(size=(2, 5)), 1e-6
    weights = jnp.array([1.0, -3.0])

    found = jax.grad(lambda q: (weights * quantile_huber(q, jnp.asarray(target), kappa)).sum())(jnp.asarray(quantiles))

    for number in range(4):
        beside = np.zeros((2, 4))
        beside[:, number] = small
        above, below = (np.array(quantile_huber_slowly(quantiles + d, target, kappa)) for d in (beside, -beside))
        np.testing.assert_allclose(found[:, number], weights * (above - below) / (2 * small), rtol=1e-3, atol=1e-3)


def test_the_minimum_of_the_quantile_loss_are_the_quantiles() -> None:
    """Of the numbers 0 to 99, four quantiles are near 12, 37, 62 and 87."""
    target = jnp.arange(100.0)[None]
    slope = jax.jit(jax.grad(lambda q: quantile_huber(q, target, 0.0).sum()))
    quantiles = jnp.full((1, 4), 50.0)
    for _ in range(2000):
        quantiles = quantiles - 0.5 * slope(quantiles)

    np.testing.assert_allclose(quantiles[0], [12.5, 37.5, 62.5, 87.5], atol=1.5)


# ---- the squashed normal distribution -------------------------------------------------------------------------------


def log_prob_in_double(mean: Any, log_std: Any, noise: Any) -> Any:
    mean, log_std, noise = (np.asarray(x, np.float64) for x in (mean, log_std, noise))
    before = mean + np.exp(log_std) * noise
    normal = -(0.5 * noise**2 + log_std + 0.5 * np.log(2 * np.pi))
    slope = np.log(4) - 2 * np.abs(before) - 2 * np.log1p(np.exp(-2 * np.abs(before)))  # of tanh, even in its argument
    return (normal - slope).sum(-1)


@given(seed=SEEDS, scale=st.sampled_from([0.1, 1.0, 20.0, 100.0]))
def test_log_probabilities_are_right_and_finite_at_extreme_actions(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    mean, log_std = (scale * rng.normal(size=(8, 3))).astype(np.float32), rng.uniform(-5, 2, (8, 3)).astype(np.float32)
    noise = rng.normal(size=(8, 3)).astype(np.float32)

    action, log_prob = SquashedGaussian(jnp.asarray(mean), jnp.asarray(log_std)).sample_with_log_prob(noise)

    assert (np.abs(action) <= 1).all()
    np.testing.assert_allclose(log_prob, log_prob_in_double(mean, log_std, noise), rtol=1e-4, atol=1e-4)


def test_the_slope_and_its_gradient_stay_finite_where_tanh_is_flat() -> None:
    x = jnp.array([-100.0, -20.0, 0.0, 20.0, 100.0])

    np.testing.assert_allclose(
        log_slope(x), [math.log(4) - 200, math.log(4) - 40, 0, math.log(4) - 40, math.log(4) - 200]
    )
    np.testing.assert_allclose(jax.vmap(jax.grad(log_slope))(x), -2 * np.tanh(x), atol=1e-6)


def test_the_density_of_squashed_actions_integrates_to_one() -> None:
    """Over the actions themselves: the change of variables is accounted for."""
    grid = np.linspace(-0.9999, 0.9999, 20_001)
    before = np.arctanh(grid)
    mean, log_std = 0.3, -0.5
    noise = (before - mean) / np.exp(log_std)
    policy = SquashedGaussian(jnp.full((len(grid), 1), mean), jnp.full((len(grid), 1), log_std))

    _, log_prob = policy.sample_with_log_prob(jnp.asarray(noise[:, None]))

    assert np.trapezoid(np.exp(log_prob), grid) == pytest.approx(1, abs=0.01)


def test_acting_is_the_same_in_numpy_and_in_jax() -> None:
    mean, log_std, noise = np.random.default_rng(1).normal(size=(3, 5, 2)).astype(np.float32)

    in_numpy = SquashedGaussian(mean, log_std).sample(noise)
    in_jax = SquashedGaussian(jnp.asarray(mean), jnp.asarray(log_std)).sample(jnp.asarray(noise))

    assert isinstance(in_numpy, np.ndarray)
    np.testing.assert_allclose(in_numpy, in_jax, rtol=1e-5, atol=1e-6)


# ---- targets --------------------------------------------------------------------------------------------------------


def test_a_target_moves_by_tau_only() -> None:
    target, network = {"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([3.0, -2.0])}

    np.testing.assert_allclose(moved_towards(target, network, 0.25)["w"], [1.5, 1.0])
    np.testing.assert_array_equal(moved_towards(target, network, 0.0)["w"], target["w"])
    np.testing.assert_array_equal(moved_towards(target, network, 1.0)["w"], network["w"])
    np.testing.assert_array_equal(moved_when(jnp.bool(False), target, network, 1.0)["w"], target["w"])
    np.testing.assert_array_equal(moved_when(jnp.bool(True), target, network, 1.0)["w"], network["w"])


def test_a_copy_has_memory_of_its_own() -> None:
    network = {"w": jnp.array([1.0])}

    copied = copy_of(network)

    assert copied["w"].unsafe_buffer_pointer() != network["w"].unsafe_buffer_pointer()


# ---- exploration ----------------------------------------------------------------------------------------------------


def test_epsilon_falls_linearly_and_then_stays() -> None:
    config = dqn.Config(epsilon_start=1.0, epsilon_end=0.1, exploration_fraction=0.5)

    found = epsilon(jnp.array([0.0, 0.25, 0.5, 0.75, 1.0]), config)

    np.testing.assert_allclose(found, [1.0, 0.55, 0.1, 0.1, 0.1], rtol=1e-6)


def test_epsilon_greedy_tries_every_action_as_often_as_it_says() -> None:
    config = dqn.Config(epsilon_start=0.4, epsilon_end=0.4)
    noise = np.asarray(epsilon_greedy(jax.random.key(0), jnp.zeros(20_000), 4, config))
    values = np.array([0.0, 1.0, 0.0, 0.0], np.float32)

    counts = np.bincount(best_of(values, noise), minlength=4) / 20_000

    np.testing.assert_allclose(counts, [0.1, 0.7, 0.1, 0.1], atol=0.01)
    assert best_of(values, None) == 1


# ---- configurations -------------------------------------------------------------------------------------------------

ALGORITHMS: dict[str, Any] = {"ddpg": ddpg, "td3": td3, "sac": sac, "dqn": dqn, "c51": c51, "qrdqn": qrdqn}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_schedule_makes_whole_updates(name: str) -> None:
    Config = ALGORITHMS[name].Config
    Config(num_envs=4, train_every=25, updates_per_step=0.05)
    with pytest.raises(InvalidConfig, match=r"make 0\.15 updates") as caught:
        Config(num_envs=1, train_every=3, updates_per_step=0.05)

    assert "num_envs * train_every * updates_per_step" in str(caught.value.hint)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_replay_that_is_too_small_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match="buffer_size is 100"):
        ALGORITHMS[name].Config(buffer_size=100, learning_starts=101)


def test_bounds_of_returns_must_be_in_order() -> None:
    with pytest.raises(InvalidConfig, match="value_min is 5"):
        c51.Config(value_min=5.0, value_max=5.0)
