"""Metrics of many settled runs packed into few files, since ten thousand small files take a second to open.

A pack is `<id>.parquet` (run_id, name, step, time, value, level; sorted by name, run, step) beside `<id>.runs.json`,
which says what it holds and how it was left: one that has changed since is not used. Two readers may pack the same run
at once: the first pack by name counts.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rollbook.book.checked import as_left, read_checked, write_checked
from rollbook.book.tables import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from rollbook.book.metric_log import Series

PACK_BYTES = 48 * 2**20  # of sealed metrics in one pack
ROW_GROUP = 122_880
MANY_RUNS = 200
MERGE_ABOVE = 24  # small packs
KEEP_MERGED_SECONDS = 600.0
MEMORY_LIMIT = "1200MB"
INDEX = ".runs.json"
_COLUMNS = "run_id, name, step, time, value, level"


@dataclass(frozen=True)
class Pack:
    path: Path
    left: list[int]  # size and mtime_ns
    runs: dict[str, int]  # run id -> mtime_ns
    problems: dict[str, list[str]]  # run id -> what of it was damaged

    @property
    def index(self) -> Path:
        return self.path.with_suffix(INDEX)


@dataclass(frozen=True)
class PackedMetrics:
    """Which file answers for which runs: (file, run ids in it that must be left out)."""

    files: list[tuple[Path, list[str]]]
    problems: list[str] = field(default_factory=list)  # what was damaged when it was packed


class Packs:
    def __init__(self, folder: Path, tell: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self._tell = tell or (lambda _: None)
        self._known: dict[Path, Pack] = {}

    def refresh(self, settled: Mapping[str, int], folders: Mapping[str, str]) -> PackedMetrics:
        """Pack what is settled and not packed yet."""
        held = self._assign(settled)
        packed = {run_id for runs in held.values() for run_id in runs}
        missing = [run_id for run_id in settled if run_id not in packed]
        if len(missing) > MANY_RUNS:
            self._tell(f"packing the metrics of {len(missing):,} runs for quick answers from now on ...")
        if missing:
            self._pack(missing, settled, folders)
            self._merge_small()
            held = self._assign(settled)
        files, damaged = [], []
        for path, runs in held.items():
            if runs:
                pack = self._known[path]
                files.append((path, [run_id for run_id in pack.runs if run_id not in runs]))
                damaged += [text for run_id, texts in pack.problems.items() if run_id in runs for text in texts]
        return PackedMetrics(files, damaged)

    def _assign(self, settled: Mapping[str, int]) -> dict[Path, set[str]]:
        """The runs that each pack answers for: those whose mtime still holds, each by one pack only."""
        taken: set[str] = set()
        held: dict[Path, set[str]] = {}
        for pack in self._read_all():
            mine = {run_id for run_id, mtime in pack.runs.items() if settled.get(run_id) == mtime} - taken
            held[pack.path] = mine
            taken |= mine
        return held

    def _read_all(self) -> list[Pack]:
        found = {path.with_name(path.name.removesuffix(INDEX) + ".parquet") for path in self.folder.glob(f"*{INDEX}")}
        packs = {path: pack for path in found if (pack := self._known.get(path) or _read_pack(path))}
        self._known = {path: pack for path, pack in packs.items() if as_left(path) == pack.left}
        return [self._known[path] for path in sorted(self._known)]

    def _pack(self, run_ids: list[str], settled: Mapping[str, int], folders: Mapping[str, str]) -> None:
        batch: list[str] = []
        size = 0
        for run_id in run_ids:
            batch.append(run_id)
            size += _sealed_bytes(Path(folders[run_id]))
            if size > PACK_BYTES:
                self._write(batch, settled, folders)
                batch, size = [], 0
        if batch:
            self._write(batch, settled, folders)

    def _write(self, run_ids: list[str], settled: Mapping[str, int], folders: Mapping[str, str]) -> None:
        """One pack. DuckDB does not look at a Parquet file's checksums and would pack wrong values: we read first."""
        import pyarrow.parquet as pq

        from rollbook.book.run_folder import read_run, run_series

        series: dict[str, dict[str, Series]] = {}
        damaged: dict[str, list[str]] = {}
        for run_id in sorted(run_ids):
            found: list[str] = []
            with contextlib.suppress(FileNotFoundError):  # purged meanwhile
                series[run_id] = run_series(read_run(Path(folders[run_id])), found)
            if found:
                damaged[run_id] = found
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._new_path()
        pq.write_table(
            metrics_table(series),
            path,
            compression="zstd",
            row_group_size=ROW_GROUP,
            use_dictionary=["run_id", "name", "level"],
        )
        self._write_index(path, {run_id: settled[run_id] for run_id in run_ids}, damaged)

    def _write_index(self, path: Path, runs: dict[str, int], problems: dict[str, list[str]]) -> None:
        write_checked(path.with_suffix(INDEX), {"left": as_left(path), "runs": runs, "problems": problems})

    def _new_path(self) -> Path:
        return self.folder / f"{time.time_ns()}-{secrets.token_hex(4)}.parquet"

    def _merge_small(self) -> None:
        """Many small packs, as a book that is asked after each run gets them, become one."""
        from rollbook.book import duck

        small = [pack for pack in self._read_all() if pack.left[0] < PACK_BYTES / 8]
        if len(small) <= MERGE_ABOVE:
            return
        merged: dict[str, int] = {}
        parts = []
        with duck.connect(":memory:", config={"memory_limit": MEMORY_LIMIT}) as connection:
            # Newest first: what an older one says of the same run is past.
            for number, pack in enumerate(reversed(small)):
                mine = {run_id: mtime for run_id, mtime in pack.runs.items() if run_id not in merged}
                merged |= mine
                connection.execute(f"set variable runs{number} = ?", [list(mine)])
                parts.append(
                    f"select {_COLUMNS} from read_parquet('{quoted(pack.path)}') "
                    f"where run_id in (select unnest(getvariable('runs{number}')))"
                )
            path = self._new_path()
            connection.execute(
                f"copy (select * from ({' union all '.join(parts)}) order by name, run_id, step, time) "
                f"to '{quoted(path)}' (format parquet, compression zstd, row_group_size {ROW_GROUP})"
            )
        self._write_index(path, merged, {run_id: texts for pack in small for run_id, texts in pack.problems.items()})
        for pack in small:
            with contextlib.suppress(FileNotFoundError):  # somebody else merges, too
                pack.index.unlink()
                os.utime(pack.path)  # from now on it is kept for those who are reading it
        self._remove_merged()

    def _remove_merged(self) -> None:
        """Packs without an index; not at once, since a reader may be at work on one."""
        for path in self.folder.glob("*.parquet"):
            if path.with_suffix(INDEX).exists():
                continue
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > KEEP_MERGED_SECONDS:
                    path.unlink()


