"""What all jobs of a call have in common: settings, tags, notes, and the code as it is when a job begins."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollbook.bench.autotag import autotags
from rollbook.book.layout import Layout
from rollbook.book.provenance import gather
from rollbook.book.settings import Settings
from rollbook.records import Provenance

_LOOK_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Conditions:
    settings: Settings
    provenance: Provenance
    own_tags: Sequence[str] = ()
    notes: str = ""

    @property
    def tags(self) -> list[str]:
        """Those asked for, and the version of the code."""
        return list(dict.fromkeys([*self.own_tags, *autotags(self.provenance)]))


class CurrentConditions:
    """Looks now and then whether the code has changed since the benchmark began: the later runs are then of other code,
    and have to say so.
    """

    def __init__(self, layout: Layout, script: Path, first: Conditions, changed: Callable[[Conditions], None]) -> None:
        self._layout, self._script, self._changed = layout, script, changed
        self.newest = first
        self._looked_at = time.monotonic()

    def __call__(self) -> Conditions:
        if self.newest.provenance.git and time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            now = gather(self._layout, self.newest.settings, self._script)
            self._looked_at = time.monotonic()
            if now.git != self.newest.provenance.git:
                self.newest = dataclasses.replace(self.newest, provenance=now)
                self._changed(self.newest)
        return self.newest
