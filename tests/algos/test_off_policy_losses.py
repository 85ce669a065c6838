"""Losses and targets against numbers worked out by hand and against slow, independent versions in numpy."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_states import CONFIGS, KEY, SIZES, constant, make_batch, make_state

from rollbook.algos import c51, ddpg, dqn, qrdqn, sac, td3
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.spaces import Spaces

# ---- by hand --------------------------------------------------------------------------------------------------------


def one_step(terminated: bool, spaces: Spaces) -> Batch:
    action = jnp.zeros(1, jnp.int32) if spaces.discrete else jnp.zeros((1, 2))
    return Batch(
        jnp.zeros((1, 3)), action, jnp.array([1.0]), jnp.array([terminated]), jnp.zeros((1, 3)), jnp.array([0.5])
    )


@pytest.mark.parametrize(("terminated", "expected"), [(False, 1 + 0.5 * 4), (True, 1)])
def test_the_target_of_ddpg_by_hand(terminated: bool, expected: float) -> None:
    algorithm, config, spaces = CONFIGS["ddpg"]
    state = algorithm.init(KEY, spaces, config)
    state = state._replace(critic=constant(state.critic, 100.0), target_critic=constant(state.critic, 4.0))

    assert ddpg.bellman_target(state, one_step(terminated, spaces)).tolist() == [expected]


@pytest.mark.parametrize(("terminated", "expected"), [(False, 1 + 0.5 * 3), (True, 1)])
def test_the_target_of_td3_takes_the_smaller_critic_by_hand(terminated: bool, expected: float) -> None:
    algorithm, config, spaces = CONFIGS["td3"]
    state = algorithm.init(KEY, spaces, config)
    first, second = state.critic.members
    state = state._replace(target_critic=td3.Critics((constant(first, 4.0), constant(second, 3.0))))

    found = td3.smoothed_target(state, one_step(terminated, spaces), KEY, config)

    assert found.tolist() == [expected]


@pytest.mark.parametrize(("played", "expected"), [(0.0, 0.5), (0.9, 1.0)])
def test_the_noise_of_td3s_target_and_the_noisy_action_have_limits(played: float, expected: float) -> None:
    """Noise of a million is cut to 0.5, and 0.9 with it to 1; the critics answer with the first number of the action,
    towards the side on which the noise is.
    """
    algorithm, _, spaces = CONFIGS["td3"]
    config = td3.Config(**SIZES, target_noise=1e6)
    side = jnp.sign(jax.random.normal(KEY, (1, 2)))
    state = algorithm.init(KEY, spaces, config)._replace(
        target_actor=lambda _: played * side,
        target_critic=lambda _, action: jnp.stack(2 * [(side * action)[:, 0]]),
    )

    found = td3.smoothed_target(state, one_step(False, spaces), KEY, config)

    assert found.tolist() == [1 + 0.5 * expected]


@pytest.mark.parametrize("terminated", [False, True])
def test_the_soft_target_of_sac_by_hand(terminated: bool) -> None:
    """Two standard normal numbers n, squashed: the logarithm of their density is the sum of
    -n^2/2 - log(2 pi)/2 - log(1 - tanh(n)^2).
    """
    algorithm, config, spaces = CONFIGS["sac"]
    state = algorithm.init(KEY, spaces, config)
    first, second = state.critic.members
    state = state._replace(
        actor=jax.tree.map(jnp.zeros_like, state.actor),
        target_critic=sac.Critics((constant(first, 4.0), constant(second, 3.0))),
        log_alpha=jnp.log(0.2),
    )
    noise = jax.random.normal(KEY, (1, 2))
    n = np.asarray(noise, np.float64)[0]
    log_prob = (-0.5 * n**2 - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(n) ** 2)).sum()

    found = sac.soft_target(state, one_step(terminated, spaces), noise)

    assert float(found[0]) == pytest.approx(1 if terminated else 1 + 0.5 * (3 - 0.2 * log_prob), rel=1e-5)


def test_the_losses_of_ddpg_by_hand() -> None:
    algorithm, config, spaces = CONFIGS["ddpg"]
    state, batch = algorithm.init(KEY, spaces, config), one_step(False, spaces)
    critic = constant(state.critic, 4.0)

    loss, q = ddpg.critic_loss(critic, batch, jnp.array([1.0]))

    assert q.tolist() == [4.0]
    assert float(loss) == (4 - 1) ** 2
    assert float(ddpg.actor_loss(state.actor, critic, batch)) == -4


def test_the_losses_of_td3_by_hand() -> None:
    """Both critics learn; the actor follows the first, also where the second is smaller."""
    algorithm, config, spaces = CONFIGS["td3"]
    state, batch = algorithm.init(KEY, spaces, config), one_step(False, spaces)
    first, second = state.critic.members
    critics = td3.Critics((constant(first, 4.0), constant(second, 3.0)))

    loss, q = td3.critic_loss(critics, batch, jnp.array([1.0]))

    assert q.tolist() == [[4.0], [3.0]]
    assert float(loss) == (4 - 1) ** 2 + (3 - 1) ** 2
    assert float(td3.actor_loss(state.actor, critics, batch)) == -4


def test_the_losses_of_sac_by_hand() -> None:
    algorithm, config, spaces = CONFIGS["sac"]
    state = algorithm.init(KEY, spaces, config)
    first, second = state.critic.members
    critics = sac.Critics((constant(first, 4.0), constant(second, 3.0)))

    loss, q = sac.critic_loss(critics, one_step(False, spaces), jnp.array([1.0]))

    assert q.tolist() == [[4.0], [3.0]]
    assert float(loss) == 0.5 * (4 - 1) ** 2 + 0.5 * (3 - 1) ** 2
    # A temperature of 2, log-probabilities of 1 and 3 on average, a target of -5: -2 * (2 - 5).
    assert float(sac.alpha_loss(jnp.log(2.0), jnp.array([1.0, 3.0]), -5.0)) == pytest.approx(6.0)


# The last bias with which actions are worth these numbers, and the mean of a target.
ATOMS = np.linspace(-3, 3, 11)
CHOOSING: dict[str, Any] = {
    "dqn": (np.asarray, dqn.bellman_target, float),
    "c51": (
        lambda values: 100.0 * (np.abs(ATOMS - np.reshape(values, (-1, 1))) < 0.1).ravel(),
        lambda *args: c51.projected_target(*args).T,
        lambda target: float(target @ ATOMS),
    ),
    "qrdqn": (lambda values: np.repeat(values, 5), qrdqn.quantile_target, lambda target: float(target.mean())),
}


@pytest.mark.parametrize("name", CHOOSING)
@pytest.mark.parametrize("double", [False, True])
def test_the_targets_of_choices_by_hand(name: str, double: bool) -> None:
    """The network prefers action 1, its target action 2."""
    algorithm, config, spaces = CONFIGS[name]
    bias, target_of, mean = CHOOSING[name]
    config = dataclasses.replace(config, double=double)
    network = constant(algorithm.init(KEY, spaces, config).actor, 0.0)
    state = algorithm.init(KEY, spaces, config)._replace(
        actor=_with_bias(network, bias([0, 2.4, 0.6, 0])), target_actor=_with_bias(network, bias([0, 0.6, 1.8, 0]))
    )

    going_on, at_the_end = (target_of(state, one_step(end, spaces), config)[0] for end in (False, True))

    assert mean(going_on) == pytest.approx(1 + 0.5 * (0.6 if double else 1.8), rel=1e-5)
    assert mean(at_the_end) == pytest.approx(1, rel=1e-5)


def _with_bias(network: Any, bias: Any) -> Any:
    return dataclasses.replace(network, head=dataclasses.replace(network.head, bias=jnp.asarray(bias, jnp.float32)))


@pytest.mark.parametrize(("huber", "expected"), [(True, 3 - 0.5), (False, 0.5 * 9)])
def test_the_loss_of_dqn_by_hand(huber: bool, expected: float) -> None:
    algorithm, _, spaces = CONFIGS["dqn"]
    config = dqn.Config(**SIZES, huber=huber)
    network = constant(algorithm.init(KEY, spaces, config).actor, 4.0)

    loss, q = dqn.loss(network, one_step(False, spaces), jnp.array([1.0]), config)

    assert q.tolist() == [4.0]
    assert float(loss) == expected


@pytest.mark.parametrize(("kappa", "expected"), [(0.0, 3), (1.0, 3 - 0.5), (2.0, 3 - 1), (4.0, 0.5 * 9 / 4)])
def test_the_loss_of_qrdqn_by_hand(kappa: float, expected: float) -> None:
    """All five quantiles are 3 too large, which weighs 0.9, 0.7, 0.5, 0.3 and 0.1."""
    algorithm, _, spaces = CONFIGS["qrdqn"]
    config = qrdqn.Config(**SIZES, quantiles=5, kappa=kappa)
    network = constant(algorithm.init(KEY, spaces, config).actor, 4.0)

    loss, q = qrdqn.loss(network, one_step(False, spaces), jnp.ones((1, 5)), config)

    assert q.tolist() == [4.0]
    assert float(loss) == pytest.approx(2.5 * expected, rel=1e-6)


# ---- slowly, in numpy -----------------------------------------------------------------------------------------------


def dense(layer: Any, x: Any) -> Any:
    return x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)


def mlp(network: Any, x: Any) -> Any:
    """A network's last layer, in double precision."""
    for layer in network.torso.layers:
        x = np.maximum(dense(layer, x), 0)
    return dense(network.head, x)


