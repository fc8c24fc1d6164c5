"""Learning where the rows lie: by sums that the database takes, or by rows that stream into a pass."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.base import clone

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.proximal import ProximalSVC
from steelyard.sql.arithmetic import arithmetic_of
from steelyard.sql.pushdown import (
    PushdownNotSupported,
    PushdownPlan,
    TooFew,
    execute,
    look,
    unsupported_reason,
)
from steelyard.streams.chunks import padded
from steelyard.tables import TableEncoder, TableModel
from steelyard.tables.columns import Columns
from steelyard.tables.connections import connected
from steelyard.tables.databases import (
    DatabaseSource,
    is_address,
    open_database,
    quoted_table,
    tables_of,
    unknown_table,
)

__all__ = ["HOW", "fit", "forget", "learn", "partial_fit", "queries", "source"]

HOW = ("auto", "pushed", "streamed")
# How many columns of doubles, and of numbers at all, there may be for sums in the engine to take less time
# than reading the rows: d have d * (d + 3) / 2 sums, and those of doubles are taken in two digits. By
# benchmarks/speed/bench_sql.py. DuckDB hands its rows over without copying them, which no sum is faster than.
_FEW_NUMBERS = {"duckdb": (0, 0), "postgres": (4, 8), "sqlite": (2, 3)}
_FEW_CATEGORICAL = 2  # columns of categories, of which every pair is a query
_CHUNK = 16_384  # rows that are read and learned together
_NOT_THERE = ("does not exist", "no such table", "doesn't exist")  # as engines say it of a table
_WHO = "steelyard.sql"


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
    """Learn the rows of a table or query.

    Parameters
    ----------
    model : learner
        A learner; it is copied, not changed.
    connection : object
        An open connection of DuckDB, SQLite or PostgreSQL (DB-API, ADBC, or an engine of SQLAlchemy), or an
        address such as ``"duckdb:///shop.db"``. Nothing is created or changed in the database.
    table_or_query : str
        The name of a table, or a SELECT.
    target : str
        The column of labels.
    features : sequence of str, optional
        Columns to use; all but target, weight and moments when not given.
    where : str, optional
        A condition, with the engine's placeholders for values.
    parameters : sequence
        The values of the placeholders; no value is ever pasted into text.
    weight : str, optional
        A column that says how often each row counts.
    missing : {"refuse", "mean", "zero"}, default="refuse"
        What to do with NULLs.
    categorical, drop : sequences of str
        Columns to take as categories, and to leave out.
    how : {"auto", "pushed", "streamed"}, default="auto"
        "pushed": the database takes the sums that a ProximalSVC keeps, in whole numbers, and no row leaves
        it; "streamed": rows are read in batches. Both give the same bits; "auto" takes what is faster.

    Returns
    -------
    TableModel
        The learner with its columns; it can be saved and used on the command line.

    Notes
    -----
    The grid is settled by the first 256 rows that the database gives, either way; where the order of rows is
    left to the engine and changes, give ``ProximalSVC(quantizer=...)`` to have equal digests.

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
    columns = Columns(target, None, _names(features), _columns_left(drop, weight), _names(categorical) or ())
    return learn(fresh, rows, columns, weight=weight, how=how)


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
    """Learn further rows, all or none; their columns are those that the model knows.

    Parameters
    ----------
    model : TableModel
        What :func:`fit` gave.
    connection, table_or_query, where, parameters, weight, how
        As for :func:`fit`.

    Returns
    -------
    TableModel
        The same model.
    """
    rows = source(connection, table_or_query, where, parameters)
    return learn(_checked(model), rows, _known_columns(model), weight=weight, how=how)


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
    """Unlearn the rows of a condition, all or none.

    Parameters
    ----------
    model : TableModel
        What :func:`fit` gave.
    connection, table_or_query, where, parameters, weight, how
        As for :func:`fit`.

    Returns
    -------
    TableModel
        The same model.
    """
    rows = source(connection, table_or_query, where, parameters)
    columns = _known_columns(_checked(model))
    made = _pushable(model, rows, columns, weight, _checked_how(how))
    if isinstance(made, str):
        if weight is not None:
            _forget_weighted(model, rows, weight)
        else:
            model.forget(rows)
        return _noted_how(model, "streamed")
    try:
        with rows.connection.reading():
            looked = look(rows, columns, model.encoder, weight=weight, quantizer=model.estimator.quantizer_)
            statistics = execute(looked)
    except PushdownNotSupported:
        return forget(
            model,
            connection,
            table_or_query,
            where=where,
            parameters=parameters,
            weight=weight,
            how="streamed",
        )
    finally:
        rows.close()
    new = [name for name in looked.encoder.feature_names if name not in set(model.feature_names)]
    if new:
        raise DataError(
            f"{new[0]!r} was never learned, so that rows with it cannot be forgotten; nothing was changed.",
            source=f"{_WHO}.forget",
        )
    n_rows = looked.n_rows
    model.estimator.subtract(statistics.grow(model.estimator.n_features_in_))
    return _noted_how(model.note("forgot", rows.place.source, n_rows), "pushed")


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
    """The SELECTs with which a database takes the sums of a ProximalSVC.

    The rows are looked at once, as their types, categories, bounds and grid stand in the text; the SELECTs
    themselves are not run.

    Parameters
    ----------
    connection, table_or_query, target, features, where, parameters, weight, missing, categorical, drop
        As for :func:`fit`.
    dialect : str, optional
        Another engine to write them for: duckdb, sqlite, postgres, bigquery, snowflake, clickhouse or spark.

    Returns
    -------
    list of str
        One for numbers, one for every column of categories, one for every two of these.
    """
    rows = source(connection, table_or_query, where, parameters)
    columns = Columns(target, None, _names(features), _columns_left(drop, weight), _names(categorical) or ())
    return queries_of(rows, columns, TableEncoder(missing), weight=weight, dialect=dialect)


