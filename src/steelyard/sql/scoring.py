"""Scores inside a database: linear models as SQL, and predictions written to a new table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from steelyard.exceptions import DataError, SteelyardError
from steelyard.proximal import ProximalSVC
from steelyard.sql.queries import arithmetic_of, translated
from steelyard.tables import TableModel
from steelyard.tables.connections import connected, database_error
from steelyard.tables.databases import DatabaseSource, connect, open_database, quoted, quoted_table
from steelyard.tables.encoding import PRESENT, VALUE, TableEncoder

_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE PRECISION"}
_INSERT_ROWS = 200  # number of rows per INSERT statement
Lines = list[dict[str, Any]]


def expression(model: TableModel, table: str, dialect: str = "duckdb", *, truths: Sequence[str] = ()) -> str:
    """Return a SELECT that computes the scores and labels of the model for the rows of a table.

    Parameters
    ----------
    model : TableModel
        A model whose estimator is a ProximalSVC without a feature map.
    table : str
        The table to score.
    dialect : str, default="duckdb"
        The database: duckdb, sqlite, postgres, bigquery, snowflake, clickhouse or spark.
    truths : sequence of str
        Boolean columns of the table; true counts as 1 and false as 0.

    Returns
    -------
    str
        A query that returns all columns of the table, ``score`` (two classes) or one ``score_k`` per class,
        and ``label``.
    """
    arithmetic_of(dialect)  # raises an error for an unknown dialect
    estimator = model.estimator
    if not isinstance(estimator, ProximalSVC) or estimator.feature_map is not None:
        raise DataError(
            f"the model must be a ProximalSVC without a feature map; got {estimator!r}.", source="sql"
        )
    coef, intercept = np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)
    names = ["score"] if len(coef) == 1 else [f"score_{k}" for k in range(len(coef))]
    scores = [
        f"{_plane(model, c, float(b), truths)} AS {quoted(name)}"
        for c, b, name in zip(coef, intercept, names, strict=True)
    ]
    inner = f"SELECT *, {', '.join(scores)} FROM {quoted_table(table)}"
    label = _label([quoted(name) for name in names], estimator.classes_.tolist())
    return translated(f'SELECT *, {label} AS "label" FROM ({inner}) AS scored', dialect)


def _plane(model: TableModel, coef: Any, intercept: float, truths: Sequence[str]) -> str:
    encoder = model.encoder
    n_numeric, numbers = len(encoder.numeric_), set(encoder.numbers)
    terms = [_number(intercept)]
    for name, weight in zip(encoder.numeric_, coef, strict=False):
        terms.append(f"{_number(weight)} * {_value(encoder, name, truths)}")
    for (name, value), weight in zip(encoder.categories_, coef[n_numeric:], strict=False):
        if name not in numbers:
            condition = f"{quoted(name)} = {_literal(value)}"
        elif value == VALUE:  # value of a numeric column that the first table did not have
            shifted = f"{_value(encoder, name, truths)} - {_number(encoder.shift_of(name))}"
            terms.append(f"{_number(weight)} * ({shifted})")
            continue
        else:
            condition = f"{'NOT ' if value == PRESENT else ''}{quoted(name)} IS NULL"
        terms.append(f"CASE WHEN {condition} THEN {_number(weight)} ELSE {_number(0.0)} END")
    return " + ".join(terms)


def _value(encoder: TableEncoder, name: str, truths: Sequence[str]) -> str:
    """Return the SQL value of a numeric column, with missing values replaced."""
    value = quoted(name)
    if name in truths:  # engines cannot multiply booleans
        value = f"CASE WHEN {value} THEN {_number(1.0)} WHEN NOT {value} THEN {_number(0.0)} END"
    fill = encoder.fill_of(name)
    return value if fill is None else f"COALESCE({value}, {_number(fill)})"


def _number(value: float) -> str:
    """Return a double literal with all digits, because engines parse bare decimals as a less precise type."""
    return f"{'-' if value < 0 else ''}CAST({abs(float(value))!r} AS DOUBLE PRECISION)"


def _literal(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value)
    escaped = value.replace("'", "''")
    return f"'{escaped}'"


def _label(scores: list[str], classes: list[Any]) -> str:
    if len(scores) == 1:
        return f"CASE WHEN {scores[0]} > 0 THEN {_literal(classes[-1])} ELSE {_literal(classes[0])} END"
    cases = []
    for index, label in enumerate(classes[:-1]):
        beats = " AND ".join(f"{scores[index]} >= {other}" for other in scores[index + 1 :])
        cases.append(f"WHEN {beats} THEN {_literal(label)}")
    return f"CASE {' '.join(cases)} ELSE {_literal(classes[-1])} END"


# -- predictions as a table ------------------------------------------------------------------------


def write_predictions(
    address: str,
    query: str | None,
    into: str,
    predictions: Callable[[DatabaseSource], Iterator[Lines]],
) -> int:
    """Write predictions for rows of a database to a new table of the same database in one transaction.

    ``predictions`` takes the rows at ``address`` (or of ``query``) and yields lists of prediction lines. An
    existing table ``into`` is an error. Returns the number of lines written.
    """
    writing = connect(address, writes=True)
    # SQLite would deadlock with two connections.
    # DuckDB cannot open a read-only connection while another connection writes.
    scheme = urlsplit(address).scheme
    reading = writing if scheme == "sqlite" else writing.cursor() if scheme == "duckdb" else connect(address)
    try:
        with _transaction(writing), closing(open_database(address, query, reading)) as rows:
            return _write(writing, into, predictions(rows))
    except SteelyardError:
        raise
    except Exception as error:
        raise database_error(error, f"--into {into}") from error
    finally:
        reading.close()
        writing.close()


@contextmanager
def _transaction(connection: Any) -> Iterator[None]:
    """Context manager that commits at the end, or rolls back if an exception is raised."""
    adapter = connected(connection)
    if adapter.engine != "postgres":  # psycopg begins transactions implicitly
        adapter.run("BEGIN")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _write(connection: Any, into: str, parts: Iterable[Lines]) -> int:
    n_written, insert = 0, ""
    engine = connected(connection).engine
    cursor = connection if engine == "duckdb" else connection.cursor()
    for lines in parts:
        if not insert:
            types = {name: _TYPES.get(type(value), "TEXT") for name, value in lines[0].items()}
            columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
            cursor.execute(f"CREATE TABLE {quoted_table(into)} ({columns})")
            placeholders = ", ".join(["%s" if engine == "postgres" else "?"] * len(types))
            insert = f"INSERT INTO {quoted_table(into)} VALUES "
        rows = [tuple(line.values()) for line in lines]
        if engine == "duckdb":  # its executemany() is slow; one statement with many rows is fast
            for begin in range(0, len(rows), _INSERT_ROWS):
                some = rows[begin : begin + _INSERT_ROWS]
                text = insert + ", ".join([f"({placeholders})"] * len(some))
                cursor.execute(text, [value for row in some for value in row])
        else:
            cursor.executemany(f"{insert}({placeholders})", rows)
        n_written += len(lines)
    return n_written
