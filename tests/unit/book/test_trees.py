import json
import math
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from rollbook.book.trees import arrays_of, flatten, unflatten, unflatten_like
from rollbook.errors import UsageError

Adam = namedtuple("Adam", ["count", "mu"])


def round_trip(tree, like=None):
    flat = flatten(tree)
    structure = json.loads(json.dumps(flat.structure))
    arrays = {key: tensor.array for key, tensor in flat.tensors.items()}
    return unflatten(structure, arrays) if like is None else unflatten_like(structure, arrays, like)


def test_the_state_dict_of_an_optimizer_keeps_its_integer_keys():
    state = {"state": {0: {"step": np.float32(1)}, 3: {}}, "param_groups": [{"betas": (0.9, 0.999), "foreach": None}]}

    assert round_trip(state) == state


def test_keys_keep_their_types():
    tree = {1: "a", "1": "b", 2.5: "c", None: "d", (1, ("x", False)): "e", math.inf: "f", 10**40: "g"}

    loaded = round_trip(tree)

    assert loaded == tree
    assert [type(key) for key in loaded] == [type(key) for key in tree]


def test_a_boolean_key_stays_a_boolean():
    assert next(iter(round_trip({True: 1}))) is True


def test_a_key_of_numpy_becomes_a_key_of_python():
    assert round_trip({np.int64(3): 1}) == {3: 1}


def test_python_values_survive_exactly():
    values = [
        None,
        True,
        0,
        -1,
        2**53 + 1,
        10**5000,
        0.1,
        -0.0,
        5e-324,
        math.inf,
        -math.inf,
        1 - 2j,
        "é\ud800\0",
        b"\0\xff",
    ]

    loaded = round_trip(values)

    assert loaded == values
    assert [type(value) for value in loaded] == [type(value) for value in values]
    assert math.copysign(1, loaded[7]) == -1
    assert math.isnan(round_trip(math.nan))


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5),
        np.zeros((0, 4), np.int8),
        np.arange(12).reshape(3, 4).T,
        np.arange(10)[::-2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.float16(2), (3, 2)),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array([[1 + 2j, 3]], np.complex128),
        np.array(["", "ab", "ü"]),
        np.array([b"a", b"bcd"]),
        np.array(["2026-11-15", "NaT"], "datetime64[s]"),
        np.array(5, "timedelta64[ms]"),
        np.array([math.nan, -math.inf], np.float16),
        np.array([2**64 - 1], np.uint64),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_an_array_keeps_its_shape_its_type_and_its_values(array):
    np.testing.assert_array_equal(round_trip({"x": array})["x"], array, strict=True)


def test_an_array_of_the_other_byte_order_keeps_its_values():
    np.testing.assert_array_equal(round_trip(np.array([1.5, 2], ">f4")), [1.5, 2])


@pytest.mark.parametrize(
    "scalar", [np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("é"), np.str_(""), np.complex128(1j)]
)
def test_a_scalar_of_numpy_stays_one(scalar):
    loaded = round_trip(scalar)

    assert loaded == scalar
    assert type(loaded) is type(scalar)


def test_containers_without_like_become_plain_ones():
    @dataclass
    class Config:
        rate: float

    tree = [OrderedDict(a=1), Adam(2, (3,)), Config(0.5), defaultdict(list, b=[4]), MappingProxyType({"c": 5})]

    assert round_trip(tree) == [{"a": 1}, {"count": 2, "mu": (3,)}, {"rate": 0.5}, {"b": [4]}, {"c": 5}]


def test_containers_with_like_come_back_as_they_were():
    @dataclass(frozen=True)
    class Normaliser:
        mean: float
        count: int = field(init=False, default=0)

    like = [OrderedDict(a=0), Adam(0, (0,)), Normaliser(0.0), defaultdict(list, b=[0]), MappingProxyType({"c": 0})]
    tree = [OrderedDict(a=1), Adam(2, (3,)), Normaliser(0.5), defaultdict(list, b=[4]), MappingProxyType({"c": 5})]

    loaded = round_trip(tree, like)

    assert loaded[:4] == tree[:4]
    assert [type(part) for part in loaded[:4]] == [type(part) for part in tree[:4]]
    assert loaded[3]["new"] == []


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"optimizer": {"state": [0, 1, 2, object()]}}, r"optimizer\.state\[3\] is of type object"),
        ({"a": {"x.y": {1, 2}}}, r"a\['x\.y'\] is of type set.*\n.*list"),
        (Adam(deque([1]), 0), r"count is of type collections\.deque.*\n.*list"),
        (lambda: 0, r"the tree is of type function.*\n.*arrays only"),
        ({"rng": np.random.default_rng(0)}, r"rng is of type .*Generator.*\n.*bit_generator\.state"),
        ({"x": np.array([object()])}, r"x is of type numpy\.ndarray \(elements of type object\)"),
        ({"x": np.zeros(2, [("obs", "f4")])}, r"x is of type.*\n.*fields one by one"),
        ({"x": np.ma.masked_array([1, 2], [0, 1])}, r"x is of type numpy\.ma.*mask"),
        ({"x": {b"k": 1}}, r"x has the key b'k' of type bytes"),
        ({"net": SimpleNamespace(state_dict=dict)}, r"net is of type types\.SimpleNamespace.*\n.*state_dict\(\)"),
    ],
)
def test_what_cannot_be_saved_is_named_with_its_place_its_type_and_a_way_out(tree, message):
    with pytest.raises(UsageError, match=message):
        flatten(tree)


