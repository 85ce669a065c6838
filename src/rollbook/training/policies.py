"""Learned policies out of the book: to play them, to start another training from them, to carry them elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos.parts.networks import CNN, MLP, NATURE
from rollbook.errors import DataError, UsageError
from rollbook.training.environments import Environment, find_environment
from rollbook.training.normaliser import Normaliser, make_normaliser
from rollbook.training.setup import Setup, load_algorithm, setup_from_record

if TYPE_CHECKING:
    from types import ModuleType

    from rollbook.book.book import RunRecord

EXPORT_FORMAT = "rollbook-policy-1"


@dataclass(frozen=True)
class Policy:
    """What a run had learned at a step."""

    run_id: str
    step: int
    setup: Setup
    algorithm: ModuleType
    environment: Environment
    actor: Any
    normaliser: Normaliser


def load_policy(record: RunRecord, step: int | None = None) -> Policy:
    """From the checkpoint at a step, or the newest."""
    setup = setup_from_record(record.config)
    algorithm = load_algorithm(setup.algorithm)
    environment = find_environment(setup.env, setup.backend, setup.max_episode_steps)
    saved = record.load_checkpoint(step)
    learner = saved.tensors["learner"]
    state, normaliser = _templates(setup, algorithm, environment)
    return Policy(
        run_id=record.run_id,
        step=saved.step,
        setup=setup,
        algorithm=algorithm,
        environment=environment,
        actor=fill(state.actor, actor_of(learner["algorithm"])),
        normaliser=fill(normaliser, learner["normaliser"]),
    )


def _templates(setup: Setup, algorithm: ModuleType, environment: Environment) -> tuple[Any, Normaliser]:
    config = setup.config
    state = jax.eval_shape(lambda key: algorithm.init(key, environment.spaces, config), jax.random.key(0))
    return state, make_normaliser(environment.spaces, config)


def actor_of(saved: Any) -> Any:
    """The actor within an algorithm's saved state, which has it as a field or inside `networks`."""
    return saved["actor"] if "actor" in saved else saved["networks"]["actor"]


def fill(template: Any, saved: Any) -> Any:
    """A tree like the template, with the saved arrays of the same places."""
    places, structure = jax.tree_util.tree_flatten_with_path(template)
    return jax.tree.unflatten(structure, [_leaf(path, leaf, saved) for path, leaf in places])


def _leaf(path: Any, leaf: Any, saved: Any) -> Any:
    place = jax.tree_util.keystr(path, simple=True, separator=".")
    node = saved
    try:
        for key in path:
            node = node[getattr(key, "name", getattr(key, "idx", getattr(key, "key", None)))]
    except (KeyError, IndexError, TypeError):
        raise UsageError(f"the checkpoint has no {place}", "the networks of both runs must be built alike") from None
    if np.shape(node) != leaf.shape:
        raise UsageError(
            f"{place} is {np.shape(node)} in the checkpoint and {leaf.shape} here",
            "the networks and environments of both runs must be alike",
        )
    return jnp.asarray(node, leaf.dtype)


def with_weights(learner: Any, book: Path, source: str, only: str | None) -> Any:
    """A learner that begins with the networks of another run (RUN or RUN@STEP), and with its scale of observations."""
    from rollbook.book.book import open_book

    reference, _, step = source.partition("@")
    if step and not step.isdecimal():
        raise UsageError(f"--init-from {source!r} is not RUN or RUN@STEP", "--init-from 9f2c@50000")
    saved = open_book(book).run(reference).load_checkpoint(int(step) if step else None).tensors["learner"]
    chosen = {only} if only else {"actor", "critic"}
    names = chosen | {f"target_{name}" for name in chosen}
    places, structure = jax.tree_util.tree_flatten_with_path(learner.algorithm)
    taken = [_is_part_of(names, path) for path, _ in places]
    if not any(taken):
        there = [name for name in ("actor", "critic") if hasattr(learner.algorithm, name)]
        raise UsageError(f"there is no network {only!r}", f"--only {' or --only '.join(there)}")
    leaves = [
        _leaf(path, leaf, saved["algorithm"]) if take else leaf
        for take, (path, leaf) in zip(taken, places, strict=True)
    ]
    normaliser = learner.normaliser
    if normaliser.observations is not None and saved["normaliser"]["observations"] is not None:
        normaliser = normaliser._replace(
            observations=fill(normaliser.observations, saved["normaliser"]["observations"])
        )
    return learner._replace(algorithm=jax.tree.unflatten(structure, leaves), normaliser=normaliser)


