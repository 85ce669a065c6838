"""From what the user wishes to the executor that has it."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

from rollbook.bench.benchmark import Benchmark
from rollbook.bench.conditions import CurrentConditions
from rollbook.bench.executors import Executor
from rollbook.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Wishes:
    where: str = "local"
    workers: int | None = None
    cpus: int | None = None
    gpus: int | None = None
    memory_bytes: int | None = None
    time_limit_seconds: float | None = None
    ray_address: str | None = None
    partition: str | None = None


def check(wishes: Wishes) -> None:
    """Before anything is planned: what only another executor has, and numbers that make no sense."""
    if wishes.workers is not None and wishes.workers < 1:
        raise UsageError(f"--workers is {wishes.workers}", "--workers 1 runs one job after the other")
    others = {"--memory": ("ray", "slurm"), "--partition": ("slurm",), "--ray-address": ("ray",)}
    given = {"--memory": wishes.memory_bytes, "--partition": wishes.partition, "--ray-address": wishes.ray_address}
    for option, value in given.items():
        if value is not None and wishes.where not in others[option]:
            raise UsageError(f"{option} is not for --on {wishes.where}", f"--on {others[option][0]}")
    if wishes.where == "ray" and wishes.time_limit_seconds is not None:
        raise UsageError("--time is not for --on ray", "`timeout 2h` before the command does the same")


def choose_executor(benchmark: Benchmark, conditions: CurrentConditions, wishes: Wishes) -> tuple[Executor, int]:
    """The executor, and how many jobs it has at work at a time, as far as that is known."""
    from rollbook.bench.remote import write_conditions

    if benchmark.where() == "slurm" and wishes.where != "slurm":
        from rollbook.bench.executors.slurm import alive_jobs

        if queued := alive_jobs(benchmark):
            raise UsageError(
                f"Slurm has {len(queued)} jobs of {benchmark.plan.benchmark}",
                f"--on slurm goes on with them, `rollbook bench cancel {benchmark.plan.benchmark}` ends them",
            )
    write_conditions(benchmark, wishes.where, conditions.newest.own_tags, conditions.newest.notes)
    if wishes.where == "local":
        from rollbook.bench.executors.local import LocalExecutor, share_out

        slots = share_out(wishes.workers, wishes.cpus, wishes.gpus)
        return LocalExecutor(benchmark, conditions, slots, wishes.time_limit_seconds), len(slots)
    if wishes.where == "slurm":
        from rollbook.bench.executors.slurm import Resources as SlurmResources
        from rollbook.bench.executors.slurm import SlurmExecutor

        asked = SlurmResources(
            cpus=wishes.cpus,
            gpus=wishes.gpus,
            memory_bytes=wishes.memory_bytes,
            time_limit_seconds=wishes.time_limit_seconds,
            partition=wishes.partition,
        )
        return SlurmExecutor(benchmark, wishes.workers, asked), wishes.workers or len(benchmark.plan.cells)
    if not importlib.util.find_spec("ray"):
        raise UsageError("--on ray needs Ray, which is not installed", "pip install 'rollbook[ray]'")
    # Read when Ray is first imported; its messages are not ours.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    from rollbook.bench.executors.ray import RayExecutor, Resources

    workers = wishes.workers or len(benchmark.plan.cells)
    resources = Resources(cpus=wishes.cpus, gpus=wishes.gpus, memory_bytes=wishes.memory_bytes)
    return RayExecutor(benchmark, workers, resources, wishes.ray_address), workers
