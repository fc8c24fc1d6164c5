"""Connections to databases of whatever driver: what engine it is, and rows of a SELECT.

What one driver does in its own way stands here; whoever reads a table sees a :class:`Connection`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from steelyard.exceptions import DataError, DataTypeError
from steelyard.tables.postgres_copy import Column, arrays_of, can_copy

__all__ = ["Connection", "connected", "told", "words_of"]

_BATCH = 16_384
_ENGINES = {"postgresql": "postgres", "postgres": "postgres", "sqlite": "sqlite", "duckdb": "duckdb"}


_DUCKDB_KINDS = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), "whole"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "whole"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "double"),
    **dict.fromkeys(("VARCHAR", "UUID"), "text"),
    "DECIMAL": "decimal",
    "BOOLEAN": "truth",
}
_POSTGRES_KINDS = {  # by the numbers of types, which never change
    **dict.fromkeys((20, 21, 23), "whole"),
    **dict.fromkeys((700, 701), "double"),
    **dict.fromkeys((18, 19, 25, 1042, 1043), "text"),
    **dict.fromkeys((1082, 1114, 1184), "moment"),
    1700: "decimal",
    16: "truth",
}


def _kind_of(value: Any) -> str:
    """What one value of a driver is."""
    for kind, name in ((bool, "truth"), (int, "whole"), (float, "double"), (Decimal, "decimal")):
        if isinstance(value, kind):
            return name
    return "moment" if isinstance(value, date) else "text" if isinstance(value, str) else "unknown"


class Connection:
    """A connection as DB-API 2.0 describes it.

    Parameters
    ----------
    raw : object
        The driver's own connection.
    engine : str or None
        "duckdb", "sqlite" or "postgres", which SQLGlot calls so; None where nobody knows.
    """

    def __init__(self, raw: Any, engine: str | None) -> None:
        self.raw, self.engine = raw, engine

    def run(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """A cursor with the rows of a query that gives few."""
        cursor = self.raw.cursor()
        return (cursor.execute(query, tuple(parameters)) if parameters else cursor.execute(query)) or cursor

    def head(self, query: str, parameters: Sequence[Any] = ()) -> tuple[list[tuple[str, Any]], list[Any]]:
        """Names and types of the columns of a query that gives few rows, and these rows."""
        cursor = self.run(query, parameters)
        return [(str(column[0]), column[1]) for column in cursor.description], cursor.fetchall()

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a query that may give any number, some at a time."""
        cursor = self.run(query, parameters)
        while rows := cursor.fetchmany(_BATCH):
            yield rows

    def kind(self, type_code: Any, values: Sequence[Any]) -> str:  # noqa: ARG002
        """What a column holds: "whole", "double", "decimal", "truth", "moment", "text" or "unknown".

        By its declared type where the driver tells it, and else by some of its values.
        """
        kinds = {_kind_of(value) for value in values if value is not None}
        if kinds <= {"whole", "double", "decimal"} and len(kinds) > 1:
            return "double"
        return kinds.pop() if len(kinds) == 1 else "text" if "text" in kinds else "unknown"

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> Generator[Any, None, None] | None:  # noqa: ARG002
        """The same as batches of Arrow; None where the driver knows no Arrow."""
        return None

    def columns(
        self,
        query: str,  # noqa: ARG002
        parameters: Sequence[Any] = (),  # noqa: ARG002
    ) -> Generator[list[Column], None, None] | None:
        """The same as arrays, column by column; None where the driver cannot, or not for this query."""
        return None

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """A time in which all queries see the same rows, where the engine can promise it, and none writes."""
        yield

    def escaped(self, text: str) -> str:
        """Text of ours that stands in a query with placeholders."""
        return text

    def close(self) -> None:
        """Let go of what was opened here; the connection itself belongs to whoever gave it."""


class _SQLite(Connection):
    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        if self.raw.in_transaction:
            yield
            return
        self.raw.execute("BEGIN")
        try:
            yield
        finally:
            self.raw.rollback()


