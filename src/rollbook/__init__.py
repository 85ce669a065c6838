"""Rollbook, the lab book of reinforcement learning.

run = rollbook.start("hopper", config={...})    track
book = rollbook.open()                          query
rollbook.train("ppo", "CartPole-v1", seed=1)    train
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rollbook._version import __version__

if TYPE_CHECKING:
    from rollbook.book.book import Book, RunRecord
    from rollbook.book.book import open_book as open
    from rollbook.errors import RollbookError
    from rollbook.track.run import Run
    from rollbook.track.start import start
    from rollbook.training.train import train

__all__ = ["Book", "RollbookError", "Run", "RunRecord", "__version__", "open", "start", "train"]

_HOMES = {
    "Book": ("rollbook.book.book", "Book"),
    "RunRecord": ("rollbook.book.book", "RunRecord"),
    "open": ("rollbook.book.book", "open_book"),
    "RollbookError": ("rollbook.errors", "RollbookError"),
    "Run": ("rollbook.track.run", "Run"),
    "start": ("rollbook.track.start", "start"),
    "train": ("rollbook.training.train", "train"),
}


def __getattr__(name: str) -> Any:
    """Loaded at first use, so that `import rollbook` costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rollbook' has no attribute {name!r}")
    import importlib

    module, attribute = _HOMES[name]
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value
