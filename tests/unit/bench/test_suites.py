from __future__ import annotations

import pytest

from rollbook.bench.matrix import Program, make_cells
from rollbook.bench.suites import read_suite, shipped_suites
from rollbook.domains import find
from rollbook.errors import InvalidConfig

SUITE = """
task = "nightly"
env_ids = ["CartPole-v1", "Acrobot-v1"]
num_seeds = 2
tags = ["night"]

[[programs]]
algo = "ppo"
steps = 500_000
grid.lr = [1e-3, 3e-4]
grid.hidden_sizes = [[64, 64]]

[[programs]]
algo = "theirs"
command = "python ppo.py --total-timesteps {steps}"
env_ids = ["Pendulum-v1"]
seeds = [7]
steps = 10
tags = ["foreign"]
"""


@pytest.fixture
def read(tmp_path):
    def call(text: str, **overrides: object) -> list[Program]:
        (tmp_path / "suite.toml").write_text(text)
        return read_suite(str(tmp_path / "suite.toml"), overrides)

    return call


def test_a_suite_describes_ours_and_theirs(read):
    ours, theirs = read(SUITE)

    assert ours == Program(
        algo="ppo", env_ids=("CartPole-v1", "Acrobot-v1"), seeds=(1, 2), steps=500_000, task="nightly",
        grid={"lr": ("0.001", "0.0003"), "hidden_sizes": ("64,64",)}, tags=("night",),
    )  # fmt: skip
    assert theirs == Program(
        algo="theirs", command="python ppo.py --total-timesteps {steps}", env_ids=("Pendulum-v1",), seeds=(7,),
        steps=10, task="nightly", tags=("night", "foreign"),
    )  # fmt: skip


def test_the_command_line_beats_the_suite(read):
    ours, theirs = read(SUITE, num_seeds=3, start_seed=10, steps=99, task="now")

    assert ours.seeds == theirs.seeds == (10, 11, 12)
    assert (ours.steps, theirs.task) == (99, "now")


@pytest.mark.parametrize("name", shipped_suites())
def test_a_suite_of_ours_is_sound(name):
    cells = make_cells(read_suite(name, {}))

    assert len(cells) >= 15
    assert {cell.seed for cell in cells} == {1, 2, 3}


def test_ours_are_classic_mujoco_short_and_pomdp():
    assert {"classic", "mujoco-short", "pomdp"} <= set(shipped_suites())


def test_every_domain_of_the_pomdp_suite_is_there():
    envs = {cell.env for cell in make_cells(read_suite("pomdp", {}))}

    assert {env for env in envs if find(env) is None} == {"HalfCheetah-v5", "HalfCheetah-v5-p"}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('env_idz = ["A"]\n[[programs]]\nalgo = "ppo"', "suite.toml:1 has the unknown key 'env_idz'", "'env_ids'"),
        ('[[programs]]\nalgo = "ppo"\n  comand = "x"', "suite.toml:3 has the unknown key 'comand'", "'command'"),
        ('[[programs]]\nalgo = "ppo"\nsteps = "many"', "suite.toml:3: steps = 'many' is not a int", None),
        ('[[programs]]\nalgo = "ppo"\nseeds = ["a"]', "seeds = ['a'] are not whole numbers", "seeds = [1, 2, 3]"),
        ('[[programs]]\nalgo = "ppo"\nnum_seeds = 0', "num_seeds is 0", "at least 1"),
        ('[[programs]]\nalgo = "ppo"\nenv_ids = [1]', "env_ids = [1] is no list of names", "env_ids"),
        ('[[programs]]\nalgo = "ppo"\ngrid.lr = []', "the grid has no value for lr", "lr ="),
        ('[[programs]]\ntask = "x"', "a program has neither algo nor command", 'algo = "ppo"'),
        ("programs = [1]", "programs are tables", "[[programs]]"),
        ('task = "x"', "has no programs", "[[programs]]"),
        ("task =", "is no TOML: Invalid value (at end of document)", "docs/guide/bench.md"),
    ],
)
def test_a_wrong_suite_is_refused_with_the_place(read, text, message, hint):
    with pytest.raises(InvalidConfig) as refused:
        read(text)

    assert message in refused.value.message
    assert hint is None or hint in (refused.value.hint or "")


def test_a_suite_that_is_not_there_names_the_nearest():
    with pytest.raises(InvalidConfig, match="there is no suite 'clasic'") as refused:
        read_suite("clasic", {})

    assert refused.value.hint == "did you mean 'classic'?"