def queries_of(
    rows: DatabaseSource,
    columns: Columns,
    encoder: TableEncoder,
    *,
    weight: str | None = None,
    dialect: str | None = None,
) -> list[str]:
    """The same for a source that is open already; it is closed."""
    try:
        if dialect is not None:
            arithmetic_of(dialect)
        if (reason := unsupported_reason(ProximalSVC(), rows.connection.engine, encoder.missing)) is not None:
            raise PushdownNotSupported(f"no sums can be taken here: {reason}.", source=_WHO)
        with rows.connection.reading():
            looked = look(rows, columns, encoder, weight=weight, dialect=dialect)
        return [query.text for query in looked.queries()]
    finally:
        rows.close()


def source(
    connection: Any, table_or_query: str, where: str | None = None, parameters: Sequence[Any] = ()
) -> DatabaseSource:
    """The rows of a table or query as something that can be read as a table.

    Parameters
    ----------
    connection, table_or_query, where, parameters
        As for :func:`fit`.
    """
    words = table_or_query.split(maxsplit=1)
    is_query = len(words) > 1 and words[0].lower() in ("select", "with", "from", "values")
    if is_address(connection):
        connection = open_database(
            connection, table_or_query if is_query else f"SELECT * FROM {quoted_table(table_or_query)}"
        )
    close = connection.close if isinstance(connection, DatabaseSource) else None
    raw = connection.connection if isinstance(connection, DatabaseSource) else connected(connection)
    query = table_or_query if is_query else f"SELECT * FROM {quoted_table(table_or_query)}"
    if where is not None:
        query = f"SELECT * FROM (\n{query}\n) AS chosen WHERE {where}"
    name, table = ("query", None) if is_query else (table_or_query, table_or_query)
    try:
        return DatabaseSource(raw, query, parameters, name=name, close=close, table=table, where=where)
    except DataError as error:
        if table is None or not any(words in error.message for words in _NOT_THERE):
            raise
        try:
            there = tables_of(raw)
        except Exception:  # noqa: BLE001  the engine's own words must do
            raise error from None
        if table.rpartition(".")[2].strip('"') in there:
            raise
        raise unknown_table(table, there, _WHO) from error


def learn(
    model: TableModel, rows: DatabaseSource, columns: Columns, *, weight: str | None = None, how: str = "auto"
) -> TableModel:
    """Learn all rows of a source or none, by whatever way; the source is closed.

    Parameters
    ----------
    model : TableModel
        It is taught.
    rows : DatabaseSource
        The rows.
    columns : Columns
        Which columns are what.
    weight : str, optional
        The column of weights.
    how : {"auto", "pushed", "streamed"}
        As for :func:`fit`.
    """
    try:
        made = _pushable(model, rows, columns, weight, _checked_how(how))
        if not isinstance(made, str):
            try:
                return _pushed(model, rows, columns, weight)
            except PushdownNotSupported as error:
                if how == "pushed" and not isinstance(error, TooFew):
                    raise
        return _streamed(model, rows, columns, weight)
    finally:
        rows.close()


