"""Runs as tests need them, made by the library itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import rollbook
from rollbook.book.book import RunRecord
from rollbook.book.find import find_run_folder
from rollbook.book.layout import Layout
from rollbook.book.run_folder import read_run, run_series

RETURN = "charts/episodic_return"


def finished(
    book: Path,
    *,
    task: str = "task",
    algo: str | None = "sac",
    env: str | None = "Hopper-v5",
    seed: int | None = 1,
    returns: Sequence[float] = (1.0, 2.0, 3.0),
    steps: Sequence[int] | None = None,
    metric: str = RETURN,
    benchmark: str | None = None,
    tags: Iterable[str] = (),
    state: str = "finished",
    **config: Any,
) -> str:
    """A run that has ended, with one metric at steps 0, 1, 2, ...; returns its id."""
    named = {"algo": algo, "env": env, "seed": seed}
    config = {key: value for key, value in named.items() if value is not None} | config
    os.environ.pop("ROLLBOOK_BENCHMARK", None)
    if benchmark:
        os.environ["ROLLBOOK_BENCHMARK"] = benchmark
    run = rollbook.start(task, config=config, book=book, tags=tags, save_code=False)
    os.environ.pop("ROLLBOOK_BENCHMARK", None)
    for step, value in zip(steps if steps is not None else range(len(returns)), returns, strict=True):
        run.log({metric: value}, step=step)
    run.finish(state, None if state == "finished" else "as the test wants it")
    return run.id


def record(book: Path, run_id: str) -> RunRecord:
    return rollbook.open(book).run(run_id)


def points(book: Path, run_id: str, metric: str = RETURN) -> list[tuple[int, float]]:
    """(step, value) of a metric, ordered by step: as the run's folder has them, without a query."""
    series = run_series(read_run(find_run_folder(Layout(book), run_id)), [])
    if metric not in series:
        return []
    return list(zip(series[metric].steps.tolist(), series[metric].values.tolist(), strict=True))