def q_of(critic: Any, observation: Any, action: Any) -> Any:
    return mlp(critic, np.concatenate([observation, action], -1))[:, 0]


def slow_target(name: str, state: Any, batch: Batch, config: Any) -> Any:
    """A sample at a time: the target of the paper."""
    reward, terminated, discount, following = (
        np.asarray(x, np.float64) for x in (batch.reward, batch.terminated, batch.discount, batch.next_observation)
    )
    if name == "ddpg":
        ahead = q_of(state.target_critic, following, np.tanh(mlp(state.target_actor, following)))
    elif name == "td3":
        action = np.tanh(mlp(state.target_actor, following))
        noise = np.clip(config.target_noise * np.asarray(jax.random.normal(KEY, action.shape)), -0.5, 0.5)
        action = np.clip(action + noise, -1, 1)
        ahead = np.minimum(*(q_of(critic, following, action) for critic in state.target_critic.members))
    else:
        noise = np.asarray(jax.random.normal(KEY, (len(reward), 2)), np.float64)
        features = following
        for layer in state.actor.torso.layers:
            features = np.maximum(dense(layer, features), 0)
        mean, log_std = np.split(dense(state.actor.heads, features), 2, axis=-1)
        log_std = np.clip(log_std, -20, 2)
        before = mean + np.exp(log_std) * noise
        density = np.exp(-0.5 * noise**2) / np.sqrt(2 * np.pi) / np.exp(log_std) / (1 - np.tanh(before) ** 2)
        value = np.minimum(*(q_of(critic, following, np.tanh(before)) for critic in state.target_critic.members))
        ahead = value - np.exp(float(state.log_alpha)) * np.log(density).sum(-1)
    return np.array([r if end else r + d * a for r, end, d, a in zip(reward, terminated, discount, ahead, strict=True)])


