"""Losses and updates against numbers worked out by hand and against slow, independent versions in numpy."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollbook.algos import c51, ddpg, dqn, qrdqn, sac, td3
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.spaces import Spaces

NUMBERS = Spaces(observation=(3,), discrete=False, actions=2, low=(-1, -1), high=(1, 1))
CHOICES = Spaces(observation=(3,), discrete=True, actions=4)
SIZES: dict[str, Any] = {"hidden_sizes": (8, 8)}
CONFIGS: dict[str, Any] = {
    "ddpg": (ddpg, ddpg.Config(**SIZES), NUMBERS),
    "td3": (td3, td3.Config(**SIZES, policy_every=1), NUMBERS),
    "sac": (sac, sac.Config(**SIZES), NUMBERS),
    "dqn": (dqn, dqn.Config(**SIZES), CHOICES),
    "c51": (c51, c51.Config(**SIZES, atoms=11, value_min=-3.0, value_max=3.0), CHOICES),
    "qrdqn": (qrdqn, qrdqn.Config(**SIZES, quantiles=5), CHOICES),
}
KEY = jax.random.key(7)


@pytest.fixture(params=CONFIGS)
def case(request: pytest.FixtureRequest) -> Any:
    return CONFIGS[request.param]


@pytest.fixture(params=["ddpg", "td3", "sac"])
def actor_critic(request: pytest.FixtureRequest) -> Any:
    return CONFIGS[request.param]


def make_batch(spaces: Spaces, size: int = 6) -> Batch:
    """Half of it terminated, with discounts of one step and of two."""
    rng = np.random.default_rng(3)
    action = rng.integers(0, 4, size) if spaces.discrete else rng.uniform(-1, 1, (size, 2)).astype(np.float32)
    return Batch(
        observation=jnp.asarray(rng.normal(size=(size, 3)), jnp.float32),
        action=jnp.asarray(action),
        reward=jnp.asarray(rng.normal(size=size), jnp.float32),
        terminated=jnp.arange(size) % 2 == 0,
        next_observation=jnp.asarray(rng.normal(size=(size, 3)), jnp.float32),
        discount=jnp.where(jnp.arange(size) < 3, 0.99, 0.9801),
    )


def make_state(algorithm: Any, config: Any, spaces: Spaces) -> Any:
    """With targets that differ from the networks, as they do in training."""
    state, other = (algorithm.init(jax.random.key(seed), spaces, config) for seed in (1, 2))
    fields = {name: getattr(other, name) for name in state._fields if name.startswith("target_")}
    return state._replace(**fields)


# ---- by hand --------------------------------------------------------------------------------------------------------


def constant(network: Any, value: float) -> Any:
    """The network with no weights and this last bias: it answers everything with the same number."""
    zero = jax.tree.map(jnp.zeros_like, network)
    head = dataclasses.replace(zero.head, bias=jnp.full_like(zero.head.bias, value))
    return dataclasses.replace(zero, head=head)


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


@pytest.mark.parametrize("double", [False, True])
def test_the_target_of_dqn_by_hand(double: bool) -> None:
    """The network prefers action 1, its target action 2."""
    algorithm, _, spaces = CONFIGS["dqn"]
    config = dqn.Config(**SIZES, double=double)
    state = algorithm.init(KEY, spaces, config)
    network, target = constant(state.actor, 0.0), constant(state.actor, 0.0)
    state = state._replace(actor=_with_bias(network, [0, 9, 1, 0]), target_actor=_with_bias(target, [0, 5, 7, 0]))

    assert dqn.bellman_target(state, one_step(False, spaces), config).tolist() == [1 + 0.5 * (5 if double else 7)]
    assert dqn.bellman_target(state, one_step(True, spaces), config).tolist() == [1.0]


def _with_bias(network: Any, bias: list[float]) -> Any:
    return dataclasses.replace(network, head=dataclasses.replace(network.head, bias=jnp.array(bias, jnp.float32)))


@pytest.mark.parametrize(("huber", "expected"), [(True, 3 - 0.5), (False, 0.5 * 9)])
def test_the_loss_of_dqn_by_hand(huber: bool, expected: float) -> None:
    algorithm, _, spaces = CONFIGS["dqn"]
    config = dqn.Config(**SIZES, huber=huber)
    network = constant(algorithm.init(KEY, spaces, config).actor, 4.0)

    loss, q = dqn.loss(network, one_step(False, spaces), jnp.array([1.0]), config)

    assert q.tolist() == [4.0]
    assert float(loss) == expected


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
        np.testing.assert_allclose(found[sample], expected, atol=1e-4)


def test_the_loss_of_c51_is_the_cross_entropy_of_the_action_that_was_taken() -> None:
    algorithm, config, spaces = CONFIGS["c51"]
    state, batch = make_state(algorithm, config, spaces), make_batch(spaces)
    target = c51.projected_target(state, batch, config)

    loss, q = c51.loss(state.actor, batch, target)

    logits = mlp(state.actor, np.asarray(batch.observation, np.float64)).reshape(-1, 4, 11)
    own = logits[np.arange(6), np.asarray(batch.action)]
    logs = own - np.log(np.exp(own).sum(-1, keepdims=True))
    assert float(loss) == pytest.approx(-(np.asarray(target) * logs).sum(-1).mean(), rel=1e-4)
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


# ---- what an update touches -----------------------------------------------------------------------------------------


def differs(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return any(not np.array_equal(a, b) for a, b in pairs)


def updated(case: Any, **changes: Any) -> tuple[Any, Any]:
    algorithm, config, spaces = case
    config = dataclasses.replace(config, **changes)
    state = make_state(algorithm, config, spaces)
    return state, algorithm.update(state, make_batch(spaces), KEY, config)[0]


def test_the_actors_gradient_does_not_touch_the_critic(actor_critic: Any) -> None:
    _, slow = updated(actor_critic, lr=1e-6)
    _, fast = updated(actor_critic, lr=1e-1)

    assert differs(slow.actor, fast.actor)
    for field in ("critic", "target_critic", "critic_optimizer"):
        assert not differs(getattr(slow, field), getattr(fast, field)), field


def test_the_critics_loss_does_not_touch_the_actor(actor_critic: Any) -> None:
    """With a critic that stands still, the actor's step is the same whatever the targets are."""
    algorithm, config, spaces = actor_critic
    config = dataclasses.replace(config, critic_lr=1e-30)
    state, batch = make_state(algorithm, config, spaces), make_batch(spaces)
    other = batch._replace(reward=batch.reward + 100)

    one, two = (algorithm.update(state, which, KEY, config)[0] for which in (batch, other))

    assert differs(one.critic_optimizer, two.critic_optimizer)
    assert not differs(one.actor, two.actor)


