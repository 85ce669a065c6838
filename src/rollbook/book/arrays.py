"""An array of any framework as numpy, and back into the framework, device and type of another.

torch and JAX are never imported here: a value of theirs can only come from a program that has.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from rollbook.book.tensors import ml_dtypes, widen_bfloat16
from rollbook.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class ArrayLeaf(NamedTuple):
    """An array as numpy; `dtype` names a type that numpy lacks, whose bits the array then holds."""

    array: Array
    dtype: str | None = None
    prng: str | None = None  # the kind of random key of which this is the data


class Mismatch(ValueError):
    """What was saved, and what was asked for."""


def is_array(value: Any) -> bool:
    """An array or scalar of numpy, JAX or torch, or anything with `.numpy()`, as TensorFlow's have."""
    import numpy as np

    if isinstance(value, (np.ndarray, np.generic)):
        return True
    jax = sys.modules.get("jax")
    return (jax is not None and isinstance(value, jax.Array)) or callable(getattr(value, "numpy", None))


def is_template(value: Any) -> bool:
    """Says what to load: an array, or a shape without data as `jax.eval_shape` gives."""
    return is_array(value) or _is_jax(value)


def read_array(value: Any) -> ArrayLeaf:
    """TypeError, ValueError or RuntimeError where its framework cannot give the data."""
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("a mask would be lost")
    if isinstance(value, (np.ndarray, np.generic)):
        return _numpy_leaf(value)
    if _is_jax(value):
        jax = sys.modules["jax"]
        if is_prng_key(value):
            return ArrayLeaf(np.asarray(jax.random.key_data(value)), prng=str(jax.random.key_impl(value)))
        return _numpy_leaf(value)
    if (torch := sys.modules.get("torch")) and isinstance(value, torch.Tensor):
        return _torch_leaf(torch, value)
    return _numpy_leaf(value.numpy())


def to_numpy(value: Any) -> Array:
    """For reading: floats that numpy lacks are widened to float32, which holds them exactly."""
    import numpy as np

    leaf = read_array(value)
    if leaf.dtype is None:
        return leaf.array
    if leaf.dtype == "bfloat16":
        return widen_bfloat16(leaf.array)
    return np.asarray(leaf.array.view(extended_type(leaf.dtype)), dtype=np.float32)


def extended_type(name: str) -> Any:
    """float8_e4m3fn and the like; DataError where the package that has them is not installed."""
    import numpy as np

    if (package := ml_dtypes()) is None:
        raise DataError(f"there are arrays of type {name}, which numpy lacks", "pip install ml_dtypes")
    return np.dtype(getattr(package, name))


def array_like(value: Any, like: Any, prng: str | None = None) -> Any:
    """Mismatch when `like` has another shape, or a type that cannot hold the values exactly."""
    import numpy as np

    array = np.asarray(value)
    if is_prng_key(like):
        return _prng_key_like(array, like, prng)
    shape = tuple(like.shape)
    if array.shape != shape:
        raise Mismatch(f"of shape {array.shape} in the checkpoint and {shape} in like=")
    if (torch := sys.modules.get("torch")) and isinstance(like, torch.Tensor):
        return _torch_like(torch, array, like)
    if _is_jax(like):
        return _jax_like(_cast(array, like.dtype), like)
    if not isinstance(like, (np.ndarray, np.generic)):
        return array
    array = _cast(array, like.dtype)
    return array[()] if isinstance(like, np.generic) else array


def _is_jax(value: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, (jax.Array, jax.ShapeDtypeStruct))


def is_prng_key(value: Any) -> bool:
    if not _is_jax(value):
        return False
    dtypes = sys.modules["jax"].dtypes
    return bool(dtypes.issubdtype(value.dtype, dtypes.prng_key))


def _numpy_leaf(value: Any) -> ArrayLeaf:
    import numpy as np

    array = np.asarray(value)
    if array.dtype.type.__module__ != "ml_dtypes":
        return ArrayLeaf(array)
    bits = np.uint16 if array.itemsize == 2 else np.uint8
    return ArrayLeaf(np.ascontiguousarray(array).reshape(array.shape).view(bits), dtype=array.dtype.name)


def _torch_leaf(torch: Any, tensor: Any) -> ArrayLeaf:
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16":
        return ArrayLeaf(tensor.contiguous().view(torch.int16).numpy().view("uint16"), dtype=name)
    if name.startswith("float8"):
        return ArrayLeaf(tensor.contiguous().view(torch.uint8).numpy(), dtype=name)
    return ArrayLeaf(tensor.numpy())


def _cast(array: Array, dtype: Any) -> Array:
    import numpy as np

    if array.dtype == dtype or array.dtype.kind in "mMUS" or np.dtype(dtype).kind in "mMUSO":
        return array
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        if not _same(cast.astype(array.dtype), array):
            raise _inexact(array.dtype, dtype)
    return cast


def _same(one: Any, other: Any) -> bool:
    """Of two arrays of numpy, or two of torch; NaN equals NaN."""
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _inexact(saved: Any, wanted: Any) -> Mismatch:
    return Mismatch(f"{saved} in the checkpoint and {wanted} in like=, which cannot hold its values exactly")


def _torch_like(torch: Any, array: Array, like: Any) -> Any:
    import numpy as np

    if array.dtype.type.__module__ == "ml_dtypes":
        array = array.astype(np.float32)  # exact; torch knows no numpy type of that package
    tensor = torch.from_numpy(np.array(array))
    cast = tensor.to(like.dtype)
    if cast.dtype != tensor.dtype and not _same(cast.to(tensor.dtype), tensor):
        raise _inexact(array.dtype, like.dtype)
    return cast.to(like.device).requires_grad_(like.requires_grad)


def _jax_like(array: Array, like: Any) -> Any:
    jax = sys.modules["jax"]
    value = jax.numpy.array(array)
    # An array put on its device by name refuses to meet others elsewhere: only where `like` is not on the default one.
    sharding = like.sharding
    return value if sharding is None or sharding == value.sharding else jax.device_put(value, sharding)


def _prng_key_like(array: Array, like: Any, saved: str | None) -> Any:
    jax = sys.modules["jax"]
    kinds: list[str] = []

    def data(key: Any) -> Any:
        kinds.append(str(jax.random.key_impl(key)))
        return jax.random.key_data(key)

    shape = jax.eval_shape(data, like).shape  # traced, because a shape without data cannot be asked for its kind
    wanted = kinds[0]
    if (saved is not None and saved != wanted) or array.shape != shape:
        raise Mismatch(
            f"random key data of {saved or 'unknown kind'} and shape {array.shape} in the checkpoint, "
            f"and of {wanted} and shape {shape} in like="
        )
    return jax.random.wrap_key_data(jax.numpy.array(array), impl=wanted)
