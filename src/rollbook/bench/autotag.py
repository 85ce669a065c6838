"""Tags that say which code a run is of: `git describe`, and the pull request."""

from __future__ import annotations

from rollbook.records import Provenance


def autotags(provenance: Provenance) -> list[str]:
    describe = provenance.git.describe if provenance.git else None
    return [*([describe] if describe else []), *([f"pr-{provenance.pr}"] if provenance.pr else [])]
