"""Tables in databases are read like files, and never written."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from urllib.parse import urlencode

import duckdb
import numpy as np
import pytest

from steelyard.exceptions import DataError, FileAccessError
from steelyard.tables import open_stream
from steelyard.tables.databases import open_database

ROWS = [
    (1.5, "NZ", 3, datetime(2026, 1, 2, 3, 4), 1),  # noqa: DTZ001  databases have such moments
    (2.5, "AU", None, datetime(2026, 1, 3), 0),  # noqa: DTZ001
    (-1.0, 'o"dd', 5, datetime(2026, 1, 4), 0),  # noqa: DTZ001
]


def make_sqlite(path):
    connection = sqlite3.connect(path)
    connection.execute(
        'CREATE TABLE "pay""ments" (amount REAL, country TEXT, "n items" INT, "at" TEXT, fraud INT)'
    )
    connection.executemany(
        'INSERT INTO "pay""ments" VALUES (?, ?, ?, ?, ?)', [(*r[:3], r[3].isoformat(), r[4]) for r in ROWS]
    )
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


def make_duckdb(path):
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            'CREATE TABLE "pay""ments" '
            '(amount DOUBLE, country TEXT, "n items" INT, "at" TIMESTAMP, fraud INT)'
        )
        connection.executemany('INSERT INTO "pay""ments" VALUES (?, ?, ?, ?, ?)', ROWS)
    return f"duckdb:///{path}"


@pytest.fixture(params=[make_sqlite, make_duckdb])
def address(request, tmp_path):
    return request.param(tmp_path / "shop.db")


TABLE = '?table=pay"ments'


def test_database_table_is_read_as_a_stream(address):
    stream = open_stream(address + TABLE, "fraud", time="at", missing="zero")
    (chunk,) = list(stream)
    assert stream.feature_names == ["amount", "n items", "country=NZ", "country=AU", 'country=o"dd']
    np.testing.assert_array_equal(chunk.X, [[1.5, 3, 1, 0, 0], [2.5, 0, 0, 1, 0], [-1.0, 5, 0, 0, 1]])
    assert chunk.y.tolist() == [1, 0, 0]
    assert np.diff(chunk.time).tolist() == [75_360.0, 86_400.0]


def test_missing_value_raises_with_column(address):
    with pytest.raises(DataError, match="column 'n items': a value is missing"):
        list(open_stream(address + TABLE, "fraud", drop="at", missing="refuse"))


def test_unknown_table_or_column_error_suggests_similar_name(address):
    with pytest.raises(DataError, match="there is no table 'paymens'") as error:
        open_stream(address + "?table=paymens", "fraud")
    assert 'pay"ments' in str(error.value)
    with pytest.raises(DataError, match="no table is named"):
        open_stream(address, "fraud")
    with pytest.raises(DataError, match="did you mean 'fraud'"):
        open_stream(address + TABLE, "fraudd")


def test_failing_query_error_contains_engine_message(address):
    with pytest.raises(DataError, match="the database reported an error"):
        open_stream(address + "?query=SELECT nothing FROM nowhere", "fraud")


def test_missing_database_file_is_not_created(tmp_path):
    for scheme in ("sqlite", "duckdb"):
        with pytest.raises(FileAccessError, match="cannot be opened"):
            open_stream(f"{scheme}:///{tmp_path}/none.db?table=t", "y")
    assert not list(tmp_path.iterdir())


def test_database_address_with_writing_query_raises(address):
    for text in ("DELETE FROM x", "SELECT 1; DELETE FROM x", "WITH a AS (SELECT 1) SELECT 1 /* ; */; DROP x"):
        with pytest.raises(DataError, match="expected one SELECT"):
            open_stream(address + "?" + urlencode({"query": text}), "fraud")
    with pytest.raises(DataError, match="'; odd'"):
        open_stream(address + "?" + urlencode({"query": 'SELECT 1 AS "; odd" -- ; really'}), "fraud")
    assert len(next(iter(open_stream(address + TABLE, "fraud", drop="at", missing="mean")))) == 3


def test_column_types_of_empty_duckdb_table_are_known(tmp_path):
    types = {"a": "BOOLEAN", "b": "DOUBLE", "c": "INTEGER", "d": "DECIMAL(9, 2)", "e": "VARCHAR", "f": "DATE"}
    with duckdb.connect(str(tmp_path / "kinds.db")) as connection:
        connection.execute(f"CREATE TABLE kinds ({', '.join(f'{n} {t}' for n, t in types.items())})")
    rows = open_database(f"duckdb:///{tmp_path / 'kinds.db'}?table=kinds")
    kinds = rows.declared
    rows.close()
    assert list(kinds.values()) == ["truth", "double", "whole", "decimal", "text", "moment"]
