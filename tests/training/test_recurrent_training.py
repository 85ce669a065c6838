"""The rules of training, for algorithms with a memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from test_rules_of_training import assert_same, killed_at_second_evaluation, metrics_of

import rollbook
from rollbook.algos import rdpg
from rollbook.algos.parts.sequences import Sequences
from rollbook.algos.parts.spaces import Spaces
from rollbook.errors import InvalidConfig, UsageError
from rollbook.training.environments import find_environment
from rollbook.training.evaluate import Evaluator, host_policy, play
from rollbook.training.policies import export_policy, load_policy
from rollbook.training.setup import Setup
from rollbook.training.train import Labels, make_setup, train_one
from rollbook.training.trainer import make_machine

SMALL: dict[str, Any] = {
    "num_envs": 2, "train_every": 4, "updates_per_step": 0.125, "learning_starts": 128, "buffer_size": 500,
    "batch_size": 4, "sequence_length": 8, "units": 4, "hidden_sizes": (8,), "log_every": 64,
}  # fmt: skip
# Each with another kind of memory, so that all of it goes through a checkpoint.
KINDS: dict[str, dict[str, Any]] = {
    "rsac": {"start": "stored", "see_reward": True},
    "rtd3": {"encoders": "shared", "cell": "gru", "layers": 2, "burn_in": 4},
    "rdpg": {"sequences": "episodes"},
}


def small_setup(algorithm: str, env: str = "Pendulum-v1", **changes: Any) -> Setup:
    config = {**SMALL, **KINDS[algorithm], **changes.pop("config", {})}
    if config.get("sequences") == "episodes":
        changes = {"max_episode_steps": config["sequence_length"], **changes}
    options = {"steps": 1280, "eval_every": 512, "checkpoint_every": 256, "eval_episodes": 2, **changes}
    return make_setup(algorithm, env, preset="none", sources=[config], **options)


@pytest.mark.parametrize(
    ("algorithm", "env", "backend"),
    [
        ("rsac", "Pendulum-v1", "device"),
        ("rdpg", "Hopper-v5", "host"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("rsac", "Hopper-v5", "host"), ("rtd3", "Pendulum-v1", "device"), ("rdpg", "Pendulum-v1", "device"),
                ("rtd3", "Pendulum-v1", "host"),
            ]
        ),
    ],
)  # fmt: skip
def test_resume_is_exact_with_a_memory(
    book: Path, algorithm: str, env: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = small_setup(algorithm, env, backend=backend)
    whole = train_one(setup, Labels(), None)
    died = killed_at_second_evaluation(setup, monkeypatch)
    monkeypatch.setenv("ROLLBOOK_RESUME", died.run_id)
    resumed = train_one(setup, Labels(), None)

    assert resumed.status == "finished"
    assert_same(whole, resumed)
    saved = resumed.load_checkpoint().growing
    assert [(rows.first, rows.end) for rows in saved.values()] == [(1280 // 2 - 250, 1280 // 2)] * 2
    assert metrics_of(resumed)["losses/critic"][0][0] == 128


def test_the_memory_is_part_of_the_checkpoint(book: Path) -> None:
    record = train_one(small_setup("rsac", steps=256), Labels(), None)

    _, carried = record.load_checkpoint().tensors["environment"]
    assert np.asarray(carried["memory"]).shape == (2, 3 * 8)
    assert np.asarray(carried["memory"]).any()
    assert sum(len(columns["memory"]) for _, columns in record.load_checkpoint().growing["episodes"]) == 128


@pytest.mark.parametrize("backend", ["device", "host"])
def test_episodes_that_would_not_be_whole_are_refused(backend: str) -> None:
    with pytest.raises(InvalidConfig, match="sequence_length is 8 and a whole episode may have 200 steps") as error:
        make_machine(small_setup("rdpg", backend=backend, max_episode_steps=None))

    assert error.value.hint == "sequence_length=200, or sequences=segments"
    make_machine(small_setup("rdpg", backend=backend, max_episode_steps=8))
    make_machine(small_setup("rdpg", backend=backend, max_episode_steps=None, config={"sequences": "segments"}))


def test_a_fork_says_what_its_parent_lacks(
    book: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = train_one(small_setup("rtd3", steps=256), Labels(), None)
    monkeypatch.setenv("ROLLBOOK_PARENT", parent.run_id)
    storing = train_one(small_setup("rtd3", steps=512, config={"start": "stored", "burn_in": 0}), Labels(), None)

    assert storing.status == "finished"
    assert "the replay cannot be read (it has no memory): it begins empty" in capsys.readouterr().err
    monkeypatch.setenv("ROLLBOOK_PARENT", parent.run_id)  # the first fork has taken it
    with pytest.raises(UsageError, match=r"the checkpoint does not fit: .* is of shape"):
        train_one(small_setup("rtd3", steps=512, config={"units": 8}), Labels(), None)


def test_half_of_what_shares_an_encoder_cannot_be_taken_from_another_run() -> None:
    with pytest.raises(UsageError, match="--only actor would part what a shared encoder ties together"):
        make_machine(small_setup("rtd3", init_from="9f2c", only="actor"))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    book = str(tmp_path_factory.mktemp("book"))
    return load_policy(train_one(small_setup("rsac", steps=256), Labels(task="memory"), book))


class Echo:
    """An algorithm that shows what it is given: acts on the memory, which counts the steps."""

    LOOP = "recurrent"
    told: list[tuple[float, float, float]]

    class Actor:
        class encoder:
            memory_size = 1

    def __init__(self) -> None:
        self.told = []

    def act(self, actor: Any, seen: Any, memory: Any, noise: Any) -> Any:
        self.told.append((float(memory[0, 0]), float(seen.action[0, 0]), float(seen.reward[0])))
        return (memory + 1) / 1000, memory + 1


def test_a_played_episode_carries_memory_action_and_reward_and_forgets_them_at_its_end() -> None:
    environment, algorithm = find_environment("Pendulum-v1", "host"), Echo()
    env = environment.make(training=False)
    act = host_policy(algorithm, environment, algorithm.Actor, None)  # type: ignore[arg-type]

    for seed in (3, 4):  # the second episode begins with nothing, too
        algorithm.told.clear()
        rewards: list[float] = []
        play(env, act, seed, watch=lambda _, reward, __, rewards=rewards: rewards.append(reward))
        memories, actions, heard = zip(*algorithm.told, strict=True)
        assert memories == tuple(range(200))
        assert actions == pytest.approx([n / 1000 for n in range(200)])
        assert heard == pytest.approx(rewards[:-1], rel=1e-6)


def test_episodes_on_the_device_and_on_the_host_are_alike(policy: Any) -> None:
    """The same policy; the episodes begin elsewhere, so that only their kind is compared."""
    found = Evaluator(policy.algorithm, policy.environment, 8, seed=1)(policy.actor, policy.normaliser, 0)
    act = host_policy(policy.algorithm, policy.environment, policy.actor, policy.normaliser)
    env = policy.environment.make(training=False)
    returns = [play(env, act, seed)[0] for seed in range(8)]

    assert found.lengths.tolist() == [200] * 8
    assert np.mean(returns) == pytest.approx(found.returns.mean(), abs=3 * float(found.returns.std()))


def test_an_exported_policy_with_a_memory_acts_the_same_in_numpy(policy: Any, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    export_policy(policy, tmp_path)
    weights = load_file(tmp_path / "policy.safetensors")
    network = json.loads((tmp_path / "policy.json").read_text())
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "train.md").read_text()
    scope: dict[str, Any] = {}
    exec(guide.split("```python\n# act.py\n")[1].split("```")[0].split("if __name__")[0], scope)
    exec(guide.split("```python\n# remember.py\n")[1].split("```")[0], scope)
    ours = host_policy(policy.algorithm, policy.environment, policy.actor, policy.normaliser)

    memory, action, reward = scope["begin"](network), np.zeros(1), 0.0
    for observation in np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32):
        seen = scope["seen"](network, observation, action, reward)
        chosen, memory = scope["act_with_memory"](weights, network, seen, memory)
        np.testing.assert_allclose(chosen, ours(observation), rtol=1e-4, atol=1e-5)
        reward = float(observation[0])
        ours.hear(reward)
        action = np.asarray(chosen) / 2  # Pendulum's bounds are -2 and 2: what was chosen, from -1 to 1


def test_images_go_through_the_convolutions() -> None:
    spaces = Spaces(observation=(36, 36, 1), discrete=False, actions=1, low=(-1,), high=(1,))
    config = rdpg.Config(**{**SMALL, "sequence_length": 2, "encoders": "shared"})
    state = rdpg.init(jax.random.key(0), spaces, config)
    rng = np.random.default_rng(1)
    batch = Sequences(
        rng.integers(0, 256, (3, 2, 36, 36, 1), np.uint8), np.zeros((3, 2, 1), np.float32),
        np.zeros((3, 2), np.float32), np.zeros((3, 2), bool), np.zeros((2, 2), bool), np.ones((2, 2), bool),
        np.zeros((2, 0), np.float32),
    )  # fmt: skip

    slope, _ = jax.grad(rdpg.critic_loss, has_aux=True)(state.critic, state, batch, config)

    kernels = slope.encoders[0].torso.kernels
    assert all(np.isfinite(kernel).all() and np.abs(kernel).max() > 0 for kernel in kernels)


def test_a_video_shows_an_episode_of_a_policy_with_a_memory(policy: Any) -> None:
    from rollbook.training.videos import record_episode

    act = host_policy(policy.algorithm, policy.environment, policy.actor, policy.normaliser)
    frames, _, _, length = record_episode(policy.environment, act, seed=1)

    assert length == 200
    assert len(frames) == 201


@pytest.mark.slow
def test_debug_metrics_of_sequences_do_not_change_the_training(book: Path) -> None:
    usual = train_one(small_setup("rsac"), Labels(), None)
    looked_at = train_one(small_setup("rsac"), Labels(verbosity="debug"), None)

    names = [name for name in metrics_of(looked_at) if not name.startswith("debug/")]
    assert {name: metrics_of(looked_at)[name] for name in names} == metrics_of(usual)
    assert {"debug/td_error_p50", "debug/overestimation"} <= metrics_of(looked_at).keys()
    assert isinstance(usual, rollbook.RunRecord)
