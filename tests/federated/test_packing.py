"""Binary format of site updates: lossless, short, and safe to read from untrusted senders."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
import zlib
from hashlib import blake2b

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.exceptions import FileFormatError
from steelyard.federated import ReleasePolicy, Site, SiteUpdate
from steelyard.federated.packing import MAX_EXPANSION, decimals, pack_triangle, unpack_triangle
from steelyard.federated.site_update import Schema
from steelyard.persistence.tree import encode
from steelyard.proximal import ClassStatistics, Quantizer

MAX_BYTES = 30_000  # limit for a site update with 54 columns and two classes


def update_of(X, y=None, quantizer=None):
    y = np.arange(len(X)) % 2 if y is None else y
    statistics = ClassStatistics(X.shape[1], quantizer=quantizer)
    statistics.add(X, y)
    schema = Schema("y", tuple(f"x{k:03}" for k in range(X.shape[1])))
    return SiteUpdate("s", 5, 7, schema, statistics, {"2": "fewer than 20 rows"})


def same(one, other):
    return (
        one.statistics.digest() == other.statistics.digest()
        and (one.site, one.age, one.schema, one.held_back)
        == (other.site, other.age, other.schema, other.held_back)
        and one.statistics.quantizer == other.statistics.quantizer
    )


any_integer = st.integers(-(2**200), 2**200) | st.integers(-9, 9) | st.just(0)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_pack_triangle_of_any_integers_round_trips(data):
    d = data.draw(st.integers(0, 6))
    size = (d + 1) * (d + 2) // 2
    numbers = data.draw(st.lists(any_integer, min_size=size, max_size=size))
    exponents = data.draw(st.lists(st.integers(-60, 20), min_size=d, max_size=d))
    digits = data.draw(
        st.just(decimals([numbers], exponents)) | st.lists(st.integers(0, 6), min_size=d, max_size=d)
    )
    digits = [n if e <= 0 else 0 for n, e in zip(digits, exponents, strict=True)]
    n_bytes = max(n.bit_length() for n in numbers) // 8 + 1
    packed = pack_triangle(numbers, exponents, digits)
    if size * n_bytes <= MAX_EXPANSION * len(packed):
        assert unpack_triangle(packed, exponents, digits, n_bytes) == numbers


def columns(kind, n, d, rng):
    return {
        "two digits": lambda: np.round(rng.normal(50, 15, (n, d)), 2),
        "two digits, skewed": lambda: np.round(rng.lognormal(1, 1, (n, d)), 2),
        "normal": lambda: rng.normal(size=(n, d)),
        "far from zero": lambda: rng.normal(1e9, 1, (n, d)),
        "correlated": lambda: rng.normal(size=(n, 1)) + 1e-3 * rng.normal(size=(n, d)),
        "one value": lambda: np.full((n, d), 3.7),
        "zeros": lambda: np.zeros((n, d)),
        "tiny and huge": lambda: rng.normal(size=(n, d)) * 10.0 ** rng.integers(-30, 30, d),
        "flags": lambda: (rng.random((n, d)) < 0.01).astype(float),
    }[kind]()


@pytest.mark.parametrize(
    "kind",
    [
        *("two digits", "two digits, skewed", "normal", "far from zero", "correlated"),
        *("one value", "zeros", "tiny and huge", "flags"),
    ],
)
@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 5), (700, 20)])
def test_to_bytes_of_many_column_kinds_round_trips(kind, n, d):
    site_update = update_of(columns(kind, n, d, np.random.default_rng(n + d)))
    data = site_update.to_bytes()
    back = SiteUpdate.from_bytes(data)
    folded = site_update.statistics.copy().fold()
    assert same(back, SiteUpdate("s", 5, 7, site_update.schema, folded, site_update.held_back))
    assert back.to_bytes() == data


@pytest.mark.parametrize("label", ["ill", "krank ä", 3, -(10**18), True])
def test_to_bytes_keeps_label_types(label):
    X = np.random.default_rng(0).normal(size=(30, 3))
    statistics = ClassStatistics(3)
    statistics.add(X, np.array([label] * 30))
    back = SiteUpdate.from_bytes(SiteUpdate("s", 1, 1, Schema("y", ("a", "b", "c")), statistics).to_bytes())
    assert back.statistics.classes == [label]
    assert type(back.statistics.classes[0]) is type(statistics.classes[0])


def wide_rows(kind, n, d, rng):
    """Return rows of typical tables and of the worst cases for compression."""
    mixed = [
        *(np.round(rng.lognormal(3, 1, (n, 14)), 2), np.round(rng.normal(37, 1, (n, 10)), 1)),
        *(rng.integers(0, 100, (n, 10)), rng.random((n, d - 34)) < 0.2),
    ]
    return {
        "mixed": lambda: np.hstack(mixed).astype(float),
        "all bits": lambda: rng.normal(size=(n, d)),
        "all bits, the finest steps": lambda: rng.normal(size=(n, d)) * 31.9 * 1.48,
        "single precision": lambda: rng.normal(size=(n, d)).astype(np.float32).astype(float),
        "all bits, mixed": lambda: rng.normal(size=(n, d)) @ rng.normal(2, 3, (d, d)),
        "two digits, mixed": lambda: np.round(rng.normal(size=(n, d)) @ rng.normal(2, 3, (d, d)), 2),
        "long tails": lambda: rng.standard_t(2, (n, d)),
        "infinite variance": lambda: rng.standard_cauchy((n, d)) * 31.9,
        "large whole numbers": lambda: rng.integers(0, 10**9, (n, d)).astype(float),
    }.get(kind, lambda: columns(kind, n, d, rng))()


@pytest.mark.parametrize(
    "kind",
    [
        *("two digits", "two digits, skewed", "mixed", "all bits", "all bits, the finest steps"),
        *("single precision", "all bits, mixed", "two digits, mixed", "correlated", "long tails"),
        *("infinite variance", "large whole numbers", "one value", "flags"),
    ],
)
def test_to_bytes_of_54_columns_takes_at_most_30_kilobytes(kind):
    rng, n = np.random.default_rng(0), 20_000
    X, y = wide_rows(kind, n, 54, rng), (rng.random(n) < 0.5).astype(int)
    site = Site("s", "y", policy=ReleasePolicy())
    site.learn(pd.DataFrame(X, columns=[f"x{k:03}" for k in range(54)]).assign(y=y))
    site_update = site.publish()
    data = site_update.to_bytes()
    # Doubling the rows adds half a bit per sum. 100,000 rows add 1.2 bits to each of 2 x 1,540 sums.
    assert len(data) + 2 * 1540 * 1.2 / 8 <= MAX_BYTES
    assert SiteUpdate.from_bytes(data).statistics.digest() == site_update.statistics.digest()


def test_to_bytes_with_negative_sums_or_fractional_weights_round_trips():
    quantizer = Quantizer.uniform(2, 2.0**-10)
    statistics = ClassStatistics(2, quantizer=quantizer)
    statistics.add([[1.0, 2.5], [3.0, 4.0]], [0, 1], sample_weight=[0.25, 0.5])
    negative = statistics.empty() - statistics
    for sums in (statistics, negative):
        site_update = SiteUpdate("s", 1, 1, Schema("y", ("a", "b")), sums)
        assert SiteUpdate.from_bytes(site_update.to_bytes()).statistics.digest() == sums.digest()


def test_from_bytes_reads_version_1():
    site_update = update_of(np.random.default_rng(0).normal(size=(40, 3)))
    statistics = site_update.statistics.copy().fold()
    tree = {
        "format": "steelyard bulletin",
        "version": 1,
        "site": "s",
        "age": [5, 7],
        "target": "y",
        "numeric": ["x000", "x001", "x002"],
        "categorical": [],
        "categories": [],
        "statistics": statistics.to_bytes(),
        "held_back": {"2": "fewer than 20 rows"},
    }
    assert same(SiteUpdate.from_bytes(encode(tree)), SiteUpdate.from_bytes(site_update.to_bytes()))
    with pytest.raises(FileFormatError, match="version 3"):
        SiteUpdate.from_bytes(encode({**tree, "version": 3}))


# -- malicious messages -------------------------------------------------------------------------------


def opened(data):
    """Return header and parts of a message."""
    body, parts, at = data[21:], [], 0
    while at < len(body):
        (length,) = struct.unpack_from("<I", body, at)
        parts.append(body[at + 4 : at + 4 + length])
        at += 4 + length
    return json.loads(zlib.decompress(parts[0])), parts[1:]


def sealed(header, parts, version=2):
    """Return a message with a valid checksum."""
    header = header if isinstance(header, bytes) else zlib.compress(json.dumps(header).encode())
    body = b"".join(struct.pack("<I", len(part)) + part for part in [header, *parts])
    return struct.pack("<4sB16s", b"\x93SYB", version, blake2b(body, digest_size=16).digest()) + body


@pytest.fixture(scope="module")
def message():
    return update_of(np.round(np.random.default_rng(0).normal(size=(50, 4)), 2)).to_bytes()


def test_message_repacked_with_valid_checksum_is_accepted(message):
    header, parts = opened(message)
    assert SiteUpdate.from_bytes(sealed(header, parts)).statistics.n_rows == 50


@pytest.mark.parametrize(
    "change",
    [
        {"numeric": ["a"] * 5},
        {"numeric": []},
        {"numeric": None},
        {"labels": [0]},
        {"labels": [0, 0]},
        {"labels": [[], {}]},
        {"each": [10**9, 10**9]},
        {"each": [0, 0]},
        {"each": [1, 1]},
        {"each": ["12", None]},
        {"weight_exponent": "x"},
        {"weight_exponent": 10**9},
        {"age": [1]},
        {"age": ["x", "y"]},
        {"held_back": 3},
        {"categories": [["a"]]},
    ],
    ids=str,
)
def test_from_bytes_with_invalid_header_raises(message, change):
    header, parts = opened(message)
    with pytest.raises(FileFormatError):
        SiteUpdate.from_bytes(sealed({**header, **change}, parts))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93SYB",
        b"\x93SYB\x02" + bytes(16),
        sealed(b"no zlib", []),
        sealed(zlib.compress(b"[]"), []),
        sealed(zlib.compress(b"[" * 100_000), []),
        sealed({}, [], version=9),
        sealed({}, [])[:-1],
    ],
    ids=range(8),
)
def test_from_bytes_of_other_data_raises(data):
    with pytest.raises(FileFormatError):
        SiteUpdate.from_bytes(data)


def test_from_bytes_with_flipped_bit_raises_or_returns_valid_update(message):
    header, parts = opened(message)
    rng, n_rejected = np.random.default_rng(0), 0
    for _ in range(400):
        changed = [bytearray(part) for part in parts]
        part = changed[rng.integers(len(parts))]
        part[rng.integers(len(part))] ^= 1 << int(rng.integers(8))
        try:
            SiteUpdate.from_bytes(sealed(header, map(bytes, changed)))
        except FileFormatError:
            n_rejected += 1
    assert 0 < n_rejected < 400


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_from_bytes_with_replaced_sums_raises_or_returns_update(message, data):
    header, parts = opened(message)
    index = data.draw(st.integers(0, len(parts) - 1))
    start = data.draw(st.integers(0, len(parts[index])))
    end = data.draw(st.integers(start, len(parts[index])))
    parts[index] = parts[index][:start] + data.draw(st.binary(max_size=200)) + parts[index][end:]
    with contextlib.suppress(FileFormatError):
        assert SiteUpdate.from_bytes(sealed(header, parts)).statistics.n_features == 4


def peak(data):
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError):
            SiteUpdate.from_bytes(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_from_bytes_of_small_message_uses_little_memory(message):
    header, parts = opened(message)
    bomb = zlib.compress(b'{"site": "' + b"a" * 50_000_000 + b'"}', 9)
    assert peak(sealed(bomb, parts)) < 10_000_000
    many = sealed({**header, "numeric": ["a"] * 100_000}, [bytes(50_000), *parts[1:]])
    assert peak(many) < 100 * len(many) + 30_000_000
    wide = sealed({**header, "each": [1000, 1000]}, parts)
    assert peak(wide) < 3_000_000


def test_to_bytes_of_highly_compressible_sums_round_trips_unpacked():
    """Sums that compress too well exceed MAX_EXPANSION and are written in the format of version 1."""
    zeros = np.zeros((40, 300))
    zeros[:, 0] = np.random.default_rng(0).normal(size=40) * 1e9
    site_update = update_of(zeros)
    back = SiteUpdate.from_bytes(site_update.to_bytes())
    assert back.statistics.digest() == site_update.statistics.digest()
