"""Every error that a user can cause, in one tree.

RollbookError
├── UsageError              wrong value, name or flag                      exit 2
│   ├── InvalidName
│   ├── InvalidMetric
│   ├── InvalidConfig
│   ├── InvalidScores       not finite, or not (runs, tasks)
│   ├── QueryRefused        SQL that writes, or reads outside the book
│   ├── QueryInvalid        SQL that does not parse or names what is not there
│   ├── AmbiguousRun
│   ├── UnknownAlgorithm
│   ├── UnknownEnvironment  no such id, or its package is not installed
│   ├── UnsuitableEnvironment   its observations or actions are not for the algorithm
│   └── RunIsLive           the run's process is still at work
├── TrainingFailed          a loss is not finite, a worker died            exit 1
└── DataError               something is missing or damaged                exit 4
    ├── BookNotFound
    ├── BookUnwritable
    ├── RunNotFound
    ├── BenchmarkNotFound
    ├── MetricNotFound
    ├── CheckpointNotFound
    ├── CodeNotFound
    └── CorruptFile
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RollbookError(Exception):
    """What is wrong with the value seen, and a hint with the command or flag that fixes it."""

    exit_code = 4

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class UsageError(RollbookError):
    exit_code = 2


class InvalidName(UsageError): ...


class InvalidMetric(UsageError): ...


class InvalidConfig(UsageError): ...


class InvalidScores(UsageError): ...


class QueryRefused(UsageError): ...


class QueryInvalid(UsageError): ...


class AmbiguousRun(UsageError): ...


class UnknownAlgorithm(UsageError): ...


class UnknownEnvironment(UsageError): ...


class UnsuitableEnvironment(UsageError): ...


class RunIsLive(UsageError): ...


class TrainingFailed(RollbookError):
    exit_code = 1


class DataError(RollbookError):
    exit_code = 4


class BookNotFound(DataError): ...


class BookUnwritable(DataError): ...


class RunNotFound(DataError): ...


class BenchmarkNotFound(DataError): ...


class MetricNotFound(DataError): ...


class CheckpointNotFound(DataError): ...


class CodeNotFound(DataError): ...


class CorruptFile(DataError): ...


def did_you_mean(wrong: str, known: Iterable[str], ending: str = "") -> str | None:
    """A hint naming the nearest known names, each with the same ending, or None when nothing is near."""
    near = difflib.get_close_matches(wrong, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(name + ending) for name in near)}?" if near else None
