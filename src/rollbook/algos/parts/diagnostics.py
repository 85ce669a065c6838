"""What one looks at when learning goes wrong: gradients, weights, activations, advantages, broken numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollbook.algos.parts.actor_critic import Batch
from rollbook.algos.parts.networks import CNN, Array, activate

_QUANTILES = (0.05, 0.5, 0.95)


def of_networks(networks: NamedTuple, gradient: NamedTuple, batch: Batch) -> dict[str, Array]:
    """Of each network by name, and of the advantages of a batch."""
    quantiles = jnp.quantile(batch.advantage, jnp.array(_QUANTILES))
    metrics = {f"debug/advantage_p{int(100 * q)}": quantiles[i] for i, q in enumerate(_QUANTILES)}
    for name, network in networks._asdict().items():
        metrics |= {
            f"debug/{name}_gradient_norm": norm(getattr(gradient, name)),
            f"debug/{name}_weight_norm": norm(network),
        }
        if network.torso:
            metrics[f"debug/{name}_inactive_share"] = inactive_share(network.torso, batch.observation)
    return metrics | {"debug/nonfinite_share": nonfinite_share((networks, gradient, batch))}


def norm(tree: Any) -> Array:
    """The length of all leaves as one vector."""
    return jnp.sqrt(jnp.stack([jnp.square(leaf).sum() for leaf in jax.tree.leaves(tree)]).sum())


def nonfinite_share(tree: Any) -> Array:
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    broken = jnp.stack([jnp.sum(~jnp.isfinite(leaf)) for leaf in leaves])
    total: int = sum(leaf.size for leaf in leaves)
    return broken.sum() / total


def inactive_share(torso: Any, observation: Array, counted: Array | None = None) -> Array:
    """Share of hidden outputs without a usable gradient: zero after a ReLU, beyond 0.97 after a tanh. `counted` says of
    each observation whether it counts, (..., 1).
    """
    if isinstance(torso, CNN):
        features: Array = torso(observation)
        return (features <= 0).mean(where=counted)
    shares, x = [], observation
    for layer in torso.layers:
        x = activate(layer(x), torso.activation)
        inactive = jnp.abs(x) > 0.97 if torso.activation == "tanh" else x <= 0
        shares.append(inactive.mean(where=counted))
    return jnp.stack(shares).mean()