TARGETS: dict[str, Any] = {
    "ddpg": lambda state, batch, _: ddpg.bellman_target(state, batch),
    "td3": lambda state, batch, config: td3.smoothed_target(state, batch, KEY, config),
    "sac": lambda state, batch, _: sac.soft_target(state, batch, jax.random.normal(KEY, batch.action.shape)),
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_those_of_a_slow_version_in_numpy(name: str) -> None:
    algorithm, config, spaces = CONFIGS[name]
    state, batch = make_state(algorithm, config, spaces), make_batch(spaces)

    found = TARGETS[name](state, batch, config)

    np.testing.assert_allclose(found, slow_target(name, state, batch, config), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("mutant", ["swapped target networks", "done on truncation", "no end at termination"])
def test_the_slow_version_catches_mistakes_in_targets(name: str, mutant: str) -> None:
    algorithm, config, spaces = CONFIGS[name]
    state, batch = make_state(algorithm, config, spaces), make_batch(spaces)
    expected = slow_target(name, state, batch, config)
    if mutant == "swapped target networks":
        fields = [field for field in state._fields if field.startswith("target_")]
        state = state._replace(**{field: getattr(state, field.removeprefix("target_")) for field in fields})
    elif mutant == "done on truncation":
        batch = batch._replace(terminated=jnp.ones_like(batch.terminated))
    else:
        batch = batch._replace(terminated=jnp.zeros_like(batch.terminated))

    assert not np.allclose(TARGETS[name](state, batch, config), expected, rtol=1e-2)


def test_the_target_distribution_of_c51_is_that_of_a_slow_version() -> None:
    algorithm, config, spaces = CONFIGS["c51"]
    state, batch = make_state(algorithm, config, spaces), make_batch(spaces)
    returns = np.linspace(-3, 3, 11)

    found = c51.projected_target(state, batch, config)

    logits = mlp(state.target_actor, np.asarray(batch.next_observation, np.float64)).reshape(-1, 4, 11)
    for sample, all_actions in enumerate(logits):
        probabilities = np.exp(all_actions) / np.exp(all_actions).sum(-1, keepdims=True)
        best = probabilities[(probabilities @ returns).argmax()]
        expected = np.zeros(11)
        for probability, value in zip(best, returns, strict=True):
            ahead = 0 if batch.terminated[sample] else float(batch.discount[sample]) * value
            place = (min(max(float(batch.reward[sample]) + ahead, -3), 3) + 3) / 0.6
            lower = min(int(place), 9)
            expected[lower] += probability * (1 - (place - lower))
            expected[lower + 1] += probability * (place - lower)
        np.testing.assert_allclose(found[:, sample], expected, atol=1e-4)


def test_the_loss_of_c51_is_the_cross_entropy_of_the_action_that_was_taken() -> None:
    algorithm, config, spaces = CONFIGS["c51"]
    state, batch = make_state(algorithm, config, spaces), make_batch(spaces)
    target = c51.projected_target(state, batch, config)

    loss, q = c51.loss(state.actor, batch, target)

    logits = mlp(state.actor, np.asarray(batch.observation, np.float64)).reshape(-1, 4, 11)
    own = logits[np.arange(6), np.asarray(batch.action)]
    logs = own - np.log(np.exp(own).sum(-1, keepdims=True))
    assert float(loss) == pytest.approx(-(np.asarray(target).T * logs).sum(-1).mean(), rel=1e-4)
    np.testing.assert_allclose(q, np.exp(logs) @ np.linspace(-3, 3, 11), rtol=1e-4, atol=1e-5)


def test_the_target_quantiles_of_qrdqn_are_those_of_a_slow_version() -> None:
    algorithm, config, spaces = CONFIGS["qrdqn"]
    state, batch = make_state(algorithm, config, spaces), make_batch(spaces)

    found = qrdqn.quantile_target(state, batch, config)

    quantiles = mlp(state.target_actor, np.asarray(batch.next_observation, np.float64)).reshape(-1, 4, 5)
    for sample, all_actions in enumerate(quantiles):
        best = all_actions[all_actions.mean(-1).argmax()]
        ahead = 0 if batch.terminated[sample] else float(batch.discount[sample]) * best
        np.testing.assert_allclose(found[sample], float(batch.reward[sample]) + ahead, rtol=1e-4, atol=1e-5)


def test_the_actors_loss_of_sac_is_that_of_a_slow_version() -> None:
    algorithm, config, spaces = CONFIGS["sac"]
    state, batch = make_state(algorithm, config, spaces), make_batch(spaces)
    policy = state.actor(batch.observation)
    noise = np.asarray(jax.random.normal(KEY, policy.mean.shape), np.float64)
    before = np.asarray(policy.mean, np.float64) + np.exp(np.asarray(policy.log_std, np.float64)) * noise
    normal = -0.5 * noise**2 - 0.5 * np.log(2 * np.pi) - np.asarray(policy.log_std)
    log_prob = (normal - np.log(1 - np.tanh(before) ** 2)).sum(-1)
    q = np.minimum(*(q_of(critic, np.asarray(batch.observation), np.tanh(before)) for critic in state.critic.members))

    loss, found = sac.actor_loss(state.actor, state.critic, jnp.float32(0.3), batch, jnp.asarray(noise, jnp.float32))

    np.testing.assert_allclose(found, log_prob, rtol=1e-4, atol=1e-4)
    assert float(loss) == pytest.approx((0.3 * log_prob - q).mean(), rel=1e-4)
