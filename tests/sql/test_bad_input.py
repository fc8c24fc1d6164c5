"""What cannot be learned from a database: a sentence with names, and nothing changes."""

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
    """A model that knows rows stays as it is, and so does the transaction of the caller."""
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


def test_an_unknown_table_or_column_comes_with_near_names(connection):
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
def test_a_column_of_texts_with_too_many_values_is_refused_by_name(connection, how):
    frame = payments(1500)
    frame["country"] = [f"c{k}" for k in range(1500)]
    fill(connection, "wide", frame)
    told = refused(
        connection,
        "column 'country' has (more than 1,000|a different value)",
        "wide",
        how,
        "card",
        drop=["card"],
    )
    assert "--drop country" in told


@pytest.mark.parametrize("how", HOWS)
def test_infinity_is_refused_by_name(connection, how):
    frame = payments()
    frame.loc[650, "amount"] = np.inf
    fill(connection, "bad", frame)
    assert "'amount'" in refused(connection, "infinite", "bad", how)


@pytest.mark.parametrize("how", HOWS)
def test_gaps_are_refused_by_name(connection, how):
    frame = payments()
    frame["amount"] = frame["amount"].astype(object)
    frame.loc[650:, "amount"] = None
    fill(connection, "bad", frame, {"amount": "DOUBLE PRECISION"})
    told = refused(connection, "missing", "bad", how)
    assert "'amount'" in told
    assert how == "streamed" or "(50 rows)" in told


@pytest.mark.parametrize("how", HOWS)
def test_a_column_whose_type_changes_is_refused_by_name(how):
    with opened("sqlite") as connection:
        frame = payments()
        frame["amount"] = frame["amount"].astype(object)
        frame.loc[600, "amount"] = "a lot"
        fill(connection, "pay", payments())
        fill(connection, "bad", frame, {"amount": "DOUBLE PRECISION"})
        assert "'amount'" in refused(connection, "number", "bad", how)


@pytest.mark.parametrize("how", HOWS)
def test_a_query_that_fails_half_way_changes_nothing(connection, how):
    """The engine finds the fault in a late row."""
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


def test_a_connection_without_rights_is_told_in_the_engines_words(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as owner:
        fill(owner, "pay", payments())
        owner.execute("DROP ROLE IF EXISTS stranger")
        owner.execute("CREATE ROLE stranger LOGIN")
        try:
            with psycopg.connect(postgres, user="stranger") as stranger:
                with pytest.raises(DataError, match="permission denied"):
                    sql.fit(ProximalSVC(), stranger, "pay", target="kind")
                assert stranger.execute("SELECT 1").fetchone() == (1,)  # its transaction is whole
        finally:
            owner.execute("DROP ROLE stranger")


def test_nothing_is_written_not_even_by_a_query_that_tries(postgres):
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        fill(connection, "pay", payments())
        connection.execute("CREATE FUNCTION sneak() RETURNS INT LANGUAGE SQL AS 'DELETE FROM pay; SELECT 1'")
        for text in ("DELETE FROM pay", "SELECT 1; DELETE FROM pay", "SELECT *, sneak() FROM pay"):
            with pytest.raises(DataError):
                sql.fit(ProximalSVC(), connection, text, target="kind")
        assert connection.execute("SELECT COUNT(*) FROM pay").fetchone() == (700,)


def test_a_transaction_of_the_caller_goes_on(postgres):
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


def test_other_mistakes_are_said(connection):
    with pytest.raises(ParameterError, match="how must be"):
        sql.fit(ProximalSVC(), connection, "pay", target="kind", how="quickly")
    with pytest.raises(DataTypeError, match="expected an open connection"):
        sql.fit(ProximalSVC(), 3, "pay", target="kind")
    with pytest.raises(DataError, match="there are no rows"):
        sql.fit(ProximalSVC(), connection, "pay", target="kind", where="1 = 0")
    with pytest.raises(ParameterError, match="dialect must be"):
        sql.queries(connection, "pay", target="kind", dialect="oracle")


def test_connections_of_adbc_and_engines_of_sqlalchemy_are_taken(postgres):
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
    with engine.connect() as shrink:
        assert sql.fit(ProximalSVC(), shrink, "pay", target="kind").estimator.digest() == expected
    engine.dispose()


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "clickhouse", "spark", "postgres", "sqlite"])
def test_the_sums_can_be_written_for_engines_that_are_not_here(dialect):
    import sqlglot

    with opened("duckdb") as connection:
        fill(connection, "pay", payments())
        ours = sql.queries(connection, "pay", target="kind")
        theirs = sql.queries(connection, "pay", target="kind", dialect=dialect)
    for mine, other in zip(ours, theirs, strict=True):
        mine, other = sqlglot.parse_one(mine, dialect="duckdb"), sqlglot.parse_one(other, dialect=dialect)
        names = [{table.name for table in tree.find_all(sqlglot.exp.Table)} for tree in (mine, other)]
        assert names[0] - {"digits"} == names[1] - {"digits"}  # only some engines need them
        assert products(mine) == products(other)
        assert "steelyard_rows" in other.sql(dialect)


def products(tree):
    """Columns whose products are summed, whether whole or in digits."""
    from sqlglot import exp

    sums = [list(found.find_all(exp.Column)) for found in tree.expressions if found.find(exp.Sum)]
    return {tuple(sorted(column.name.partition(", bits")[0] for column in found)) for found in sums}
