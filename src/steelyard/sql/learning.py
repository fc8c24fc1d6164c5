"""Learning from database rows, by push-down of sums or by streaming the rows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, DataTypeError
from steelyard.params import OneOf, check_value
from steelyard.proximal import ProximalSVC
from steelyard.sql.pushdown import (
    PushdownNotSupported,
    TooFewRows,
    execute,
    plan_pushdown,
    unsupported_reason,
)
from steelyard.sql.queries import arithmetic_of, translated, with_rows
from steelyard.streams.chunks import Chunk
from steelyard.streams.predictions import learn_chunk, rows_for_model
from steelyard.tables import TableEncoder, TableModel
from steelyard.tables.columns import Columns
from steelyard.tables.connections import connected
from steelyard.tables.databases import (
    DatabaseSource,
    connect,
    quoted_table,
    tables_of,
    unknown_table,
)
from steelyard.tables.source import is_address

# Maximum numbers of (double, numeric) columns for which push-down is faster than reading the rows.
# The limits are measured by benchmarks/speed/bench_sql.py. For DuckDB, reading is always faster.
# Push-down of d columns needs d * (d + 3) / 2 sums, and each double column is split into two digits.
_MAX_PUSHDOWN_COLUMNS = {"duckdb": (0, 0), "postgres": (4, 8), "sqlite": (2, 3)}
# Maximum number of categorical columns for push-down, which needs a query for each pair of these columns.
_MAX_PUSHDOWN_CATEGORICAL = 2
_CHUNK_ROWS = 16_384  # number of rows that are read and learned at a time
_UNKNOWN_TABLE_MESSAGES = ("does not exist", "no such table", "doesn't exist")
_SOURCE = "steelyard.sql"


def fit(
    model: Any,
    connection: Any,
    table_or_query: str,
    *,
    target: str,
    features: Sequence[str] | None = None,
    where: str | None = None,
    parameters: Sequence[Any] = (),
    weight: str | None = None,
    missing: str = "refuse",
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    how: str = "auto",
) -> TableModel:
    """Fit a clone of an estimator to the rows of a table or query.

    Parameters
    ----------
    model : estimator
        The estimator. It is cloned, not changed.
    connection : object
        An open connection of DuckDB, SQLite or PostgreSQL (DB-API, ADBC, or an engine of SQLAlchemy), or an
        address such as ``"duckdb:///shop.db"``. Nothing is created or changed in the database.
    table_or_query : str
        The name of a table, or a SELECT.
    target : str
        The column of labels.
    features : sequence of str, optional
        Columns to use. By default all columns except the target, the weight and columns of times.
    where : str, optional
        A condition, with the engine's placeholders for values.
    parameters : sequence
        Values of the placeholders. They are passed to the driver, never inserted into the text.
    weight : str, optional
        A column of sample weights.
    missing : {"refuse", "mean", "zero"}, default="refuse"
        Treatment of NULL: raise an error, or fill with the mean or zero.
    categorical, drop : sequences of str
        Columns to treat as categorical, and columns to leave out.
    how : {"auto", "pushed", "streamed"}, default="auto"
        "pushed": the database computes the sums of a ProximalSVC in integers (push-down), and no row leaves
        it. "streamed": rows are read in batches. Both give bit-identical models. "auto" selects the faster.

    Returns
    -------
    TableModel
        The fitted estimator with its columns. It can be saved and used on the command line.

    Notes
    -----
    The first 256 rows that the database returns determine the quantizer. If the order of rows changes between
    calls, use ``ProximalSVC(quantizer=...)`` to get equal digests.

    Examples
    --------
    >>> import sqlite3
    >>> from steelyard import ProximalSVC, sql
    >>> db = sqlite3.connect(":memory:")
    >>> _ = db.execute("CREATE TABLE pay (amount REAL, country TEXT, fraud INT)")
    >>> rows = [(k % 9 + 5.0 * (k % 4 == 0), "NZ" if k % 3 else "AU", int(k % 4 == 0)) for k in range(600)]
    >>> _ = db.executemany("INSERT INTO pay VALUES (?, ?, ?)", rows)
    >>> model = sql.fit(ProximalSVC(), db, "pay", target="fraud", where="amount > ?", parameters=[1])
    >>> model.feature_names
    ['amount', 'country=AU', 'country=NZ']
    >>> pushed, streamed = (
    ...     sql.fit(ProximalSVC(), db, "pay", target="fraud", how=how) for how in ("pushed", "streamed")
    ... )
    >>> pushed.estimator.digest() == streamed.estimator.digest()
    True
    """
    fresh = TableModel(clone(model), TableEncoder(missing), target)
    rows = source(connection, table_or_query, where, parameters)
    return learn(fresh, rows, _columns(target, features, drop, categorical, weight), weight=weight, how=how)


def partial_fit(
    model: TableModel,
    connection: Any,
    table_or_query: str,
    *,
    where: str | None = None,
    parameters: Sequence[Any] = (),
    weight: str | None = None,
    how: str = "auto",
) -> TableModel:
    """Learn more rows of a table or query, with the columns of the model. A failing call learns no row.

    Parameters
    ----------
    model : TableModel
        A model returned by :func:`fit`.
    connection, table_or_query, where, parameters, weight, how
        As for :func:`fit`.

    Returns
    -------
    TableModel
        The same model.
    """
    rows = source(connection, table_or_query, where, parameters)
    return learn(_checked(model), rows, model.encoder.roles(model.target), weight=weight, how=how)


def forget(
    model: TableModel,
    connection: Any,
    table_or_query: str,
    *,
    where: str | None = None,
    parameters: Sequence[Any] = (),
    weight: str | None = None,
    how: str = "auto",
) -> TableModel:
    """Forget rows that were learned before. A failing call forgets no row.

    Parameters
    ----------
    model : TableModel
        A model returned by :func:`fit`.
    connection, table_or_query, where, parameters, weight, how
        As for :func:`fit`.

    Returns
    -------
    TableModel
        The same model.
    """
    rows = source(connection, table_or_query, where, parameters)
    columns = _checked(model).encoder.roles(model.target)
    return learn(model, rows, columns, weight=weight, how=how, forget=True)


def queries(
    connection: Any,
    table_or_query: str,
    *,
    target: str,
    features: Sequence[str] | None = None,
    where: str | None = None,
    parameters: Sequence[Any] = (),
    weight: str | None = None,
    missing: str = "refuse",
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    dialect: str | None = None,
) -> list[str]:
    """Return the SELECT statements that compute the statistics of a ProximalSVC inside a database.

    The rows are queried once, because their types, categories, bounds and quantizer are part of the text. The
    returned SELECTs are not executed.

    Parameters
    ----------
    connection, table_or_query, target, features, where, parameters, weight, missing, categorical, drop
        As for :func:`fit`.
    dialect : str, optional
        Another engine for which the SELECTs are written: duckdb, sqlite, postgres, bigquery, snowflake,
        clickhouse or spark.

    Returns
    -------
    list of str
        One query for numeric columns, one per categorical column, one per pair of categorical columns.
    """
    rows = source(connection, table_or_query, where, parameters)
    columns = _columns(target, features, drop, categorical, weight)
    return queries_of(rows, columns, TableEncoder(missing), weight=weight, dialect=dialect)


def queries_of(
    rows: DatabaseSource,
    columns: Columns,
    encoder: TableEncoder,
    *,
    weight: str | None = None,
    dialect: str | None = None,
) -> list[str]:
    """Return the SELECT statements for an open source, as :func:`queries` does, and close the source."""
    try:
        if dialect is not None:
            arithmetic_of(dialect)
        if (reason := unsupported_reason(ProximalSVC(), rows.connection.engine, encoder.missing)) is not None:
            raise PushdownNotSupported(f"push-down is not possible: {reason}.", source=_SOURCE)
        with rows.connection.reading():
            plan = plan_pushdown(rows, columns, encoder, weight=weight, dialect=dialect)
        name = plan.writer.arithmetic.dialect
        return [with_rows(rows.given(name), translated(query.text, name)) for query in plan.queries]
    finally:
        rows.close()


def source(
    connection: Any, table_or_query: str, where: str | None = None, parameters: Sequence[Any] = ()
) -> DatabaseSource:
    """Return the rows of a table or query as a source for :func:`steelyard.tables.open_stream`.

    Parameters
    ----------
    connection, table_or_query, where, parameters
        As for :func:`fit`.
    """
    words = table_or_query.split(maxsplit=1)
    is_query = len(words) > 1 and words[0].lower() in ("select", "with", "from", "values")
    query = table_or_query if is_query else f"SELECT * FROM {quoted_table(table_or_query)}"
    close = None
    if is_address(connection):
        connection = connect(connection)
        close = connection.close
    raw = connected(connection)
    if where is not None:
        query = f"SELECT * FROM (\n{query}\n) AS chosen WHERE {where}"
    name, table = ("query", None) if is_query else (table_or_query, table_or_query)
    try:
        return DatabaseSource(raw, query, parameters, name=name, close=close, table=table, where=where)
    except DataError as error:
        if table is None or not any(words in error.message for words in _UNKNOWN_TABLE_MESSAGES):
            raise
        try:
            tables = tables_of(raw)
        except Exception:  # noqa: BLE001  keep the message of the engine
            raise error from None
        if table.rpartition(".")[2].strip('"') in tables:
            raise
        raise unknown_table(table, tables, _SOURCE) from error


def learn(
    model: TableModel,
    rows: DatabaseSource,
    columns: Columns,
    *,
    weight: str | None = None,
    how: str = "auto",
    forget: bool = False,
) -> TableModel:
    """Learn or forget the rows of a source, and close it. A failing call does not change the model."""
    is_pushed = False
    try:
        if _can_push(model, rows, columns, weight, how):
            try:
                _push_down(model, rows, columns, weight, forget=forget)
                is_pushed = True
            except PushdownNotSupported as error:
                if how == "pushed" and not (forget or isinstance(error, TooFewRows)):
                    raise
        if not is_pushed:
            (_forget_streamed if forget else _learn_streamed)(model, rows, columns, weight)
    finally:
        rows.close()
    model.history[-1]["how"] = "pushed" if is_pushed else "streamed"
    return model


def _can_push(
    model: TableModel, rows: DatabaseSource, columns: Columns, weight: str | None, how: str
) -> bool:
    """Return whether the database shall compute the sums; raise an error if it must but cannot."""
    check_value("how", how, OneOf("auto", "pushed", "streamed"), _SOURCE)
    if weight is not None and weight not in rows.names:
        Columns(weight).chosen(rows.names, rows.place.source)  # raises an error that lists all columns
    if how == "streamed":
        return False
    learner = model.estimator
    reason = unsupported_reason(learner, rows.connection.engine, model.encoder.missing)
    if reason is None and hasattr(learner, "n_features_in_") and not learner.statistics_.is_frozen:
        reason = "the model has learned fewer than 256 rows and has no quantizer yet"
    if how == "pushed" and reason is not None:
        raise PushdownNotSupported(
            f"push-down is not possible: {reason}.",
            source=_SOURCE,
            hint='use how="auto", which reads the rows',
        )
    if how == "pushed" or reason is not None:
        return reason is None
    names = columns.chosen(rows.names, rows.place.source, rows.index_names)
    n_texts = sum(rows.declared[name] == "text" or name in columns.categorical for name in names)
    n_doubles = sum(rows.declared[name] in ("double", "decimal", "unknown") for name in names)
    max_doubles, max_numeric = _MAX_PUSHDOWN_COLUMNS.get(str(rows.connection.engine), (0, 0))
    is_narrow = n_doubles <= max_doubles and len(names) - n_texts <= max_numeric
    return is_narrow and n_texts <= _MAX_PUSHDOWN_CATEGORICAL


def _push_down(
    model: TableModel, rows: DatabaseSource, columns: Columns, weight: str | None, *, forget: bool
) -> None:
    """Learn or forget the statistics that the database computes."""
    learner = deepcopy(model.estimator)
    is_fitted = hasattr(learner, "n_features_in_")
    quantizer = learner.quantizer_ if is_fitted else learner.quantizer
    with rows.connection.reading():
        plan = plan_pushdown(rows, columns, model.encoder, weight=weight, quantizer=quantizer)
        statistics = execute(plan)
    if forget:
        new = [name for name in plan.encoder.feature_names if name not in set(model.feature_names)]
        if new:
            raise DataError(
                f"{new[0]!r} was never learned, so rows with it cannot be forgotten; nothing was changed.",
                source=f"{_SOURCE}.forget",
            )
        learner.subtract(statistics.grow(learner.n_features_in_))
    else:
        if is_fitted and statistics.n_features > learner.n_features_in_:
            learner.grow(statistics.n_features)
        learner.merge(statistics)
        model.encoder = plan.encoder
    model.estimator = learner
    model.note("forgot" if forget else "learned", rows.place.source, plan.n_rows)


def _learn_streamed(model: TableModel, rows: DatabaseSource, columns: Columns, weight: str | None) -> None:
    copy = deepcopy(model)  # the model must not change if a query fails
    options: dict[str, Any] = {}
    if not copy.encoder.is_fitted:
        options = {"features": columns.features, "drop": columns.drop, "categorical": columns.categorical}
    stream = copy.open(rows, labelled=True, chunk=_CHUNK_ROWS, **options)
    if weight is None:
        copy.learn(stream)
    else:
        n_rows = 0
        for chunk in stream.keep([weight]):
            learn_chunk(copy.estimator, chunk, sample_weight=_weights(chunk, weight))
            n_rows += len(chunk)
        copy.note("learned", stream.name, n_rows)
    model.estimator, model.encoder, model.history_ = copy.estimator, copy.encoder, copy.history


def _forget_streamed(model: TableModel, rows: DatabaseSource, _: Columns, weight: str | None) -> None:
    if weight is None:
        model.forget(rows)
        return
    stream = model.open(rows, labelled=True).keep([weight])
    stream.learning = False
    chunks = list(stream)
    X = np.concatenate([rows_for_model(model.estimator, chunk) for chunk in chunks])
    y = np.concatenate([chunk.y for chunk in chunks])
    model.estimator.forget(X, y, np.concatenate([_weights(chunk, weight) for chunk in chunks]))
    model.note("forgot", stream.name, len(y))


def _weights(chunk: Chunk, name: str) -> FloatArray:
    try:
        return np.array([float(value) for value in chunk.kept[name].tolist()])
    except (TypeError, ValueError):
        raise DataError(
            f"the column of weights, {name!r}, must have a number in every row.", source=_SOURCE
        ) from None


def _columns(
    target: str,
    features: Sequence[str] | None,
    drop: Sequence[str],
    categorical: Sequence[str],
    weight: str | None,
) -> Columns:
    columns = Columns.of(target, features=features, drop=drop, categorical=categorical)
    return columns if weight is None else replace(columns, drop=(*columns.drop, weight))


def _checked(model: Any) -> TableModel:
    if not isinstance(model, TableModel):
        raise DataTypeError(
            f"expected a model returned by sql.fit(); got {type(model).__name__}.", source=_SOURCE
        )
    return model
