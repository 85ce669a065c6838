"""`rollbook train`, `eval` and `export policy` as a user calls them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollbook

SMALL = ["--num-envs", "2", "--rollout-steps", "64", "--minibatches", "2", "--epochs", "2", "--hidden-sizes", "8"]
SHORT = ["--steps", "512", "--eval-every", "256", "--checkpoint-every", "256", "--preset", "none"]


def test_each_seed_is_a_run_of_its_own(cli: Any, book: Path) -> None:
    answer = cli("train", "ppo", "CartPole-v1", "--seeds", "3,5", *SHORT, *SMALL, "--tags", "pilot", "--json")

    assert answer.code == 0, answer.err
    assert [(run["seed"], run["status"]) for run in answer.json] == [(3, "finished"), (5, "finished")]
    runs = rollbook.open().runs("'pilot' in tags and algo = 'ppo' and env = 'CartPole-v1'")
    assert sorted(run.config["seed"] for run in runs) == [3, 5]
    assert {len(run.checkpoints()) for run in runs} == {2}
    assert "seed 3" in answer.err
    assert "100%" in answer.err


def test_the_stored_command_makes_the_same_run_again(cli: Any, book: Path) -> None:
    cli("train", "ppo", "CartPole-v1", "--seeds", "7", *SHORT, *SMALL, "--lr", "0.001")
    run = rollbook.open().runs()[0]

    command = run.stored().info.command
    assert command[1:4] == ["-m", "rollbook", "train"]
    again = cli(*command[3:])

    assert again.code == 0, again.err
    first, second = rollbook.open().runs("true")
    changed = {key for key in first.config if first.config[key] != second.config[key]}
    assert changed == set()


def test_set_beats_the_file_and_the_file_beats_the_preset(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("lr = 0.5\ngamma = 0.5\n")

    answer = cli("train", "ppo", "CartPole-v1", "--config", "mine.toml", "--set", "lr=0.25", "--print-config")

    assert "lr = 0.25\n" in answer.out
    assert "gamma = 0.5\n" in answer.out
    (tmp_path / "again.toml").write_text(answer.out)
    assert cli("train", "ppo", "CartPole-v1", "--config", "again.toml", "--print-config").out == answer.out


def test_stacked_observations_have_the_preset_of_what_is_stacked(cli: Any) -> None:
    plain, stacked = (cli("train", "sac", env, "--print-config").out for env in ("car-p-v0", "car-p-v0+concat20"))

    assert "hold_random_actions = 20\n" in plain
    assert stacked.replace("+concat20", "") == plain


def test_help_of_an_algorithm_shows_every_parameter(cli: Any) -> None:
    import dataclasses

    from rollbook.algos import ppo

    answer = cli("train", "ppo", "--help")

    for field in dataclasses.fields(ppo.Config):
        assert f"  {field.name}" in answer.out
    assert "discount of future rewards" in answer.out


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["pppo", "CartPole-v1"], "there is no algorithm 'pppo'", "did you mean 'ppo'"),
        (["nothing.py", "CartPole-v1"], "there is no file nothing.py", "Config, init, act and update"),
        (["ppo", "CartPol-v1"], "there is no environment 'CartPol-v1'", "did you mean 'CartPole-v1'"),
        (["ppo", "CartPole-v1", "--set", "lrr=1"], "ppo has no parameter 'lrr'", "did you mean 'lr'?"),
        (["ppo", "CartPole-v1", "--lr", "fast"], "lr is 'fast'", "lr must be a number, more than 0"),
        (["ppo", "CartPole-v1", "--gamma", "2"], "gamma is 2.0", "gamma must be a number, from 0 to 1"),
        (["ppo", "CartPole-v1", "--minibatches", "3"], "cannot be divided into 3 minibatches", "divide"),
        (["ppo", "CartPole-v1", "--steps", "-5"], "steps is -5", "--steps 500000"),
        (["ppo", "CartPole-v1", "--seeds", "x"], "--seeds 'x' is no list", "--seeds 1,2,3"),
        (["ppo", "CartPole-v1", "--seeds", "1,1"], "names a seed twice", "--seeds 1,2,3"),
        (["ppo", "CartPole-v1", "--preset", "best"], "ppo has no preset 'best'", "none"),
        (["ppo", "CartPole-v1", "--lr"], "--lr has no value", "--lr VALUE"),
        (["ppo", "CartPole-v1", "extra"], "unexpected argument 'extra'", "--lr"),
    ],
)
def test_bad_input_gets_one_clear_error(cli: Any, book: Path, arguments: list[str], error: str, hint: str) -> None:
    answer = cli("train", *arguments)

    assert answer.code == 2
    assert error in answer.err.splitlines()[0]
    assert hint in answer.err.splitlines()[1]
    assert not list(book.glob("tasks/*/*"))


MY_ALGORITHM = '''
"""The constant policy."""
from dataclasses import dataclass
from typing import NamedTuple
import jax.numpy as jnp

LOOP = "on_policy"

@dataclass(frozen=True, kw_only=True)
class Config:
    num_envs: int = 2
    rollout_steps: int = 50
    gamma: float = 0.99
    normalise_observations: bool = False
    normalise_rewards: bool = False
    favourite: int = 1
    """the action that it always takes"""

class State(NamedTuple):
    actor: object

def init(key, spaces, config):
    return State(jnp.float32(config.favourite))

def act(actor, observation, noise):
    return jnp.full(observation.shape[:-1], actor, int)

def update(state, rollout, progress, key, config):
    return state, {"losses/reward": rollout.reward.mean()}
'''


def test_a_users_own_file_is_an_algorithm(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "constant.py").write_text(MY_ALGORITHM)

    answer = cli("train", "constant.py", "CartPole-v1", "--steps", "500", "--favourite", "0", "--json")

    assert answer.code == 0, answer.err
    assert answer.json[0]["config"]["algo"] == "constant"
    assert answer.json[0]["config"]["favourite"] == 0
    found = rollbook.open().sql("select avg(value) from metrics where name = 'charts/episodic_length'").fetchall()
    assert 8 < found[0][0] < 11  # a cart that is pushed to one side drops its pole in about nine steps


def test_eval_plays_the_learned_policy_and_saves_a_video(cli: Any, tmp_path: Path) -> None:
    cli("train", "ppo", "CartPole-v1", *SHORT, *SMALL)
    run = rollbook.open().runs()[0]

    answer = cli("eval", run.run_id, "--episodes", "4", "--video", "--out", "videos", "--json")
    older = cli("eval", run.run_id, "--step", "256", "--json")

    assert answer.code == 0, answer.err
    found = answer.json[0]
    assert len(found["returns"]) == 4
    assert found["mean"] == pytest.approx(np.mean(found["returns"]))
    assert found["step"] == 512
    assert older.json[0]["step"] == 256
    assert Path(found["video"]).stat().st_size > 1000
    assert rollbook.open().sql("select name, step from media").fetchall() == [("eval", 512)]


def test_eval_of_a_step_that_was_not_saved_names_the_steps_that_were(cli: Any) -> None:
    cli("train", "ppo", "CartPole-v1", *SHORT, *SMALL)

    answer = cli("eval", rollbook.open().runs()[0].run_id, "--step", "300")

    assert answer.code == 4
    assert "256" in answer.err


OFF_POLICY = ["--learning-starts", "64", "--buffer-size", "512", "--hidden-sizes", "8", "--log-every", "64"]
NORMALISED = ["--set", "normalise_observations=true"]


@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [
        ("ppo", "CartPole-v1", [*SMALL, *NORMALISED]),
        ("ppo", "Pendulum-v1", [*SMALL, *NORMALISED]),
        ("sac", "Pendulum-v1", [*OFF_POLICY, "--train-every", "32", "--updates-per-step", "0.125"]),
        ("c51", "CartPole-v1", [*OFF_POLICY, "--atoms", "7"]),
        ("qrdqn", "CartPole-v1", [*OFF_POLICY, "--quantiles", "5"]),
    ],
)
def test_an_exported_policy_acts_the_same_in_numpy(
    cli: Any, tmp_path: Path, algorithm: str, env: str, options: list[str]
) -> None:
    from safetensors.numpy import load_file

    from rollbook.training.evaluate import host_policy
    from rollbook.training.policies import load_policy

    trained = cli("train", algorithm, env, *SHORT, *options)
    assert trained.code == 0, trained.err
    run = rollbook.open().runs()[0]
    assert cli("export", "policy", run.run_id, "--out", "policy").code == 0
    weights, network = load_file("policy/policy.safetensors"), json.loads(Path("policy/policy.json").read_text())
    policy = load_policy(run)
    ours = host_policy(policy.algorithm, policy.environment, policy.actor, policy.normaliser)

    guide = (Path(__file__).parents[2] / "docs" / "guide" / "train.md").read_text()
    example = guide.split("```python\n# act.py\n")[1].split("```")[0]
    scope: dict[str, Any] = {}
    exec(example.split("if __name__")[0], scope)
    observations = np.random.default_rng(1).normal(size=(50, *policy.environment.spaces.observation)).astype(np.float32)
    for observation in observations:
        np.testing.assert_allclose(scope["act"](weights, network, observation), ours(observation), rtol=1e-5, atol=1e-6)


def test_weights_of_another_run_are_a_starting_point(cli: Any) -> None:
    cli("train", "ppo", "CartPole-v1", *SHORT, *SMALL)
    first = rollbook.open().runs()[0]

    answer = cli(
        "train", "ppo", "CartPole-v1", *SHORT, *SMALL, "--init-from", f"{first.run_id}@256", "--only", "actor",
        "--lr", "1e-30", "--seeds", "9",
    )  # fmt: skip

    assert answer.code == 0, answer.err
    second = rollbook.open().runs("seed = 9")[0]
    before = first.load_checkpoint(256).tensors["learner"]["algorithm"]["networks"]
    after = second.load_checkpoint().tensors["learner"]["algorithm"]["networks"]
    np.testing.assert_allclose(before["actor"]["head"]["weight"], after["actor"]["head"]["weight"], atol=1e-6)
    assert not np.allclose(before["critic"]["head"]["weight"], after["critic"]["head"]["weight"])
    assert cli("train", "ppo", "Acrobot-v1", *SHORT, *SMALL, "--init-from", first.run_id).code == 2


def test_targets_begin_with_the_weights_of_another_run_as_well(cli: Any) -> None:
    cli("train", "dqn", "CartPole-v1", *SHORT, *OFF_POLICY)
    first = rollbook.open().runs()[0]

    answer = cli(
        "train", "dqn", "CartPole-v1", *SHORT, *OFF_POLICY, "--init-from", first.run_id, "--lr", "1e-30", "--seeds", "9"
    )

    assert answer.code == 0, answer.err
    before = first.load_checkpoint().tensors["learner"]["algorithm"]["actor"]["head"]["weight"]
    after = rollbook.open().runs("seed = 9")[0].load_checkpoint().tensors["learner"]["algorithm"]
    np.testing.assert_allclose(after["actor"]["head"]["weight"], before, atol=1e-6)
    np.testing.assert_allclose(after["target_actor"]["head"]["weight"], before, atol=1e-6)


def test_the_stored_command_leaves_the_replay_out_again(cli: Any) -> None:
    cli("train", "dqn", "CartPole-v1", *SHORT, *OFF_POLICY, "--no-save-replay")
    run = rollbook.open().runs()[0]

    assert run.config["no_save_replay"] is True
    assert "--no-save-replay" in run.stored().info.command
    again = cli(*run.stored().info.command[3:], "--print-config")
    assert again.code == 0, again.err
    assert "# no_save_replay = True" in again.out


def _logged(book: Path) -> bool:
    return any(path.stat().st_size > 1000 for path in book.glob("tasks/*/*/attempts/0/metrics.log"))


def test_ctrl_c_saves_a_checkpoint_and_marks_the_run_interrupted(cli: Any, book: Path) -> None:
    # A shell's background jobs, and so perhaps these tests, ignore Ctrl-C, and children inherit that.
    heeds_ctrl_c = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heeds_ctrl_c}; from rollbook.cli import main; main()"
    options = ["--steps", "100000000", "--preset", "none", "--checkpoint-every", "0", "--eval-every", "0"]
    process = subprocess.Popen([sys.executable, "-c", program, "train", "ppo", "CartPole-v1", *options, *SMALL])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not _logged(book):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)

    assert process.wait(60) == 130
    run = rollbook.open().runs()[0]
    assert run.status == "interrupted"
    assert len(run.checkpoints()) == 1


def test_a_seed_that_diverges_does_not_touch_the_others(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "unlucky.py").write_text(
        MY_ALGORITHM.replace(
            "return State(jnp.float32(config.favourite))", "return State(jax.random.uniform(key) < 0.5)"
        )
        .replace("import jax.numpy as jnp", "import jax, jax.numpy as jnp")
        .replace('{"losses/reward": rollout.reward.mean()}', '{"losses/luck": jnp.where(state.actor, jnp.nan, 0.0)}')
    )

    answer = cli("train", "unlucky.py", "CartPole-v1", "--steps", "500", "--seeds", "1-6", "--json")

    assert answer.code == 1
    statuses = {run.config["seed"]: run.status for run in rollbook.open().runs("true")}
    assert set(statuses.values()) == {"failed", "finished"}
    assert len(statuses) == 6
    for seed, status in statuses.items():
        assert (f"seed {seed} failed: losses/luck is nan at step 100" in answer.err) == (status == "failed")


def test_a_worker_that_dies_takes_only_its_seed_with_it(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(
        MY_ALGORITHM.replace("import jax.numpy as jnp", "import jax, jax.numpy as jnp, os, signal").replace(
            "return State(jnp.float32(config.favourite))",
            "jax.debug.callback(lambda x: x < 0.3 and os.kill(os.getpid(), signal.SIGKILL), jax.random.uniform(key))\n"
            "    return State(jnp.float32(config.favourite))",
        )
    )

    answer = cli("train", "deadly.py", "CartPole-v1", "--steps", "500", "--seeds", "1-6")

    assert answer.code == 1
    statuses = [run.status for run in rollbook.open().runs("true")]
    assert set(statuses) == {"lost", "finished"}
    assert answer.err.count("failed: ") == statuses.count("lost")


def test_a_fork_branches_off_with_changes_and_a_resume_goes_further(cli: Any, book: Path) -> None:
    cli("train", "ppo", "CartPole-v1", *SHORT, *SMALL)
    parent = rollbook.open().runs()[0]

    forked = cli("fork", parent.run_id, "--set", "lr=0.01", "--steps", "+256")
    resumed = cli("resume", parent.run_id, "--steps", "+128")

    assert (forked.code, resumed.code) == (0, 0), forked.err + resumed.err
    child = rollbook.open().runs(f"parent = '{parent.run_id}'")[0]
    assert (child.config["lr"], child.config["steps"], child.last_step) == (0.01, 768, 768)
    first = rollbook.open().sql(
        f"select min(step) from metrics where run_id = '{child.run_id}' and name = 'losses/policy'"
    )
    assert first.fetchall() == [(512 + 128,)]
    assert rollbook.open().run(parent.run_id).last_step == 640


def test_an_episode_of_the_first_seed_is_recorded(cli: Any) -> None:
    answer = cli("train", "ppo", "Pendulum-v1", *SHORT, *SMALL, "--seeds", "1,2", "--capture-video")

    assert answer.code == 0, answer.err
    found = rollbook.open().sql("select seed, media.name, step from media join runs using (run_id) order by step")
    assert found.fetchall() == [(1, "rollout", 256), (1, "rollout", 512)]


def test_a_training_keeps_the_code_of_the_users_project_not_of_rollbook(book: Path, process: Any) -> None:
    from rollbook.algos import vpg

    Path("mine.py").write_text(Path(vpg.__file__).read_text())
    small = ["--num-envs", "2", "--rollout-steps", "64", "--hidden-sizes", "8", "--preset", "none"]
    answer = process("train", "mine.py", "CartPole-v1", "--seeds", "1,2", "--steps", "128", *small)

    assert answer.code == 0, answer.err
    for run in rollbook.open(book).runs():
        listed = [file["path"] for file in process("code", "list", run.run_id, "--json").json]
        assert listed == ["mine.py"]


def test_mujoco_is_recorded_without_a_screen(book: Path, process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    answer = process("train", "ppo", "InvertedPendulum-v5", *SHORT, *SMALL, "--capture-video")

    assert answer.code == 0, answer.err
    found = rollbook.open(book).sql("select step, bytes > 1000 from media where name = 'rollout' order by step")
    assert found.fetchall() == [(256, True), (512, True)]


def test_a_training_that_was_killed_before_its_first_checkpoint_starts_over(book: Path, cli: Any, process: Any) -> None:
    once = ("train", "ppo", "CartPole-v1", "--steps", 2048, "--eval-every", 0)
    process(*once, "--checkpoint-every", 0)
    killed = rollbook.open(book).runs()[0]
    shutil.rmtree(killed.folder / "checkpoints")
    expected = steps_of(killed)
    answer = process("resume", killed.run_id)

    assert answer.code == 0, answer.err
    assert f"run {killed.run_id} starts over: what it logged before no longer counts" in answer.err
    assert steps_of(rollbook.open(book).run(killed.run_id)) == expected


def steps_of(run: rollbook.RunRecord) -> list[int]:
    return [int(step) for step in run.metrics("losses/policy")["step"].to_numpy()]


def test_a_job_of_a_benchmark_that_is_killed_goes_on_from_its_checkpoint(book: Path, process: Any) -> None:
    """The program alone is killed: the retry is the same run, and its steps count once."""
    command = [
        sys.executable,
        "-m",
        "rollbook",
        "bench",
        "--algo",
        "ppo",
        "--env-ids",
        "CartPole-v1",
        "--num-seeds",
        "1",
    ]
    runner = subprocess.Popen([*command, "--steps", "60000", "--retries", "1"], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 100
    while not list(book.glob("tasks/*/*/checkpoints/*/manifest.json")):
        assert time.monotonic() < until
        time.sleep(0.02)
    (status,) = book.glob("tasks/*/*/attempts/0/status.json")
    os.kill(json.loads(status.read_text())["process"]["pid"], signal.SIGKILL)
    said = runner.communicate(timeout=200)[1]

    run = rollbook.open(book).runs()[0]
    assert runner.returncode == 0, said
    assert "failed with exit code 137" in said
    assert run.status == "finished"
    assert len(list(run.folder.glob("attempts/*"))) == 2
    assert len(set(steps_of(run))) == len(steps_of(run)) == 118


def test_an_episode_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from rollbook.training import evaluate

    class Endless:
        def reset(self, seed: int) -> tuple[int, dict[str, Any]]:
            return 0, {}

        def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
            return 0, 1.0, False, False, {}

    monkeypatch.setattr(evaluate, "LONGEST_EPISODE", 50)

    assert evaluate.play(Endless(), lambda _: 0, seed=1) == (50.0, 50)
