"""Live outputs besides the book: a console table, a CSV file, TensorBoard events. Each has its own verbosity.

They are fed by the run's background thread, never by the training thread.
"""

from __future__ import annotations

import csv
import importlib.util
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from rollbook.book.metric_log import Block
from rollbook.errors import UsageError, did_you_mean
from rollbook.records import LEVELS

Row = tuple[int, float, dict[str, float]]  # step, time, values

CONSOLE_SECONDS = 5.0


class Output(Protocol):
    verbosity: int

    def write(self, rows: Sequence[Row]) -> None: ...
    def close(self) -> None: ...


def rows_of(blocks: Sequence[Block], verbosity: int) -> list[Row]:
    """The rows of a batch up to a verbosity, as they were logged."""
    rows = (row for block in blocks if LEVELS[block.level] <= verbosity for row in block.rows())
    return sorted(rows, key=lambda row: row[1])


class ConsoleTable:
    """The newest value of each metric, every few seconds, on stderr."""

    def __init__(self, run_name: str, verbosity: int, stream: TextIO | None = None) -> None:
        self.verbosity = verbosity
        self._title = run_name
        self._stream = stream
        self._latest: dict[str, float] = {}
        self._step = 0
        self._printed_at = time.monotonic()

    def write(self, rows: Sequence[Row]) -> None:
        for step, _, values in rows:
            self._step = step
            self._latest |= values
        if time.monotonic() - self._printed_at >= CONSOLE_SECONDS:
            self._print()

    def close(self) -> None:
        if self._latest:
            self._print()

    def _print(self) -> None:
        self._printed_at = time.monotonic()
        width = max(len(name) for name in self._latest)
        lines = [f"{self._title}  step {self._step:,}"]
        lines += [f"  {name:<{width}}  {value:>12.6g}" for name, value in sorted(self._latest.items())]
        print("\n".join(lines), file=self._stream or sys.stderr, flush=True)


class CsvFile:
    """step, time, name, value: a line a point, so that a metric that turns up late changes nothing already written."""

    def __init__(self, path: Path, verbosity: int) -> None:
        self.verbosity = verbosity
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a", newline="", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._writer = csv.writer(self._file)
        if self._file.tell() == 0:
            self._writer.writerow(["step", "time", "name", "value"])

    def write(self, rows: Sequence[Row]) -> None:
        for step, moment, values in rows:
            self._writer.writerows([step, f"{moment:.6f}", name, repr(value)] for name, value in values.items())
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoardEvents:
    """Event files that TensorBoard reads, through the tensorboard package's own writer."""

    def __init__(self, folder: Path, verbosity: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.verbosity = verbosity
        self._event, self._summary = Event, Summary
        folder.mkdir(parents=True, exist_ok=True)
        self._writer: Any = EventFileWriter(str(folder))

    def write(self, rows: Sequence[Row]) -> None:
        for step, moment, values in rows:
            points = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._writer.add_event(self._event(step=step, wall_time=moment, summary=self._summary(value=points)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


NAMES = ("console", "csv", "tensorboard")


def check_outputs(chosen: Mapping[str, str] | Sequence[str] | None, default: str) -> dict[str, str]:
    """{name: verbosity} of what was asked for."""
    if isinstance(chosen, str):
        chosen = [name.strip() for name in chosen.split(",") if name.strip()]
    outputs = dict(chosen) if isinstance(chosen, Mapping) else dict.fromkeys(chosen or (), default)
    for name, verbosity in outputs.items():
        if name not in NAMES:
            raise UsageError(f"there is no output {name!r}; there are {', '.join(NAMES)}", did_you_mean(name, NAMES))
        check_verbosity(verbosity)
    if "tensorboard" in outputs and importlib.util.find_spec("tensorboard") is None:
        raise UsageError(
            "the output 'tensorboard' needs the package tensorboard", "pip install 'rollbook[tensorboard]'"
        )
    return outputs


def check_verbosity(verbosity: str) -> None:
    if verbosity not in LEVELS:
        raise UsageError(
            f"{verbosity!r} is no verbosity; there are {', '.join(LEVELS)}", did_you_mean(str(verbosity), LEVELS)
        )


def open_outputs(chosen: Mapping[str, str], run_folder: Path, run_name: str) -> list[Output]:
    makers: dict[str, Callable[[int], Output]] = {
        "console": lambda rank: ConsoleTable(run_name, rank),
        "csv": lambda rank: CsvFile(run_folder / "files" / "metrics.csv", rank),
        "tensorboard": lambda rank: TensorBoardEvents(run_folder / "files" / "tensorboard", rank),
    }
    return [makers[name](LEVELS[verbosity]) for name, verbosity in chosen.items()]
