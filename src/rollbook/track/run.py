"""The handle that a training script holds.

The training thread packs rows into a buffer (about a microsecond, without a lock); a background thread takes them
out twice a second, checksums them and writes them. The run folder is written by nobody else, so nobody waits.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rollbook.book import journal
from rollbook.book.layout import Layout, touch_run
from rollbook.book.metric_log import KeyRows, RowAppender, encode
from rollbook.book.processes import this_process
from rollbook.book.writer import AttemptWriter
from rollbook.errors import BookUnwritable, DataError, UsageError, did_you_mean
from rollbook.records import LEVELS, AttemptInfo, GoesOnFrom, Level, Provenance, RunInfo, State, Status
from rollbook.track import endings
from rollbook.track.outputs import Output, rows_of
from rollbook.track.timings import Timed, Timing, Timings
from rollbook.track.values import as_dict, as_number, as_step, check_metric_name

if TYPE_CHECKING:
    from rollbook.book.checkpoints import LoadedCheckpoint
    from rollbook.book.growing import GrowingRows

FLUSH_SECONDS = 0.4  # a kill loses at most what was logged since; the promise is one second
MANY_ROWS = 16_384
HEARTBEAT_SECONDS = 5.0
JOURNAL_POLL_SECONDS = 1.0
LAST_TRY_SECONDS = 5.0
PROVENANCE_SECONDS = 30.0

_FIRST_STEP = -(2**63)
# What appending a row in the fast way ends in, where its names or values ask for more.
_UNUSUAL = (KeyError, AttributeError, struct.error, TypeError, ValueError, ArithmeticError, RuntimeError, Warning)

_CONVERSIONS = ("__float__", "__index__", "as_step", "<lambda>")  # what the fast way calls

Metrics = Mapping[str, Any]


def _is_of_a_handler(error: BaseException) -> bool:
    """Whether it was raised by a signal's handler, which may run between any two lines, not by a value of the row."""
    trace = error.__traceback__
    deeper = trace.tb_next if trace else None
    return deeper is not None and deeper.tb_frame.f_code.co_name not in _CONVERSIONS


class _Logging:
    """What a call of `log` reads and writes, in slots: between two calls, training fills the caches with its own, and
    what lies in an instance's dict is then found later."""

    __slots__ = ("_appenders", "_clock_offset", "_step", "_usual")


