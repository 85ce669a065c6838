"""What one looks at when learning values goes wrong: errors, gradients, weights, activations, broken numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from rollbook.algos.parts.diagnostics import inactive_share, nonfinite_share, norm
from rollbook.algos.parts.networks import Array, Torso

_QUANTILES = (0.05, 0.5, 0.95)


class Part(NamedTuple):
    """A network with its gradient, and one of its torsos with what went into it."""

    network: Any
    gradient: Any
    torso: Torso
    inputs: Array


def of_values(parts: Mapping[str, Part], td_error: Array, counted: Array | None = None) -> dict[str, Array]:
    quantiles = jnp.quantile(td_error, jnp.array(_QUANTILES))
    metrics = {f"debug/td_error_p{int(100 * q)}": quantiles[i] for i, q in enumerate(_QUANTILES)}
    for name, part in parts.items():
        metrics |= {
            f"debug/{name}_gradient_norm": norm(part.gradient),
            f"debug/{name}_weight_norm": norm(part.network),
            f"debug/{name}_inactive_share": inactive_share(part.torso, part.inputs, counted),
        }
    everything = [(part.network, part.gradient) for part in parts.values()]
    return metrics | {"debug/nonfinite_share": nonfinite_share((everything, td_error))}
