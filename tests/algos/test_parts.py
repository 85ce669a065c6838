"""The shared maths against plain loops, closed forms and autodiff."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.algos import c51, ddpg, dqn, ppo, qrdqn, sac, td3, trpo, vpg
from rollbook.algos.parts.actor_critic import explained_variance, make_actor, make_critic
from rollbook.algos.parts.continuous import DeterministicActor
from rollbook.algos.parts.descent import make_optimizer
from rollbook.algos.parts.distributions import Categorical, Gaussian, draw_noise
from rollbook.algos.parts.fields import Count, Positive, Share, Sizes, check, fields_of
from rollbook.algos.parts.gae import advantages
from rollbook.algos.parts.networks import Linear, convolve, head_of_torso, make_torso, orthogonal_linear
from rollbook.algos.parts.running import no_statistics, normalised, scaled, with_batch
from rollbook.algos.parts.spaces import Spaces
from rollbook.errors import InvalidConfig

DISCRETE = Spaces(observation=(3,), discrete=True, actions=4)
CONTINUOUS = Spaces(observation=(3,), discrete=False, actions=2, low=(-1, -1), high=(1, 1))


# ---- advantages ---------------------------------------------------------------------------------------------------


def by_definition(reward, value, next_value, terminated, truncated, gamma, gae_lambda):
    """The sum of equation 16, an episode and a step at a time."""
    steps, envs = reward.shape
    result = np.zeros_like(reward)
    for env in range(envs):
        for step in range(steps):
            weight = 1.0
            for later in range(step, steps):
                ahead = 0.0 if terminated[later, env] else next_value[later, env]
                result[step, env] += weight * (reward[later, env] + gamma * ahead - value[later, env])
                if terminated[later, env] or truncated[later, env]:
                    break
                weight *= gamma * gae_lambda
    return result


COMPILED = jax.jit(advantages)


@given(seed=st.integers(0, 2**32 - 1), gamma=st.sampled_from([0.0, 0.9, 1.0]), gae_lambda=st.sampled_from([0, 0.95, 1]))
def test_advantages_are_the_sum_of_their_definition(seed: int, gamma: float, gae_lambda: float) -> None:
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(size=(3, 7, 2)).astype(np.float32)
    terminated, truncated = rng.random((2, 7, 2)) < 0.2
    truncated &= ~terminated

    found = COMPILED(reward, value, next_value, terminated, truncated, gamma=gamma, gae_lambda=gae_lambda)

    expected = by_definition(reward, value, next_value, terminated, truncated, gamma, gae_lambda)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


# ---- networks -----------------------------------------------------------------------------------------------------


def test_networks_of_different_kinds_have_different_structures() -> None:
    """JAX's caches would else give one for the other, now and then."""
    structures = [jax.tree.structure(kind(1.0, 2.0)) for kind in (dqn.QNetwork, DeterministicActor)]

    assert structures[0] != structures[1]


# ---- distributions ------------------------------------------------------------------------------------------------


def test_samples_of_a_categorical_come_as_often_as_it_says() -> None:
    policy = Categorical(jnp.array([0.0, 1.0, -1.0, 2.0]))
    noise = draw_noise(jax.random.key(1), (200_000,), DISCRETE)

    counts = np.bincount(np.asarray(policy.sample(noise)), minlength=4)

    np.testing.assert_allclose(counts / 200_000, np.exp(policy.log_probs), atol=0.005)


