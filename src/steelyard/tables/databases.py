"""Readers of database tables: DuckDB, SQLite and PostgreSQL.

The readers never write; files and transactions are opened read-only where the engine supports it. Names are
quoted, and values are passed as parameters.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import numpy as np

from steelyard.exceptions import DataError, FileAccessError, SteelyardError
from steelyard.tables.arrow_sources import arrow_batch, has_pyarrow, slices
from steelyard.tables.columns import ColumnBatch, Place, did_you_mean
from steelyard.tables.connections import Column, Connection, connected, database_error, error_text
from steelyard.tables.source import TableSource

FIRST_ROWS = 256  # number of rows from which column kinds are inferred, the same as for fitting a quantizer
_PLAIN_TYPES = {float, int, bool, type(None)}
_READ_STATEMENTS = ("select", "with", "from", "values", "table")
# Pattern of strings, quoted names and comments, whose content is not SQL.
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME_PART = re.compile(r'"(?:[^"]|"")*"|[^."]+(?:"[^."]*)*')
_NAME_FIELDS = ("this", "db", "catalog")  # SQLGlot's fields of a table name, last part first
_OWN_OPTIONS = ("table", "query")  # URL parameters that are read by this package, not by the driver


def quoted(name: str) -> str:
    """Return a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def name_parts(name: str) -> list[str]:
    """Split a name such as ``shop.payments`` at its dots, except dots inside quotes."""
    parts = _NAME_PART.findall(name)
    return [part[1:-1].replace('""', '"') if part[:1] == '"' else part for part in parts] or [name]


def quoted_table(name: str) -> str:
    """Return a quoted SQL table name; dots separate schema and table."""
    return ".".join(map(quoted, name_parts(name)))


def sqlglot_table(name: str) -> Any:
    """Return the SQLGlot expression of a table name; dots separate schema and table."""
    from sqlglot import exp

    parts = [exp.to_identifier(part, quoted=True) for part in reversed(name_parts(name))]
    return exp.Table(**dict(zip(_NAME_FIELDS, parts, strict=False)))