def test_a_tree_that_holds_itself_is_refused():
    tree: list = []
    tree.append({"again": tree})

    with pytest.raises(UsageError, match="hold itself"):
        flatten(tree)


def test_the_state_of_a_generator_can_be_saved():
    rng = np.random.default_rng(3)
    rng.integers(10)

    other = np.random.default_rng()
    other.bit_generator.state = round_trip(rng.bit_generator.state)

    assert other.integers(1000, size=5).tolist() == rng.integers(1000, size=5).tolist()


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"a": [np.zeros(2)]}, r"the checkpoint has a\[1\], which like= lacks"),
        ({"a": [np.zeros(2), 0, 0]}, r"the checkpoint has no a\[2\]"),
        ({"a": [np.zeros(2), 0], "b": 0}, r"the checkpoint has no b\nhint: at the tree it has a"),
        ({"a": [np.zeros((2, 1)), 0]}, r"a\[0\] is of shape \(2,\) in the checkpoint and \(2, 1\) in like="),
        ({"a": [np.zeros(2, np.int8), 0]}, r"a\[0\] is float64 in the checkpoint and int8 in like="),
        ({"a": [np.zeros(2), [0]]}, r"a\[1\] is a value in the checkpoint and list in like="),
        ({"a": 0}, r"a is a list in the checkpoint and int in like="),
        ({"a": [0, 0]}, r"a\[0\] is an array of shape \(2,\) in the checkpoint and of type int in like="),
        ({"a": [np.zeros(2), "x"]}, r"a\[1\] is 7 in the checkpoint and of type str in like="),
        ({"a": [np.zeros(2), None]}, r"a\[1\] is 7 in the checkpoint and of type NoneType in like="),
    ],
)
def test_the_first_place_where_like_differs_is_named(like, message):
    with pytest.raises(UsageError, match=message):
        round_trip({"a": [np.array([0.5, 300]), 7]}, like)


def test_like_changes_the_type_of_an_array_only_where_no_value_changes():
    loaded = round_trip([np.array([1.0, math.nan]), 3, np.float64(2)], [np.zeros(2, np.float16), np.int32(0), 0.0])

    assert loaded[0].dtype == np.float16
    assert (type(loaded[1]), loaded[1]) == (np.int32, 3)
    assert (type(loaded[2]), loaded[2]) == (float, 2.0)


def test_a_function_that_was_filtered_out_comes_from_like():
    assert round_trip({"w": 1, "activation": None}, {"w": 0, "activation": math.tanh})["activation"] is math.tanh


def test_anything_with_a_numpy_method_is_an_array():
    class Variable:
        shape = (2,)

        def numpy(self):
            return np.array([1.0, 2.0])

    assert round_trip({"v": Variable()})["v"].tolist() == [1, 2]
    assert round_trip({"v": Variable()}, {"v": Variable()})["v"].tolist() == [1, 2]


class FakeTensor:
    """torch's surface as far as reading a tensor goes; the real one is tried by hand, as the core does without it."""

    def __init__(self, bits, dtype):
        self.bits, self.dtype = bits, dtype

    def detach(self):
        return self

    cpu = resolve_conj = resolve_neg = contiguous = detach

    def view(self, dtype):
        return FakeTensor(self.bits.view(dtype), str(np.dtype(dtype)))

    def numpy(self):
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.bits


def test_a_bfloat16_of_torch_is_stored_as_its_bits(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=FakeTensor, int16=np.int16))

    flat = flatten({"w": FakeTensor(np.array([0x3F80, 0xC000], np.uint16), "torch.bfloat16")})

    (tensor,) = flat.tensors.values()
    assert tensor.code == "BF16"
    assert tensor.array.tolist() == [0x3F80, 0xC000]


def test_a_tensor_that_torch_cannot_give_is_refused_with_its_words(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=FakeTensor, int16=np.int16))
    tensor = FakeTensor(np.zeros(2), "torch.bfloat16")

    def no_data():
        raise RuntimeError("no data")

    monkeypatch.setattr(tensor, "detach", no_data)

    with pytest.raises(UsageError, match=r"w is of type .*FakeTensor \(no data\)"):
        flatten({"w": tensor})


def test_the_arrays_of_a_tree_are_found_wherever_they_are():
    tree = {"a": [np.ones(2), 3, "text", None], "b": Adam(np.int32(1), math.tanh)}

    assert [array.tolist() for array in arrays_of(tree)] == [[1, 1], 1]


@pytest.mark.parametrize(
    "structure",
    [{"array": "missing"}, {"unknown": 1}, [1], {"list": 3}, {"int": "zz"}, {"items": [1]}, {"complex": [1]}],
)
def test_a_structure_that_is_none_is_an_error_and_builds_nothing(structure):
    with pytest.raises((KeyError, ValueError, TypeError)):
        unflatten({"dict": {"x": structure}}, {})
