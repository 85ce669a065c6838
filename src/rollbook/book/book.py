"""`rollbook.open()`: the reading side of a book."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.book.find import match_ids, match_names, one_of
from rollbook.book.layout import Layout
from rollbook.book.query import Engine
from rollbook.book.settings import Settings, find_book, load_settings
from rollbook.book.top import top
from rollbook.errors import MetricNotFound, RunNotFound, did_you_mean
from rollbook.records import Checkpoint, TopEntry

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from rollbook.book.checkpoints import LoadedCheckpoint
    from rollbook.book.run_folder import StoredRun
    from rollbook.book.tidy import Hidden


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A row of the view `runs`, and the way to what else the run has."""

    run_id: str
    name: str
    task: str
    algo: str | None
    env: str | None
    seed: int | None
    status: str
    benchmark: str | None
    started_at: datetime
    finished_at: datetime | None
    duration_s: float
    last_step: int | None
    host: str
    user: str
    command: str
    git_commit: str | None
    git_describe: str | None
    git_dirty: bool | None
    pr: int | None
    parent: str | None
    notes: str
    tags: list[str]
    config: dict[str, Any]
    folder: Path = field(repr=False)

    def metrics(self, name: str) -> pa.Table:
        """step, time and value of one metric, ordered by step."""
        import numpy as np
        import pyarrow as pa

        from rollbook.book.columns import from_numpy
        from rollbook.book.run_folder import run_series

        series = run_series(self.stored(), [])
        if name not in series:
            hint = did_you_mean(name, series) or f"it logged: {', '.join(sorted(series)) or 'nothing yet'}"
            raise MetricNotFound(f"run {self.run_id} did not log the metric {name!r}", hint)
        one = series[name]
        columns = {
            "step": from_numpy(one.steps, pa.int64()),
            "time": from_numpy(np.rint(one.times * 1e6).astype(np.int64), pa.timestamp("us")),
            "value": from_numpy(one.values, pa.float64()),
        }
        return pa.Table.from_arrays(list(columns.values()), names=list(columns))

    def metric_names(self) -> list[str]:
        """The metrics that the run logged."""
        from rollbook.book.run_folder import run_series

        return sorted(run_series(self.stored(), []))

    def checkpoints(self) -> list[Checkpoint]:
        """The saved states on the way that the run took, oldest first."""
        from rollbook.book.run_folder import counting_checkpoints

        return counting_checkpoints(self.stored())

    def load_checkpoint(self, step: int | None = None, like: Any = None) -> LoadedCheckpoint:
        """The checkpoint at a step, or the newest; `like` gives the structure and kinds of arrays to restore into."""
        from rollbook.book.checkpoints import load_checkpoint

        if step is None and (saved := self.checkpoints()):
            step = saved[-1].step
        return load_checkpoint(self.folder, step, like=like)

    def stored(self) -> StoredRun:
        """Everything that the run's folder says of itself."""
        from rollbook.book.run_folder import read_run

        try:
            return read_run(self.folder)
        except FileNotFoundError:
            raise RunNotFound(f"run {self.run_id} is no longer at {self.folder}", "it was purged or archived") from None


class Book:
    """A book to ask. Opening costs nothing; each question sees the newest state."""

    def __init__(self, engine: Engine, layout: Layout) -> None:
        self.layout = layout
        self.path = layout.root
        self._engine = engine

    def __repr__(self) -> str:
        return f"Book({str(self.path)!r})"

    def sql(self, query: str, parameters: list[Any] | None = None) -> duckdb.DuckDBPyRelation:
        """One SELECT over the views of docs/reference/sql.md, as a DuckDB relation: .df() .pl() .arrow() .fetchall()"""
        return self._engine.sql(query, parameters)

    def rows(self, query: str, parameters: list[Any] | None = None) -> list[dict[str, Any]]:
        """The answer as a list of dicts."""
        columns, rows = self.table(query, parameters)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def table(self, query: str, parameters: list[Any] | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The answer as the names of its columns, and its rows."""
        return self._engine.table(query, parameters)

    def runs(self, where: str | None = None, *, order: str = "started_at desc, run_id") -> list[RunRecord]:
        """Runs for which an SQL condition holds, newest first: `"algo = 'sac' and 'latest' in tags"`."""
        condition = f"where ({where}\n)" if where else ""
        return [self._record(row) for row in self.rows(f"select * from runs {condition} order by {order}")]

    def run(self, reference: str) -> RunRecord:
        """The one run whose id begins like this, or whose readable name matches this regular expression."""
        names = dict(self.table("select run_id, name from runs")[1])
        matching = match_ids(reference, names) or match_names(reference, names)
        if not matching:
            self._say_if_hidden(reference)
        return self.runs(f"run_id = '{one_of(reference, matching, names)}'")[0]

    def _say_if_hidden(self, reference: str) -> None:
        from rollbook.book.tidy import hidden_runs

        hidden = {run.run_id: run.state for run in hidden_runs(self.layout)}
        for run_id in match_ids(reference, hidden):
            raise RunNotFound(f"run {run_id} is {hidden[run_id]}", f"rollbook restore {run_id}")

    def top(
        self,
        n: int = 5,
        *,
        algo: str | None = None,
        env: str | None = None,
        task: str | None = None,
        where: str | None = None,
        by: str = "auc",
        metric: str | None = None,
        over: str | None = None,
        ascending: bool = False,
    ) -> list[TopEntry]:
        """The best runs; with over="seed" the best configurations, their seeds folded."""
        return top(
            self, n, algo=algo, env=env, task=task, where=where, by=by, metric=metric, over=over, ascending=ascending
        )

    def newest(self) -> list[RunRecord]:
        """The runs of the newest benchmark of every (task, algo, env)."""
        rows = self.rows("select * from newest order by task, algo, env, seed, run_id")
        return [self._record(row) for row in rows]

    def problems(self) -> list[str]:
        """What could not be read: damaged files, by name."""
        kept = [f"{row['run_id']}: {row['problem']}" for row in self.rows("select * from problems")]
        return [*self._engine.problems(), *kept]

    def _record(self, row: Mapping[str, Any]) -> RunRecord:
        known = {f.name for f in dataclasses.fields(RunRecord)}
        values = {key: value for key, value in row.items() if key in known}
        folder = self._engine.folder_of(row["run_id"])
        return RunRecord(**values | {"config": json.loads(row["config"]), "folder": folder})


def open_book(
    path: str | os.PathLike[str] | None = None,
    *,
    tell: Callable[[str], None] | None = None,
    one_moment: bool = False,
) -> Book:
    """The book at a path, or the one that --book, ROLLBOOK_BOOK, rollbook.toml or the git root lead to.

    `tell` is called with a line of text before something that takes long; with `one_moment`, all questions see the
    book as the first one did.
    """
    layout = Layout(find_book(path))
    layout.check()
    return Book(Engine(layout, _settings(layout), tell=tell, one_moment=one_moment), layout)


def open_hidden(layout: Layout, hidden: Iterable[Hidden]) -> Book:
    """A book to ask whose views hold these deleted or archived runs, and no others."""
    return Book(Engine(layout, _settings(layout), only=[run.folder for run in hidden]), layout)


def _settings(layout: Layout) -> Settings:
    here = load_settings()
    return here if here.root else load_settings(layout.root)