class _DuckDB(Connection):
    """The connection itself is asked, and no cursor of its own: that one would see no temporary table."""

    def run(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        return self.raw.execute(query, list(parameters)) if parameters else self.raw.execute(query)

    def head(self, query: str, parameters: Sequence[Any] = ()) -> tuple[list[tuple[str, Any]], list[Any]]:
        # A cursor of an older DuckDB says NUMBER of whole numbers, doubles and decimals alike.
        relation = self.raw.sql(query, params=list(parameters) or None)
        return list(zip(relation.columns, relation.types, strict=True)), relation.fetchall()

    def kind(self, type_code: Any, values: Sequence[Any]) -> str:  # noqa: ARG002
        name = str(type_code).upper().partition("(")[0]
        if name.startswith(("TIMESTAMP", "DATE")):
            return "moment"
        return "text" if name.startswith("ENUM") else _DUCKDB_KINDS.get(name, "unknown")

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> Generator[Any, None, None] | None:
        relation = self.raw.sql(query, params=list(parameters) or None)
        for name in ("to_arrow_reader", "fetch_arrow_reader", "fetch_record_batch"):  # as versions call it
            if hasattr(relation, name):
                return _closing(getattr(relation, name)(_BATCH))
        return None

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        if self._is_inside():
            yield
            return
        self.raw.execute("BEGIN TRANSACTION READ ONLY")
        try:
            yield
        finally:
            self.raw.execute("ROLLBACK")

    def _is_inside(self) -> bool:
        """Whether a transaction is under way: each of its queries has the same number."""
        first, second = (self.raw.execute("SELECT txid_current()").fetchall() for _ in range(2))
        return bool(first == second)


class _Psycopg(Connection):
    def kind(self, type_code: Any, values: Sequence[Any]) -> str:
        return _POSTGRES_KINDS.get(type_code) or super().kind(type_code, values)

    def run(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        # In binary form numbers of single precision come as they are, and not as their shortest text.
        return self.raw.cursor(binary=True).execute(query, tuple(parameters) or None)

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        # A cursor with a name keeps its rows in the database; one without would fetch them all at once.
        with self.raw.cursor("steelyard_rows", binary=True) as cursor:
            cursor.execute(query, tuple(parameters) or None, binary=True)
            while rows := cursor.fetchmany(_BATCH):
                yield rows

    def columns(
        self, query: str, parameters: Sequence[Any] = ()
    ) -> Generator[list[Column], None, None] | None:
        if parameters:  # COPY knows no placeholders, and no value is pasted into text
            return None
        head = self.run(f"SELECT * FROM (\n{query}\n) AS steelyard_head LIMIT 0")  # noqa: S608  as given
        types = [column.type_code for column in head.description]
        return self._copied(query, types) if can_copy(types) else None

    def _copied(self, query: str, types: Sequence[int]) -> Generator[list[Column], None, None]:
        statement = f"COPY (\n{query}\n) TO STDOUT (FORMAT BINARY)"  # a query may end in a comment
        with self.raw.cursor() as cursor, cursor.copy(statement) as copy:
            yield from arrays_of(copy, types, self.raw.info.encoding, _BATCH)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        from psycopg.pq import TransactionStatus

        fresh = self.raw.info.transaction_status == TransactionStatus.IDLE
        # Within a transaction of the caller's this is a savepoint, so that an error of ours spoils nothing.
        with self.raw.transaction(force_rollback=True):
            level = "ISOLATION LEVEL REPEATABLE READ, " if fresh else ""
            self.raw.execute(f"SET TRANSACTION {level}READ ONLY")
            self.raw.execute("SET LOCAL jit = off")  # to compile hundreds of sums takes longer than they do
            yield

    def escaped(self, text: str) -> str:
        return text.replace("%", "%%")


class _Psycopg2(Connection):
    def rows(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        with self.raw.cursor("steelyard_rows") as cursor:
            cursor.execute(query, tuple(parameters) or None)
            while rows := cursor.fetchmany(_BATCH):
                yield rows

    def escaped(self, text: str) -> str:
        return text.replace("%", "%%")


@dataclass(frozen=True)
class _Fetched:
    """Rows that are here already, as a cursor has them."""

    description: Any
    found: list[tuple[Any, ...]]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.found


class _Adbc(Connection):
    def run(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        with self.raw.cursor() as cursor:  # which must be closed
            cursor.execute(query, tuple(parameters) or None)
            return _Fetched(cursor.description, cursor.fetchall())

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> Generator[Any, None, None] | None:
        cursor = self.raw.cursor()
        cursor.execute(query, tuple(parameters) or None)
        return _closing(cursor.fetch_record_batch(), cursor)


class _SQLAlchemy(Connection):
    """An engine, or a connection of one: the driver's own connection does the work."""

    def __init__(self, raw: Any, inner: Connection, borrowed: Any = None) -> None:
        super().__init__(raw, inner.engine)
        self._inner, self._borrowed = inner, borrowed

    def run(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        return self._inner.run(query, parameters)

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        return self._inner.rows(query, parameters)

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> Generator[Any, None, None] | None:
        return self._inner.arrow(query, parameters)

    def columns(
        self, query: str, parameters: Sequence[Any] = ()
    ) -> Generator[list[Column], None, None] | None:
        return self._inner.columns(query, parameters)

    def reading(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return self._inner.reading()

    def escaped(self, text: str) -> str:
        return self._inner.escaped(text)

    def close(self) -> None:
        if self._borrowed is not None:
            self._borrowed.close()


_DRIVERS: dict[str, tuple[type[Connection], str]] = {
    "sqlite3": (_SQLite, "sqlite"),
    "duckdb": (_DuckDB, "duckdb"),
    "duckdb_engine": (_DuckDB, "duckdb"),  # what SQLAlchemy wraps around it passes everything on
    "psycopg": (_Psycopg, "postgres"),
    "psycopg2": (_Psycopg2, "postgres"),
}


def connected(connection: Any) -> Connection:
    """The connection behind whatever a caller has: of a driver, of ADBC or of SQLAlchemy.

    Parameters
    ----------
    connection : object
        An open connection, or an engine of SQLAlchemy, which lends one until :meth:`Connection.close`.
    """
    if isinstance(connection, Connection):
        return connection
    modules = [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]
    module = modules[0].removeprefix("_")
    if module == "sqlalchemy":
        return _of_sqlalchemy(connection)
    if not hasattr(connection, "cursor"):
        raise DataTypeError(
            f"expected an open connection to a database; got {type(connection).__name__}.",
            source="steelyard.sql",
            hint="such as sqlite3.connect(...), duckdb.connect(...), psycopg.connect(...), or an address",
        )
    if any(name.startswith("adbc_driver") for name in modules):
        vendor = str(connection.adbc_get_info().get("vendor_name", "")).lower()
        return _Adbc(connection, _ENGINES.get(vendor))
    kind, engine = _DRIVERS.get(module, (Connection, None))
    return kind(connection, engine)


def _of_sqlalchemy(connection: Any) -> Connection:
    lent = connection.raw_connection() if hasattr(connection, "raw_connection") else None
    fairy = lent if lent is not None else connection.connection
    return _SQLAlchemy(connection, connected(fairy.driver_connection), lent)


def _closing(reader: Any, cursor: Any = None) -> Generator[Any, None, None]:
    """The batches of a reader, which is let go of when nobody wants more: it holds the database."""
    try:
        yield from reader
    finally:
        reader.close()
        if cursor is not None:
            cursor.close()


def told(error: Exception, source: str) -> DataError:
    """The engine's own words, in a sentence."""
    if isinstance(error, DataError):
        return error
    return DataError(f"the database refused: {words_of(error)}.", source=source)


def words_of(error: Exception) -> str:
    """What a driver's error says, in one line without the last point."""
    return " ".join(str(error).split())[:300].rstrip(".")