class DatabaseSource(TableSource):
    """Reader of the rows of one query: a SELECT without a final semicolon, with values of its placeholders.

    ``connection`` is a DB-API, ADBC or SQLAlchemy connection; ``close`` is called when the rows have been
    read. If the query reads all rows of a table, or those that fulfil a condition, ``table`` and ``where``
    name them. ``declared`` is the kind of each column, from its declared type or the first rows
    (:meth:`Connection.kind`).
    """

    def __init__(
        self,
        connection: Any,
        query: str,
        parameters: Sequence[Any] = (),
        *,
        name: str = "the database",
        close: Callable[[], None] | None = None,
        table: str | None = None,
        where: str | None = None,
    ) -> None:
        super().__init__(Place(name))
        self.connection, self.query, self.parameters = connected(connection), query, tuple(parameters)
        self._table, self._where = table, where
        self._open_batches: Generator[ColumnBatch, None, None] | None = None
        self._close = close or (lambda: None)
        try:
            check_single(query, name)
            with self.connection.reading():
                columns, rows = self.connection.head(self.selected("*", FIRST_ROWS), self.parameters)
            self.declared = {
                column: self.connection.kind(code, [row[k] for row in rows])
                for k, (column, code) in enumerate(columns)
            }
        except Exception as error:
            self.close()
            raise database_error(error, name) from error
        self.names = [column for column, _ in columns]
        # Columns of dates and times are features only if the user names them.
        self.index_names = [column for column, kind in self.declared.items() if kind == "moment"]

    def selected(self, chosen: str, limit: int | None = None) -> str:
        """Return a SELECT of SQL expressions (``chosen``) from the rows, with an optional LIMIT."""
        cut = "" if limit is None else f" LIMIT {limit}"
        chosen = self.connection.escaped(chosen) if self.parameters else chosen
        return f"SELECT {chosen} FROM (\n{self.query}\n) AS steelyard_rows{cut}"

    def given(self, dialect: str) -> str:
        """Return the query in another SQL dialect. A query given by the user is not translated."""
        if self._table is None or dialect == self.connection.engine:
            return self.query
        from sqlglot import exp

        chosen = str(exp.select("*").from_(sqlglot_table(self._table)).sql(dialect))
        return chosen if self._where is None else f"{chosen} WHERE {self._where}"

    def batches(
        self, wanted: list[str], kinds: Mapping[str, str], limit: int | None = None
    ) -> Generator[ColumnBatch, None, None]:
        self._open_batches = self._batches(wanted, kinds, limit)
        return self._open_batches

    def _batches(
        self, wanted: list[str], kinds: Mapping[str, str], limit: int | None
    ) -> Generator[ColumnBatch, None, None]:
        query = self.selected(", ".join(self._written(name, kinds[name]) for name in wanted), limit)
        try:
            with self.connection.reading():
                arrow = self.connection.arrow(query, self.parameters) if has_pyarrow() else None
                if arrow is not None:
                    with contextlib.closing(arrow):
                        for batch in slices(arrow):
                            found = dict(zip(wanted, batch.columns, strict=True))
                            yield arrow_batch(found, kinds, batch.num_rows)
                elif (columns := self.connection.columns(query, self.parameters)) is not None:
                    with contextlib.closing(columns):
                        yield from _array_batches(columns, wanted, kinds)
                else:
                    yield from self._plain_batches(query, wanted, kinds)
        except SteelyardError:
            raise
        except Exception as error:
            raise database_error(error, self.place.source) from error

    def _written(self, name: str, kind: str) -> str:
        """Return the SQL for a column. The database converts decimals to doubles, as it does in sums."""
        column = quoted(name)
        exact = self.declared[name] == "decimal" and kind != "text" and self.connection.engine is not None
        return f"CAST({column} AS DOUBLE PRECISION) AS {column}" if exact else column

    def _plain_batches(
        self, query: str, wanted: list[str], kinds: Mapping[str, str]
    ) -> Iterator[ColumnBatch]:
        known_kinds: dict[str, str] = {name: kind for name, kind in kinds.items() if kind == "text"}
        n_rows = 0
        for rows in self.connection.rows(query, self.parameters):
            values = list(zip(*rows, strict=True))
            columns = {
                name: self._column(name, column, known_kinds, n_rows)
                for name, column in zip(wanted, values, strict=True)
            }
            yield ColumnBatch(columns, len(rows))
            n_rows += len(rows)

    def _column(self, name: str, values: Sequence[Any], kinds: dict[str, str], n_rows: int) -> Any:
        if name not in kinds:
            first = next((value for value in values if value is not None), None)
            if first is None:
                return np.full(len(values), np.nan)
            kinds[name] = "text" if isinstance(first, str) else "number"
        if kinds[name] == "text":
            return texts_of(values)
        if set(map(type, values)) <= _PLAIN_TYPES:
            return np.array(values, dtype=np.float64)  # None becomes nan
        numbers = np.empty(len(values))
        for row, value in enumerate(values):
            try:
                numbers[row] = number_of(value)
            except (TypeError, ValueError, OverflowError) as error:
                raise DataError(
                    f"expected a number; got {str(value)[:60]!r} ({type(value).__name__}).",
                    source=self.place.of_row(n_rows + row, name),
                    hint="list columns of categories in categorical=, or drop them",
                ) from error
        return numbers

    def close(self) -> None:
        """Stop reading, and close the connection if this reader opened it."""
        if self._open_batches is not None:
            self._open_batches.close()
        self.connection.close()
        self._close()


def _array_batches(
    batches: Iterable[list[Column]], wanted: list[str], kinds: Mapping[str, str]
) -> Iterator[ColumnBatch]:
    for batch in batches:
        columns = {}
        for name, (values, missing) in zip(wanted, batch, strict=True):
            if kinds[name] == "text" or values.dtype == object:
                cells = zip(values.tolist(), missing.tolist(), strict=True)
                columns[name] = texts_of([None if gap else value for value, gap in cells])
            else:
                columns[name] = values.astype(np.float64)
                columns[name][missing] = np.nan
        yield ColumnBatch(columns, len(batch[0][1]))