def test_a_gaussian_agrees_with_the_textbook() -> None:
    from scipy import stats

    mean, log_std = np.array([[0.3, -1.0]], np.float32), np.array([-0.5, 0.2], np.float32)
    policy, action = Gaussian(jnp.array(mean), jnp.array(log_std)), jnp.array([[0.1, 0.4]])

    expected = stats.norm.logpdf(action, mean, np.exp(log_std)).sum()
    assert float(policy.log_prob(action)[0]) == pytest.approx(expected, rel=1e-5)
    assert float(policy.entropy()[0]) == pytest.approx(stats.norm.entropy(mean, np.exp(log_std)).sum(), rel=1e-5)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Categorical(jnp.array([0.0, 1.0, -1.0, 2.0])), Categorical(jnp.array([1.0, 0.0, 0.0, 0.5]))),
        (
            Gaussian(jnp.array([0.3, -1.0]), jnp.array([-0.5, 0.2])),
            Gaussian(jnp.array([0.0, -0.8]), jnp.array([-0.3, 0.0])),
        ),
    ],
    ids=["categorical", "gaussian"],
)
def test_the_divergence_is_the_mean_log_ratio_of_samples(first, second) -> None:
    spaces = DISCRETE if isinstance(first, Categorical) else CONTINUOUS
    action = first.sample(draw_noise(jax.random.key(1), (400_000,), spaces))

    estimate = (first.log_prob(action) - second.log_prob(action)).mean()
    assert float(first.kl(second)) == pytest.approx(float(estimate), abs=0.01)
    assert float(first.kl(first)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("spaces", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_numpy_and_jax_act_alike(spaces: Spaces) -> None:
    config = ppo.Config(hidden_sizes=(8, 8))
    actor = make_actor(jax.random.key(1), spaces, config)
    observation = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    noise = np.asarray(draw_noise(jax.random.key(2), (5,), spaces))

    on_host = ppo.act(jax.device_get(actor), observation, noise)

    assert isinstance(on_host, np.ndarray)
    np.testing.assert_allclose(on_host, ppo.act(actor, jnp.asarray(observation), noise), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        ppo.act(jax.device_get(actor), observation, None), ppo.act(actor, jnp.asarray(observation), None), atol=1e-5
    )


# ---- networks, statistics, spaces -----------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 6])
def test_a_narrow_layer_and_its_gradients_are_those_of_any_other(outputs: int) -> None:
    rng = np.random.default_rng(0)
    layer = Linear(jnp.asarray(rng.normal(size=(5, outputs))), jnp.asarray(rng.normal(size=outputs)))
    x = jnp.asarray(rng.normal(size=(7, 5)))

    def squares(use):
        return jax.jit(jax.value_and_grad(lambda layer, x: jnp.square(use(layer, x)).sum(), argnums=(0, 1)))(layer, x)

    ours, plain = squares(Linear.narrow), squares(Linear.__call__)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    np.testing.assert_allclose(layer.narrow(x[0]), layer(x[0]))


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(64, 64, 128), (64, 80, 64), (64, 60, 64), (64, 64, 300)])
def test_a_wide_layer_has_the_gradients_of_a_plain_product(rows: int, inputs: int, outputs: int) -> None:
    rng = np.random.default_rng(0)
    layer = Linear(
        jnp.asarray(rng.normal(size=(inputs, outputs)), jnp.float32), jnp.asarray(rng.normal(size=outputs), jnp.float32)
    )
    x = jnp.asarray(rng.normal(size=(rows, inputs)), jnp.float32)

    def squares(use):
        return jax.jit(jax.value_and_grad(lambda layer, x: jnp.square(use(layer, x)).mean(), argnums=(0, 1)))(layer, x)

    ours, plain = squares(Linear.__call__), squares(lambda layer, x: x @ layer.weight + layer.bias)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-2])
