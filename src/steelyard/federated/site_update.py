"""Site update: the versioned statistics of a site, the schema of their columns, and their binary format.

==========  =====  ===============================================================
bytes       type   meaning
==========  =====  ===============================================================
0 to 3      bytes  ``\\x93SYB``
4           u8     format version
5 to 20     bytes  BLAKE2b digest of the remaining bytes
21 to 24    u32    length of the header
25 onward   bytes  the header: JSON in UTF-8, compressed with zlib
then        bytes  for the quantizer and for each class: a length (u32) and numbers
==========  =====  ===============================================================

The memory for the sums of a message is limited to :data:`~steelyard.federated.packing.MAX_EXPANSION` times
its length. The checksum detects accidental damage but does not authenticate the sender, so all contents are
validated. Statistics that this format cannot represent, for example with labels that are not JSON types, are
written as version 1, the format of release 0.2.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from steelyard._labels import restored_labels
from steelyard.exceptions import FileFormatError
from steelyard.federated.packing import (
    MAX_EXPANSION,
    decimals,
    pack_numbers,
    pack_triangle,
    unpack_columns,
    unpack_triangle,
)
from steelyard.persistence.tree import decode, encode
from steelyard.proximal import ClassStatistics
from steelyard.proximal.quantizer import WEIGHT_FRACTION_BITS, Quantizer
from steelyard.proximal.serialization import (
    check_format,
    from_integer_sums,
    reading,
    to_integer_sums,
    unknown_version,
)
from steelyard.tables import TableEncoder
from steelyard.tables.columns import ColumnBatch

_MAGIC = b"\x93SYB"
_VERSION = 2
_START = struct.Struct("<4sB16s")
_LENGTH = struct.Struct("<I")
_OLD_FORMAT, _OLD_VERSION = "steelyard bulletin", 1  # name and version of the format of release 0.2
_N_QUANTIZER_COLUMNS = 4  # number of arrays of a quantizer
_LABEL_TYPES = {str, int, bool}  # types of the labels in a message of version 2
_MAX_SUM_BYTES = 1024
_SOURCE = "SiteUpdate.from_bytes"


@dataclass(frozen=True)
class Schema:
    """Schema of statistics: the features are the numeric columns, followed by one feature for each category.

    Attributes
    ----------
    target : str
        The column of labels.
    numeric : tuple of str
        Numeric columns, in the order of their features.
    categorical : tuple of str
        Categorical columns.
    categories : tuple of (str, str)
        Column and value of each one-hot feature.
    """

    target: str
    numeric: tuple[str, ...]
    categorical: tuple[str, ...] = ()
    categories: tuple[tuple[str, str], ...] = ()

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.numeric) + len(self.categories)

    @classmethod
    def of(
        cls, target: Any, numeric: Iterable[Any], categorical: Iterable[Any], categories: Iterable[Any]
    ) -> Schema:
        """Return a schema from plain values; raise an error if they are invalid."""
        numbers, texts = tuple(map(str, numeric)), tuple(map(str, categorical))
        schema = cls(str(target), numbers, texts, tuple((str(c), str(v)) for c, v in categories))
        columns = [schema.target, *numbers, *texts]
        if len({*columns}) < len(columns) or len({*schema.categories}) < len(schema.categories):
            raise ValueError("a column or a category occurs twice")
        if not {column for column, _ in schema.categories} <= {*texts}:
            raise ValueError("a category does not belong to any column")
        return schema

    def to_dict(self) -> dict[str, Any]:
        """Return the names as lists, the form in which messages contain them."""
        return {
            "target": self.target,
            "numeric": list(self.numeric),
            "categorical": list(self.categorical),
            "categories": [list(pair) for pair in self.categories],
        }

    def encoder(self) -> TableEncoder:
        """Return an encoder that maps columns to the features of this schema."""
        encoder = TableEncoder("refuse")
        names = [*self.numeric, *self.categorical]
        texts = set(self.categorical)
        empty = {name: np.empty(0, dtype=object if name in texts else np.float64) for name in names}
        encoder.fit_columns(ColumnBatch(empty, 0), names, ())
        encoder.add_categories(self.categories)
        return encoder

    def places_in(self, other: Schema) -> list[int]:
        """Return the index of each feature of this schema in another schema."""
        numeric = {name: index for index, name in enumerate(other.numeric)}
        one_hot = {pair: len(other.numeric) + index for index, pair in enumerate(other.categories)}
        return [*(numeric[name] for name in self.numeric), *(one_hot[pair] for pair in self.categories)]


@dataclass(frozen=True)
class SiteUpdate:
    """Current statistics of a site.

    A newer update replaces an older one, so duplicated, late or lost updates do no harm.

    Attributes
    ----------
    site : str
        Name of the publishing site.
    epoch : int
        Number of the site's run. A site that lost its state starts a new epoch with a larger number.
    version : int
        Number of the update within its epoch.
    schema : Schema
        Columns of the features.
    statistics : ClassStatistics
        Statistics of the rows.
    held_back : mapping of str to str
        Labels of the withheld classes, each with the reason.
    """

    site: str
    epoch: int
    version: int
    schema: Schema
    statistics: ClassStatistics
    held_back: Mapping[str, str] = field(default_factory=dict)

    @property
    def age(self) -> tuple[int, int]:
        """Epoch and version, which give the order of the updates of a site."""
        return self.epoch, self.version

    def statistics_in(self, schema: Schema) -> ClassStatistics:
        """Return the statistics with the features in the order of another schema."""
        return self.statistics.permute_features(self.schema.places_in(schema), schema.n_features)

    def to_bytes(self) -> bytes:
        """Return the update in a binary format with a checksum.

        Reading the bytes executes no code. They contain sums only, no single row.
        """
        head = {
            "site": self.site,
            "age": [self.epoch, self.version],
            **self.schema.to_dict(),
            "held_back": dict(self.held_back),
        }
        statistics = self.statistics.copy().fold()  # adds buffered rows to the sums
        packed = _packed(statistics)
        if packed is None:
            head = {"format": _OLD_FORMAT, "version": _OLD_VERSION, **head}
            return encode({**head, "statistics": statistics.to_bytes()})
        fields, parts = packed
        text = json.dumps({**head, **fields}, ensure_ascii=False, separators=(",", ":")).encode()
        pieces = [zlib.compress(text, 9), *parts]
        body = b"".join(_LENGTH.pack(len(piece)) + piece for piece in pieces)
        return _START.pack(_MAGIC, _VERSION, _digest(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> SiteUpdate:
        """Return the update that ``data`` contains; raise FileFormatError for other or damaged data."""
        data = bytes(data)
        with reading("site update", _SOURCE):
            tree, statistics = _read(data) if data[:4] == _MAGIC else _read_old(data)
            site_update = _from_tree(tree, statistics)
        if statistics.n_features != site_update.schema.n_features:
            raise FileFormatError(
                "the columns of the site update do not match its statistics.", source=_SOURCE
            )
        return site_update


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _packed(statistics: ClassStatistics) -> tuple[dict[str, Any], list[bytes]] | None:
    """Return header fields, packed quantizer and classes, or None if version 2 cannot represent them."""
    if not statistics.is_frozen or statistics.from_floats:
        return None
    sums, fractions = to_integer_sums(statistics)
    if not all(type(label) in _LABEL_TYPES for label in sums):
        return None
    quantizer, triangles = statistics.quantizer, list(sums.values())
    exponents = quantizer.exponents.tolist()
    digits = decimals(triangles, exponents)
    columns = (*quantizer.get_params().values(), digits)
    packed_quantizer = b"".join(pack_numbers([int(n) for n in column]) for column in columns)
    parts = [pack_triangle(numbers, exponents, digits) for numbers in triangles]
    n_bytes = [max(map(int.bit_length, numbers)) // 8 + 1 for numbers in triangles]
    for numbers, n, part in zip(triangles, n_bytes, parts, strict=True):
        if n * len(numbers) > MAX_EXPANSION * len(part):
            return None
    exponent = -WEIGHT_FRACTION_BITS if fractions else 0
    return {"weight_exponent": exponent, "labels": list(sums), "each": n_bytes}, [packed_quantizer, *parts]


def _read(data: bytes) -> tuple[dict[str, Any], ClassStatistics]:
    """Return header fields and statistics of a message; damaged data may raise any error."""
    if len(data) < _START.size + _LENGTH.size:
        raise FileFormatError("the site update is truncated.", source=_SOURCE)
    _, version, digest = _START.unpack_from(data)
    if version != _VERSION:
        raise unknown_version("site update", version, _VERSION, _SOURCE)
    body = data[_START.size :]
    if _digest(body) != digest:
        raise FileFormatError("the site update is damaged: its checksum does not match.", source=_SOURCE)
    header, *parts = _pieces(body)
    tree = _header(header)
    return tree, _statistics(tree, parts)


def _pieces(body: bytes) -> list[bytes]:
    pieces, at = [], 0
    while at < len(body):
        begin = at + _LENGTH.size
        at = begin + int.from_bytes(body[at:begin], "little")
        if at > len(body):
            raise ValueError("a part of the message is truncated")
        pieces.append(body[begin:at])
    return pieces


def _header(packed: bytes) -> dict[str, Any]:
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, MAX_EXPANSION * len(packed) + 1024)
    except zlib.error as error:
        raise ValueError(f"the header cannot be decompressed: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the header is too long")
    tree = json.loads(text)
    if not isinstance(tree, dict):
        raise TypeError("the header is not a JSON object")
    return tree


def _statistics(tree: Mapping[str, Any], parts: Sequence[bytes]) -> ClassStatistics:
    n_features = len(tree["numeric"]) + len(tree["categories"])
    packed_quantizer, *triangles = parts
    *columns, digits = unpack_columns(packed_quantizer, _N_QUANTIZER_COLUMNS + 1, n_features)
    quantizer, sums = Quantizer(*columns), {}
    for label, n_bytes, part in zip(tree["labels"], tree["each"], triangles, strict=True):
        if type(label) not in _LABEL_TYPES or label in sums:
            raise TypeError("a label occurs twice, or is not a string, an integer or a boolean")
        if type(n_bytes) is not int or not 0 < n_bytes <= _MAX_SUM_BYTES:
            raise ValueError(f"a sum has 1 to {_MAX_SUM_BYTES} bytes; got {n_bytes!r}")
        sums[label] = unpack_triangle(part, columns[0], digits, n_bytes)
    restored_labels(sums, "a message")
    fractions = {0: False, -WEIGHT_FRACTION_BITS: True}[tree["weight_exponent"]]
    return from_integer_sums(quantizer, sums, ClassStatistics, fractions=fractions)


def _read_old(data: bytes) -> tuple[dict[str, Any], ClassStatistics]:
    tree: Any = decode(data)
    check_format(tree, "a site update", _OLD_FORMAT, (_OLD_VERSION,), _SOURCE)
    return tree, ClassStatistics.from_bytes(tree["statistics"])


def _from_tree(tree: Mapping[str, Any], statistics: ClassStatistics) -> SiteUpdate:
    epoch, version = tree["age"]
    if type(epoch) is not int or type(version) is not int or min(epoch, version) < 0:
        raise ValueError("the age of a site update must be two integers: epoch and version")
    schema = Schema.of(*(tree[name] for name in ("target", "numeric", "categorical", "categories")))
    held_back = {str(label): str(reason) for label, reason in tree["held_back"].items()}
    site_update = SiteUpdate(str(tree["site"]), epoch, version, schema, statistics, held_back)
    names = site_update.site, schema.target, *schema.numeric, *map("".join, schema.categories), *held_back
    "".join(names).encode()  # raises an error for a lone surrogate, which could not be written again
    return site_update
