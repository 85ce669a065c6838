"""Networks whose leaves are all arrays: they go straight through jit, grad and scan, and through numpy.

Acting for one environment costs 10 us in numpy and 21 us as a compiled call, so what acting needs runs on both: give
a network numpy parameters and numpy observations, and it computes in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, TypeAlias, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from rollbook.algos.parts.products import FEW, narrow_product, product, product_of_columns, written

Array: TypeAlias = jax.Array
Key: TypeAlias = jax.Array
Activation: TypeAlias = Literal["tanh", "relu"]
T = TypeVar("T")

NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # filters, size, stride: Mnih et al. 2015, Methods
_NATURE_FEATURES = 512


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def network(kind: type[T]) -> type[T]:
    """A frozen dataclass whose fields are parameters, or networks of their own: a node of JAX's trees.

    An Equinox module would do as well, but reading its attributes took half of the actor's time in numpy (ADR 8).
    """
    # JAX 0.10 takes structures of different dataclasses with as many fields for equal, and its caches then sometimes
    # give one network for another: a static field tells them apart.
    kind.__annotations__["_name"] = str
    name: str = field(default=f"{kind.__module__}.{kind.__qualname__}", repr=False, metadata={"static": True})
    kind._name = name  # type: ignore[attr-defined]
    return jax.tree_util.register_dataclass(dataclass(frozen=True)(kind))


def namespace(array: Any) -> ModuleType:
    return np if isinstance(array, np.ndarray) else jnp


@network
class Linear:
    weight: Array  # (in, out)
    bias: Array  # (out,)

    def __call__(self, x: Array) -> Array:
        return (x @ self.weight if namespace(x) is np else product(x, self.weight)) + self.bias

    def narrow(self, x: Array) -> Array:
        """The same, where outputs are few: for a batch, the gradient of the weights is then had sooner."""
        if namespace(x) is np or x.ndim != 2:
            return self(x)
        return narrow_product(x, self.weight) + self.bias

    def of_columns(self, x: Array) -> Array:
        """The same of a batch as columns: (out, batch) from (in, batch)."""
        return product_of_columns(self.weight, x) + self.bias[:, None]


@network
class MLP:
    """Fully connected layers, each followed by the activation."""

    layers: tuple[Linear, ...]
    activation: Activation = field(metadata={"static": True})

    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = activate(layer(x), self.activation)
        return x

    def of_columns(self, x: Array) -> Array:
        """The same of a batch as columns: (out, batch) from (in, batch)."""
        for layer in self.layers:
            x = activate(layer.of_columns(x), self.activation)
        return x


@network
class CNN:
    """The convolutions of the Nature DQN on images (..., height, width, channels) of bytes."""

    kernels: tuple[Array, ...]  # (size, size, in, out)
    biases: tuple[Array, ...]
    features: Linear

    def __call__(self, image: Array) -> Array:
        x = image.reshape(-1, *image.shape[-3:])
        for kernel, bias, (_, _, stride) in zip(self.kernels, self.biases, NATURE, strict=True):
            x = jax.nn.relu(convolve(x, kernel, stride) + bias)
        return jax.nn.relu(self.features(x.reshape(*image.shape[:-3], -1)))


Torso: TypeAlias = MLP | CNN


def convolve(image: Array, kernel: Array, stride: int) -> Array:
    """A convolution without padding by one matrix product; the stride divides the kernel's size. Bytes count as 0 to 1.

    The image is cut into blocks of stride x stride pixels, of which the kernel covers wide x wide. Blocks side by side
    are put together before the product, those below each other are added up after it: half-way between copying every
    block wide x wide times and making as many products of it, and faster than either. XLA's own convolution is as fast
    forwards, but its gradient on CPU takes 24 times as long in a scan.
    """
    height, width, channels = image.shape[1:]
    size, filters = kernel.shape[0], kernel.shape[-1]
    wide = size // stride
    rows, columns = (height - size) // stride + 1, (width - size) // stride + 1
    used = image[:, : (rows + wide - 1) * stride, : (columns + wide - 1) * stride]
    if image.dtype != jnp.uint8:
        beside = _blocks_beside(used, stride, wide)
    else:  # numbers as late as can be, since bytes are moved faster; and four of them at a time
        pixels = jax.lax.bitcast_convert_type(used, jnp.uint32)[..., None] if channels == 4 else used
        beside = _blocks_beside(pixels, stride, wide)
        if channels == 4:
            beside = jax.lax.bitcast_convert_type(beside, jnp.uint8)
        beside = beside.reshape(*beside.shape[:3], -1).astype(jnp.float32) / 255
    weights = kernel.reshape(wide, stride, wide, stride, channels, filters).transpose(2, 1, 3, 4, 0, 5)
    flat = product(beside.reshape(-1, beside.shape[-1]), weights.reshape(-1, wide * filters))
    products = flat.reshape(*beside.shape[:3], -1)  # (batch, down, columns, wide x filters)
    return sum(products[:, i : i + rows, :, i * filters : (i + 1) * filters] for i in range(wide))  # type: ignore[return-value]


def _blocks_beside(image: Array, stride: int, wide: int) -> Array:
    """Of each block the numbers of it and of the next ones to its right, (batch, down, columns, numbers)."""
    batch, height, width, channels = image.shape
    down, across = height // stride, width // stride
    blocks = image.reshape(batch, down, stride, across, stride, channels).transpose(0, 1, 3, 2, 4, 5)
    blocks = blocks.reshape(batch, down, across, -1)
    return jnp.concatenate([blocks[:, :, i : i + across - wide + 1] for i in range(wide)], axis=-1)


def activate(x: Array, activation: Activation) -> Array:
    xp = namespace(x)
    result: Array = xp.tanh(x) if activation == "tanh" else xp.maximum(x, 0)
    return result


def orthogonal_linear(key: Key, inputs: int, outputs: int, scale: float) -> Linear:
    """Orthogonal weights, zero biases: Andrychowicz et al. 2021 and Huang et al. 2022 find it matters for PPO."""
    weight = jax.nn.initializers.orthogonal(scale)(key, (inputs, outputs), jnp.float32)
    return Linear(weight, jnp.zeros(outputs))


def make_torso(key: Key, observation_shape: tuple[int, ...], hidden: Sequence[int], activation: Activation) -> Torso:
    """An MLP for vectors, the Nature CNN for images."""
    if len(observation_shape) == 3:
        return _make_cnn(key, observation_shape)
    sizes = [*observation_shape, *hidden]
    keys = jax.random.split(key, len(hidden))
    layers = [
        orthogonal_linear(key, inputs, outputs, np.sqrt(2))
        for key, inputs, outputs in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]
    return MLP(tuple(layers), activation)


def head_of_torso(torso: Torso, head: Linear, x: Array) -> Array:
    """`head(torso(x))`; of a batch by columns, where that is sooner."""
    if namespace(x) is np or isinstance(torso, CNN) or x.ndim != 2 or x.shape[0] <= FEW:
        return head(torso(x))
    return columns_of_torso(torso, head, x).T


def columns_of_torso(torso: Torso, head: Linear, x: Array) -> Array:
    """`head(torso(x))` as columns: (out, batch) from (batch, ...). An MLP has columns throughout: a CPU makes their
    products sooner where layers are no multiple of its vectors, while the batch is: an update of DQN (120 and 84 units,
    128 steps) takes 65 us, not 73.
    """
    if isinstance(torso, CNN):
        return head(torso(x)).T
    return head.of_columns(torso.of_columns(written(x.T)))


def torso_features(torso: Torso) -> int:
    last = torso.features if isinstance(torso, CNN) else torso.layers[-1]
    return last.bias.shape[0]


def _make_cnn(key: Key, image: tuple[int, ...]) -> CNN:
    keys = jax.random.split(key, len(NATURE) + 1)
    kernels, biases = [], []
    height, width, channels = image
    for conv_key, (filters, size, stride) in zip(keys, NATURE, strict=False):
        flat = jax.nn.initializers.orthogonal(np.sqrt(2))(conv_key, (size * size * channels, filters), jnp.float32)
        kernels.append(flat.reshape(size, size, channels, filters))
        biases.append(jnp.zeros(filters))
        height, width, channels = (height - size) // stride + 1, (width - size) // stride + 1, filters
    features = orthogonal_linear(keys[-1], height * width * channels, _NATURE_FEATURES, np.sqrt(2))
    return CNN(tuple(kernels), tuple(biases), features)
