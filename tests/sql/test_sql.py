"""Learning from a database gives the model of the same rows in memory, and models become SQL queries."""

from __future__ import annotations

import sqlite3

import duckdb
import numpy as np
import pandas as pd
import pytest

from steelyard import ProximalSVC, sql
from steelyard.exceptions import DataError, DataTypeError
from steelyard.tables import TableEncoder, TableModel


def table(n=300, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, size=n)
    return pd.DataFrame(
        {
            "amount": rng.normal(size=n) + y,
            "n items": rng.integers(1, 9, size=n),
            "country": rng.choice(["NZ", "AU", "o'dd"], size=n),
            "kind": np.array(["ok", "fraud", "odd"])[y],
        }
    )


@pytest.fixture(params=["sqlite", "duckdb"])
def connect(request):
    opened = []

    def made(frame):
        if request.param == "sqlite":
            connection = sqlite3.connect(":memory:")
            frame.to_sql("pay", connection, index=False)
        else:
            connection = duckdb.connect()
            connection.register("frame", frame)
            connection.execute("CREATE TABLE pay AS SELECT * FROM frame")
        opened.append(connection)
        return connection

    yield made
    for connection in opened:
        connection.close()


def in_memory(frame):
    model = TableModel(ProximalSVC(), TableEncoder(), "kind")
    model.learn(model.open(frame, labelled=True))
    return model


def test_fit_from_database_equals_fit_on_same_rows(connect):
    frame = table()
    model = sql.fit(ProximalSVC(), connect(frame), "pay", target="kind")
    expected = in_memory(frame)
    assert model.feature_names == expected.feature_names
    np.testing.assert_array_equal(model.estimator.coef_, expected.estimator.coef_)
    np.testing.assert_array_equal(model.estimator.intercept_, expected.estimator.intercept_)


def test_partial_fit_and_forget_with_condition_equal_fit(connect):
    frame = table()
    connection = connect(frame)
    few = sql.fit(ProximalSVC(), connection, "pay", target="kind", where="amount > ?", parameters=[0.5])
    everything = sql.partial_fit(few, connection, "pay", where="amount <= ?", parameters=[0.5])
    assert everything.estimator.statistics_.n_rows == len(frame)
    sql.forget(everything, connection, "SELECT * FROM pay", where="amount <= ?", parameters=[0.5])
    expected = in_memory(frame[frame["amount"] > 0.5])
    np.testing.assert_allclose(everything.estimator.coef_, expected.estimator.coef_, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sql_expression_returns_scores_and_labels_of_model(connect, n_classes):
    frame = table(n_classes=n_classes)
    connection = connect(frame)
    model = sql.fit(ProximalSVC(), connection, "pay", target="kind")
    dialect = "sqlite" if isinstance(connection, sqlite3.Connection) else "duckdb"
    cursor = connection.cursor()
    answers = cursor.execute(sql.expression(model, "pay", dialect)) or cursor
    names = [column[0] for column in answers.description]
    rows = pd.DataFrame(answers.fetchall(), columns=names)
    scores = np.concatenate([a.scores for _, a in model.predictions(frame.drop(columns="kind"))])
    labels = np.concatenate([a.labels for _, a in model.predictions(frame.drop(columns="kind"))])
    if n_classes == 2:
        np.testing.assert_allclose(rows["score"], scores[:, 1], rtol=1e-12, atol=1e-12)
    assert rows["label"].tolist() == labels.tolist()


@pytest.mark.parametrize("dialect", ["bigquery", "snowflake", "clickhouse", "spark", "postgres"])
def test_sql_expression_for_other_dialects_is_valid(connect, dialect):
    import sqlglot

    model = sql.fit(ProximalSVC(), connect(table()), "pay", target="kind")
    theirs = sqlglot.parse_one(sql.expression(model, "pay", dialect), dialect=dialect)
    ours = sqlglot.parse_one(sql.expression(model, "pay", "duckdb"), dialect="duckdb")
    # sqlglot reads Spark's CAST as TRY_CAST, which is equivalent if no cast fails.
    assert theirs.sql("duckdb").replace("TRY_CAST", "CAST") == ours.sql("duckdb")


def test_fit_with_invalid_query_target_or_model_raises(connect):
    connection = connect(table())
    with pytest.raises(DataError, match="the database reported an error"):
        sql.fit(ProximalSVC(), connection, "pay", target="kind", where="nonsense > 3")
    with pytest.raises(DataError, match="the target column 'nobody' does not exist"):
        sql.fit(ProximalSVC(), connection, "pay", target="nobody")
    with pytest.raises(DataTypeError, match=r"sql\.fit"):
        sql.forget(ProximalSVC(), connection, "pay")