def metrics_table(runs: Mapping[str, Mapping[str, Series]]) -> pa.Table:
    """All points of some runs that count, as the view `metrics` has them: sorted by name, run, step.

    Each run's points are sorted already, so that putting its pieces in order is all there is to do.
    """
    import numpy as np
    import pyarrow as pa

    from rollbook.book.columns import from_numpy, from_texts
    from rollbook.book.metric_log import chained
    from rollbook.book.sealed import to_table as sealed_table

    pieces: dict[str, list[tuple[int, Series]]] = {}
    for place, metrics in enumerate(runs.values()):
        for name, series in metrics.items():
            pieces.setdefault(name, []).append((place, series))
    ordered = {name: [series for _, series in pieces[name]] for name in sorted(pieces)}
    table = sealed_table({name: chained(parts) for name, parts in ordered.items()})
    places = [place for name in ordered for place, _ in pieces[name]]
    counts = [len(series.steps) for parts in ordered.values() for series in parts]
    codes = from_numpy(np.repeat(np.array(places, np.int32), counts), pa.int32())
    ids = pa.DictionaryArray.from_arrays(codes, from_texts(list(runs)))
    return pa.Table.from_arrays([ids, *table.columns], names=["run_id", *table.column_names])


def _sealed_bytes(folder: Path) -> int:
    try:
        return (folder / "attempts" / "0" / "metrics.parquet").stat().st_size
    except FileNotFoundError:
        return PACK_BYTES // 50


def _read_pack(path: Path) -> Pack | None:
    index = read_checked(path.with_suffix(INDEX))
    return Pack(path, index["left"], index["runs"], index["problems"]) if index else None