def _pushable(
    model: TableModel, rows: DatabaseSource, columns: Columns, weight: str | None, how: str
) -> str | None:
    """Why rows are to be read; None where sums are to be taken."""
    if weight is not None and weight not in rows.names:
        Columns(weight).chosen(rows.names, rows.place.source)  # says which columns there are
    if how == "streamed":
        return "as asked for"
    learner = model.estimator
    reason = unsupported_reason(learner, rows.connection.engine, model.encoder.missing)
    if reason is None and _is_started(learner) and not learner.statistics_.is_frozen:
        reason = "the grid is not settled before 256 rows"
    if how == "pushed":
        if reason is not None:
            raise PushdownNotSupported(
                f"no sums can be taken here: {reason}.", source=_WHO, hint='how="auto" reads the rows'
            )
        return None
    if reason is not None:
        return reason
    names = columns.chosen(rows.names, rows.place.source, rows.index_names)
    texts = [name for name in names if rows.declared[name] == "text" or name in columns.categorical]
    wide = [name for name in names if rows.declared[name] in ("double", "decimal", "unknown")]
    few_wide, few = _FEW_NUMBERS.get(str(rows.connection.engine), (0, 0))
    if len(wide) > few_wide or len(names) - len(texts) > few or len(texts) > _FEW_CATEGORICAL:
        return "rows are read faster"
    return None


def _pushed(model: TableModel, rows: DatabaseSource, columns: Columns, weight: str | None) -> TableModel:
    learner = model.estimator
    started = _is_started(learner)
    with rows.connection.reading():
        quantizer = learner.quantizer_ if started else learner.quantizer
        looked: PushdownPlan = look(rows, columns, model.encoder, weight=weight, quantizer=quantizer)
        statistics = execute(looked)
    learner = deepcopy(learner)
    if started and statistics.n_features > learner.n_features_in_:
        learner.grow(statistics.n_features)
    learner.merge(statistics)
    model.estimator, model.encoder = learner, looked.encoder
    return _noted_how(model.note("learned", rows.place.source, looked.n_rows), "pushed")


def _streamed(model: TableModel, rows: DatabaseSource, columns: Columns, weight: str | None) -> TableModel:
    twin = deepcopy(model)  # a query may fail half-way, and then nothing has changed
    options: dict[str, Any] = {}
    if "columns_" not in vars(twin.encoder):
        options = {
            "features": columns.features,
            "drop": columns.drop,
            "categorical": columns.categorical,
        }
    stream = twin.open(rows, labelled=True, chunk=_CHUNK, **options)
    if weight is None:
        twin.learn(stream)
    else:
        _learn_weighted(twin, stream.keep([weight]), weight)
    model.estimator, model.encoder, model.history_ = twin.estimator, twin.encoder, twin.history
    return _noted_how(model, "streamed")


def _learn_weighted(model: TableModel, stream: Any, weight: str) -> None:
    learner, n_rows = model.estimator, 0
    for chunk in stream:
        X = chunk.rows_for(learner)
        if hasattr(learner, "grow") and _is_started(learner):
            if X.shape[1] > learner.n_features_in_:
                learner.grow(X.shape[1])
            X = padded(X, learner.n_features_in_)
        learner.partial_fit(X, chunk.y, sample_weight=_weights(chunk.kept[weight], weight))
        n_rows += len(chunk)
    model.note("learned", stream.name, n_rows)


def _forget_weighted(model: TableModel, rows: DatabaseSource, weight: str) -> None:
    stream = model.open(rows, labelled=True).keep([weight])
    stream.learning = False
    chunks = list(stream)
    X = np.concatenate([padded(chunk.X, model.estimator.n_features_in_) for chunk in chunks])
    y = np.concatenate([chunk.y for chunk in chunks])
    weights = np.concatenate([_weights(chunk.kept[weight], weight) for chunk in chunks])
    model.estimator.forget(X, y, weights)
    model.note("forgot", stream.name, len(y))


def _weights(values: Any, name: str) -> FloatArray:
    try:
        return np.array([float(value) for value in values.tolist()])
    except (TypeError, ValueError):
        raise DataError(f"column {name!r} of weights must have a number in every row.", source=_WHO) from None


def _noted_how(model: TableModel, how: str) -> TableModel:
    model.history[-1]["how"] = how
    return model


def _is_started(learner: Any) -> bool:
    return hasattr(learner, "n_features_in_")


def _checked_how(how: str) -> str:
    if how not in HOW:
        raise ParameterError(f"how must be one of {', '.join(HOW)}; got {how!r}.", source=_WHO)
    return how


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else (names,) if isinstance(names, str) else tuple(names)


def _columns_left(drop: Sequence[str], weight: str | None) -> tuple[str, ...]:
    return (*(_names(drop) or ()), *(() if weight is None else (weight,)))


def _known_columns(model: TableModel) -> Columns:
    encoder = model.encoder
    return Columns(model.target, None, tuple(encoder.columns_), (), tuple(encoder.categorical_))


def _checked(model: Any) -> TableModel:
    if not isinstance(model, TableModel):
        raise DataTypeError(f"expected a model that sql.fit() gave; got {type(model).__name__}.", source=_WHO)
    return model
