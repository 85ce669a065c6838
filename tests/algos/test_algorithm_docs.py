"""The page of an algorithm names what there is: every metric with its level, fields with their defaults, functions."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from rollbook.algos.parts.actor_critic import Rollout
from rollbook.algos.parts.fields import fields_of
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.sequences import Sequences
from rollbook.algos.parts.spaces import Spaces
from rollbook.training import off_policy, trainer
from rollbook.training.setup import ALGORITHMS, load_algorithm, parse

PAGES = Path(__file__).parents[2] / "docs" / "algorithms"
DISCRETE = Spaces(observation=(3,), discrete=True, actions=4)
CONTINUOUS = Spaces(observation=(3,), discrete=False, actions=2, low=(-1, -1), high=(1, 1))
STEPS, ENVS = 4, 2

# A name of a metric, with its group: `--verbosity debug` and `losses/` alone are none.
METRIC = re.compile(r"`((?:charts|eval|losses|debug)/\w+)`")

Row = dict[str, str]  # a table's row, by the titles of its columns
Levels = dict[str, str]  # by the names of metrics


# ---- what is logged -------------------------------------------------------------------------------------------------


def shapes_of_a_rollout(spaces: Spaces) -> Rollout:
    def shape(*rest: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((STEPS, ENVS, *rest), dtype)

    return Rollout(
        observation=shape(*spaces.observation),
        action=shape(dtype=jnp.int32) if spaces.discrete else shape(spaces.actions),
        reward=shape(),
        terminated=shape(dtype=jnp.bool_),
        truncated=shape(dtype=jnp.bool_),
        next_observation=shape(*spaces.observation),
    )


def names_from_update_and_inspect(name: str, spaces: Spaces) -> tuple[set[str], set[str]]:
    """Found by shapes alone: nothing is compiled or computed."""
    algorithm = load_algorithm(name)
    if algorithm.LOOP == "off_policy":
        return names_off_policy(algorithm, spaces)
    if algorithm.LOOP == "recurrent":
        return names_recurrent(algorithm, spaces)
    config = algorithm.Config(num_envs=ENVS, rollout_steps=STEPS, hidden_sizes=(4,))

    def learn(key: Any, rollout: Rollout, progress: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        state = algorithm.init(key, spaces, config)
        state, updated = algorithm.update(state, rollout, progress, key, config)
        return updated, algorithm.inspect(state, rollout, config)

    progress = jax.ShapeDtypeStruct((), jnp.float32)
    updated, inspected = jax.eval_shape(learn, jax.random.key(0), shapes_of_a_rollout(spaces), progress)
    return set(updated), set(inspected)


def names_off_policy(algorithm: Any, spaces: Spaces) -> tuple[set[str], set[str]]:
    if ("discrete" if spaces.discrete else "continuous") != algorithm.ACTIONS:
        return set(), set()
    rollout = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[:1] + x.shape[2:], x.dtype), shapes_of_a_rollout(spaces)
    )
    batch = Batch(
        rollout.observation,
        rollout.action,
        rollout.reward,
        rollout.terminated,
        rollout.next_observation,
        rollout.reward,
    )
    config = algorithm.Config(hidden_sizes=(4,))

    def learn(key: Any, batch: Batch) -> tuple[dict[str, Any], dict[str, Any]]:
        state = algorithm.init(key, spaces, config)
        state, updated = algorithm.update(state, batch, key, config)
        return updated, algorithm.inspect(state, batch, key, config)

    updated, inspected = jax.eval_shape(learn, jax.random.key(0), batch)
    return set(updated) | set(off_policy.REPLAY_METRICS), set(inspected) | set(trainer.OVERESTIMATION_METRICS)


def names_recurrent(algorithm: Any, spaces: Spaces) -> tuple[set[str], set[str]]:
    if spaces.discrete:
        return set(), set()
    config = algorithm.Config(hidden_sizes=(4,), units=4, sequence_length=STEPS)

    def shape(time: int, *rest: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((time, ENVS, *rest), dtype)

    batch = Sequences(
        observation=shape(STEPS + 1, *spaces.observation),
        previous_action=shape(STEPS + 1, spaces.actions),
        previous_reward=shape(STEPS + 1),
        begins=shape(STEPS + 1, dtype=jnp.bool_),
        terminated=shape(STEPS, dtype=jnp.bool_),
        real=shape(STEPS, dtype=jnp.bool_),
        memory=jax.ShapeDtypeStruct((ENVS, 0), jnp.float32),
    )

    def learn(key: Any, batch: Sequences) -> tuple[dict[str, Any], dict[str, Any]]:
        state = algorithm.init(key, spaces, config)
        state, updated = algorithm.update(state, batch, key, config)
        return updated, algorithm.inspect(state, batch, key, config)

    updated, inspected = jax.eval_shape(learn, jax.random.key(0), batch)
    return set(updated) | set(off_policy.REPLAY_METRICS), set(inspected) | set(trainer.OVERESTIMATION_METRICS)


def levels_from_the_trainer() -> Levels:
    """Of the metrics that the trainer names itself, in `run.log({"name": ...}, step, "level")`."""
    levels = {}
    for node in ast.walk(ast.parse(inspect.getsource(trainer))):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="log"), args=[ast.Dict(keys=names), _, ast.Constant(value=str(level))]
            ):
                levels |= {name.value: level for name in names if isinstance(name, ast.Constant)}
    return levels


@cache
def logged_levels(name: str) -> Levels:
    levels = levels_from_the_trainer()
    for spaces in (DISCRETE, CONTINUOUS):
        updated, inspected = names_from_update_and_inspect(name, spaces)
        levels |= {metric: trainer._level(metric) for metric in updated}
        levels |= dict.fromkeys(inspected, "debug")
    return levels


# ---- what the pages say ---------------------------------------------------------------------------------------------


def page_of(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


def rows_with_columns(text: str, *titles: str) -> list[Row]:
    """The rows of all tables that have these columns."""
    rows = []
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        header, _, *body = [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in table.splitlines()]
        if set(titles) <= set(header):
            rows += [dict(zip(header, cells, strict=False)) for cells in body]
    return rows


def in_backticks(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def levels_in_the_table(text: str) -> Levels:
    return {in_backticks(row["metric"])[0]: row["level"] for row in rows_with_columns(text, "metric", "level")}


def fields_named(text: str) -> set[str]:
    return {field for row in rows_with_columns(text, "field") for field in in_backticks(row["field"])}


def functions_named(text: str) -> set[str]:
    """`ppo.loss` and `parts.gae.advantages` are of rollbook.algos; `ppo.py` is a file."""
    modules = "|".join([*ALGORITHMS, r"parts\.\w+"])
    return set(re.findall(rf"`((?:{modules})\.(?!py`)\w+)`", text))


def exists(function: str) -> bool:
    module, _, attribute = f"rollbook.algos.{function}".rpartition(".")
    return hasattr(import_module(module), attribute)


# ---- they agree -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_metric_that_is_logged_is_on_the_page_with_its_level(name: str) -> None:
    assert logged_levels(name).items() <= levels_in_the_table(page_of(name)).items()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_metric_on_the_page_is_really_logged(name: str) -> None:
    named = levels_in_the_table(page_of(name)).keys() | set(METRIC.findall(page_of(name)))

    assert named - logged_levels(name).keys() == set()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_page_that_the_index_links(name: str) -> None:
    links = re.findall(r"\]\((\w+\.md)\)", (PAGES / "index.md").read_text())

    assert (PAGES / f"{name}.md").is_file()
    assert f"{name}.md" in links


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_field_on_the_page_is_one_of_the_configuration(name: str) -> None:
    fields = fields_of(load_algorithm(name).Config)

    assert fields_named(page_of(name)) - fields.keys() == set()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_default_on_the_page_is_the_real_one(name: str) -> None:
    fields = fields_of(load_algorithm(name).Config)

    for row in rows_with_columns(page_of(name), "field", "default"):
        field = fields[in_backticks(row["field"])[0]]
        assert parse(field, in_backticks(row["default"])[0]) == field.default, field.name


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_function_on_the_page_exists(name: str) -> None:
    named = functions_named(page_of(name))

    assert named
    assert {function for function in named if not exists(function)} == set()


# ---- and the checks see faults --------------------------------------------------------------------------------------


def test_the_trainer_logs_the_metrics_of_all_algorithms() -> None:
    assert levels_from_the_trainer() == dict.fromkeys(
        ["charts/episodic_return", "charts/episodic_length", "charts/SPS", "eval/return", "eval/length"], "essential"
    )


def test_tables_are_read_by_their_titles() -> None:
    metrics = "| metric | level |\n| --- | --- |\n| `losses/x` | info |\n"
    text = f"{metrics}\n| field | default |\n| --- | --- |\n| `lr` | `1` |\n"

    assert levels_in_the_table(text) == {"losses/x": "info"}
    assert fields_named(text) == {"lr"}


def test_a_function_is_told_from_a_file_and_from_one_that_is_gone() -> None:
    assert functions_named("`ppo.py` has `ppo.loss`, `parts.gae.advantages` and `ppo.gone`") == {
        "ppo.loss",
        "parts.gae.advantages",
        "ppo.gone",
    }
    assert exists("ppo.loss")
    assert not exists("ppo.gone")
