"""What may be logged: numbers of any library by name, at whole steps. All else gets an error that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollbook.errors import InvalidMetric


def as_dict(data: Any) -> dict[str, Any]:
    if callable(data):
        data = data()
    if isinstance(data, Mapping):
        return dict(data)
    raise InvalidMetric(
        f"run.log takes a dict of numbers by name, got {type(data).__name__}",
        'run.log({"losses/critic": 0.3}, step=1000)',
    )


def check_metric_name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidMetric(f"a metric's name must be text of at least one character, got {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidMetric(f"the metric's name {name!r} has characters that are not valid text") from None
    return name


def as_number(name: Any, value: Any) -> float:
    """A float of whatever holds one number."""
    try:
        if getattr(value, "requires_grad", False):
            value = value.detach()  # torch warns about turning such a tensor into a number
        if getattr(value, "ndim", 0) and getattr(value, "size", 0) == 1:
            value = value.item()  # an array with one element, which float() no longer takes
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError, RuntimeError):
        pass
    except OverflowError:
        raise InvalidMetric(f"the metric {name!r} is too large for a 64-bit float: {str(value)[:40]}...") from None
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    shown = repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "..."
    hint = "log its mean, or run.watch(name, array) for statistics, run.figure(name, array) for an image"
    if isinstance(value, str | bytes):
        hint = f"run.text({name!r}, ...) keeps a text, run.save(path) a file"
    raise InvalidMetric(f"the metric {name!r} is not a number: {type(value).__name__}{shape} {shown}", hint)


def as_step(step: Any) -> int:
    try:
        if isinstance(step, float) and step.is_integer():
            whole = int(step)
        elif getattr(step, "ndim", None) == 0 and float(step).is_integer():
            whole = int(step.item())
        else:
            whole = step.__index__()
    except (AttributeError, TypeError, ValueError):
        raise InvalidMetric(f"a step must be a whole number, got {step!r}", "count environment steps") from None
    if not -(2**63) <= whole < 2**63:
        raise InvalidMetric(f"a step must fit into 64 bits, got {step!r}")
    return int(whole)
