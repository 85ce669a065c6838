"""JAX as the training wants it: a compile cache on disk, and a known number of cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Of all that such a loop reads and writes: a network of 120 and 84 units for C51 fits. With a megabyte, nothing that
# was tried became faster.
_SMALL_LOOP_BYTES = 200_000


def use_cores(count: int | None, first: int = 0) -> int:
    """Keep this process to so many of its cores, and say how many it has. Works only before JAX is first used.

    XLA's threads follow the process's affinity. Sums are split by the number of cores, so the last bits of a result
    depend on it: an exact resume needs as many as before.
    """
    cores = sorted(os.sched_getaffinity(0))
    if count is not None and count < len(cores):
        chosen = [cores[(first + number) % len(cores)] for number in range(count)]
        os.sched_setaffinity(0, chosen)
        cores = chosen
    return len(cores)


def use_compile_cache() -> None:
    """Programs that were compiled once are read from disk by later processes, unless the user chose a place."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rollbook" / "compiled"
    settings = {
        "jax_compilation_cache_dir": str(cache),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


def keep_small_loops_whole() -> None:
    """For trainings on the device. Works only before JAX is first used.

    A step of an environment with a small network is some forty calls of XLA's, which take longer than what they do. As
    one piece of machine code, ten steps of CartPole-v1 with DQN take 8 us in place of 17; the numbers are the same to
    the bit (ADR 17). Not so with JAX 0.8, so older ones than 0.10 keep their loops.
    """
    import jax

    if jax.__version_info__ < (0, 10):
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_extra_options" not in flags:
        option = f"--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold={_SMALL_LOOP_BYTES}"
        os.environ["XLA_FLAGS"] = f"{flags} {option}".strip()


def compiled(learn: Callable[..., Any]) -> Any:
    """A program that learns, and may write to the memory of its first argument."""
    import jax

    # By default, XLA uses half of what an AVX-512 register holds: an update of QR-DQN (CartPole-v1, Zen 5) took 182 us
    # so, and 159 with all of it; those of DQN and C51 hardly changed. Other processors were not tried.
    wide = {"xla_cpu_prefer_vector_width": 512} if jax.default_backend() == "cpu" else None
    return jax.jit(learn, donate_argnums=0, compiler_options=wide)
