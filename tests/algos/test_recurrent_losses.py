"""Losses of the recurrent algorithms against slow, independent versions in numpy; what they must not depend on."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollbook.algos import rdpg, rsac, rtd3
from rollbook.algos.parts import recurrent, sequences
from rollbook.algos.parts.sequences import Sequences
from rollbook.algos.parts.spaces import Spaces

SPACES = Spaces(observation=(3,), discrete=False, actions=2, low=(-1, -1), high=(1, 1))
SIZES: dict[str, Any] = {"units": 4, "hidden_sizes": (5,), "sequence_length": 6, "gamma": 0.9}
ALGORITHMS: dict[str, Any] = {"rdpg": rdpg, "rtd3": rtd3, "rsac": rsac}
KEY = jax.random.key(7)
TIME, BATCH = 6, 3


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> Any:
    return ALGORITHMS[request.param]


def make_config(algorithm: Any, **changes: Any) -> Any:
    own = {"policy_every": 1} if algorithm is rtd3 else {}
    return algorithm.Config(**{**SIZES, **own, **changes})


def make_state(algorithm: Any, config: Any) -> Any:
    """With targets that differ from the networks, as they do in training. (`init` would have to be compiled.)"""
    shapes, rng = jax.eval_shape(lambda key: algorithm.init(key, SPACES, config), KEY), np.random.default_rng(1)
    state = jax.tree.map(lambda leaf: jnp.asarray(np.zeros(leaf.shape, leaf.dtype)), shapes)
    for name in ("actor", "critic", "target_actor", "target_critic"):
        if name in state._fields:
            drawn = jax.tree.map(lambda x: jnp.asarray(rng.uniform(-0.5, 0.5, x.shape), x.dtype), getattr(state, name))
            state = state._replace(**{name: drawn})
    if config.encoders == "shared":
        for actor, critic in (("actor", "critic"), ("target_actor", "target_critic")):
            if actor in state._fields:
                encoder = getattr(state, critic).encoders[0]
                state = state._replace(**{actor: dataclasses.replace(getattr(state, actor), encoder=encoder)})
    return state._replace(log_alpha=jnp.float32(-1)) if algorithm is rsac else state


def make_batch(time: int = TIME, memory: int = 0) -> Sequences:
    """Of three: a whole episode that terminated; one that is padded after three steps; one in which an episode ends by
    time and the next begins.
    """
    rng = np.random.default_rng(3)
    real = np.ones((time, BATCH), bool)
    real[3:, 1] = False
    real[2, 2] = False
    begins = np.zeros((time + 1, BATCH), bool)
    begins[0, :2] = True
    begins[3, 2] = True
    terminated = np.zeros((time, BATCH), bool)
    terminated[time - 1, 0] = True
    action = rng.uniform(-1, 1, (time + 1, BATCH, 2)).astype(np.float32)
    reward = rng.normal(size=(time + 1, BATCH)).astype(np.float32)
    action[begins], reward[begins] = 0, 0
    return Sequences(
        observation=jnp.asarray(rng.normal(size=(time + 1, BATCH, 3)), jnp.float32),
        previous_action=jnp.asarray(action),
        previous_reward=jnp.asarray(reward),
        begins=jnp.asarray(begins),
        terminated=jnp.asarray(terminated),
        real=jnp.asarray(real),
        memory=jnp.asarray(rng.normal(size=(BATCH, memory)), jnp.float32),
    )


def call_losses(algorithm: Any, actor: Any, critic: Any, state: Any, batch: Any, config: Any) -> Any:
    if algorithm is rsac:
        return rsac.losses(actor, critic, state, batch, KEY, config)
    loss, judged = algorithm.critic_loss(critic, state, batch, *((config,) if algorithm is rdpg else (KEY, config)))
    fixed = jax.lax.stop_gradient((critic, judged.features))  # `update` computes the slope of the actor alone
    policy_loss = algorithm.actor_loss(actor, *fixed, batch, config)
    return loss + policy_loss, rsac.Losses(loss, policy_loss, judged.q, judged.target, None)


def slopes_of(algorithm: Any, state: Any, batch: Any, config: Any) -> Any:
    """Gradients of the actor and of the critics, and the losses."""

    def both(actor: Any, critic: Any) -> Any:
        return call_losses(algorithm, actor, critic, state, batch, config)

    return jax.grad(both, argnums=(0, 1), has_aux=True)(state.actor, state.critic)


def compiled_update(state: Any, batch: Any, algorithm: Any, config: Any) -> Any:
    return algorithm.update(state, batch, KEY, config)


# Shared by the tests: compiling takes nearly all of their time. Where something is broken on purpose, another is made.
UPDATE = jax.jit(compiled_update, static_argnums=(2, 3))
SLOPES = jax.jit(slopes_of, static_argnums=(0, 3))


# ---- slowly, in numpy -----------------------------------------------------------------------------------------------


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def slow_features(encoder: Any, batch: Any, number: int, reward: bool, memory: Any = None) -> list[Any]:
    """Of one sequence, one LSTM layer, step by step."""
    (layer,) = encoder.layers
    units = layer.weight.shape[0]
    output, cell = (np.zeros(units), np.zeros(units)) if memory is None else (memory[:units], memory[units:])
    found = []
    for t in range(len(batch.begins)):
        if batch.begins[t, number]:
            output, cell = np.zeros(units), np.zeros(units)
        x = np.concatenate([batch.observation[t, number], batch.previous_action[t, number]])
        if reward:
            x = np.append(x, batch.previous_reward[t, number])
        i, f, g, o = np.split(x @ layer.inputs + layer.bias + output @ layer.weight, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        output = sigmoid(o) * np.tanh(cell)
        found.append(output)
    return found


def slow_head(network: Any, x: Any) -> Any:
    for layer in network.torso.layers:
        x = np.maximum(x @ layer.weight + layer.bias, 0)
    return x @ network.head.weight + network.head.bias


def slow_log_std(actor: Any, x: Any) -> Any:
    for layer in actor.torso.layers:
        x = np.maximum(x @ layer.weight + layer.bias, 0)
    return x @ actor.log_std_head.weight + actor.log_std_head.bias


def slow_losses(algorithm: Any, state: Any, batch: Any, config: Any) -> tuple[float, float, float]:
    """Of the critics, of the actor and (of rsac) of the temperature, step by step in double precision."""
    doubles = jax.tree.map(lambda x: np.asarray(x, np.float64), state)
    batch = jax.device_get(batch)
    shape = (len(batch.begins), BATCH, 2)
    target_key, actor_key = jax.random.split(KEY)
    target_noise, actor_noise = (np.asarray(jax.random.normal(key, shape)) for key in (target_key, actor_key))
    smoothing = np.asarray(jax.random.normal(KEY, shape))[1:]
    of_critic, of_actor, of_alpha, count = 0.0, 0.0, 0.0, 0

    def sample(mean: Any, log_std: Any, noise: Any) -> tuple[Any, float]:
        before = mean + np.exp(log_std) * noise
        log_prob = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(before) ** 2)
        return np.tanh(before), log_prob.sum()

    def judge(critics: Any, features: Any, t: int, action: Any) -> list[float]:
        own = features if len(features) == len(critics.members) else features * len(critics.members)
        return [
            slow_head(one, np.concatenate([feature[t], action]))[0]
            for one, feature in zip(critics.members, own, strict=True)
        ]

    for number in range(BATCH):

        def read(encoder: Any, number: int = number) -> list[Any]:
            return slow_features(encoder, batch, number, config.see_reward)

        seen, critics = read(doubles.actor.encoder), [read(one) for one in doubles.critic.encoders]
        targets = [read(one) for one in doubles.target_critic.encoders]
        for t in range(shape[0] - 1):
            if not batch.real[t, number]:
                continue
            if algorithm is rsac:
                mean, log_std = slow_head(doubles.actor, seen[t + 1]), slow_log_std(doubles.actor, seen[t + 1])
                action, log_prob = sample(mean, log_std, target_noise[t + 1, number])
                future = min(judge(doubles.target_critic, targets, t + 1, action))
                future -= np.exp(doubles.log_alpha) * log_prob
            else:
                action = np.tanh(slow_head(doubles.target_actor, read(doubles.target_actor.encoder)[t + 1]))
                if algorithm is rtd3:
                    action = np.clip(action + np.clip(0.2 * smoothing[t, number], -0.5, 0.5), -1, 1)
                future = min(judge(doubles.target_critic, targets, t + 1, action))
            y = batch.previous_reward[t + 1, number] + 0.9 * (0 if batch.terminated[t, number] else future)
            q = judge(doubles.critic, critics, t, batch.previous_action[t + 1, number])
            of_critic += sum((one - y) ** 2 for one in q) * (0.5 if algorithm is rsac else 1)
            if algorithm is rsac:
                mean, log_std = slow_head(doubles.actor, seen[t]), slow_log_std(doubles.actor, seen[t])
                action, log_prob = sample(mean, log_std, actor_noise[t, number])
                of_actor += np.exp(doubles.log_alpha) * log_prob - min(judge(doubles.critic, critics, t, action))
                of_alpha -= np.exp(doubles.log_alpha) * (log_prob - 2)
            else:
                action = np.tanh(slow_head(doubles.actor, seen[t]))
                of_actor -= judge(doubles.critic, critics, t, action)[0]
            count += 1
    return of_critic / count, of_actor / count, of_alpha / count


@pytest.mark.parametrize("encoders", ["separate", "shared"])
def test_losses_equal_those_computed_slowly(algorithm: Any, encoders: str) -> None:
    config = make_config(algorithm, encoders=encoders, see_reward=encoders == "shared")
    state, batch = make_state(algorithm, config), make_batch()

    new, metrics = UPDATE(state, batch, algorithm, config)
    of_critic, of_actor, of_alpha = slow_losses(algorithm, state, batch, config)

    assert float(metrics["losses/critic"]) == pytest.approx(of_critic, rel=1e-4)
    assert float(metrics["losses/actor"]) == pytest.approx(of_actor, rel=1e-4)
    if algorithm is rsac:
        assert float(metrics["losses/alpha"]) == pytest.approx(of_alpha, rel=1e-4)
    assert float(metrics["losses/real_share"]) == pytest.approx(14 / 18)
    if encoders == "shared":
        for mine, other in zip(*map(jax.tree.leaves, (new.actor.encoder, new.critic.encoders[0])), strict=True):
            np.testing.assert_array_equal(mine, other)


# ---- padding --------------------------------------------------------------------------------------------------------


def with_other_padding(batch: Sequences) -> Sequences:
    """Numbers of all sizes where the second sequence is padded: after the step that its last one led to."""
    rng = np.random.default_rng(8)
    changed = {}
    for name in ("observation", "previous_action", "previous_reward"):
        x = np.array(getattr(batch, name))
        x[4:, 1] = 100 * rng.normal(size=x[4:, 1].shape)
        changed[name] = jnp.asarray(x)
    terminated = np.array(batch.terminated)
    terminated[3:, 1] = True
    begins = np.array(batch.begins)
    begins[4:, 1] = True
    return batch._replace(**changed, terminated=jnp.asarray(terminated), begins=jnp.asarray(begins))


def what_padding_changes(algorithm: Any, update: Any = UPDATE) -> list[str]:
    config = make_config(algorithm)
    state = make_state(algorithm, config)
    found = [update(state, batch, algorithm, config) for batch in (make_batch(), with_other_padding(make_batch()))]
    places = jax.tree_util.tree_flatten_with_path(found[0])[0]
    leaves = jax.tree.leaves(found[1])
    return [
        jax.tree_util.keystr(path)
        for (path, one), other in zip(places, leaves, strict=True)
        if not np.array_equal(one, other)
    ]


def test_what_padding_holds_changes_nothing_bit_for_bit(algorithm: Any) -> None:
    assert what_padding_changes(algorithm) == []


def test_what_padding_holds_changes_no_debug_metric(algorithm: Any) -> None:
    def inspect(state: Any, batch: Any, algorithm: Any, config: Any) -> Any:
        return algorithm.inspect(state, batch, KEY, config)

    assert what_padding_changes(algorithm, jax.jit(inspect, static_argnums=(2, 3))) == []


def test_losses_that_average_over_padding_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rsac, "mean_of_real", lambda x, _: x.mean((-2, -1)))

    changed = what_padding_changes(rsac, jax.jit(lambda *args: compiled_update(*args), static_argnums=(2, 3)))

    assert {f"[1]['losses/{name}']" for name in ("critic", "actor", "alpha")} <= set(changed)


def one_by_one(batch: Sequences, number: int, length: int) -> Sequences:
    """A sequence of its own length, without padding."""
    one = jax.tree.map(lambda x: x[:, number : number + 1], batch._replace(memory=batch.memory[None]))
    cut = [x[: length + (len(x) > TIME)] for x in one[:-1]]
    return Sequences(*cut, one.memory[0])


def test_padded_episodes_have_the_losses_and_gradients_of_the_episodes_one_by_one(
    algorithm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weighted by their steps."""
    # What is drawn depends on the shape of the batch: so that both have the same, nothing is.
    monkeypatch.setattr(jax.random, "normal", lambda key, shape: jnp.zeros(shape))
    config = make_config(algorithm)
    state, batch = make_state(algorithm, config), make_batch()
    slopes_without_noise = jax.jit(lambda batch: slopes_of(algorithm, state, batch, config))

    slopes, found = slopes_without_noise(batch)
    parts = []
    for number, length in enumerate((6, 3, 6)):
        of_one, of_loss = slopes_without_noise(one_by_one(batch, number, length))
        parts.append((of_one, (of_loss.critic, of_loss.actor)))

    weights = np.array([6, 3, 5]) / 14
    expected = jax.tree.map(lambda *leaves: sum(w * x for w, x in zip(weights, leaves, strict=True)), *parts)
    for one, other in zip(jax.tree.leaves(slopes), jax.tree.leaves(expected[0]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert float(found.critic) == pytest.approx(float(expected[1][0]), rel=1e-5)
    assert float(found.actor) == pytest.approx(float(expected[1][1]), rel=1e-5)


# ---- who learns from what -------------------------------------------------------------------------------------------


def largest(tree: Any) -> float:
    return max((float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(tree)), default=0.0)


@pytest.mark.parametrize(
    ("name", "encoders"),
    [
        ("rsac", "separate"), ("rtd3", "shared"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("rsac", "shared"), ("rtd3", "separate"), ("rdpg", "separate"), ("rdpg", "shared")]
        ),
    ],
)  # fmt: skip
def test_each_network_learns_from_its_own_loss(name: str, encoders: str) -> None:
    """The actor from the actor's, the critics from theirs; a shared encoder learns from the critics alone."""
    algorithm = ALGORITHMS[name]
    config = make_config(algorithm, encoders=encoders)
    state, batch = make_state(algorithm, config), make_batch()

    @jax.jit
    def slopes(actor: Any, critic: Any) -> Any:
        both = [
            lambda *networks, name=name: getattr(call_losses(algorithm, *networks, state, batch, config)[1], name)
            for name in ("critic", "actor")
        ]
        return [jax.grad(loss, argnums=(0, 1))(actor, critic) for loss in both]

    (actor, critic), (by_actor, critic_by_actor) = slopes(state.actor, state.critic)
    assert largest(actor) == 0 < min(largest(critic.members), largest(critic.encoders))
    assert largest(critic_by_actor) == 0 < min(largest(by_actor.torso), largest(by_actor.head))
    assert (largest(by_actor.encoder) == 0) == (encoders == "shared")


def test_the_policy_waits_between_its_updates_and_the_critics_do_not() -> None:
    config = make_config(rtd3, policy_every=2)
    state = make_state(rtd3, config)

    first, _ = UPDATE(state, make_batch(), rtd3, config)
    second, _ = UPDATE(first, make_batch(), rtd3, config)

    def moved(one: Any, other: Any) -> bool:
        return any(map(lambda x, y: bool((x != y).any()), *map(jax.tree.leaves, (one, other))))

    assert not moved(state.actor, first.actor)
    assert not moved(state.target_critic, first.target_critic)
    assert moved(state.critic, first.critic)
    assert moved(first.actor, second.actor)
    assert moved(first.target_actor, second.target_actor)
    both, _ = UPDATE(state, make_batch(), rtd3, make_config(rtd3, policy_every=1))
    for one, other in zip(*map(jax.tree.leaves, (first.critic, both.critic)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


# ---- where a sequence starts from -----------------------------------------------------------------------------------


def test_a_segment_with_stored_memory_has_the_features_of_the_whole_episode(algorithm: Any) -> None:
    config = make_config(algorithm, start="stored")
    state, batch = make_state(algorithm, config), make_batch()
    encoders = [state.actor.encoder, *state.critic.encoders]
    size = encoders[0].memory_size
    places = tuple(range(len(encoders)))

    whole = recurrent.features_of(encoders, places, batch, 0)
    memories = [jnp.zeros((BATCH, size)) for _ in encoders]
    for t in range(2):
        seen = jax.tree.map(lambda x, t=t: x[t], batch.seen)
        memories = [encoder.step(seen, memory)[1] for encoder, memory in zip(encoders, memories, strict=True)]
    later = batch.without_first(2)._replace(memory=jnp.concatenate(memories, axis=-1))
    part = recurrent.features_of(encoders, places, later, 0)
    from_nothing = recurrent.features_of(encoders, places, batch.without_first(2), 0)

    for one, other, third in zip(whole, part, from_nothing, strict=True):
        np.testing.assert_allclose(one[2:], other, atol=1e-6)
        assert not np.allclose(one[2], third[0], atol=1e-3)
    assert recurrent.memory_to_store(state, config, "stored") == size * len(encoders)


def slopes_after(algorithm: Any, steps: int, config: Any, state: Any) -> Any:
    """Of what follows so many steps, from the memory that they leave."""
    batch = make_batch()
    encoders = [state.actor.encoder, *state.critic.encoders]
    memories = [jnp.zeros((BATCH, encoder.memory_size)) for encoder in encoders]
    for t in range(steps):
        seen = jax.tree.map(lambda x, t=t: x[t], batch.seen)
        memories = [encoder.step(seen, memory)[1] for encoder, memory in zip(encoders, memories, strict=True)]
    later = batch.without_first(steps)._replace(memory=jnp.concatenate(memories, axis=-1))
    return SLOPES(algorithm, state, later, config)[0]


def biggest_difference(one: Any, other: Any) -> float:
    return max(float(jnp.abs(x - y).max()) for x, y in zip(*map(jax.tree.leaves, (one, other)), strict=True))


def test_gradients_do_not_reach_into_the_burn_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of what follows, from the memory that the burn-in left; if they are not stopped, they are not."""
    config = make_config(rdpg)
    state = make_state(rdpg, config)
    # Of the targets, too, the memory is that of the networks here: only the gradients are looked at.
    state = state._replace(target_actor=state.actor, target_critic=state.critic)

    later, with_burn_in = slopes_after(rdpg, 2, config, state), dataclasses.replace(config, burn_in=2)

    assert biggest_difference(SLOPES(rdpg, state, make_batch(), with_burn_in)[0], later) < 1e-5

    with monkeypatch.context() as patch:
        patch.setattr(recurrent, "burnt", lambda x: x)
        unstopped, _ = jax.jit(lambda *args: slopes_of(rdpg, *args, with_burn_in))(state, make_batch())
    assert biggest_difference(unstopped, later) > 1e-4


def test_a_memory_that_outlives_its_episode_changes_the_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(rdpg)
    state, batch = make_state(rdpg, config), make_batch()
    right = SLOPES(rdpg, state, batch, config)[1]

    carried = batch._replace(begins=jnp.zeros_like(batch.begins))
    wrong = SLOPES(rdpg, state, carried, config)[1]

    np.testing.assert_allclose(right.q[:, :, :2], wrong.q[:, :, :2], atol=1e-6)
    assert float(jnp.abs(right.q[:, 3:, 2] - wrong.q[:, 3:, 2]).max()) > 1e-3


def test_what_is_not_real_does_not_count() -> None:
    x, real = jnp.array([[1.0, 2.0], [3.0, 100.0]]), jnp.array([[True, True], [True, False]])

    assert float(sequences.mean_of_real(x, real)) == 2
    assert float(sequences.largest_of_real(x, real)) == 3
    assert float(sequences.smallest_of_real(-x, real)) == -3
    assert float(sequences.mean_of_real(x, jnp.zeros_like(real))) == 0
