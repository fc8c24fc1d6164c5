"""Rows of a query, streamed into a learner: exactly what a fit on the same rows in memory gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import clone

from steelyard.exceptions import DataTypeError
from steelyard.tables import TableEncoder, TableModel
from steelyard.tables.databases import DatabaseSource, quoted

__all__ = ["fit", "forget", "partial_fit"]


def fit(
    model: Any,
    connection: Any,
    table_or_query: str,
    *,
    target: str,
    features: Sequence[str] | None = None,
    where: str | None = None,
    parameters: Sequence[Any] = (),
    missing: str = "refuse",
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> TableModel:
    """Learn the rows of a table or query.

    Parameters
    ----------
    model : learner
        A learner; it is copied, not changed.
    connection : object
        An open connection of DuckDB, SQLite, PostgreSQL or whatever speaks DB-API 2.0. Nothing is created or
        changed in the database.
    table_or_query : str
        The name of a table, or a SELECT.
    target : str
        The column of labels.
    features : sequence of str, optional
        Columns to use; all but target and moments when not given.
    where : str, optional
        A condition, with the engine's placeholders for values.
    parameters : sequence
        The values of the placeholders; no value is ever pasted into text.
    missing : {"refuse", "mean", "zero"}, default="refuse"
        What to do with NULLs.
    categorical, drop : sequences of str
        Columns to take as categories, and to leave out.

    Returns
    -------
    TableModel
        The learner with its columns; it can be saved and used on the command line.

    Examples
    --------
    >>> import sqlite3
    >>> from steelyard import ProximalSVC, sql
    >>> db = sqlite3.connect(":memory:")
    >>> _ = db.execute("CREATE TABLE pay (amount REAL, country TEXT, fraud INT)")
    >>> rows = [(k % 9 + 5.0 * (k % 4 == 0), "NZ" if k % 3 else "AU", int(k % 4 == 0)) for k in range(200)]
    >>> _ = db.executemany("INSERT INTO pay VALUES (?, ?, ?)", rows)
    >>> model = sql.fit(ProximalSVC(), db, "pay", target="fraud", where="amount > ?", parameters=[1])
    >>> model.feature_names
    ['amount', 'country=AU', 'country=NZ']
    """
    fresh = TableModel(clone(model), TableEncoder(missing), target)
    return _learned(
        fresh,
        source(connection, table_or_query, where, parameters),
        features=features,
        categorical=tuple(categorical),
        drop=tuple(drop),
    )


def partial_fit(
    model: TableModel,
    connection: Any,
    table_or_query: str,
    *,
    where: str | None = None,
    parameters: Sequence[Any] = (),
) -> TableModel:
    """Learn further rows; their columns are those that the model knows."""
    return _learned(_checked(model), source(connection, table_or_query, where, parameters))


def forget(
    model: TableModel,
    connection: Any,
    table_or_query: str,
    *,
    where: str | None = None,
    parameters: Sequence[Any] = (),
) -> TableModel:
    """Unlearn the rows of a condition, all or none."""
    _checked(model).forget(source(connection, table_or_query, where, parameters))
    return model


def source(
    connection: Any, table_or_query: str, where: str | None = None, parameters: Sequence[Any] = ()
) -> DatabaseSource:
    """The rows of a table or query as something that can be read as a table."""
    is_query = (
        table_or_query.lstrip()[:6].lower() == "select" or table_or_query.lstrip()[:4].lower() == "with"
    )
    query = table_or_query if is_query else f"SELECT * FROM {quoted(table_or_query)}"
    if where is not None:
        query = f"SELECT * FROM ({query}) AS chosen WHERE {where}"
    return DatabaseSource(connection, query, parameters, name="query" if is_query else table_or_query)


def _learned(model: TableModel, rows: DatabaseSource, **options: Any) -> TableModel:
    model.learn(model.open(rows, labelled=True, **options))
    return model


def _checked(model: Any) -> TableModel:
    if not isinstance(model, TableModel):
        raise DataTypeError(
            f"expected a model that sql.fit() gave; got {type(model).__name__}.", who="steelyard.sql"
        )
    return model
