"""Decoder of PostgreSQL binary COPY: synthetic messages, and agreement with a cursor."""

import contextlib
import struct

import numpy as np
import psycopg
import pytest

from steelyard.tables.columns import Columns
from steelyard.tables.connections import _Psycopg, arrays_of, can_copy, connected
from steelyard.tables.databases import DatabaseSource

FORMATS = {16: "?", 20: "q", 21: "h", 23: "i", 700: "f", 701: "d"}
HEADER = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)


def message(types, row):
    parts = [struct.pack(">h", len(row))]
    for kind, value in zip(types, row, strict=True):
        if value is None:
            parts.append(struct.pack(">i", -1))
        else:
            data = value.encode() if kind == 25 else struct.pack(">" + FORMATS[kind], value)
            parts += [struct.pack(">i", len(data)), data]
    return b"".join(parts)


def read(messages, types, batch=4):
    """Return all rows of the arrays, with None for missing values."""
    rows = []
    for columns in arrays_of(messages, types, "utf-8", batch):
        values = [
            [None if gap else value for value, gap in zip(found.tolist(), missing.tolist(), strict=True)]
            for found, missing in columns
        ]
        rows += zip(*values, strict=True)
    return rows


NUMBERS = (16, 20, 21, 23, 700, 701)
WHOLE = [(k % 2 == 0, 2**40 * k, -k, 1000 - k, k / 8.0, 0.1 * k) for k in range(11)]


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("texts", [False, True])
def test_rows_decoded_from_copy_format_equal_sent_rows(gaps, texts):
    types, rows = NUMBERS, WHOLE
    if texts:
        types = (25, *types, 25)
        rows = [(f"\u00e4 {k}", *row, "" if k % 2 else "plain") for k, row in enumerate(rows)]
    if gaps:
        rows = [
            tuple(None if (k + place) % 5 == 0 else value for place, value in enumerate(row))
            for k, row in enumerate(rows)
        ]
    sent = [message(types, row) for row in rows]
    assert read([HEADER + sent[0], *sent[1:], b"\xff\xff"], types) == rows


@pytest.mark.parametrize("sent", [[HEADER, b"\xff\xff"], [HEADER + b"\xff\xff"], [HEADER]])
def test_copy_message_without_rows_gives_no_arrays(sent):
    assert read(sent, NUMBERS) == []


def test_copy_header_extension_is_skipped():
    header = HEADER[:-4] + struct.pack(">i", 3) + b"abc"
    assert read([header + message((23,), (7,)), b"\xff\xff"], (23,)) == [(7,)]


def test_can_copy_is_false_for_timestamp_columns():
    assert can_copy([701, 25])
    assert not can_copy([701, 1114])


TABLE = """
    CREATE TABLE t AS SELECT
        k::float8 / 7 AS double, (k::float4 / 3) AS single, k AS int, k::bigint * 4000000000 AS big,
        (k % 100)::smallint AS small, k % 3 = 0 AS truth, 'text ' || (k % 5) AS words,
        (k % 4)::numeric / 8 AS dec,
        CASE WHEN k % 10 = 0 THEN NULL ELSE k::float8 END AS gaps,
        CASE WHEN k % 9 = 0 THEN NULL ELSE 'n' || k % 2 END AS holes, 'NaN'::float8 AS nan
    FROM generate_series(1, 20000) AS k
"""


@pytest.fixture
def filled(postgres):
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def test_rows_read_by_copy_equal_rows_read_by_cursor(filled, monkeypatch):
    def batches():
        source = DatabaseSource(filled, "SELECT * FROM t", table="t")
        kinds = source.kinds(Columns(categorical=("small", "truth", "single")), source.names)
        with contextlib.closing(source.batches(source.names, kinds)) as found:
            return [(batch.columns, batch.n_rows) for batch in found]

    copied = batches()
    monkeypatch.setattr(_Psycopg, "columns", lambda *_: None)
    for (ours, n_ours), (theirs, n_theirs) in zip(copied, batches(), strict=True):
        assert n_ours == n_theirs
        assert ours.keys() == theirs.keys()
        for name, column in ours.items():
            np.testing.assert_array_equal(column, theirs[name], err_msg=name)


def test_connection_is_usable_after_reading_stops_early(filled):
    source = DatabaseSource(filled, "SELECT * FROM t", table="t")
    batches = source.batches(["int"], {"int": "declared"})
    assert next(batches).n_rows == 16_384
    source.close()
    assert filled.execute("SELECT 1").fetchall() == [(1,)]


def test_query_with_trailing_comment_is_read(filled):
    copied = connected(filled).columns("SELECT int FROM t ORDER BY int LIMIT 3 -- the first ones")
    assert copied is not None
    [[(values, _)]] = copied
    assert values.tolist() == [1, 2, 3]
