"""A tree of containers and arrays <-> its structure as JSON and its arrays by name.

A node of the structure is one of
    {"dict": {...}} or {"items": [[key, ...], ...]} (keys that are not all text), {"list": [...]}, {"tuple": [...]},
    {"fields": {...}}                of a namedtuple, a dataclass or a registered JAX node,
    {"array": name}                  with "dtype" (a type that the format lacks), "prng", "scalar" or "bytes" beside it,
    {"int": hex}, {"float": "nan"}, {"complex": [re, im]}   for what JSON does not carry exactly, and plain JSON values.
Reading one builds only these, so a tree from elsewhere cannot run code. torch and JAX are never imported here: a
value of theirs can only come from a program that has.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rollbook.book.arrays import (
    ArrayLeaf,
    Mismatch,
    array_like,
    extended_type,
    is_array,
    is_prng_key,
    is_template,
    read_array,
    to_numpy,
)
from rollbook.book.tensors import CODES, Tensor
from rollbook.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_DEEPEST = 100
_EXACT_IN_JSON_BITS = 53  # other programs read a JSON number as a double
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_LONGEST_KEY = 200
_UNREADABLE = (TypeError, ValueError, RuntimeError)  # of an array that is sparse, deleted, on another host, inside jit


class Node(NamedTuple):
    """A container of a tree: what it holds, and how to make one like it around other children, given in this order."""

    kind: str  # dict, list, tuple or fields
    children: dict[Any, Any]
    rebuild: Callable[[list[Any]], Any]


class Flat(NamedTuple):
    structure: Any  # JSON
    tensors: dict[str, Tensor]


def flatten(tree: Any) -> Flat:
    """UsageError names the place in the tree of a value that cannot be saved."""
    tensors: dict[str, Tensor] = {}
    return Flat(_encode(tree, "", 0, tensors), tensors)


def unflatten(structure: Any, arrays: Mapping[str, Array]) -> Any:
    """The tree as dicts, lists and tuples of numpy arrays and Python values."""
    saved = _saved_node(structure)
    if saved is None:
        return _decode_leaf(structure, arrays)
    kind, children = saved
    values = {key: unflatten(child, arrays) for key, child in children.items()}
    if kind in ("dict", "fields"):
        return values
    return list(values.values()) if kind == "list" else tuple(values.values())


def unflatten_like(structure: Any, arrays: Mapping[str, Array], like: Any, path: str = "") -> Any:
    """The tree in the containers of `like`, each array of the framework, device and type of the one in its place."""
    node, saved = open_node(like), _saved_node(structure)
    if node is None and saved is None:
        return _decode_leaf_like(structure, arrays, like, path)
    if node is None or saved is None:
        raise UsageError(
            f"{_place(path)} is {_saved_kind(structure)} in the checkpoint and {type(like).__name__} in like=",
            "build like= as the saved tree was built, or load without like=",
        )
    _check_same_keys(saved[1], node.children, path)
    return node.rebuild(
        [unflatten_like(saved[1][key], arrays, child, _join(path, key)) for key, child in node.children.items()]
    )


def arrays_of(tree: Any) -> Iterator[Array]:
    """Every array of the tree as numpy, also of narrow floats; random keys and whatever is no array are passed over."""
    yield from _arrays_of(tree, "", 0)


def open_node(value: Any) -> Node | None:
    """The container that `value` is, or None for a leaf."""
    if isinstance(value, dict):
        return Node("dict", value, lambda children: _dict_like(value, children))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return Node("fields", dict(zip(value._fields, value, strict=True)), type(value)._make)  # type: ignore[attr-defined]
    if isinstance(value, list):
        return Node("list", dict(enumerate(value)), list)
    if isinstance(value, tuple):
        return Node("tuple", dict(enumerate(value)), tuple)
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, bytearray)) or is_array(value):
        return None
    if node := _jax_node(value):
        return node
    if isinstance(value, Mapping):
        return Node("dict", dict(value), lambda children: dict(zip(value, children, strict=True)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return Node("fields", fields, lambda children: _dataclass_like(value, dict(zip(fields, children, strict=True))))
    return None


def _arrays_of(value: Any, path: str, depth: int) -> Iterator[Array]:
    if node := open_node(value):
        _check_depth(depth, path)
        for key, child in node.children.items():
            yield from _arrays_of(child, _join(path, key), depth + 1)
    elif is_array(value) and not is_prng_key(value):
        try:
            array = to_numpy(value)
        except _UNREADABLE as error:
            raise _unsaveable(value, path, str(error).partition("\n")[0], "read as an array") from error
        yield array


# --- tree -> structure


def _encode(value: Any, path: str, depth: int, tensors: dict[str, Tensor]) -> Any:
    node = open_node(value)
    if node is None:
        return _encode_leaf(value, path, tensors)
    _check_depth(depth, path)
    children = [
        (key, _encode(child, _join(path, key), depth + 1, tensors))
        for key, child in _plain_keys(node.children, path).items()
    ]
    if node.kind in ("list", "tuple"):
        return {node.kind: [child for _, child in children]}
    if all(isinstance(key, str) for key, _ in children):
        return {node.kind: dict(children)}
    return {"items": [[_encode_key(key), child] for key, child in children]}


def _encode_leaf(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    import numpy as np

    if not is_array(value):  # numpy's numbers and text are Python's too
        if isinstance(value, (bytes, bytearray)):
            return {"array": _store(Tensor("U8", np.frombuffer(value, np.uint8)), path, tensors), "bytes": True}
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            return _encode_scalar(value)
        raise _unsaveable(value, path)
    try:
        leaf = read_array(value)
    except _UNREADABLE as error:
        raise _unsaveable(value, path, str(error).partition("\n")[0]) from error
    tensor, dtype = _as_tensor(leaf, value, path)
    extras = {"dtype": dtype, "prng": leaf.prng, "scalar": isinstance(value, np.generic) or None}
    return {"array": _store(tensor, path, tensors)} | {key: extra for key, extra in extras.items() if extra is not None}


def _encode_scalar(value: Any) -> Any:
    if isinstance(value, complex):
        return {"complex": [_encode_scalar(value.real), _encode_scalar(value.imag)]}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if value.bit_length() <= _EXACT_IN_JSON_BITS else {"int": hex(value)}
    return value


def _encode_key(key: Any) -> Any:
    return {"tuple": [_encode_key(part) for part in key]} if isinstance(key, tuple) else _encode_scalar(key)


def _plain_keys(children: dict[Any, Any], path: str) -> dict[Any, Any]:
    return {_plain_key(key, path): child for key, child in children.items()}


def _plain_key(key: Any, path: str) -> Any:
    import numpy as np

    if isinstance(key, (np.number, np.bool_)):
        key = key.item()
    if key is None or isinstance(key, (str, bool, int, float)):
        return key
    if isinstance(key, tuple):
        return tuple(_plain_key(part, path) for part in key)
    raise UsageError(
        f"{_place(path)} has the key {key!r} of type {type(key).__name__}, which cannot be saved in a checkpoint",
        "keys may be text, numbers, booleans, None and tuples of these",
    )


def _store(tensor: Tensor, path: str, tensors: dict[str, Tensor]) -> str:
    """Under a number, which makes it unique, and the path, which tells other programs what it is."""
    key = f"{len(tensors)}:{path.encode('ascii', 'backslashreplace').decode()[:_LONGEST_KEY]}"
    tensors[key] = tensor
    return key


def _as_tensor(leaf: ArrayLeaf, value: Any, path: str) -> tuple[Tensor, str | None]:
    """What the file holds, and the name of the type where the file's own would not say it."""
    import numpy as np

    array = leaf.array
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    array = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray makes a scalar one-dimensional
    if leaf.dtype is not None:
        return (Tensor("BF16", array), None) if leaf.dtype == "bfloat16" else (Tensor("U8", array), leaf.dtype)
    if code := CODES.get(f"{array.dtype.kind}{array.itemsize}"):
        return Tensor(code, array), None
    if array.dtype.kind in "US" and not array.itemsize:
        array = array.astype(f"{array.dtype.kind}1")
    if array.dtype.kind in "cmMUS" and array.dtype.type is not np.clongdouble:
        raw = np.frombuffer(array.tobytes(), np.uint8).reshape(*array.shape, array.itemsize)
        return Tensor("U8", raw), array.dtype.str
    raise _unsaveable(value, path, f"elements of type {array.dtype}")