def test_adam_makes_the_steps_of_optax(epsilon: float) -> None:
    """From the same state: a checkpoint of either goes on with the other."""
    rng = np.random.default_rng(0)
    gradients = [{"a": jnp.asarray(rng.normal(size=5) * 10.0**-n), "b": jnp.zeros(2)} for n in range(6)]
    ours, theirs = make_optimizer(1e-3, None, epsilon), optax.chain(optax.identity(), optax.adam(1e-3, eps=epsilon))
    our_state, their_state = ours.init(gradients[0]), theirs.init(gradients[0])

    for gradient in gradients:
        our_step, our_state = ours.update(gradient, our_state)
        their_step, their_state = theirs.update(gradient, their_state)
        np.testing.assert_allclose(our_step["a"], their_step["a"], rtol=5e-5)
        np.testing.assert_array_equal(our_step["b"], 0)

    assert jax.tree.structure(our_state) == jax.tree.structure(their_state)
    for one, other in zip(jax.tree.leaves(our_state), jax.tree.leaves(their_state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(("hidden", "outputs", "rows"), [((12, 9), 2, 16), ((5,), 30, 9), ((12, 9), 2, 1)])
def test_a_batch_as_columns_has_the_values_and_gradients_of_rows(
    hidden: tuple[int, ...], outputs: int, rows: int
) -> None:
    torso_key, head_key, x_key = jax.random.split(jax.random.key(0), 3)
    torso = make_torso(torso_key, (4,), hidden, "tanh")
    head = orthogonal_linear(head_key, hidden[-1], outputs, 1.0)
    x = jax.random.normal(x_key, (rows, 4))

    def squares(use):
        loss = jax.value_and_grad(lambda *args: jnp.square(use(*args)).sum(), argnums=(0, 1, 2))
        return jax.jit(loss)(torso, head, x)

    ours, plain = squares(head_of_torso), squares(lambda torso, head, x: head(torso(x)))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    in_numpy = head_of_torso(*jax.device_get((torso, head, x)))
    assert isinstance(in_numpy, np.ndarray)
    np.testing.assert_allclose(in_numpy, head(torso(x)), rtol=1e-5, atol=1e-6)


def test_hidden_weights_are_orthogonal_and_biases_zero() -> None:
    torso = make_torso(jax.random.key(1), (3,), (16, 16), "tanh")

    weight = np.asarray(torso.layers[1].weight)
    np.testing.assert_allclose(weight.T @ weight, 2 * np.eye(16), atol=1e-5)
    assert not np.any(torso.layers[1].bias)


@pytest.mark.parametrize(
    ("size", "stride", "shape", "filters"),
    [
        (8, 4, (84, 84, 4), 5),
        (4, 2, (23, 20, 3), 5),
        (3, 1, (9, 7, 2), 5),
        (8, 4, (32, 36, 4), 32),
        (3, 1, (10, 10, 64), 64),
    ],
)
def test_a_convolution_and_its_gradients_are_those_of_jax(
    size: int, stride: int, shape: tuple[int, ...], filters: int
) -> None:
    image_key, kernel_key = jax.random.split(jax.random.key(0))
    image = jax.random.normal(image_key, (2, *shape))
    kernel = jax.random.normal(kernel_key, (size, size, shape[-1], filters)) / size

    def usual(image: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            image, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def loss(convolution: Any) -> Any:
        return lambda image, kernel: jnp.square(convolution(image, kernel)).sum()

    def ours(image: Any, kernel: Any) -> Any:
        return convolve(image, kernel, stride)

    np.testing.assert_allclose(ours(image, kernel), usual(image, kernel), rtol=1e-4, atol=1e-4)
    expected = jax.grad(loss(usual), argnums=(0, 1))(image, kernel)
    for gradient, right in zip(jax.grad(loss(ours), argnums=(0, 1))(image, kernel), expected, strict=True):
        np.testing.assert_allclose(gradient, right, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("channels", [3, 4])
def test_bytes_are_convolved_as_shares_of_255(channels: int) -> None:
    image = np.random.default_rng(1).integers(0, 256, (2, 12, 16, channels), np.uint8)
    kernel = jax.random.normal(jax.random.key(0), (4, 4, channels, 5))

    of_bytes = convolve(jnp.asarray(image), kernel, 2)

    np.testing.assert_allclose(of_bytes, convolve(jnp.asarray(image / 255, jnp.float32), kernel, 2), atol=1e-5)


def test_images_go_through_convolutions_one_by_one_or_many() -> None:
    spaces = Spaces(observation=(84, 84, 4), discrete=True, actions=3)
    critic = make_critic(jax.random.key(1), spaces, ppo.Config())
    images = np.random.default_rng(1).integers(0, 256, (2, 3, 84, 84, 4), np.uint8)

    values = critic(images)

    assert values.shape == (2, 3)
    assert float(critic(images[1, 2])) == pytest.approx(float(values[1, 2]), rel=1e-4)


def test_batches_leave_the_statistics_of_all_their_members() -> None:
    rng = np.random.default_rng(1)
    batches = [rng.normal(5, 3, (size, 2)).astype(np.float32) for size in (1, 10, 500)]
    statistics = no_statistics((2,))

    for batch in batches:
        statistics = with_batch(statistics, jnp.asarray(batch))

    everything = np.concatenate(batches)
    np.testing.assert_allclose(statistics.mean, everything.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(statistics.std, everything.std(axis=0), rtol=1e-4)
    assert abs(float(normalised(statistics, jnp.asarray(everything)).mean())) < 1e-3
    assert float(scaled(statistics, jnp.full(2, 1e9)).max()) == 10.0


def test_statistics_of_nothing_change_nothing() -> None:
    x = jnp.array([1.5, -2.0])

    np.testing.assert_array_equal(normalised(no_statistics((2,)), x), x)


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_actions_are_rescaled_to_the_bounds_of_the_environment(make) -> None:
    spaces = Spaces(observation=(1,), discrete=False, actions=4, low=(-2, 0, -np.inf, 0), high=(2, 10, np.inf, np.inf))

    action = spaces.to_environment(make(np.array([[0.5, 0.5, 7.0, 7.0], [-3.0, 3.0, -7.0, -7.0]], np.float32)))

    np.testing.assert_allclose(action, [[1.0, 7.5, 7.0, 7.0], [-2.0, 10.0, -7.0, 0.0]])


def test_explained_variance_is_one_for_the_truth_and_nothing_for_a_constant() -> None:
    target = jnp.arange(5.0)

    assert float(explained_variance(target, target)) == pytest.approx(1.0)
    assert float(explained_variance(jnp.zeros(5), target)) == pytest.approx(0.0, abs=1e-6)


# ---- TRPO's own ---------------------------------------------------------------------------------------------------


def test_conjugate_gradients_solve_a_linear_system() -> None:
    rng = np.random.default_rng(1)
    root = rng.normal(size=(6, 6))
    matrix, b = jnp.asarray(root @ root.T + np.eye(6), jnp.float32), jnp.asarray(rng.normal(size=6), jnp.float32)

    x = trpo.conjugate_gradient(lambda vector: matrix @ vector, b, 20)

    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("spaces", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_the_line_search_keeps_the_divergence_below_its_limit(spaces: Spaces) -> None:
    config = trpo.Config(hidden_sizes=(8,), max_kl=0.01)
    actor = make_actor(jax.random.key(1), spaces, config)
    rng = np.random.default_rng(1)
    observation = jnp.asarray(rng.normal(size=(64, 3)), jnp.float32)
    action = actor(observation).sample(draw_noise(jax.random.key(2), (64,), spaces))
    log_prob = actor(observation).log_prob(action)
    advantage = jnp.asarray(rng.normal(size=64), jnp.float32)
    batch = trpo.Batch(observation, action, log_prob, advantage, advantage, advantage)
    gradient, _ = trpo.ravel_pytree(jax.grad(trpo.surrogate)(actor, batch, config))

    far = 1000 * gradient
    _, refused = trpo.line_search(actor, far, batch, dataclasses.replace(config, backtracks=1))
    moved, accepted = trpo.line_search(actor, 10 * gradient, batch, dataclasses.replace(config, backtracks=100))

    assert float(refused["losses/step_accepted"]) == 0.0
    assert float(accepted["losses/step_accepted"]) == 1.0
    assert 0 < float(trpo.mean_kl(actor, moved, observation)) <= 0.01
    assert float(trpo.surrogate(moved, batch, config)) > float(trpo.surrogate(actor, batch, config))


# ---- configurations -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Example:
    gamma: Share = 0.99
    """discount of future rewards"""
    count: Count = 4
    rate: Positive | None = None
    """a limit"""
    sizes: Sizes = (64, 64)
    mode: Literal["a", "b"] = "a"

    def __post_init__(self) -> None:
        check(self)


def test_the_string_below_a_field_is_its_documentation() -> None:
    fields = fields_of(Example)

    assert fields["gamma"].doc == "discount of future rewards"
    assert fields["count"].doc == ""
    assert fields["rate"].default is None
    assert fields["gamma"].allowed == "a number, from 0 to 1"


@pytest.mark.parametrize(
    ("wrong", "must"),
    [
        ({"gamma": 1.5}, "gamma must be a number, from 0 to 1"),
        ({"gamma": float("nan")}, "gamma must be a number, from 0 to 1"),
        ({"count": 0}, "count must be a whole number, at least 1"),
        ({"count": 2.0}, "count must be a whole number, at least 1"),
        ({"count": True}, "count must be a whole number, at least 1"),
        ({"rate": 0.0}, "rate must be a number, more than 0 or none"),
        ({"sizes": ()}, "sizes must be whole numbers separated by commas, each at least 1"),
        ({"sizes": (64, 0)}, "sizes must be whole numbers separated by commas, each at least 1"),
        ({"mode": "c"}, "mode must be a or b"),
    ],
)
def test_a_value_out_of_bounds_is_named_with_its_bounds(wrong, must: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        Example(**wrong)

    name, value = next(iter(wrong.items()))
    assert raised.value.message == f"{name} is {value!r}"
    assert raised.value.hint == must


@pytest.mark.parametrize(
    "algorithm", [ppo, trpo, vpg, ddpg, td3, sac, dqn, c51, qrdqn], ids=lambda module: module.__name__
)
def test_every_parameter_is_documented(algorithm) -> None:
    undocumented = [field.name for field in fields_of(algorithm.Config).values() if not field.doc]

    assert undocumented == []


def test_minibatches_must_divide_the_rollout() -> None:
    with pytest.raises(InvalidConfig, match="512 steps cannot be divided into 3 minibatches"):
        ppo.Config(minibatches=3)
