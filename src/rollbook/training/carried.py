"""What a policy with a memory carries from one step of an episode to the next."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos.parts.networks import namespace
from rollbook.algos.parts.sequences import Seen
from rollbook.algos.parts.spaces import Spaces


class Carried(NamedTuple):
    """Arrays (envs, ...), all 0 where an episode begins."""

    memory: Any
    action: Any  # the newest, as the algorithm gave it
    reward: Any

    def seen(self, observation: Any) -> Seen:
        return Seen(observation, self.action, self.reward)


def nothing_carried(envs: int, memory_size: int, actions: int) -> Carried:
    return Carried(jnp.zeros((envs, memory_size)), jnp.zeros((envs, actions)), jnp.zeros(envs))


def remembers(algorithm: Any) -> bool:
    return getattr(algorithm, "LOOP", "") == "recurrent"


def carried_at_first(algorithm: Any, actor: Any, envs: int, actions: int) -> Carried | None:
    """Of episodes that begin; nothing if the algorithm has no memory."""
    return nothing_carried(envs, actor.encoder.memory_size, actions) if remembers(algorithm) else None


def best_action(algorithm: Any, actor: Any, observation: Any, carried: Carried | None) -> tuple[Any, Any]:
    """The action without exploration, and the memory after it."""
    if carried is None:
        return algorithm.act(actor, observation, None), None
    action, memory = algorithm.act(actor, carried.seen(observation), carried.memory, None)
    return action, memory


class RememberingPolicy:
    """The best action for one observation after another of a host environment, on the environment's scale."""

    def __init__(self, algorithm: Any, actor: Any, spaces: Spaces) -> None:
        self._act = jax.jit(algorithm.act, static_argnums=3) if spaces.image else algorithm.act
        self._actor = actor if spaces.image else jax.device_get(actor)
        self._spaces = spaces
        self.begin()

    def begin(self) -> None:
        """An episode begins: nothing is remembered."""
        size = self._actor.encoder.memory_size
        self._carried: Carried = jax.device_get(nothing_carried(1, size, self._spaces.actions))

    def hear(self, reward: float) -> None:
        """What the newest action brought."""
        self._carried = self._carried._replace(reward=np.array([reward], np.float32))

    def __call__(self, observation: Any) -> Any:
        batch = np.asarray(observation, None if self._spaces.image else np.float32)[None]
        action, memory = self._act(self._actor, self._carried.seen(batch), self._carried.memory, None)
        self._carried = Carried(np.asarray(memory), np.asarray(action), self._carried.reward)
        return self._spaces.to_environment(np.asarray(action))[0]


def forgotten_where(begins: Any, carried: Carried) -> Carried:
    def forget(x: Any) -> Any:
        xp = namespace(x)
        return xp.where(begins.reshape(-1, *[1] * (x.ndim - 1)), xp.zeros((), x.dtype), x)

    forgotten: Carried = jax.tree.map(forget, carried)
    return forgotten