def _check_depth(depth: int, path: str) -> None:
    if depth == _DEEPEST:
        raise UsageError(
            f"{_place(path)[:80]}... is nested deeper than {_DEEPEST} levels", "does the tree hold itself?"
        )


def _unsaveable(value: Any, path: str, why: str | None = None, what: str = "saved in a checkpoint") -> UsageError:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return UsageError(
        f"{_place(path)} is of type {name}{f' ({why})' if why else ''}, which cannot be {what}",
        _hint(value),
    )


def _hint(value: Any) -> str:
    if hasattr(value, "state_dict"):
        return "save its state_dict()"
    if hasattr(value, "bit_generator"):
        return "save its bit_generator.state"
    if isinstance(value, (set, frozenset)) or type(value).__name__ == "deque":
        return "save it as a list"
    if getattr(getattr(value, "dtype", None), "names", None):
        return "save its fields one by one: {name: array[name] for name in array.dtype.names}"
    if callable(value):
        return "save arrays only; of an Equinox module: eqx.filter(module, eqx.is_array)"
    return "turn it into arrays, numbers, text, or dicts, lists and tuples of these"


# --- structure -> tree


def _saved_node(structure: Any) -> tuple[str, dict[Any, Any]] | None:
    match structure:
        case {"dict": dict(children)}:
            return "dict", children
        case {"fields": dict(children)}:
            return "fields", children
        case {"items": [*pairs]}:
            return "dict", {unflatten(key, {}): child for key, child in pairs}
        case {"list": [*children]}:
            return "list", dict(enumerate(children))
        case {"tuple": [*children]}:
            return "tuple", dict(enumerate(children))
    return None