def _is_part_of(networks: set[str], path: Any) -> bool:
    """An optimizer's moments have the names of the networks in their paths, too, and are not taken."""
    names = {str(getattr(key, "name", "")) for key in path}
    return bool(names & networks) and not any("optimizer" in name for name in names)


# ---- carried elsewhere --------------------------------------------------------------------------------------------


def export_policy(policy: Policy, folder: Path) -> tuple[Path, Path]:
    """policy.safetensors and policy.json: all that a program without Rollbook needs to act."""
    from safetensors.numpy import save_file

    tensors, layers = _layers(policy.actor)
    statistics = policy.normaliser.observations
    if statistics is not None:
        tensors |= {"observation.mean": statistics.mean, "observation.std": statistics.std}
    spaces = policy.environment.spaces
    action = (
        {"kind": "discrete", "choices": spaces.actions, "first": spaces.first_action}
        if spaces.discrete
        else {"kind": "continuous", "low": list(spaces.low), "high": list(spaces.high)}
    )
    description: dict[str, Any] = {
        "format": EXPORT_FORMAT,
        "run": policy.run_id,
        "step": policy.step,
        "env": policy.environment.env_id,
        "observation": {"shape": list(spaces.observation), "normalised": statistics is not None, "limit": 10.0},
        "layers": layers,
        "action": action,
    }
    if encoder := getattr(policy.actor, "encoder", None):
        seen = ["observation", "action", *(["reward"] if encoder.see_reward else [])]
        description["memory"] = {"size": encoder.memory_size, "seen": seen}
    if not all(np.isfinite(np.asarray(tensor)).all() for tensor in tensors.values()):
        raise DataError("the policy has weights that are not finite", "--step chooses an earlier checkpoint")
    folder.mkdir(parents=True, exist_ok=True)
    weights, text = folder / "policy.safetensors", folder / "policy.json"
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, weights)
    text.write_text(json.dumps(description, indent=1) + "\n")
    return weights, text


def _layers(actor: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Weights by name, and the order in which they are applied."""
    tensors: dict[str, Any] = {}
    layers: list[dict[str, Any]] = []

    def add(name: str, weight: Any, bias: Any, **details: Any) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = weight, bias
        layers.append({"weight": f"{name}.weight", "bias": f"{name}.bias", **details})

    def add_torso(torso: MLP | CNN) -> None:
        if isinstance(torso, MLP):
            for number, layer in enumerate(torso.layers):
                add(f"hidden{number}", layer.weight, layer.bias, kind="linear", activation=torso.activation)
            return
        for number, (kernel, bias, (_, _, stride)) in enumerate(zip(torso.kernels, torso.biases, NATURE, strict=True)):
            add(f"conv{number}", kernel, bias, kind="convolution", stride=stride, activation="relu")
        add("features", torso.features.weight, torso.features.bias, kind="linear", activation="relu")

    if encoder := getattr(actor, "encoder", None):
        if encoder.torso is not None:
            add_torso(encoder.torso)
        for number, layer in enumerate(encoder.layers):
            name = f"memory{number}.inputs"
            tensors[name] = layer.inputs
            kind = type(layer).__name__.lower()
            add(f"memory{number}", layer.weight, layer.bias, kind=kind, inputs=name, activation=None)
    add_torso(actor.torso)
    head = np.asarray(actor.head.weight), np.asarray(actor.head.bias)
    if quantiles := getattr(actor, "count", None):  # of each action: their mean is what is acted on
        head = head[0].reshape(len(head[0]), -1, quantiles).mean(-1), head[1].reshape(-1, quantiles).mean(-1)
    add("head", *head, kind="linear", activation="tanh" if getattr(actor, "squashed", False) else None)
    if support := getattr(actor, "support", None):  # probabilities of returns, of each action
        tensors["returns"] = support.returns
        layers.append({"kind": "expectation", "returns": "returns", "activation": None})
    return tensors, layers
