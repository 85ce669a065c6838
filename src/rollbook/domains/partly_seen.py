"""Domains that hide a part of their state: what could be seen has names, of which the table of domains picks some."""
# ruff: noqa: ARG002 - the arguments are FuncEnv's

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rollbook.domains.drawing import Array, DrawnEnv, Key


class PartlySeen(DrawnEnv):
    """An observation is the numbers that `seen` names, in its order. What is not asked for is not computed."""

    seen: str  # names of sights, with spaces between
    limits: ClassVar[Mapping[str, float]]  # of every sight, on both sides of zero

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        super().__init__(options)
        high = np.array([self.limits[name] for name in self.seen.split()], np.float32)
        self.observation_space = spaces.Box(-high, high)

    def sights(self, state: Array) -> dict[str, Array]:
        """All that could be seen."""
        raise NotImplementedError

    def observation(self, state: Array, rng: Key, params: None = None) -> Array:
        sights = self.sights(state)
        return jnp.stack([sights[name] for name in self.seen.split()])