def test_targets_move_by_tau_only(case: Any) -> None:
    changes = {"tau": 0.3} | ({"target_every": 1} if hasattr(case[1], "target_every") else {})
    before, after = updated(case, **changes)

    for field in (field for field in before._fields if field.startswith("target_")):
        network = getattr(after, field.removeprefix("target_"))
        expected = jax.tree.map(lambda slow, fast: slow + 0.3 * (fast - slow), getattr(before, field), network)
        for found, wanted in zip(jax.tree.leaves(getattr(after, field)), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    still, moved = updated(case, **(changes | {"tau": 0.0}))
    for field in (field for field in still._fields if field.startswith("target_")):
        assert not differs(getattr(still, field), getattr(moved, field))


@pytest.mark.parametrize("name", ["ddpg", "dqn", "c51", "qrdqn"])
def test_delayed_targets_stand_still_in_between(name: str) -> None:
    before, after = updated(CONFIGS[name], target_every=2)
    field = "target_actor"

    assert not differs(getattr(before, field), getattr(after, field))
    again = CONFIGS[name][0].update(
        after, make_batch(CONFIGS[name][2]), KEY, dataclasses.replace(CONFIGS[name][1], target_every=2)
    )[0]
    assert differs(getattr(after, field), getattr(again, field))


def test_td3_updates_its_policy_and_targets_at_every_second_update() -> None:
    case = td3, td3.Config(**SIZES), NUMBERS
    before, once = updated(case)
    twice = td3.update(once, make_batch(NUMBERS), KEY, case[1])[0]

    assert differs(before.critic, once.critic)
    for field in ("actor", "target_actor", "target_critic", "actor_optimizer"):
        assert not differs(getattr(before, field), getattr(once, field)), field
        assert differs(getattr(once, field), getattr(twice, field)), field


def test_a_fixed_temperature_stays() -> None:
    before, after = updated(CONFIGS["sac"], learn_alpha=False)

    assert float(before.log_alpha) == float(after.log_alpha)


def test_acting_is_the_same_in_numpy_and_in_jax(case: Any) -> None:
    algorithm, config, spaces = case
    actor = algorithm.init(KEY, spaces, config).actor
    observation = np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)
    noise = np.asarray(algorithm.explore(KEY, jnp.full(20, 0.7), spaces, config))

    for chosen in (noise, None):
        in_numpy = algorithm.act(jax.device_get(actor), observation, chosen)
        in_jax = algorithm.act(actor, jnp.asarray(observation), None if chosen is None else jnp.asarray(chosen))
        assert isinstance(in_numpy, np.ndarray)
        np.testing.assert_allclose(in_numpy, in_jax, rtol=1e-4, atol=1e-5)
        if not spaces.discrete:
            assert (np.abs(in_numpy) <= 1).all()


@pytest.mark.parametrize("name", ["dqn", "c51", "qrdqn"])
def test_images_go_through_convolutions(name: str) -> None:
    algorithm, config, _ = CONFIGS[name]
    spaces = Spaces(observation=(36, 36, 4), discrete=True, actions=3)
    state = algorithm.init(KEY, spaces, config)
    images = jnp.asarray(np.random.default_rng(1).integers(0, 256, (5, 36, 36, 4)), jnp.uint8)
    batch = Batch(images, jnp.array([0, 1, 2, 0, 1]), jnp.ones(5), jnp.zeros(5, bool), images, jnp.full(5, 0.9))

    new, metrics = algorithm.update(state, batch, KEY, config)

    assert differs(state.actor.torso, new.actor.torso)
    assert np.isfinite(float(metrics["losses/critic"]))
    assert algorithm.act(new.actor, images, None).shape == (5,)
