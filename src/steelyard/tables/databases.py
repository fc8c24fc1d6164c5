"""Tables that lie in a database, read as streams: DuckDB, SQLite and PostgreSQL by their own connections.

Only reading: nothing is created or changed, and where the engine can promise that (read-only files and
transactions) it is asked to. Names are quoted; values are never pasted into a query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import numpy as np

from steelyard.exceptions import DataError, FileAccessError
from steelyard.tables.columns import ColumnBatch, Columns, Place, near

__all__ = ["SCHEMES", "DatabaseSource", "is_address", "open_database", "quoted"]

SCHEMES = ("duckdb", "sqlite", "postgresql", "postgres")
_BATCH = 16_384
_PASSED_ON = ("table", "query")  # parts of an address that are ours and not the engine's


def is_address(source: object) -> bool:
    """Whether a text names a table in a database, such as ``sqlite:///shop.db?table=payments``."""
    return isinstance(source, str) and source.partition("://")[0] in SCHEMES and "://" in source


def quoted(name: str) -> str:
    """A name of a table or column as SQL writes it, whatever is in it; dots separate schema and table."""
    return '"' + name.replace('"', '""') + '"'


class DatabaseSource:
    """The rows of one query, column by column.

    Parameters
    ----------
    connection : object
        A connection as DB-API 2.0 describes it, or one of DuckDB.
    query : str
        A SELECT without a final semicolon.
    parameters : sequence
        Values for its placeholders.
    name : str
        What to call it in sentences.
    close : callable, optional
        Called when the rows have been read.
    """

    def __init__(
        self,
        connection: Any,
        query: str,
        parameters: Sequence[Any] = (),
        *,
        name: str = "the database",
        close: Callable[[], None] | None = None,
    ) -> None:
        self._connection, self._query, self._parameters = connection, query, tuple(parameters)
        self._close = close or (lambda: None)
        self.place = Place(name)
        self.n_rows: int | None = None
        try:
            head = self._cursor(f"SELECT * FROM ({query}) AS steelyard_rows LIMIT 1")
            self.names = [str(column[0]) for column in head.description]
            first = head.fetchmany(1)
        except Exception as error:
            self._close()
            raise _told(error, name) from error
        # Moments are no features unless they are asked for.
        self.index_names = (
            [column for column, value in zip(self.names, first[0], strict=True) if isinstance(value, date)]
            if first
            else []
        )

    def _cursor(self, sql: str) -> Any:
        cursor = self._connection.cursor()
        return cursor.execute(sql, self._parameters) or cursor

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        """Only what is to be categories must be said; the rest is judged by what comes."""
        return {name: "text" if name in columns.categorical else "declared" for name in wanted}

    def batches(self, wanted: list[str], kinds: dict[str, str]) -> Iterator[ColumnBatch]:
        """The rows as columns; an error comes after all rows before it."""
        chosen = ", ".join(map(quoted, wanted))
        settled: dict[str, str] = {name: kind for name, kind in kinds.items() if kind == "text"}
        done = 0
        try:
            cursor = self._cursor(f"SELECT {chosen} FROM ({self._query}) AS steelyard_rows")
            while rows := cursor.fetchmany(_BATCH):
                values = list(zip(*rows, strict=True))
                columns = {
                    name: self._column(name, column, settled, done)
                    for name, column in zip(wanted, values, strict=True)
                }
                yield ColumnBatch(columns, len(rows))
                done += len(rows)
        except DataError:
            raise
        except Exception as error:
            raise _told(error, self.place.source) from error

    def _column(self, name: str, values: Sequence[Any], settled: dict[str, str], done: int) -> Any:
        if name not in settled:
            known = next((value for value in values if value is not None), None)
            if known is None:
                return np.full(len(values), np.nan)
            settled[name] = "text" if isinstance(known, str) else "number"
        if settled[name] == "text":
            texts = np.empty(len(values), dtype=object)
            texts[:] = [None if value is None else _text(value) for value in values]
            return texts
        numbers = np.empty(len(values))
        for row, value in enumerate(values):
            try:
                numbers[row] = _number(value)
            except (TypeError, ValueError, OverflowError) as error:
                raise DataError(
                    f"expected a number; got {str(value)[:60]!r} ({type(value).__name__}).",
                    who=self.place.of_row(done + row, name),
                    hint="if this is a column of categories, name it so, or leave it out",
                ) from error
        return numbers

    def fraction_read(self) -> float | None:
        """Nobody knows."""
        return None

    def close(self) -> None:
        """Let go of the connection, if it is ours."""
        self._close()


def _number(value: Any) -> float:
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


def _told(error: Exception, name: str) -> DataError:
    """The engine's own words, in a sentence."""
    words = " ".join(str(error).split())[:300].rstrip(".")
    return DataError(f"the database refused: {words}.", who=name)


def open_database(address: str, query: str | None = None) -> DatabaseSource:
    """Open a table by its address.

    Parameters
    ----------
    address : str
        ``duckdb:///file.db?table=t``, ``sqlite:///file.db?table=t`` or ``postgresql://...?table=t``.
    query : str, optional
        A SELECT, instead of a table.
    """
    parts = urlsplit(address)
    options = parse_qs(parts.query)
    name = f"{parts.scheme} {Path(unquote(parts.path)).name}"
    connection = _connected(parts.scheme, address)
    if query is None:
        query = options["query"][0] if "query" in options else None
    table = options["table"][0] if "table" in options else None
    if query is None:
        tables = _tables(parts.scheme, connection)
        if table is None or table not in tables:
            connection.close()
            closest = None if table is None else near(table, tables)
            said = "no table is named" if table is None else f"there is no table {table!r}"
            raise DataError(
                f"{said}; there are {', '.join(map(repr, tables[:20])) or 'none'}.",
                who=name,
                hint=f"did you mean {closest!r}?" if closest else "add ?table=NAME to the address",
            )
        query = f"SELECT * FROM {quoted(table)}"
    return DatabaseSource(connection, query, name=f"{name}, {table or 'query'}", close=connection.close)


def _connected(scheme: str, address: str) -> Any:
    """A connection that can only read."""
    parts = urlsplit(address)
    try:
        if scheme == "sqlite":
            import sqlite3

            file = Path(unquote(parts.path[1:])).absolute()  # four slashes begin an absolute path
            return sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
        if scheme == "duckdb":
            import duckdb

            return duckdb.connect(unquote(parts.path[1:]), read_only=True)
        import psycopg

        kept = "&".join(part for part in parts.query.split("&") if part.partition("=")[0] not in _PASSED_ON)
        connection = psycopg.connect(urlunsplit(("postgresql", parts.netloc, parts.path, kept, "")))
        connection.read_only = True
    except ImportError as error:
        raise DataError(
            f"{scheme} needs the package {error.name!r}, which is not installed.",
            hint='pip install "steelyard[sql]"',
        ) from error
    except Exception as error:
        words = " ".join(str(error).split())[:300].rstrip(".")
        raise FileAccessError(f"cannot be opened: {words}.", who=scheme) from error
    return connection


def _tables(scheme: str, connection: Any) -> list[str]:
    cursor = connection.cursor()
    if scheme == "sqlite":
        cursor.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
    else:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY table_name"
        )
    return [row[0] for row in cursor.fetchall()]