class Run(_Logging):
    """One attempt at a run, being written. Made by `rollbook.start`."""

    def __init__(
        self,
        *,
        layout: Layout,
        info: RunInfo,
        writer: AttemptWriter,
        verbosity: str,
        outputs: list[Output],
        gather: Callable[[], Provenance],
        goes_on_from: GoesOnFrom | None = None,
        config_changes: dict[str, Any] | None = None,
        next_step: int = 0,
        starting_folder: Path | None = None,
    ) -> None:
        self.id = info.run_id
        self.name = info.name
        self.task = info.task
        self.config: dict[str, Any] = info.config | (config_changes or {})
        self.book = layout.root
        self.folder = writer.run_folder
        self.attempt = writer.number
        self._info = info
        self._layout = layout
        self._writer = writer
        self._outputs = outputs
        self._goes_on_from = goes_on_from
        self._config_changes = config_changes or {}
        self._starting_folder = starting_folder
        self._saved_at = goes_on_from.step if goes_on_from else None  # the step of the newest checkpoint of our way
        self._process = this_process()

        # Metric times never run backwards, whatever is done to the system's clock.
        self._clock_offset = time.time() - time.monotonic()
        self._started_at = self._now()
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._step = next_step - 1  # of the last row
        # A fork may have copied rows of its parent.
        self._flushed_rows = writer.log.written_rows
        self._last_step = next_step - 1 if self._flushed_rows else None  # the largest that was flushed
        # Rows by whether the book takes them; those it does not are for the outputs alone.
        self._rows: dict[bool, list[KeyRows]] = {True: [], False: []}
        self._appenders: dict[str, dict[tuple[str, ...], RowAppender]]  # of the levels that are on, by names
        # Of each level the last that was new. Asking a row for its names takes less time than finding out which it has.
        self._usual: dict[str, RowAppender]
        self._set_verbosity(verbosity)
        self._problems: list[str] = []
        self._said: set[str] = set()
        self._trouble: str | None = None
        self._windows: dict[str, deque[float]] = {}
        self._timings = Timings()
        self._open = True
        self._at_exit = False
        self._inherited = False

        self._journal_seen = journal.newest(layout.journal)
        self._journal_changed = 0
        self._write_status("running")
        self._wake = threading.Event()
        self._stopping = False
        self._gatherer = threading.Thread(target=self._gather, args=(gather,), name="rollbook-provenance", daemon=True)
        self._worker = threading.Thread(target=self._work, name="rollbook-writer", daemon=True)
        self._gatherer.start()
        self._worker.start()
        endings.register(self)

    # ---- metrics ------------------------------------------------------------------------------------------------

    def log(self, data: Metrics | Callable[[], Metrics], step: int | None = None, level: Level = "info") -> None:
        """Record numbers at a step (by default one more than the last). A callable runs only if the level is on."""
        if step is None:
            step = self._step + 1
        if type(data) is dict:
            try:
                size, values_of, pack, extend = self._usual[level]
                if len(data) != size:
                    _, values_of, pack, extend = self._appenders[level][tuple(data)]
                if type(step) is not int:  # an array may be counted up in place
                    step = as_step(step)
                # `pack(step, time, *values)` would make a list on the way.
                extend(pack(*((step, monotonic() + self._clock_offset) + values_of(data))))  # noqa: RUF005
                self._step = step
                return
            except _UNUSUAL as error:
                if _is_of_a_handler(error):
                    raise
        self._step = self._log_with_care(data, step, level)

    def _log_with_care(self, data: Metrics | Callable[[], Metrics], step: Any, level: str) -> int:
        """The first row of a key set, names that are not the usual ones, values that need more than `float()`, and what
        is not logged."""
        if not isinstance(level, str) or level not in self._appenders:
            self._not_logged(level)
            return self._step
        data, whole_step = as_dict(data), as_step(step)
        names = tuple(data)
        if not names:
            return whole_step
        values = [as_number(name, value) for name, value in data.items()]
        learned = any(getattr(value, "requires_grad", False) for value in data.values())
        with self._lock:
            appenders = self._appenders.get(level)
            if appenders is None:
                return whole_step  # switched off or ended a moment ago
            if names not in appenders:
                for name in names:
                    check_metric_name(name)
                rows = KeyRows(level, names)
                self._rows[LEVELS[level] <= LEVELS[self.verbosity]].append(rows)
                appenders[names] = rows.appender
            if learned:  # torch warns where such a tensor is made a number in the fast way
                size, _, pack, extend = appenders[names]
                appenders[names] = size, lambda row: tuple(as_number(name, row[name]) for name in names), pack, extend
            self._usual[level] = _, _, pack, extend = appenders[names]
        extend(pack(whole_step, self._now(), *values))
        return whole_step

    def _not_logged(self, level: Any) -> None:
        if not isinstance(level, str) or level not in LEVELS:
            raise UsageError(f"{level!r} is no level; there are {', '.join(LEVELS)}", did_you_mean(str(level), LEVELS))
        self._check_open()

    def log_mean(self, data: Metrics, *, window: int = 100, step: int | None = None, level: Level = "info") -> None:
        """Record the moving average of the last `window` values of each metric, from the first value on.

        NaN is left out of the average (an episode that has not ended yet, say)."""
        if not isinstance(window, int) or window < 1:
            raise UsageError(f"a moving average needs a window that is a whole number of at least 1, got {window!r}")
        means = {}
        for name, value in as_dict(data).items():
            recent = self._windows.get(name)
            if recent is None or recent.maxlen != window:
                recent = self._windows[name] = deque(recent or (), maxlen=window)
            number = as_number(name, value)
            if not math.isnan(number):
                recent.append(number)
            means[name] = sum(recent) / len(recent) if recent else math.nan
        self.log(means, step=step, level=level)

    def watch(self, name: str, tree: Any, *, step: int | None = None, level: Level = "debug") -> None:
        """Record min, max, mean, quantiles, norm and the share of non-finite values of any tree of arrays."""
        from rollbook.track.watch import statistics

        self.log(lambda: statistics(name, tree), step=step, level=level)

    def timed(self, name: str) -> Timed:
        """`with run.timed("update"):` adds up calls and seconds; they are logged as time/<name>/... at the end."""
        return Timed(self._timings, name)

    def timings(self) -> list[Timing]:
        """Calls, total, average and share of every timed block, largest first."""
        return self._timings.table()

    def log_timings(self, step: int | None = None) -> None:
        """Log what `timings` says, as time/<name>/calls, total, average and share; done at the end in any case."""
        figures = {
            f"time/{row.name}/{figure}": getattr(row, figure)
            for row in self._timings.table()
            for figure in ("calls", "total", "average", "share")
        }
        self.log(figures, step=step)

    # ---- files --------------------------------------------------------------------------------------------------

    def checkpoint(
        self,
        step: int,
        tensors: Any,
        extra: Any = None,
        keep: int | None = None,
        growing: Mapping[str, GrowingRows] | None = None,
    ) -> Path | None:
        """Save a tree of arrays (numpy, JAX, torch) or a state_dict, and JSON state beside it; keep the newest N.

        `growing` is what only grows at its end (rollbook.book.growing): what the checkpoint before has is not saved
        again.
        None when the disk does not take it: training goes on, and the end of the run says so."""
        from rollbook.book.checkpoints import save_checkpoint

        if not self._may_write():
            return None
        rows, moment, next_step = self._mark()
        self._flush()

        def save() -> Path:
            saved = save_checkpoint(
                self.folder, step, tensors, extra=extra, attempt=self.attempt, rows=rows, time=moment,
                next_step=next_step, keep=keep, growing=growing, after=self._saved_at,
            )  # fmt: skip
            self._saved_at = saved.step
            return Path(saved.path)

        return self._try_to_save(f"checkpoint {step}", save)

    def starting_point(self, like: Any = None) -> LoadedCheckpoint | None:
        """The checkpoint that this run goes on from: its own when resumed, its parent's when forked, else None."""
        from rollbook.book.checkpoints import load_checkpoint

        if self._starting_folder is None:
            return None
        step = self._goes_on_from.step if self._goes_on_from else self._info.parent_step
        return None if step is None else load_checkpoint(self._starting_folder, step, like=like)

    def figure(self, name: str, figure: Any, step: int | None = None) -> Path | None:
        """Save a matplotlib figure, a PIL image or an array of pixels as PNG."""
        from rollbook.book.media import save_figure

        return self._save_media(name, lambda at: save_figure(self.folder, name, figure, at), step)

    def video(self, name: str, frames: Any, fps: float = 30, step: int | None = None) -> Path | None:
        """Save frames as mp4 (or as gif where there is no ffmpeg)."""
        from rollbook.book.media import save_video

        return self._save_media(name, lambda at: save_video(self.folder, name, frames, at, fps), step)

    def text(self, name: str, text: str, step: int | None = None) -> Path | None:
        """Save a text."""
        from rollbook.book.media import save_text

        return self._save_media(name, lambda at: save_text(self.folder, name, text, at), step)

    def save(self, path: str | os.PathLike[str], name: str | None = None) -> Path | None:
        """Copy a file or a folder into the run."""
        from rollbook.book.media import save_file

        if not self._may_write():
            return None
        return self._try_to_save(f"file {path}", lambda: save_file(self.folder, Path(path), name))

    def _save_media(self, name: str, save: Callable[[int], Path], step: int | None) -> Path | None:
        if not self._may_write():
            return None
        at = as_step(step) if step is not None else max(self._step, 0)
        return self._try_to_save(f"media {name!r}", lambda: save(at))

    def _try_to_save(self, what: str, save: Callable[[], Path]) -> Path | None:
        try:
            # A save makes the folders that it needs: of a book that is away, that would be another book in its place.
            self.folder.stat()
            return save()
        except (OSError, DataError) as error:
            self._complain(f"{what} was not saved: {getattr(error, 'strerror', None) or error}")
            return None

    # ---- tags and notes -----------------------------------------------------------------------------------------

    def tag(self, *tags: str) -> None:
        """Add tags, through the journal as `rollbook tag add` does."""
        if self._may_write():
            self._append_to_journal("tag", tags=list(tags))

    def note(self, text: str) -> None:
        """Add a note."""
        if self._may_write():
            self._append_to_journal("note", text=text)

    def _append_to_journal(self, kind: str, **details: Any) -> None:
        try:
            journal.append(self._layout.journal, kind, [self.id], **details)
        except BookUnwritable as error:
            self._complain(f"the {kind} {next(iter(details.values()))!r} was not saved: {error.message}")

    # ---- the end ------------------------------------------------------------------------------------------------

    def finish(self, state: State = "finished", reason: str | None = None) -> None:
        """End the run and seal its metrics. Does nothing when it has ended, or in a forked child."""
        with self._lock:
            if not self._open or self._inherited:
                return
            if self._timings.table():
                self.log_timings(step=max(self._step, 0))
            self._open = False
            self._appenders, self._usual = {}, {}
        with endings.undisturbed():
            self._end(state, reason)
        endings.unregister(self)

    def _finish_at_exit(self, state: State, reason: str | None) -> None:
        self._at_exit = True
        self.finish(state, reason)

    def _end(self, state: State, reason: str | None) -> None:
        self._stopping = True
        self._wake.set()
        self._worker.join()
        self._write_the_rest()
        for output in self._outputs:
            self._feed(output.close)
        self._gatherer.join(PROVENANCE_SECONDS)
        self._write_status(state, reason)
        summaries = self._seal()
        self._write_status(state, reason, summaries, sync=True)
        with contextlib.suppress(OSError):
            touch_run(self.folder)
        self._say_goodbye(state)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state, reason = endings.of_exception(kind, error, trace) if kind else ("finished", None)
        self.finish(state, reason)

    def _prepare_for_fork(self) -> None:
        """A child that imports what our thread is just importing would wait for ever: let it come to its end."""
        self._gatherer.join(PROVENANCE_SECONDS)

    def _disown(self) -> None:
        """Called in a forked child: the run belongs to the parent process."""
        self._lock = threading.RLock()
        self._inherited = True
        self._appenders, self._usual = {}, {}

    def _check_open(self) -> None:
        if self._inherited:
            return
        if not self._open:
            raise UsageError(
                f"run {self.id} has ended and takes no more", f"rollbook.start(..., resume={self.id!r}) goes on with it"
            )

    def _may_write(self) -> bool:
        self._check_open()
        return not self._inherited

    def _write_the_rest(self) -> None:
        """The last flush, tried for a few seconds where the disk does not take it at once."""
        deadline = time.monotonic() + LAST_TRY_SECONDS
        self._flush()
        log = self._writer.log
        while log.pending_rows and time.monotonic() < deadline:
            time.sleep(0.2)
            self._flush()
        lost = log.pending_rows + log.dropped_rows
        if lost:
            self._problems.append(f"{lost:,} rows could not be written: {log.last_problem}")
        log.close()

    def _seal(self) -> str | None:
        """metrics.log becomes metrics.parquet. When that fails the log stays, and is as good."""
        from rollbook.book.metric_log import read_log
        from rollbook.book.sealed import to_table, write_sealed
        from rollbook.book.summaries import summarise, to_text

        log = self._writer.log.path
        try:
            contents = read_log(log)
            self._problems += contents.damage_report(log)
            write_sealed(self._writer.sealed_path, to_table(contents.series))
            log.unlink()
        except Exception as error:  # noqa: BLE001 - whatever it is, the log is there and the run has ended
            self._problems.append(f"the metrics were not sealed: {_shortly(error)}")
            return None
        return to_text(summarise(contents.series))

    def _say_goodbye(self, state: State) -> None:
        rows = self._writer.log.written_rows
        say(f"run {self.id} {state}: {rows:,} row{'s' if rows != 1 else ''}, last step {self._last_step}")
        for problem in self._problems:
            if problem not in self._said:
                say(f"run {self.id}: {problem}", always=True)

    # ---- background -------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return monotonic() + self._clock_offset

    def _mark(self) -> tuple[int, float, int]:
        """(rows, time, next step) of a moment that lies strictly between two rows, to the microsecond."""
        with self._writing:  # else the rows that are just being flushed might be missing
            rows = self._flushed_rows + sum(map(len, self._rows[True]))
        moment = self._now() + 2e-6
        while self._now() < moment + 2e-6:
            pass
        return rows, moment, int(self._step) + 1

    def _set_verbosity(self, verbosity: str) -> None:
        """Rows that only an output wants are kept apart, and the book does not see them."""
        if verbosity not in LEVELS:
            raise UsageError(
                f"{verbosity!r} is no verbosity; there are {', '.join(LEVELS)}", did_you_mean(verbosity, LEVELS)
            )
        self.verbosity = verbosity
        most = max([LEVELS[verbosity], *(output.verbosity for output in self._outputs)])
        with self._lock:
            self._appenders = {level: {} for level, rank in LEVELS.items() if rank <= most}
            self._usual = {}

    def _work(self) -> None:
        beat_at = poll_at = time.monotonic()
        told_of_rows = False
        pause = FLUSH_SECONDS
        while not self._stopping:
            self._wake.wait(pause)
            # A loop that logs very fast is flushed more often, so that no batch grows large.
            pause = FLUSH_SECONDS if self._flush() < MANY_ROWS else FLUSH_SECONDS / 16
            now = time.monotonic()
            first_rows = self._flushed_rows > 0 and not told_of_rows
            if first_rows or now >= beat_at + HEARTBEAT_SECONDS:
                self._write_status("running")
                beat_at, told_of_rows = now, self._flushed_rows > 0
            if now >= poll_at + JOURNAL_POLL_SECONDS:
                self._read_journal()
                poll_at = now

    def _flush(self) -> int:
        """Write what was logged since the last time; returns how many rows that was."""
        with self._writing:
            for_book, rest = ([rows.take() for rows in self._rows[kind] if len(rows)] for kind in (True, False))
            count = sum(map(len, for_book))
            if for_book:
                self._flushed_rows += count
                known = _FIRST_STEP if self._last_step is None else self._last_step
                self._last_step = max([known, *(block.last_step() for block in for_book)])
                self._writer.log.append(encode(for_book), count)
            self._report_trouble(self._writer.log.flush())
            for output in self._outputs:
                rows = rows_of([*for_book, *rest], output.verbosity)
                if rows:
                    self._feed(lambda output=output, rows=rows: output.write(rows))  # type: ignore[misc]
            return count

    def _feed(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever an output does, the book's own writing goes on
            self._complain(f"an output failed: {error!r}")

    def _report_trouble(self, written: bool) -> None:
        """Say when writing begins to fail and when it works again, once each."""
        log = self._writer.log
        if written and self._trouble:
            self._trouble = None
            lost = f"{log.dropped_rows:,} rows are" if log.dropped_rows else "nothing was"
            say(f"run {self.id}: writing works again, {lost} lost so far", always=True)
        elif not written and self._trouble is None:
            self._trouble = log.problem
            kept = log.limit // 2**20
            say(
                f"run {self.id}: cannot write {log.problem}; kept in memory (up to {kept} MB) and tried again",
                always=True,
            )

    def _complain(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)
            self._said.add(problem)
            say(f"run {self.id}: {problem}", always=True)

    def _write_status(
        self, state: State, reason: str | None = None, summaries: str | None = None, *, sync: bool = False
    ) -> None:
        ended = state != "running"
        status = Status(
            state=state,
            heartbeat=max(time.time(), self._now()),  # a clock that is set back must not look like silence
            started_at=self._started_at,
            process=self._process,
            goes_on_from=self._goes_on_from,
            config_changes=self._config_changes,
            last_step=None if self._last_step is None else int(self._last_step),
            rows=self._flushed_rows,
            verbosity=self.verbosity,
            ended_at=self._now() if ended else None,
            at_exit=self._at_exit,
            # A traceback may show bytes that are no text.
            reason=None if reason is None else reason.encode("utf-8", "backslashreplace").decode(),
            problems=list(self._problems),
            summaries=summaries,
        )
        try:
            self._writer.write_status(status, sync=sync)
        except OSError as error:
            if ended:
                self._complain(f"the status was not written: {error.strerror or error}")

    def _read_journal(self) -> None:
        """`rollbook verbosity RUN debug` reaches a live run through the journal."""
        try:
            changed = self._layout.journal.stat().st_mtime_ns
            if changed == self._journal_changed:
                return
            for number, entry in journal.read_after(self._layout.journal, self._journal_seen):
                self._journal_seen = number
                if entry["kind"] == "verbosity" and self.id in entry["runs"] and str(entry.get("level")) in LEVELS:
                    self._change_verbosity(entry["level"])
            self._journal_changed = changed
        except OSError:
            return  # a book that is away comes back or is reported by the metric log

    def _change_verbosity(self, verbosity: str) -> None:
        with self._lock:
            if self._open:
                self._set_verbosity(verbosity)
                say(f"run {self.id}: verbosity is now {verbosity}")

    def _gather(self, gather: Callable[[], Provenance]) -> None:
        info = AttemptInfo(
            number=self.attempt,
            started_at=self._started_at,
            process=self._process,
            command=self._info.command,
            cwd=self._info.cwd,
            goes_on_from=self._goes_on_from,
            config_changes=self._config_changes,
            provenance=gather(),
        )
        try:
            self._writer.write_attempt(info)
        except OSError as error:
            self._complain(f"provenance was not written: {error.strerror or error}")


def _shortly(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else repr(error)


def say(text: str, *, always: bool = False) -> None:
    if always or not os.environ.get("ROLLBOOK_QUIET"):
        # A closed stderr (a daemon, a notebook shutting down) must not fail a run.
        with contextlib.suppress(OSError, ValueError):
            print(f"rollbook: {text}", file=sys.stderr)
