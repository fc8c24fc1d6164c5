"""Invalid database input: the error names the column or table, and the model does not change."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from steelyard import ProximalSVC, sql
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from tests.sql.engines import ENGINES, fill, opened, payments

HOWS = ("pushed", "streamed")


@pytest.fixture(params=ENGINES)
def connection(request):
    address = request.getfixturevalue("postgres") if request.param == "postgres" else None
    with opened(request.param, address) as connection:
        yield fill(connection, "pay", payments())


def refused(connection, match, table="pay", how="auto", known_without="country", **options):
    """Check that fit and partial_fit raise and keep the model and the transaction; return the message."""
    known = sql.fit(ProximalSVC(), connection, "pay", target="kind", drop=[known_without])
    before, history = known.estimator.digest(), list(known.history)
    options = {"target": "kind", "how": how, **options}
    with pytest.raises(DataError, match=match) as error:
        sql.fit(ProximalSVC(), connection, table, **options)
    for name in ("target", "drop", "categorical", "features", "missing"):
        options.pop(name, None)
    with pytest.raises(DataError):
        sql.partial_fit(known, connection, table, **options)
    assert (known.estimator.digest(), known.history) == (before, history)
    return str(error.value)


def test_fit_unknown_table_or_column_raises_with_similar_name(connection):
    with pytest.raises(DataError, match=r"there is no table 'paj'(.|\n)*did you mean 'pay'"):
        sql.fit(ProximalSVC(), connection, "paj", target="kind")
    for options in (
        {"target": "kynd"},
        {"target": "kind", "features": ["amont"]},
        {"target": "kind", "weight": "amoun"},
    ):
        with pytest.raises(DataError, match=r"did you mean '(kind|amount)'"):
            sql.fit(ProximalSVC(), connection, "pay", **options)


@pytest.mark.parametrize("how", HOWS)
def test_fit_text_column_with_too_many_values_raises_with_column_name(connection, how):
    frame = payments(1500)
    frame["country"] = [f"c{k}" for k in range(1500)]
    fill(connection, "wide", frame)
    message = refused(
        connection,
        "column 'country' has (more than 1,000|a different value)",
        "wide",
        how,
        "card",
        drop=["card"],
    )
    assert "--drop country" in message


@pytest.mark.parametrize("how", HOWS)
def test_fit_infinite_value_raises_with_column_name(connection, how):
    frame = payments()
    frame.loc[650, "amount"] = np.inf
    fill(connection, "bad", frame)
    assert "'amount'" in refused(connection, "infinite", "bad", how)


@pytest.mark.parametrize("how", HOWS)
def test_fit_missing_values_raise_with_column_name(connection, how):
    frame = payments()
    frame["amount"] = frame["amount"].astype(object)
    frame.loc[650:, "amount"] = None
    fill(connection, "bad", frame, {"amount": "DOUBLE PRECISION"})
    message = refused(connection, "missing", "bad", how)
    assert "'amount'" in message
    assert how == "streamed" or "(50 rows)" in message


@pytest.mark.parametrize("how", HOWS)
def test_fit_column_with_mixed_types_raises_with_column_name(how):
    with opened("sqlite") as connection:
        frame = payments()
        frame["amount"] = frame["amount"].astype(object)
        frame.loc[600, "amount"] = "a lot"
        fill(connection, "pay", payments())
        fill(connection, "bad", frame, {"amount": "DOUBLE PRECISION"})
        assert "'amount'" in refused(connection, "number", "bad", how)


@pytest.mark.parametrize("how", HOWS)
def test_query_failing_halfway_raises_and_keeps_state(connection, how):
    """The engine raises in a late row."""
    if isinstance(connection, sqlite3.Connection):
        connection.create_function("broken", 1, lambda x: 1 / (x - 650))
        query = "SELECT amount, broken(rowid) AS z, kind FROM pay"
    else:
        number = "SELECT *, ROW_NUMBER() OVER () AS k FROM pay"
        fault = "CAST(CASE WHEN k = 650 THEN 'x' ELSE '1' END AS INTEGER)"
        query = f"SELECT amount, {fault} AS z, kind FROM ({number}) AS numbered"
    with pytest.raises(DataError, match="the database reported an error"):
        sql.fit(ProximalSVC(), connection, query, target="kind", how=how)
    known = sql.fit(ProximalSVC(), connection, "SELECT amount, 1 AS z, kind FROM pay", target="kind")
    before, history = known.estimator.digest(), list(known.history)
    with pytest.raises(DataError, match="the database reported an error"):
        sql.partial_fit(known, connection, query, how=how)
    assert (known.estimator.digest(), known.history) == (before, history)


def test_fit_without_permission_raises_with_engine_message(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as owner:
        fill(owner, "pay", payments())
        owner.execute("DROP ROLE IF EXISTS reader")
        owner.execute("CREATE ROLE reader LOGIN")
        try:
            with psycopg.connect(postgres, user="reader") as reader:
                with pytest.raises(DataError, match="permission denied"):
                    sql.fit(ProximalSVC(), reader, "pay", target="kind")
                assert reader.execute("SELECT 1").fetchone() == (1,)  # its transaction is not aborted
        finally:
            owner.execute("DROP ROLE reader")


def test_fit_with_writing_query_changes_no_table(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        fill(connection, "pay", payments())
        connection.execute("CREATE FUNCTION sneak() RETURNS INT LANGUAGE SQL AS 'DELETE FROM pay; SELECT 1'")
        for text in ("DELETE FROM pay", "SELECT 1; DELETE FROM pay", "SELECT *, sneak() FROM pay"):
            with pytest.raises(DataError):
                sql.fit(ProximalSVC(), connection, text, target="kind")
        assert connection.execute("SELECT COUNT(*) FROM pay").fetchone() == (700,)


def test_fit_in_open_transaction_keeps_transaction_usable(postgres):
    import psycopg

    with psycopg.connect(postgres) as connection:
        fill(connection, "pay", payments())  # not committed
        assert sql.fit(ProximalSVC(), connection, "pay", target="kind").history[-1]["rows"] == 700
        with pytest.raises(DataError):
            sql.fit(ProximalSVC(), connection, "pay", target="kind", where="nonsense")
        connection.execute("DELETE FROM pay WHERE known")
        rows = sql.fit(ProximalSVC(), connection, "pay", target="kind", how="pushed").history[-1]["rows"]
        assert 0 < rows < 700
        connection.rollback()


def test_fit_with_invalid_arguments_raises(connection):
    with pytest.raises(ParameterError, match="how must be"):
        sql.fit(ProximalSVC(), connection, "pay", target="kind", how="quickly")
    with pytest.raises(DataTypeError, match="expected an open connection"):
        sql.fit(ProximalSVC(), 3, "pay", target="kind")
    with pytest.raises(DataError, match="there are no rows"):
        sql.fit(ProximalSVC(), connection, "pay", target="kind", where="1 = 0")
    with pytest.raises(ParameterError, match="dialect must be"):
        sql.queries(connection, "pay", target="kind", dialect="oracle")


def test_fit_accepts_adbc_and_sqlalchemy_connections(postgres):
    adbc = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="ADBC for PostgreSQL is not installed")
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        fill(connection, "pay", payments())
        expected = sql.fit(ProximalSVC(), connection, "pay", target="kind").estimator.digest()
    with adbc.connect(postgres) as connection:
        assert sql.fit(ProximalSVC(), connection, "pay", target="kind").estimator.digest() == expected
    engine = sqlalchemy.create_engine(postgres.replace("postgresql://", "postgresql+psycopg://"))
    for how in HOWS:
        assert sql.fit(ProximalSVC(), engine, "pay", target="kind", how=how).estimator.digest() == expected
    with engine.connect() as sqlalchemy_connection:
        assert (
            sql.fit(ProximalSVC(), sqlalchemy_connection, "pay", target="kind").estimator.digest() == expected
        )
    engine.dispose()


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "clickhouse", "spark", "postgres", "sqlite"])
def test_queries_in_all_dialects_return_same_sums(dialect):
    import sqlglot

    with opened("duckdb") as connection:
        fill(connection, "pay", payments())
        native = sql.queries(connection, "pay", target="kind")
        translated = sql.queries(connection, "pay", target="kind", dialect=dialect)
    for mine, other in zip(native, translated, strict=True):
        mine, other = sqlglot.parse_one(mine, dialect="duckdb"), sqlglot.parse_one(other, dialect=dialect)
        names = [{table.name for table in tree.find_all(sqlglot.exp.Table)} for tree in (mine, other)]
        assert names[0] - {"digits"} == names[1] - {"digits"}  # only some engines need the subquery "digits"
        assert products(mine) == products(other)
        assert "steelyard_rows" in other.sql(dialect)


def products(tree):
    """Return the pairs of columns whose products are summed, whether or not they are split into digits."""
    from sqlglot import exp

    sums = [list(found.find_all(exp.Column)) for found in tree.expressions if found.find(exp.Sum)]
    return {tuple(sorted(column.name.partition(", bits")[0] for column in found)) for found in sums}
