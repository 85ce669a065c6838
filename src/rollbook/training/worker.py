"""A process that trains one seed after another: jobs as JSON lines on stdin, what happens as JSON lines on stdout.

Started by rollbook.training.seeds with the core that it is to keep to. It lives on after a seed, so that the next one
need not import and compile again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import traceback
from typing import Any, TextIO

from rollbook.training.compiling import use_cores


def main() -> None:
    use_cores(1, first=int(sys.argv[1]))
    # What a library prints must not come between the events.
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    machines: dict[Any, Any] = {}
    for line in sys.stdin:
        _work(json.loads(line), events, machines)


def _work(job: dict[str, Any], events: TextIO, machines: dict[Any, Any]) -> None:
    from rollbook.errors import RollbookError
    from rollbook.training.setup import setup_from_record
    from rollbook.training.train import Labels, train_one

    def tell(event: str, **details: Any) -> None:
        print(json.dumps({"event": event, **details}), file=events)

    told: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in job["labels"].items()}
    try:
        record = train_one(
            setup_from_record(job["setup"]),
            Labels(**told),
            job["book"],
            lambda progress: tell("progress", **dataclasses.asdict(progress)),
            machines,
        )
        tell("ended", run_id=record.run_id, status=record.status)
    except RollbookError as error:
        tell("ended", run_id=None, status="failed", error=error.message, details=error.hint)
    except Exception as error:  # noqa: BLE001 - it is told, with all that there is to tell
        tell("ended", run_id=None, status="failed", error=repr(error), details=traceback.format_exc())


if __name__ == "__main__":
    main()
