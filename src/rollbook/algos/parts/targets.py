"""Target networks: slow copies that the learning networks are taught by."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp

from rollbook.algos.parts.networks import Array

T = TypeVar("T")


def copy_of(network: T) -> T:
    """In memory of its own: a program that is given both may overwrite either."""
    copied: T = jax.tree.map(jnp.copy, network)
    return copied


def moved_towards(target: T, network: T, tau: float) -> T:
    """The target with a share tau of the network (Lillicrap et al. 2016, algorithm 1)."""
    moved: T = jax.tree.map(lambda slow, fast: slow + tau * (fast - slow) if tau < 1 else fast, target, network)
    return moved


def moved_when(due: Array, target: T, network: T, tau: float) -> T:
    """The same where it is due; else as it was."""
    moved: T = jax.tree.map(lambda slow, new: jnp.where(due, new, slow), target, moved_towards(target, network, tau))
    return moved