def _decode_leaf(structure: Any, arrays: Mapping[str, Array]) -> Any:
    match structure:
        case {"array": name}:
            return _decode_array(structure, arrays[name])
        case {"int": text}:
            return int(text, 16)
        case {"float": text}:
            return float(text)
        case {"complex": [real, imag]}:
            return complex(_decode_leaf(real, {}), _decode_leaf(imag, {}))
        case dict() | list():
            raise ValueError(f"no such node: {str(structure)[:80]}")
    return structure


def _decode_array(structure: dict[str, Any], array: Array) -> Any:
    import numpy as np

    if structure.get("bytes"):
        return array.tobytes()
    if (name := structure.get("dtype")) is not None:
        if name[0] in "<|":
            if (dtype := np.dtype(name)).kind not in "cmMUS":
                raise ValueError(f"no such type: {name}")
            array = np.frombuffer(bytearray(array.tobytes()), dtype).reshape(array.shape[:-1])
        else:
            array = array.view(extended_type(name))
    return array[()] if structure.get("scalar") else array


def _decode_leaf_like(structure: Any, arrays: Mapping[str, Array], like: Any, path: str) -> Any:
    value = _decode_leaf(structure, arrays)
    if value is None and callable(like):
        return like  # an activation function, say, of a module of which only the arrays were saved
    if not is_template(like):
        return _python_like(value, like, path)
    if value is None or isinstance(value, (str, bytes)):
        raise UsageError(f"{_place(path)} is {value!r:.80} in the checkpoint and an array in like=")
    prng = structure.get("prng") if isinstance(structure, dict) else None
    try:
        return array_like(value, like, prng)
    except Mismatch as mismatch:
        raise UsageError(f"{_place(path)} is {mismatch}", "build like= as the saved tree was built") from None


def _python_like(value: Any, like: Any, path: str) -> Any:
    if getattr(value, "shape", None) == () and isinstance(like, (bool, int, float, complex)):
        return value.item()
    # A number for a number, text for text, None for None.
    kinds = ((bool, int, float, complex), (str,), (bytes, bytearray), (type(None),))
    if any(isinstance(value, kind) and isinstance(like, kind) for kind in kinds):
        return value
    what = f"an array of shape {value.shape}" if hasattr(value, "shape") else f"{value!r:.80}"
    raise UsageError(f"{_place(path)} is {what} in the checkpoint and of type {type(like).__name__} in like=")


def _check_same_keys(saved: dict[Any, Any], like: dict[Any, Any], path: str) -> None:
    for key in like:
        if key not in saved:
            known = ", ".join(_join(path, other) for other in list(saved)[:8]) or "nothing"
            raise UsageError(f"the checkpoint has no {_join(path, key)}", f"at {_place(path)} it has {known}")
    for key in saved:
        if key not in like:
            raise UsageError(
                f"the checkpoint has {_join(path, key)}, which like= lacks",
                "build like= as the saved tree was built, or load without like=",
            )


# --- containers


def _jax_node(value: Any) -> Node | None:
    """One level of a registered JAX node: an Equinox module, a flax struct, a user's own."""
    if (jax := sys.modules.get("jax")) is None:
        return None
    pairs, treedef = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
    if pairs and not pairs[0][0]:  # a leaf, as JAX sees it
        return None
    entries = [path[0] for path, _ in pairs]
    keys: list[Any] = [getattr(entry, "name", getattr(entry, "key", index)) for index, entry in enumerate(entries)]
    if len(set(keys)) != len(keys):
        keys = list(range(len(keys)))
    kind = "list" if keys == list(range(len(keys))) else "fields" if hasattr(entries[0], "name") else "dict"
    children = dict(zip(keys, (child for _, child in pairs), strict=True))
    return Node(kind, children, lambda values: jax.tree_util.tree_unflatten(treedef, values))


def _dict_like(like: dict[Any, Any], children: list[Any]) -> Any:
    values = dict(zip(like, children, strict=True))
    if type(like) is dict:
        return values
    result = copy.copy(like)
    result.update(values)
    return result


def _dataclass_like(like: Any, fields: dict[str, Any]) -> Any:
    result = copy.copy(like)
    for name, value in fields.items():
        object.__setattr__(result, name, value)  # also of a frozen one, and without its __post_init__ run again
    return result


# --- words


def _join(path: str, key: Any) -> str:
    if isinstance(key, str) and _IDENTIFIER.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]"


def _place(path: str) -> str:
    return path or "the tree"


def _saved_kind(structure: Any) -> str:
    saved = _saved_node(structure)
    if saved is not None:
        return {"fields": "a node of fields"}.get(saved[0], f"a {saved[0]}")
    return "an array" if isinstance(structure, dict) and "array" in structure else "a value"
