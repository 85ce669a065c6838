"""Updates on several cores, each of which learns from a share of every batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_rules_of_training import assert_same

import rollbook
from rollbook.algos import ddpg, rsac
from rollbook.algos.parts.spaces import Spaces
from rollbook.errors import UsageError
from rollbook.training.host import HostEnvs
from rollbook.training.off_policy import HostLoop
from rollbook.training.shares import check_shares, how_many
from rollbook.training.step_records import StepForm

SPACES = Spaces(observation=(3,), discrete=False, actions=1, low=(-2.0,), high=(2.0,))
CONFIG = ddpg.Config(learning_starts=50, log_every=40, batch_size=16, hidden_sizes=(8,))
SMALL = ["--learning-starts", "100", "--log-every", "100", "--batch-size", "16", "--hidden-sizes", "16"]


class Breaks(gymnasium.Wrapper[Any, Any, Any, Any]):
    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 70:
            raise OSError("the simulator is gone")
        return super().step(action)


def loop_on(make: Any, shares: int | None = None) -> HostLoop:
    """One that is given its batches, or asks for them in so many shares."""
    loop = HostLoop(HostEnvs(make, 1, 1), ddpg, CONFIG, SPACES, 1, 3)
    if shares:
        loop._ask_for_batches(shares)
    return loop


def pendulum() -> Any:
    return gymnasium.make("Pendulum-v1")


def test_a_program_that_asks_for_its_batches_learns_what_one_does_that_is_given_them() -> None:
    reports = []
    for shares in (None, 1):
        loop = loop_on(pendulum, shares)
        learner = loop.start()
        loop.compile(learner)
        for _ in range(3):
            learner, report = loop.advance(learner, 1)
        reports.append((learner, report))

    (given, given_report), (asking, asking_report) = reports
    for one, other in zip(jax.tree.leaves(given), jax.tree.leaves(asking), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert given_report.metrics.keys() == asking_report.metrics.keys()
    for name, values in given_report.metrics.items():
        np.testing.assert_allclose(values, asking_report.metrics[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shares", [None, 1], ids=["given", "asks"])
def test_learning_starts_in_the_middle_of_an_iteration(shares: int | None) -> None:
    loop = loop_on(pendulum, shares)
    learner = loop.start()

    learner, first = loop.advance(learner, 1)
    learner, _ = loop.advance(learner, 1)

    assert first.metric_steps == []
    assert loop.replay.added == 80
    assert int(learner.algorithm.updates) == 80 - CONFIG.learning_starts + 1


def test_what_an_environment_raises_reaches_the_caller_and_nothing_hangs() -> None:
    loop = loop_on(lambda: Breaks(pendulum()), shares=1)
    learner, _ = loop.advance(loop.start(), 1)

    with pytest.raises(OSError, match="the simulator is gone"):
        loop.advance(learner, 1)

    learner, _ = loop.advance(loop.start(), 1)  # and it can be used again
    assert int(learner.iteration) == 1


@pytest.mark.parametrize("discrete", [False, True], ids=["numbers", "choices"])
@pytest.mark.parametrize("observed", [np.float32, np.uint8])
def test_a_batch_is_the_same_on_the_device(observed: Any, discrete: bool) -> None:
    rng = np.random.default_rng(0)
    spaces = Spaces(observation=(5,), discrete=discrete, actions=3)
    form = StepForm(spaces, observed)
    records = np.frombuffer(rng.bytes(2 * 6 * form.dtype.itemsize), form.dtype).reshape(2, 6).copy()
    records["observation"] = rng.integers(0, 256, (2, 6, 5))
    records["action"] = rng.integers(0, 3, (2, 6) if discrete else (2, 6, 3))
    records["terminated"] = rng.random((2, 6)) < 0.5
    for name in ("reward", "discount"):
        records[name] = rng.normal(size=(2, 6))

    batch = form.batch_of_words(jnp.asarray(form.to_words(records)))

    assert batch.observation.shape == (2, 6, 5)
    for name, array in batch._asdict().items():
        assert array.dtype == records[name].dtype, name
        np.testing.assert_array_equal(array, records[name], err_msg=name)


@pytest.mark.parametrize(
    ("devices", "batch", "numbers", "shares"),
    [(1, 256, 800_000, 1), (2, 256, 800_000, 2), (2, 256, 5_000, 1), (2, 128, 800_000, 1), (3, 256, 800_000, 2),
     (8, 512, 800_000, 4)],
)  # fmt: skip
def test_shares_are_equal_and_have_enough_to_do(devices: int, batch: int, numbers: int, shares: int) -> None:
    config, state = ddpg.Config(batch_size=batch), [np.zeros(numbers)]

    assert how_many(devices, config, state) == shares


def test_a_share_of_sequences_counts_all_their_steps() -> None:
    config, state = rsac.Config(batch_size=10, sequence_length=200), [np.zeros(100_000)]

    assert how_many(2, config, state) == 2


@pytest.mark.parametrize(("wanted", "devices"), [(3, 4), (0, 2), (2, 1)])
def test_shares_that_cannot_be_are_refused(wanted: int, devices: int) -> None:
    with pytest.raises(UsageError, match=f"shares is {wanted}"):
        check_shares(wanted, devices, 16)


def test_algorithms_without_shares_refuse_them(book: Path) -> None:
    with pytest.raises(UsageError, match="shares is 2, and ppo on CartPole-v1"):
        rollbook.train("ppo", "CartPole-v1", steps=100, shares=2, book=book)


# ---- two devices, which a process must ask for before it uses JAX ---------------------------------------------------

SAME_UPDATE = """
import importlib, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
import jax.numpy as jnp, numpy as np
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.sequences import Sequences
from rollbook.algos.parts.spaces import Spaces
from rollbook.training.shares import Cores, over_shares, own_share

