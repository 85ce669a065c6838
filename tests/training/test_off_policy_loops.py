"""What both loops with a replay hand to an algorithm and keep of its steps, as an algorithm sees it that learns nothing
and writes everything down.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.experimental.functional import FuncEnv

from rollbook.algos import ddpg
from rollbook.algos.parts.spaces import Spaces
from rollbook.errors import UsageError
from rollbook.training.device import DeviceEnvs
from rollbook.training.host import HostEnvs
from rollbook.training.off_policy import DeviceLoop, HostLoop

SPACES = Spaces(observation=(1,), discrete=False, actions=1, low=(-1.0,), high=(1.0,))
ITERATIONS, ROUNDS, ROWS, ENVS = 4, 4, 3, 2
# The replay holds exactly the rows of an iteration, and learning waits until it is full: from the last round of the
# first iteration on, each with three updates.
CONFIG = ddpg.Config(
    num_envs=ENVS, train_every=ROWS, updates_per_step=0.5, log_every=ROUNDS * ROWS * ENVS,
    buffer_size=ROUNDS * ROWS * ENVS, learning_starts=ROUNDS * ROWS * ENVS, batch_size=8,
)  # fmt: skip
UPDATES = 3 * (1 + (ITERATIONS - 1) * ROUNDS)
LIMIT, STOP = 4, 0.5  # steps of an episode at most; an action above ends it


class Written(NamedTuple):
    actor: Any
    keys: Any  # (updates, 2)
    batches: Any  # the actions of each, (updates, batch)
    updates: Any


def _init(key: Any, spaces: Spaces, config: Any) -> Written:
    batches = jnp.zeros((UPDATES, config.batch_size))
    return Written(jnp.zeros(()), jnp.zeros((UPDATES, 2), jnp.uint32), batches, jnp.int32(0))


def _update(state: Written, batch: Any, key: Any, config: Any) -> Any:
    at = state.updates
    keys = state.keys.at[at].set(jax.random.key_data(key))
    written = Written(state.actor, keys, state.batches.at[at].set(batch.action[:, 0]), at + 1)
    return written, {"losses/critic": jnp.float32(0)}


WRITER = SimpleNamespace(
    init=_init,
    explore=lambda key, progress, spaces, config: jax.random.uniform(key, (*progress.shape, 1), minval=-1),
    act=lambda actor, observation, noise: noise,
    update=_update,
)


class Counted(NamedTuple):
    actor: Any  # the updates so far; its actions are thousandths of it


COUNTER = SimpleNamespace(
    init=lambda key, spaces, config: Counted(jnp.float32(0)),
    explore=WRITER.explore,
    act=lambda actor, observation, noise: 0 * noise + actor / 1000,
    update=lambda state, batch, key, config: (Counted(state.actor + 1), {"losses/critic": jnp.float32(0)}),
)


class Counting(FuncEnv):
    """Observations count the steps of an episode."""

    def initial(self, rng, params=None):
        return jnp.zeros((2,))  # steps, and whether the last was told to stop

    def transition(self, state, action, rng, params=None):
        return jnp.stack([state[0] + 1, (action[0] > STOP).astype(jnp.float32)])

    def observation(self, state, rng, params=None):
        return state[:1]

    def reward(self, state, action, next_state, rng, params=None):
        return 10 * next_state[0]

    def terminal(self, state, rng, params=None):
        return state[1] > 0


class HostCounting(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.array([self.count], np.float32), 10.0 * self.count, bool(action[0] > STOP), False, {}


class Lived(NamedTuple):
    backend: str
    rows: dict[str, Any]  # all that was ever in the replay, (rows, envs)
    state: Any  # the algorithm's


@pytest.fixture(scope="module", params=["device", "host", "host that is asked"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def lived(backend: str) -> Lived:
    return _live(backend, WRITER)


def _live(backend: str, algorithm: Any) -> Lived:
    loop: Any
    if backend == "device":
        loop = DeviceLoop(DeviceEnvs(Counting(), ENVS, LIMIT), algorithm, CONFIG, SPACES, 1, ITERATIONS)
    else:
        envs = HostEnvs(lambda: gymnasium.wrappers.TimeLimit(HostCounting(), LIMIT), ENVS, seed=1)
        loop = HostLoop(envs, algorithm, CONFIG, SPACES, 1, ITERATIONS)
        if backend == "host that is asked":
            loop.learn_in_shares(1, 1)
            assert loop._asking
    state, parts = loop.start(), []
    for _ in range(ITERATIONS):
        state, _ = loop.advance(state, 1)
        parts.append({name: np.array(ring) for name, ring in _replay(loop, state).data._asdict().items()})
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    rows = {name: column.reshape(len(column), ENVS) for name, column in rows.items()}
    return Lived(backend, rows, jax.device_get(loop.learner(state).algorithm))


def _replay(loop: Any, state: Any) -> Any:
    return loop.replay if isinstance(loop, HostLoop) else state.replay


def test_every_step_of_every_environment_has_chance_of_its_own(lived: Lived) -> None:
    actions = lived.rows["action"]

    assert actions.shape == (ITERATIONS * ROUNDS * ROWS, ENVS)
    assert len(np.unique(actions)) == actions.size


def test_every_update_has_a_key_and_a_batch_of_its_own(lived: Lived) -> None:
    """Chosen anew each time, not only other because the replay has moved on: what counts is how old the steps are."""
    number = {action: place for place, action in enumerate(lived.rows["action"].reshape(-1).tolist())}
    seen = np.vectorize(number.get)(lived.state.batches)
    rounds = ROUNDS + np.arange(UPDATES) // 3  # made when each batch was drawn
    if lived.backend != "device":  # a batch is drawn before the steps of its round are made, but for the first
        rounds = np.maximum(rounds - 1, ROUNDS)
    ages = rounds[:, None] * ROWS * ENVS - seen

    assert lived.state.updates == UPDATES
    assert len(np.unique(lived.state.keys, axis=0)) == UPDATES
    assert ages.min() == 1
    assert ages.max() == CONFIG.buffer_size
    assert len(np.unique(ages, axis=0)) == UPDATES


def test_each_round_acts_with_all_that_was_learned_until_the_one_before(backend: str) -> None:
    actions = _live(backend, COUNTER).rows["action"].reshape(ITERATIONS * ROUNDS, ROWS * ENVS)

    # Three updates in each round from the last of the first iteration on, all of which acts at random.
    learned = 3 * np.arange(1, (ITERATIONS - 1) * ROUNDS + 1)
    np.testing.assert_allclose(actions[ROUNDS:], np.repeat(learned[:, None] / 1000, ROWS * ENVS, axis=1), rtol=1e-6)


def test_the_replay_holds_what_happened_and_a_time_limit_is_not_the_end_of_the_task(lived: Lived) -> None:
    happened = [_history(lived.rows["action"][:, env]) for env in range(ENVS)]
    ends = {(terminated, following == LIMIT) for env in happened for _, _, terminated, _, following in env}

    names = ("observation", "reward", "terminated", "begins", "next_observation")
    for column, name in enumerate(names):
        expected = np.array([[row[column] for row in env] for env in happened]).T
        np.testing.assert_array_equal(lived.rows[name], expected, name)
    assert ends >= {(True, False), (False, True)}, "not both kinds of ends: take another seed"


def _history(actions: Any) -> list[tuple[int, float, bool, bool, int]]:
    """Of one environment: observation, reward, terminated, begins, next observation."""
    rows, count = [], 0
    for action in actions:
        terminated = bool(action > STOP)
        rows.append((count, 10.0 * (count + 1), terminated, count == 0, count + 1))
        count = 0 if terminated or count + 1 == LIMIT else count + 1
    return rows


def test_a_replay_that_does_not_fit_into_memory_says_so() -> None:
    images = Spaces(observation=(4096, 4096, 3), discrete=False, actions=1, low=(-1.0,), high=(1.0,))
    config = dataclasses.replace(CONFIG, buffer_size=1_000_000_000)

    with pytest.raises(UsageError, match=r"no memory for as many observations of the shape \(4096, 4096, 3\)") as error:
        HostLoop(HostEnvs(lambda: gymnasium.make("Pendulum-v1"), 1, 1), ddpg, config, images, 1, ITERATIONS)

    assert error.value.hint == "--buffer-size 100000000"
