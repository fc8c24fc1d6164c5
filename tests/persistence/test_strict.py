"""Files with invalid content and a valid checksum are rejected."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from persistence_samples import assemble, seal

from steelyard.exceptions import FileFormatError
from steelyard.persistence import describe, from_bytes
from steelyard.persistence.tree import decode

FLOATS = {"dtype": "<f8", "order": "C", "shape": [2], "offset": 0, "length": 16}
HUGE = 2**62


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "|O8"},
        {"dtype": "|V8"},
        {"dtype": "<f16"},
        {"dtype": ">i1"},
        {"dtype": "<M8[0s]"},
        {"dtype": "f8,f8"},
        {"dtype": "<U0"},
        {"dtype": 3},
        {"order": "K"},
        {"order": []},
        {"shape": [3]},
        {"shape": [-2]},
        {"shape": [True, 2]},
        {"shape": [2.0]},
        {"shape": 2},
        {"shape": [HUGE, 4]},
        {"shape": [HUGE] * 33},
        {"shape": [0, HUGE], "length": 0},
        {"shape": [0, 2**31, 2**31], "length": 0},
        {"shape": [HUGE], "length": HUGE * 8},
        {"offset": 8},
        {"offset": -64},
        {"offset": 0.0},
        {"offset": 64},
        {"length": 8},
        {"length": "16"},
        {"extra": 1},
    ],
    ids=str,
)
def test_invalid_array_descriptor_raises(changes):
    assert decode(assemble({"array": 0}, [FLOATS], bytes(16))).tolist() == [0, 0]
    with pytest.raises(FileFormatError):
        decode(assemble({"array": 0}, [FLOATS | changes], bytes(16)))


@pytest.mark.parametrize(
    "content",
    [
        {"pickle": "gASVAAA="},
        {"tuple": 3},
        {"tuple": [], "dict": {}},
        {},
        {"int": "0x1"},
        {"int": ""},
        {"float": "7ff"},
        {"float": "7f f0000000000000"},
        {"str": "ff"},
        {"dict": []},
        {"pairs": [[1]]},
        {"pairs": [[1, 2], [True, 3]]},
        {"pairs": [[[], 1]]},
        {"pairs": [[{"scalar": ["<m8", "0100000000000000"]}, 1], [{"int": "f" * 6000}, 2], [[], 3]]},
        {"pairs": [[{"int": "f" * 6000}, 1], [{"int": "f" * 6000}, 2]]},
        {"scalar": ["<f8", "00"]},
        {"scalar": ["|b1", "02"]},
        {"scalar": ["|S1", "02"]},
        {"scalar": ["str", 3]},
        {"scalar": ["|O", "00"]},
        {"objects": {"shape": [2], "items": [1]}},
        {"objects": {"shape": [1], "items": [[1]]}},
        {"objects": {"shape": [0, HUGE], "items": []}},
        {"objects": []},
        {"array": 0},
        {"array": -1},
        {"array": True},
        {"bytes": 0},
        {"node": ["object", 3]},
        {"node": ["object", {"dict": {}}]},
        {"node": [1, {"dict": {}}]},
        {"node": ["module", {"dict": {"class": "os.system"}}]},
        {"node": ["object", {"dict": {"class": "x"}}]},
        {"node": ["object", {"dict": {"class": {"int": "f" * 6000}, "parameters": 1, "state": 1}}]},
        {"node": ["Generator", {"dict": {"bit_generator": {"int": "f" * 6000}}}]},
        {"node": ["Generator", {"dict": {"bit_generator": "os"}}]},
        {"node": ["RandomState", {"dict": {}}]},
    ],
    ids=lambda content: str(content)[:60],
)
def test_invalid_content_raises(content):
    data = assemble(content)
    for read in (decode, from_bytes, lambda b: describe(io.BytesIO(b))):
        with pytest.raises(FileFormatError):
            read(data)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"format": 1, "format": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"format": 1, "written_by": {"steelyard": 3}, "content": 1, "arrays": []}',
        b'{"format": 1, "written_by": {}, "content": 1, "arrays": []}',
        b'{"format": 2, "written_by": {"steelyard": "1"}, "content": 1, "arrays": []}',
        b'{"format": 1, "written_by": {"steelyard": "1"}, "content": 1, "arrays": {}}',
        b'{"format": 1, "written_by": {"steelyard": "1"}, "content": 1, "arrays": [1]}',
    ],
    ids=lambda text: repr(text[:30]),
)
def test_invalid_header_raises(text):
    with pytest.raises(FileFormatError):
        decode(seal(text))


def test_too_deeply_nested_content_raises():
    content: object = 1
    for _ in range(70):
        content = [content]
    with pytest.raises(FileFormatError, match="nested deeper"):
        decode(assemble(content))


def test_extra_bytes_between_or_after_arrays_raise():
    second = FLOATS | {"offset": 64}
    good = bytes(80)
    both = [{"array": 0}, {"array": 1}]
    assert len(decode(assemble(both, [FLOATS, second], good))) == 2
    with pytest.raises(FileFormatError, match="stray"):
        decode(assemble(both, [FLOATS, second], good[:20] + b"x" + good[21:]))
    with pytest.raises(FileFormatError, match="end at byte 80"):
        decode(assemble(both, [FLOATS, second], good + b"x"))


def test_array_used_twice_or_never_raises():
    with pytest.raises(FileFormatError, match="is expected next"):
        decode(assemble([{"array": 0}, {"array": 0}], [FLOATS], bytes(16)))
    with pytest.raises(FileFormatError, match="1 arrays, but its content uses 0"):
        decode(assemble([], [FLOATS], bytes(16)))


@pytest.mark.parametrize(("dtype", "word"), [("|b1", "booleans"), ("<U4", "characters")])
def test_bytes_that_are_not_a_valid_value_raise(dtype, word):
    size = np.dtype(dtype).itemsize
    descriptor = FLOATS | {"dtype": dtype, "shape": [1], "length": size}
    with pytest.raises(FileFormatError, match=word):
        decode(assemble({"array": 0}, [descriptor], b"\xff" * size))


def test_newer_format_error_names_writer_and_hint():
    text = json.dumps({"written_by": {"steelyard": "7.1.0"}, "new": 1}).encode()
    with pytest.raises(
        FileFormatError, match=r"format 9 by steelyard 7\.1\.0; .* up to format 1.\n?"
    ) as caught:
        decode(seal(text, file_format=9))
    assert "update" in caught.value.hint


def test_newer_format_with_unreadable_header_is_reported():
    with pytest.raises(FileFormatError, match="format 9 by an unknown version"):
        decode(seal(b"\x00\x01", file_format=9))


def test_format_zero_raises():
    with pytest.raises(FileFormatError, match="format 0"):
        decode(seal(b"{}", file_format=0))


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "empty"), (b"PK\x03\x04", "not a steelyard file"), (b"\x93STEEL", "truncated")],
)
def test_foreign_or_truncated_file_raises(data, message):
    with pytest.raises(FileFormatError, match=message):
        decode(data)
