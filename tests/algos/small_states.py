"""Each off-policy algorithm with small networks, and batches for it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos import c51, ddpg, dqn, qrdqn, sac, td3
from rollbook.algos.parts.replay import Batch
from rollbook.algos.parts.spaces import Spaces

NUMBERS = Spaces(observation=(3,), discrete=False, actions=2, low=(-1, -1), high=(1, 1))
CHOICES = Spaces(observation=(3,), discrete=True, actions=4)
SIZES: dict[str, Any] = {"hidden_sizes": (8, 8)}
CONFIGS: dict[str, Any] = {
    "ddpg": (ddpg, ddpg.Config(**SIZES), NUMBERS),
    "td3": (td3, td3.Config(**SIZES, policy_every=1), NUMBERS),
    "sac": (sac, sac.Config(**SIZES), NUMBERS),
    "dqn": (dqn, dqn.Config(**SIZES), CHOICES),
    "c51": (c51, c51.Config(**SIZES, atoms=11, value_min=-3.0, value_max=3.0), CHOICES),
    "qrdqn": (qrdqn, qrdqn.Config(**SIZES, quantiles=5), CHOICES),
}
KEY = jax.random.key(7)


def make_batch(spaces: Spaces, size: int = 6) -> Batch:
    """Half of it terminated, with discounts of one step and of two."""
    rng = np.random.default_rng(3)
    action = rng.integers(0, 4, size) if spaces.discrete else rng.uniform(-1, 1, (size, 2)).astype(np.float32)
    return Batch(
        observation=jnp.asarray(rng.normal(size=(size, 3)), jnp.float32),
        action=jnp.asarray(action),
        reward=jnp.asarray(rng.normal(size=size), jnp.float32),
        terminated=jnp.arange(size) % 2 == 0,
        next_observation=jnp.asarray(rng.normal(size=(size, 3)), jnp.float32),
        discount=jnp.where(jnp.arange(size) < 3, 0.99, 0.9801),
    )


def make_state(algorithm: Any, config: Any, spaces: Spaces) -> Any:
    """With targets that differ from the networks, as they do in training."""
    state, other = (algorithm.init(jax.random.key(seed), spaces, config) for seed in (1, 2))
    fields = {name: getattr(other, name) for name in state._fields if name.startswith("target_")}
    return state._replace(**fields)


def constant(network: Any, value: float) -> Any:
    """The network with no weights and this last bias: it answers everything with the same number."""
    zero = jax.tree.map(jnp.zeros_like, network)
    head = dataclasses.replace(zero.head, bias=jnp.full_like(zero.head.bias, value))
    return dataclasses.replace(zero, head=head)
