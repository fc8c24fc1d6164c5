"""Lossless encoding of plain values as bytes.

In the header a value is plain JSON if JSON represents it exactly: null, true, false, 64-bit integers, finite
floats, text, lists. All other values are JSON objects with a single key, the tag: ``{"tuple": [...]}``,
``{"array": 3}``. Equal trees with the same order of dictionary keys give equal bytes.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from steelyard.exceptions import DataError, DataTypeError, FileFormatError
from steelyard.persistence.envelope import (
    AnyArray,
    ArrayWriter,
    Envelope,
    check_shape,
    pack,
    parse_dtype,
    quote,
    unpack,
)

MAX_DEPTH = 64
_SCALARS = (type(None), bool, int, float, str, bytes, np.generic)
_HEX = re.compile(r"(?:[0-9a-f]{2})*", re.ASCII)
_HEX_INT = re.compile(r"-?[0-9a-f]+", re.ASCII)
_FLOAT = struct.Struct(">d")


@dataclass(frozen=True, slots=True)
class Node:
    """Value that a higher layer encodes and decodes, given by its kind and parts."""

    kind: str
    content: dict[str, Any]


Convert = Callable[[object, str], Node]
Build = Callable[[Node], Any]


def encode(tree: object) -> bytes:
    """Return a tree as bytes.

    A tree consists of None, bool, int, float, str, bytes, NumPy scalars and arrays, and lists, tuples and
    dictionaries of such values, whose keys are scalars.

    >>> tree = {"counts": {"fraud": 2, 0: 98}, "weights": np.array([0.5, -0.0])}
    >>> decode(encode(tree))
    {'counts': {'fraud': 2, 0: 98}, 'weights': array([ 0.5, -0. ])}
    """
    return b"".join(encode_parts(tree, _raise_unsupported, "tree"))


def encode_parts(tree: object, convert: Convert, where: str) -> list[bytes | memoryview]:
    """Return the encoded tree `where` as byte blocks; `convert` turns other values into nodes."""
    writer = _Writer(convert, where)
    content = writer.write(tree)
    return pack(content, writer.arrays)


def decode(data: bytes | bytearray | memoryview) -> Any:
    """Return the tree encoded by :func:`encode`. Raise FileFormatError for any other bytes."""
    return read_tree(unpack(data), _no_nodes)


def read_tree(envelope: Envelope, build: Build) -> Any:
    """Return the tree of a file; `build` converts nodes to values, inner nodes first."""
    reader = _Reader(envelope.arrays, build)
    tree = reader.read(envelope.content)
    reader.finish()
    return tree


class _Writer:
    def __init__(self, convert: Convert, where: str) -> None:
        self.arrays = ArrayWriter()
        self.convert = convert
        self.where = where
        self.depth = 0

    def write(self, value: object) -> Any:
        if self.depth > MAX_DEPTH:
            raise DataError(
                f"{quote(self.where)} is nested deeper than {MAX_DEPTH} levels, or contains itself.",
                source="save",
            )
        self.depth += 1
        # Only exact types are encoded, because the class of a subclass instance would be lost.
        if method := self._methods.get(type(value)):
            result = method(self, value)
        elif isinstance(value, np.generic):
            result = self._numpy_scalar(value)
        else:
            node = self.convert(value, self.where)
            result = {"node": [node.kind, self.write(node.content)]}
        self.depth -= 1
        return result

    def _bytes(self, value: bytes) -> Any:
        return {"bytes": self.arrays.add(np.frombuffer(value, np.uint8), self.where)}

    def _list(self, value: Iterable[object]) -> list[Any]:
        return [self.write(item) for item in value]

    def _dict(self, value: dict[object, object]) -> Any:
        if all(type(key) is str and _is_unicode(key) for key in value):
            return {"dict": {key: self._write_at(key, item) for key, item in value.items()}}
        return {"pairs": [[self._key(key), self._write_at(key, item)] for key, item in value.items()]}

    def _key(self, key: object) -> Any:
        if isinstance(key, _SCALARS):
            return self.write(key)
        raise DataTypeError(
            f"{self.where} has the key {quote(key)}; keys must be text, numbers or labels.", source="save"
        )

    def _write_at(self, key: object, item: object) -> Any:
        """Encode an item of a dictionary; error messages then contain its key."""
        parent = self.where
        self.where = f"{parent}.{key}" if type(key) is str else f"{parent}[{quote(key)}]"
        result = self.write(item)
        self.where = parent
        return result

    def _array(self, value: AnyArray) -> Any:
        if value.dtype.kind != "O":
            return {"array": self.arrays.add(value, self.where)}
        items = value.reshape(-1).tolist()
        if not all(isinstance(item, _SCALARS) for item in items):
            raise DataTypeError(
                f"{self.where} is an object array with items other than text, numbers and labels.",
                source="save",
            )
        return {"objects": {"shape": list(value.shape), "items": self._list(items)}}

    def _numpy_scalar(self, value: np.generic) -> Any:
        # NumPy strings would lose trailing NUL characters as array elements.
        if isinstance(value, np.str_):
            return {"scalar": ["str", _text_to_hex(value)]}
        if isinstance(value, np.bytes_):
            return {"scalar": ["bytes", bytes(value).hex()]}
        try:
            parse_dtype(value.dtype.str)
        except FileFormatError:
            raise DataTypeError(
                f"{self.where} is a {type(value).__name__}, which cannot be saved.", source="save"
            ) from None
        return {"scalar": [value.dtype.str, np.asarray(value).tobytes().hex()]}

    _methods: ClassVar[dict[type, Callable[[_Writer, Any], Any]]] = {
        type(None): lambda _, value: value,
        bool: lambda _, value: value,
        int: lambda _, value: value if -(2**63) <= value < 2**63 else {"int": f"{value:x}"},
        float: lambda _, value: value if math.isfinite(value) else {"float": _FLOAT.pack(value).hex()},
        str: lambda _, value: value if _is_unicode(value) else {"str": _text_to_hex(value)},
        bytes: _bytes,
        list: _list,
        tuple: lambda self, value: {"tuple": self._list(value)},
        dict: _dict,
        np.ndarray: _array,
        np.memmap: _array,
    }


class _Reader:
    def __init__(self, arrays: list[AnyArray], build: Build) -> None:
        self.arrays = arrays
        self.build = build
        self.n_used = 0
        self.depth = 0

    def read(self, value: Any) -> Any:
        if self.depth > MAX_DEPTH:
            raise FileFormatError(f"The content is nested deeper than {MAX_DEPTH} levels.")
        self.depth += 1
        result = value  # all JSON values except lists and dictionaries are plain
        if type(value) is list:
            result = self._list(value)
        elif type(value) is dict:
            if len(value) != 1:
                raise FileFormatError(f"A value must have one tag; got {quote(list(value))}.")
            [(tag, content)] = value.items()
            if tag not in self._methods:
                raise FileFormatError(f"{quote(tag)} is not a kind of value that this library supports.")
            result = self._methods[tag](self, content)
        self.depth -= 1
        return result

    def finish(self) -> None:
        if self.n_used != len(self.arrays):
            raise FileFormatError(
                f"The file has {len(self.arrays)} arrays, but its content uses {self.n_used}."
            )

    def _float(self, content: Any) -> float:
        raw = _from_hex(content)
        if len(raw) != _FLOAT.size:
            raise FileFormatError(f"{quote(content)} is not a float of 64 bits.")
        value: float = _FLOAT.unpack(raw)[0]
        return value

    def _bytes(self, content: Any) -> bytes:
        array = self._array(content)
        if array.dtype != np.uint8 or array.ndim != 1:
            raise FileFormatError(f"Array {content} should contain bytes; it contains {array.dtype}.")
        return array.tobytes()

    def _list(self, content: Any) -> list[Any]:
        return [self.read(item) for item in _check_list(content)]

    def _dict(self, content: Any) -> dict[Any, Any]:
        if type(content) is not dict:
            raise FileFormatError(f"{quote(content)} is not a dictionary.")
        return {key: self.read(item) for key, item in content.items()}

    def _pairs(self, content: Any) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for pair in _check_list(content):
            key_content, item = _check_list(pair, 2)
            key = self.read(key_content)
            if not _is_key(key) or key in result:
                raise FileFormatError(f"{quote(key)} is an invalid or duplicate key.")
            result[key] = self.read(item)
        return result

    def _array(self, content: Any) -> AnyArray:
        # Arrays are stored in the order in which the tree references them, and each is used once.
        if type(content) is not int or content != self.n_used or content >= len(self.arrays):
            raise FileFormatError(
                f"Array {self.n_used} is expected next; the content refers to {quote(content)}."
            )
        self.n_used += 1
        return self.arrays[content]

    def _objects(self, content: Any) -> AnyArray:
        if type(content) is not dict or set(content) != {"shape", "items"}:
            raise FileFormatError(f"{quote(content)} is not an array of objects.")
        items = self._list(content["items"])
        shape = check_shape(content["shape"], np.dtype(object).itemsize)
        if math.prod(shape) != len(items) or not all(isinstance(item, _SCALARS) for item in items):
            raise FileFormatError(f"An object array of shape {quote(shape)} has invalid items.")
        array = np.empty(len(items), dtype=object)
        array[:] = items
        return array.reshape(shape)

    def _scalar(self, content: Any) -> np.generic:
        name, value = _check_list(content, 2)
        if name == "str":
            return np.str_(_text_from_hex(value))
        raw = _from_hex(value)
        if name == "bytes":
            return np.bytes_(raw)
        dtype = parse_dtype(name)
        if len(raw) != dtype.itemsize or dtype.kind in "US" or (dtype.kind == "b" and raw[0] > 1):
            raise FileFormatError(f"{quote(value)} is not a value of type {dtype.str}.")
        scalar: np.generic = np.frombuffer(raw, dtype)[0]
        return scalar

    def _node(self, content: Any) -> Any:
        kind, parts = _check_list(content, 2)
        parts = self.read(parts)
        if type(kind) is not str or type(parts) is not dict:
            raise FileFormatError(f"{quote(kind)} with {quote(parts)} is not a node.")
        return self.build(Node(kind, parts))

    _methods: ClassVar[dict[str, Callable[[_Reader, Any], Any]]] = {
        "int": lambda _, content: int(_check_text(content, _HEX_INT), 16),
        "float": _float,
        "str": lambda _, content: _text_from_hex(content),
        "bytes": _bytes,
        "tuple": lambda self, content: tuple(self._list(content)),
        "dict": _dict,
        "pairs": _pairs,
        "array": _array,
        "objects": _objects,
        "scalar": _scalar,
        "node": _node,
    }


def _raise_unsupported(value: object, where: str) -> Node:
    raise DataTypeError(
        f"{where} is a {type(value).__name__}, which cannot be saved.",
        source="save",
        hint="plain values, NumPy arrays, and lists, tuples and dictionaries of such values can be saved",
    )


def _no_nodes(node: Node) -> Any:
    raise FileFormatError(
        f"The file contains a model ({quote(node.kind)}), not plain values.", hint="use from_bytes"
    )


def _is_unicode(text: str) -> bool:
    """Return whether a string can be encoded as UTF-8; lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_key(value: object) -> bool:
    try:
        hash(value)
    except (TypeError, ValueError):  # NumPy cannot hash a timedelta without a unit
        return False
    return isinstance(value, _SCALARS)


def _check_list(value: Any, length: int | None = None) -> list[Any]:
    if type(value) is not list or (length is not None and len(value) != length):
        raise FileFormatError(f"Expected a list{f' of {length}' if length else ''}; found {quote(value)}.")
    return value


def _check_text(value: Any, pattern: re.Pattern[str]) -> str:
    if type(value) is not str or not pattern.fullmatch(value):
        raise FileFormatError(f"{quote(value)} is not a hexadecimal value.")
    return value


def _from_hex(value: Any) -> bytes:
    return bytes.fromhex(_check_text(value, _HEX))


def _text_to_hex(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").hex()


def _text_from_hex(value: Any) -> str:
    try:
        return _from_hex(value).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{quote(value)} is not text.") from error