jax.random.normal = lambda key, shape=(), dtype=jnp.float32: jnp.full(shape, 0.3)  # shares draw noise of their own
for name in sys.argv[1:]:
    algorithm, rng = importlib.import_module(f"rollbook.algos.{name}"), np.random.default_rng(0)
    numbers = lambda *shape: rng.normal(size=shape).astype(np.float32)
    discrete, memory = algorithm.ACTIONS == "discrete", algorithm.LOOP == "recurrent"
    spaces = Spaces(observation=(4,), discrete=discrete, actions=2)
    config = dict(batch_size=8, hidden_sizes=(16,), max_grad_norm=0.1)
    if memory:  # shares have different numbers of real steps
        config = algorithm.Config(**config, sequence_length=5, units=8)
        real = rng.random((5, 8)) < np.linspace(0.2, 1, 8)
        batch = Sequences(
            numbers(6, 8, 4), np.tanh(numbers(6, 8, 2)), numbers(6, 8), rng.random((6, 8)) < 0.2,
            rng.random((5, 8)) < 0.2, real, numbers(8, 0),
        )
    else:
        config = algorithm.Config(**config)
        action = rng.integers(0, 2, 8).astype(np.int32) if discrete else np.tanh(numbers(8, 2))
        ends, discount = rng.random(8) < 0.3, np.full(8, 0.9, np.float32)
        batch = Batch(numbers(8, 4), action, numbers(8), ends, numbers(8, 4), discount)
    state = algorithm.init(jax.random.key(0), spaces, config)

    def updates(state, batch):
        for number in range(3):
            state, metrics = algorithm.update(state, batch, jax.random.key(number), config)
        return state, over_shares(metrics)

    def updates_on_a_share(state, batch):
        if memory:
            return updates(state, Sequences(*own_share(batch[:-1], axis=1), own_share(batch.memory, axis=0)))
        return updates(state, own_share(batch, axis=0))

    whole = jax.jit(updates)(state, batch)
    split = jax.jit(Cores(2).run(updates_on_a_share))(state, batch)
    assert whole[1].keys() == split[1].keys()
    whole[1].pop("losses/real_share", None), split[1].pop("losses/real_share", None)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(split), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other.addressable_data(0)), rtol=2e-4, atol=2e-6)
        np.testing.assert_array_equal(other.addressable_data(0), other.addressable_data(1))
