"""Encoding and decoding of trees without loss."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from persistence_samples import same

from steelyard.exceptions import DataError, DataTypeError
from steelyard.persistence.tree import decode, encode

plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.text()
    | st.text(st.characters(categories=["Cs", "Ll"]))
    | st.binary(max_size=100)
)
dtypes = (
    hnp.boolean_dtypes()
    | hnp.integer_dtypes(endianness="?")
    | hnp.unsigned_integer_dtypes(endianness="?")
    | hnp.floating_dtypes(sizes=(16, 32, 64), endianness="?")
    | hnp.complex_number_dtypes(sizes=(64, 128), endianness="?")
    | hnp.unicode_string_dtypes(min_len=1, max_len=5, endianness="?")
    | hnp.byte_string_dtypes(min_len=1, max_len=5)
    | hnp.datetime64_dtypes()
    | hnp.timedelta64_dtypes()
)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
scalars = hnp.arrays(dtypes, ()).map(lambda array: array[()])
labels = plain | scalars.filter(lambda s: not isinstance(s, np.timedelta64))  # some have no hash
mixed = st.lists(plain | scalars, max_size=4).map(lambda items: np.array([*items, None], dtype=object)[:-1])
trees = st.recursive(
    plain | scalars | arrays | arrays.map(np.asfortranarray) | mixed,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.dictionaries(labels, inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(trees)
def test_decode_restores_tree_bitwise(tree):
    assert same(decode(encode(tree)), tree)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_encode_of_decoded_tree_gives_same_bytes(tree):
    assert encode(decode(encode(tree))) == encode(tree)


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        math.inf,
        struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\x7f")[0],
        10**5000,
        -(2**63),
        2**63,
        b"",
        "\ud83d",
        "\ud83d\ude00",
        np.str_("a\0"),
        np.str_(""),
        np.bytes_(b"a\0"),
        np.datetime64("NaT", "s"),
        np.timedelta64(5, "25s"),
        np.array(3.0),
        np.zeros((0, 3)),
        np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
        {1: "a", "1": "b", 1.5: "c", None: "d", np.str_("e"): "e", b"f": "f", "\ud83d": "g"},
        {},
        (),
        [()],
    ],
    ids=lambda value: type(value).__name__,
)
def test_special_value_is_restored_bitwise(value):
    assert same(decode(encode(value)), value)


def test_restored_arrays_keep_memory_order_and_are_writable():
    back = decode(encode(np.asfortranarray(np.ones((3, 2)))))
    assert back.flags.f_contiguous
    assert back.flags.writeable
    assert back.flags.aligned


def test_arrays_are_aligned_to_64_bytes():
    data = encode([np.full(3, 0xAB, np.uint8), np.full(5, 0xCD, np.uint8)])
    assert data.index(b"\xab" * 3) % 64 == 0
    assert data.index(b"\xcd" * 5) % 64 == 0


def test_memory_mapped_array_is_saved_as_array(tmp_path):
    mapped = np.memmap(tmp_path / "m", np.float64, "w+", shape=(3,))
    mapped[:] = [1, 2, 3]
    np.testing.assert_array_equal(decode(encode(mapped)), [1, 2, 3])


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        object(),
        np.float64,
        len,
        np.longdouble(1),
        np.zeros(2, np.longdouble),
        np.zeros(2, "f8,i4"),
        np.zeros(2, "V3"),
        np.ma.masked_array([1.0], [True]),
        np.array([[1], {}, None], dtype=object),
        {(1, 2): 3},
        type("Sub", (int,), {})(3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unsupported_value_raises_with_its_path_in_the_tree(value):
    with pytest.raises(DataTypeError, match=r"save: tree\.a"):
        encode({"a": [value]})


def test_recursive_tree_raises():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(DataError, match="contains itself"):
        encode(loop)


def test_deepest_writable_tree_is_readable():
    tree: object = 1
    for _ in range(64):
        tree = [tree] if isinstance(tree, tuple) else (tree,)
    assert decode(encode(tree)) == tree
    with pytest.raises(DataError, match="nested deeper than 64"):
        encode([tree])


def test_encoding_invalid_booleans_and_characters_raises():
    with pytest.raises(DataError, match="booleans"):
        encode(np.full(3, 2, np.uint8).view(bool))
    with pytest.raises(DataError, match="not characters"):
        encode(np.full(3, 0x110000, np.uint32).view("U1"))
