import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rollbook.book.tensors import read_tensors, write_tensors
from rollbook.book.trees import flatten, unflatten, unflatten_like

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.unsigned_integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="=", sizes=(64, 128)),
    hnp.datetime64_dtypes(endianness="="),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers())
PLAIN_KEYS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())
KEYS = st.one_of(PLAIN_KEYS, st.tuples(PLAIN_KEYS, PLAIN_KEYS))
TREES = st.recursive(
    st.one_of(SCALARS, ARRAYS),
    lambda children: st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.dictionaries(st.text(), children, max_size=4),
        st.dictionaries(KEYS, children, max_size=4),
    ),
    max_leaves=12,
)


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        keys = zip(one, other, strict=True)
        return len(one) == len(other) and all(same(a, b) and same(one[a], other[b]) for a, b in keys)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (one, math.copysign(1, one)) == (
            other,
            math.copysign(1, other),
        )
    return one == other


@given(TREES)
def test_any_tree_comes_back_from_its_files_as_it_was(tmp_path_factory, tree):
    path = tmp_path_factory.getbasetemp() / "tensors.safetensors"
    flat = flatten(tree)
    crc = write_tensors(path, flat.tensors)

    loaded = unflatten(json.loads(json.dumps(flat.structure)), read_tensors(path, crc))

    assert same(loaded, tree)


@given(TREES)
def test_any_tree_is_like_itself(tree):
    flat = flatten(tree)
    arrays = {key: tensor.array for key, tensor in flat.tensors.items()}

    assert same(unflatten_like(flat.structure, arrays, tree), tree)


@given(ARRAYS, st.integers(0, 2))
def test_an_array_seen_through_any_strides_is_saved_as_seen(array, axis):
    view = np.moveaxis(array, axis, 0)[::-1] if array.ndim > axis else array
    flat = flatten(view)

    loaded = unflatten(flat.structure, {key: tensor.array for key, tensor in flat.tensors.items()})

    assert same(loaded, view)