"""


def test_a_batch_in_shares_teaches_what_the_whole_batch_does() -> None:
    algorithms = ["ddpg", "td3", "sac", "dqn", "c51", "qrdqn", "rdpg", "rtd3", "rsac"]

    done = subprocess.run([sys.executable, "-c", SAME_UPDATE, *algorithms], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


ASKING_DEVICES = """
import sys, time
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_shares import Breaks, loop_on, pendulum
from rollbook.training.asking import AskingUpdates

"""
ONE_IS_LATE = """
asks = AskingUpdates._ask

def late(self, context, words, device, *actor):
    time.sleep(0.02 * int(np.asarray(device)))
    asks(self, context, words, device, *actor)

losses = []
for AskingUpdates._ask in (asks, late):
    loop = loop_on(pendulum, shares=2)
    learner = loop.start()
    for _ in range(3):
        learner, report = loop.advance(learner, 1)
        losses += [value for name, values in sorted(report.metrics.items()) for value in values.tolist()]
assert len(losses) > 20 and np.isfinite(losses).all()
assert losses[: len(losses) // 2] == losses[len(losses) // 2 :], losses
"""
ENVIRONMENT_BREAKS = """
loop = loop_on(lambda: Breaks(pendulum()), shares=2)
learner, _ = loop.advance(loop.start(), 1)
try:
    loop.advance(learner, 1)
except OSError:
    learner, _ = loop.advance(loop.start(), 1)  # it can be used again
    assert int(learner.iteration) == 1
else:
    raise AssertionError("it went on")
"""


@pytest.mark.parametrize("program", [ONE_IS_LATE, ENVIRONMENT_BREAKS], ids=["one is late", "environment breaks"])
def test_each_of_two_devices_has_its_share_or_the_end(program: str) -> None:
    """One that asks late learns from its share all the same, also where all steps of an iteration are made by then; and
    neither waits for ever where an environment breaks.
    """
    command = [sys.executable, "-c", ASKING_DEVICES + program, str(Path(__file__).parent)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stderr


def command(*arguments: str) -> Any:
    done = subprocess.run([sys.executable, "-m", "rollbook", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


SEQUENCES = [
    "--learning-starts",
    "100",
    "--log-every",
    "100",
    "--batch-size",
    "4",
    "--units",
    "8",
    "--sequence-length",
    "10",
]
WORKS = {
    "host": ["sac", "Pendulum-v1", "--backend", "host", *SMALL],
    "device": ["sac", "Pendulum-v1", "--backend", "device", *SMALL],
    "memory": ["rtd3", "pendulum-p-v0", "--sequence-length", "10", *SEQUENCES],
}


@pytest.mark.parametrize("work", WORKS)
def test_a_run_in_shares_goes_on_exactly_and_says_in_how_many(book: Path, work: str) -> None:
    train = ["train", *WORKS[work], "--preset", "none", "--eval-every", "300", "--eval-episodes", "2"]
    train += ["--shares", "2", "--book", str(book), "--json"]
    whole = json.loads(command(*train, "--steps", "600").stdout)[0]
    part = json.loads(command(*train, "--steps", "300").stdout)[0]

    command("resume", part["run_id"], "--steps", "+300", "--book", str(book))

    opened = rollbook.open(book)
    first, second = opened.run(whole["run_id"]), opened.run(part["run_id"])
    assert first.config["shares"] == 2
    assert "--shares 2" in first.command
    assert_same(first, second)