def check_single(query: str, source: str) -> None:
    """Raise an error unless the query is a single SELECT, because other statements could write."""
    bare = _QUOTED.sub("", query)
    first = bare.lstrip("( \t\r\n").split(maxsplit=1)
    if ";" in bare or not first or first[0].lower() not in _READ_STATEMENTS:
        raise DataError(
            "expected one SELECT, without a semicolon.",
            source=source,
            hint="only SELECT queries are sent to a database",
        )


def texts_of(values: Sequence[Any]) -> Any:
    """Return the values of a column of categories as an object array of strings and None."""
    texts = np.empty(len(values), dtype=object)
    texts[:] = [None if value is None else _text(value) for value in values]
    return texts


def number_of(value: Any) -> float:
    """Return a value from a driver as a number; raise TypeError if it is not a number or time."""
    if value is None:
        return math.nan
    if isinstance(value, bool | int | float | Decimal):
        return float(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    raise TypeError


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def open_database(address: str, query: str | None = None, connection: Any = None) -> DatabaseSource:
    """Open a table by an address such as ``duckdb:///file.db?table=t``, or the rows of a SELECT.

    A given connection stays open; otherwise a read-only one is opened and closed.
    """
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    name = f"{parts.scheme} {Path(unquote(parts.path)).name}"
    close = None
    if connection is None:
        connection = connect(address)
        close = connection.close
    query = options.get("query") if query is None else query
    table = options.get("table") if query is None else None
    if query is None:
        existing = tables_of(connected(connection))
        if table is None or (table not in existing and name_parts(table)[-1] not in existing):
            if close is not None:
                close()
            hint = "add ?table=NAME to the address, or give a query"
            raise unknown_table(table, existing, name, hint)
        table = quoted(table) if table in existing else table
        query = f"SELECT * FROM {quoted_table(table)}"
    source = f"{name}, {options['table'] if table is not None else 'query'}"
    return DatabaseSource(connection, query, name=source, close=close, table=table)


def unknown_table(table: str | None, existing: list[str], source: str, hint: str | None = None) -> DataError:
    """Return the error for a table that does not exist; the message lists the existing tables."""
    problem = "no table is named" if table is None else f"there is no table {table!r}"
    return DataError(
        f"{problem}; there are {', '.join(map(repr, existing[:20])) or 'none'}.",
        source=source,
        hint=hint if table is None else did_you_mean(table, existing, hint),
    )


def connect(address: str, *, writes: bool = False) -> Any:
    """Open a connection to the database at an address, read-only unless ``writes`` is set."""
    scheme = urlsplit(address).scheme
    try:
        return _driver_connection(address, writes=writes)
    except ImportError as error:
        raise DataError(
            f"{scheme} needs the package {error.name!r}, which is not installed.",
            hint='pip install "steelyard[sql]"',
        ) from error
    except Exception as error:
        raise FileAccessError(f"cannot be opened: {error_text(error)}.", source=scheme) from error


def _driver_connection(address: str, *, writes: bool) -> Any:
    parts = urlsplit(address)
    if parts.scheme == "sqlite":
        import sqlite3

        file = Path(unquote(parts.path[1:])).absolute()  # sqlite:////file.db has an absolute path
        mode = "rw" if writes else "ro"
        return sqlite3.connect(f"{file.as_uri()}?mode={mode}", uri=True, isolation_level=None)
    if parts.scheme == "duckdb":
        import duckdb

        file = Path(unquote(parts.path[1:]))
        if writes and not file.exists():  # a writable connection would create the file
            raise FileNotFoundError(f"there is no file {str(file)!r}")
        return duckdb.connect(str(file), read_only=not writes)
    import psycopg

    options = "&".join(part for part in parts.query.split("&") if part.partition("=")[0] not in _OWN_OPTIONS)
    connection = psycopg.connect(urlunsplit(("postgresql", parts.netloc, parts.path, options, "")))
    connection.read_only = not writes
    return connection


def tables_of(connection: Connection) -> list[str]:
    """Return the names of the tables and views that a connection can read."""
    if connection.engine == "sqlite":
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
    else:
        query = (
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY table_name"
        )
    return [str(row[0]) for row in connection.run(query).fetchall()]
