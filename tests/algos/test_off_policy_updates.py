"""What an update of each off-policy algorithm touches, and what it leaves alone; and how actions are chosen."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_states import CONFIGS, KEY, NUMBERS, SIZES, constant, make_batch, make_state

from rollbook.algos import sac, td3
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.spaces import Spaces


@pytest.fixture(params=CONFIGS)
def case(request: pytest.FixtureRequest) -> Any:
    return CONFIGS[request.param]


@pytest.fixture(params=["ddpg", "td3", "sac"])
def actor_critic(request: pytest.FixtureRequest) -> Any:
    return CONFIGS[request.param]


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


def test_the_actor_follows_the_critic_that_has_just_learned(actor_critic: Any) -> None:
    algorithm, config, spaces = actor_critic
    config = dataclasses.replace(config, critic_lr=0.1)
    state, batch = make_state(algorithm, config, spaces), make_batch(spaces)
    rest = (jnp.exp(state.log_alpha), batch, _noise_of_sac(batch)) if algorithm is sac else (batch,)

    after, metrics = algorithm.update(state, batch, KEY, config)

    expected = algorithm.actor_loss(state.actor, after.critic, *rest)
    assert float(metrics["losses/actor"]) == pytest.approx(float(jax.tree.leaves(expected)[0]), rel=1e-5)


def _noise_of_sac(batch: Batch) -> Any:
    """The actor's own, after that of the target."""
    return jax.random.normal(KEY, (2, *batch.action.shape))[1]


RANDOM = [("td3", "losses/target_mean"), ("sac", "losses/target_mean"), ("sac", "losses/entropy")]


@pytest.mark.parametrize(("name", "metric"), RANDOM)
def test_every_update_has_noise_of_its_own(name: str, metric: str) -> None:
    algorithm, config, spaces = CONFIGS[name]
    state, batch = make_state(algorithm, config, spaces), make_batch(spaces)

    found = [float(algorithm.update(state, batch, jax.random.key(seed), config)[1][metric]) for seed in (1, 2, 1)]

    assert found[0] == found[2]
    assert found[0] != found[1]


LIMIT = 1e-4


@pytest.mark.parametrize("limit", [LIMIT, None])
def test_the_gradient_is_limited_if_asked_for(case: Any, limit: float | None) -> None:
    """Whatever comes in, Adam's first step is as long; its second moment shows what came in."""
    _, after = updated(case, max_grad_norm=limit)

    # The temperature of SAC is no network: nothing limits it.
    optimizers = [field for field in after._fields if field in ("optimizer", "actor_optimizer", "critic_optimizer")]
    for field in optimizers:
        second_moments = jax.tree.leaves(getattr(after, field)[1][0].nu)
        norm = np.sqrt(sum(float(leaf.sum()) for leaf in second_moments) / (1 - 0.999))
        assert norm > 10 * LIMIT if limit is None else norm == pytest.approx(LIMIT, rel=1e-3), field


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


@pytest.mark.parametrize("name", ["ddpg", "td3"])
def test_actions_are_tried_as_far_from_the_best_as_the_noise_says(name: str) -> None:
    algorithm, config, spaces = CONFIGS[name]
    config = dataclasses.replace(config, exploration_noise=0.2)
    actor = constant(algorithm.init(KEY, spaces, config).actor, 0.0)
    noise = algorithm.explore(KEY, jnp.zeros(1000), spaces, config)

    actions = np.asarray(algorithm.act(actor, jnp.zeros((1000, 3)), noise))

    assert actions.mean() == pytest.approx(0, abs=0.02)
    assert actions.std() == pytest.approx(0.2, rel=0.05)


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
