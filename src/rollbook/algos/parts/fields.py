"""What a field of a configuration may hold, and what it is for.

    @dataclass(frozen=True, kw_only=True)
    class Config:
        gamma: Share = 0.99
        \"\"\"discount of future rewards\"\"\"

        def __post_init__(self) -> None:
            check(self)

The type says the bounds, the string below a field is its documentation: `rollbook train ALGO --help` shows both.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from rollbook.errors import InvalidConfig


@dataclass(frozen=True, kw_only=True)
class Range:
    at_least: float = -math.inf
    at_most: float = math.inf
    above: float = -math.inf

    def holds(self, value: float) -> bool:
        return self.at_least <= value <= self.at_most and value > self.above

    def __str__(self) -> str:
        low = f"more than {self.above:g}" if self.above > -math.inf else f"at least {self.at_least:g}"
        return low if self.at_most == math.inf else f"from {self.at_least:g} to {self.at_most:g}"


Count = Annotated[int, Range(at_least=1)]
Share = Annotated[float, Range(at_least=0, at_most=1)]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(at_least=0)]
Sizes = Annotated[tuple[int, ...], Range(at_least=1)]


@dataclass(frozen=True)
class Field:
    """A field of a configuration, as the command line shows it."""

    name: str
    kind: Any
    default: Any
    doc: str

    @property
    def allowed(self) -> str:
        return describe(self.kind)


def fields_of(config: type[Any]) -> dict[str, Field]:
    hints = typing.get_type_hints(config, include_extras=True)
    docs = _docs(config)
    return {
        field.name: Field(field.name, hints[field.name], field.default, docs.get(field.name, ""))
        for field in dataclasses.fields(config)
    }


def check(config: Any) -> None:
    """InvalidConfig names the first field that is out of its bounds or of another type."""
    for field in fields_of(type(config)).values():
        value = getattr(config, field.name)
        if not fits(value, field.kind):
            raise InvalidConfig(f"{field.name} is {value!r}", f"{field.name} must be {field.allowed}")


def check_minibatches(steps: int, minibatches: int, name: str) -> None:
    """A rollout is divided into minibatches without a rest."""
    if steps % minibatches:
        raise InvalidConfig(
            f"a rollout of {steps} steps cannot be divided into {minibatches} minibatches",
            f"choose {name} that divide num_envs * rollout_steps",
        )


def fits(value: Any, kind: Any) -> bool:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        limit: Range = kind.__metadata__[0]
        items = value if isinstance(value, tuple) else (value,)
        return fits(value, arguments[0]) and all(limit.holds(item) for item in items)
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, choice) for choice in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and bool(value) and all(fits(item, arguments[0]) for item in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def describe(kind: Any) -> str:
    """The values that a field takes, in words."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return f"{describe(arguments[0])}, {'each ' if typing.get_origin(arguments[0]) is tuple else ''}{arguments[1]}"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(describe(choice) for choice in arguments)
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin is tuple:
        return "whole numbers separated by commas"
    return {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}.get(kind, "text")


def _docs(config: type[Any]) -> Mapping[str, str]:
    """The string literal that follows each field in the source."""
    source = ast.parse(textwrap.dedent(inspect.getsource(config))).body[0]
    assert isinstance(source, ast.ClassDef)
    docs = {}
    for field, after in zip(source.body, source.body[1:], strict=False):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs
