"""Arrays of any framework as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rollbook.book.arrays import is_array, to_numpy
from rollbook.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    Array = np.ndarray[Any, Any]

CHANNELS = (1, 3, 4)
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
_ROUNDING = 1e-3  # how far a renderer's floats may leave 0..1


def read_pixels(value: Any, what: str) -> Array:
    """uint8 of shape (height, width), (height, width, 3) or (height, width, 4)."""
    array = _with_channels_last(_as_numpy(value, what))
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in CHANNELS) or not array.size:
        raise UsageError(
            f"{what} has shape {array.shape}, which is no picture",
            "a picture is (height, width) or (height, width, channels) with 1, 3 or 4 channels",
        )
    return _as_bytes(array, what)


def to_rgb(picture: Array) -> Array:
    import numpy as np

    if picture.ndim == 2:
        picture = np.repeat(picture[:, :, None], 3, axis=2)
    return np.ascontiguousarray(picture[:, :, :3])


def to_image(picture: Array) -> Image.Image:
    import numpy as np
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(picture))


def as_png_mode(image: Image.Image) -> Image.Image:
    """PNG has no CMYK, YCbCr, float and the like."""
    return image if image.mode in _PNG_MODES else image.convert("RGB")


def _as_numpy(value: Any, what: str) -> Array:
    import numpy as np

    if hasattr(value, "save") and hasattr(value, "size"):  # a PIL image among the frames
        return np.asarray(value.convert("RGB"))
    if not is_array(value):
        raise UsageError(
            f"{what} is of type {type(value).__name__}",
            "pass an array of pixels (numpy, torch or JAX), a PIL image or, as a figure, one of matplotlib",
        )
    array = to_numpy(value)
    if array.dtype.kind not in "buif":
        raise UsageError(f"{what} has elements of type {array.dtype}", "pass uint8, or floats 0..1")
    return array


def _with_channels_last(array: Array) -> Array:
    """(channels, height, width), as torch has it, only where the last axis cannot be the channels."""
    import numpy as np

    if array.ndim == 3 and array.shape[2] not in CHANNELS and array.shape[0] in CHANNELS:
        return np.moveaxis(array, 0, 2)
    return array


def _as_bytes(array: Array, what: str) -> Array:
    import numpy as np

    if array.dtype == np.uint8:
        return array
    if array.dtype.kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    low, high = array.min(), array.max()
    if array.dtype.kind == "f":
        if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):  # also where they are NaN
            raise UsageError(f"{what} has floats from {low} to {high}, not 0 to 1", "scale them, or pass uint8")
        return (array.astype(np.float64).clip(0, 1) * 255).round().astype(np.uint8)
    if low < 0 or high > 255:
        raise UsageError(f"{what} has values from {low} to {high}, not 0 to 255", "scale them, or pass uint8")
    return array.astype(np.uint8)
