from __future__ import annotations

import shlex
import sys

import pytest

from rollbook.bench.matrix import Program, make_cells
from rollbook.errors import UsageError


def commands(**given) -> list[str]:
    return [shlex.join(cell.command) for cell in make_cells([Program(task="bench", **given)])]


def test_a_command_is_told_its_environment_and_seed():
    assert commands(command="python my_ppo.py --cuda False", env_ids=("CartPole-v1", "Acrobot-v1"), seeds=(1, 2)) == [
        "python my_ppo.py --cuda False --env-id CartPole-v1 --seed 1",
        "python my_ppo.py --cuda False --env-id Acrobot-v1 --seed 1",
        "python my_ppo.py --cuda False --env-id CartPole-v1 --seed 2",
        "python my_ppo.py --cuda False --env-id Acrobot-v1 --seed 2",
    ]


def test_placeholders_are_filled_and_not_appended():
    assert commands(
        command="./train.sh {env}/{seed} --lr={lr} -n {steps} --as {algo}",
        algo="mine", env_ids=("Hopper-v5",), seeds=(7,), grid={"lr": ("1e-3",), "tau": ("0.5",)}, steps=100,
    ) == ["./train.sh Hopper-v5/7 --lr=1e-3 -n 100 --as mine --tau 0.5"]  # fmt: skip


def test_a_grid_multiplies():
    found = commands(command="p", env_ids=("A", "B"), seeds=(1,), grid={"lr": ("1", "2"), "n": ("3", "4")})

    assert len(found) == len(set(found)) == 8
    assert "p --env-id A --seed 1 --lr 2 --n 3" in found


def test_braces_that_are_no_placeholders_stay():
    assert commands(command="""p '{"a": {"b": 1}}' {{seed}} {}""", seeds=(1,)) == [
        """p '{"a": {"b": 1}}' '{seed}' '{}' --seed 1"""
    ]


def test_the_first_seeds_of_everything_come_first():
    programs = [
        Program(task="t", command="a", seeds=(5, 6)),
        Program(task="t", command="b", env_ids=("X", "Y"), seeds=(1,)),
    ]

    assert [(cell.algo, cell.env, cell.seed) for cell in make_cells(programs)] == [
        ("a", None, 5),
        ("b", "X", 1),
        ("b", "Y", 1),
        ("a", None, 6),
    ]


def test_an_algorithm_of_ours_is_trained_and_resumed():
    (cell,) = make_cells(
        [Program(task="bench", algo="ppo", env_ids=("Pendulum-v1",), seeds=(3,), steps=1000, grid={"lr": ("1e-3",)})]
    )

    assert cell.command == [
        sys.executable, "-m", "rollbook", "train", "ppo", "Pendulum-v1",
        "--seeds", "3", "--task", "bench", "--steps", "1000", "--set", "lr=1e-3",
    ]  # fmt: skip
    assert cell.resumes
    assert cell.label == "ppo Pendulum-v1 lr=0.001 seed 3"


@pytest.mark.parametrize(
    ("command", "algo"),
    [
        ("python cleanrl/ppo.py", "ppo"),
        ("python -m their.package.sac", "sac"),
        ("./run.sh", "run"),
        ("python -u td3.py", "td3"),
    ],
)
def test_a_foreign_program_is_known_by_its_script(command, algo):
    (cell,) = make_cells([Program(task="t", command=command, env_ids=("Hopper-v5",), seeds=(1,))])

    assert (cell.algo, cell.env, cell.seed) == (algo, "Hopper-v5", 1)
    assert cell.config == {"algo": algo, "env": "Hopper-v5", "env_id": "Hopper-v5", "seed": 1}
    assert not cell.resumes


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"command": "p {sede}", "seeds": (1,)}, "unknown placeholder {sede} in the command", "'seed'"),
        ({"command": "p {lr}", "seeds": (1,)}, "unknown placeholder {lr} in the command", "there are {seed}, {algo}"),
        ({"command": "p", "seeds": (1, 1)}, "two cells of the matrix are the same: p --seed 1", "stands there twice"),
        ({"command": "p x", "env_ids": ("A", "A"), "seeds": (1,)}, "two cells", "twice"),
        ({"command": "p 'x", "seeds": (1,)}, 'cannot read the command "p \'x": No closing quotation', "quote it"),
        ({"command": " ", "seeds": (1,)}, "the command is empty", "--command"),
        ({"command": "p", "seeds": (1,), "steps": 5}, "'p' is not told its 5 steps", "--total-timesteps {steps}"),
        ({"command": "p", "seeds": ()}, "the benchmark has no cell", "--num-seeds"),
        ({"algo": "ppo", "seeds": (1,)}, "ppo needs environments", "--env-ids"),
    ],
)
def test_what_makes_no_matrix_is_refused(given, message, hint):
    with pytest.raises(UsageError) as refused:
        make_cells([Program(task="bench", **given)])

    assert message in refused.value.message
    assert hint in (refused.value.hint or "")
