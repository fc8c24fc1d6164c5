"""Adapters that give the connections of all database drivers the same interface."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError, DataTypeError

Batches = Generator[Any, None, None]
Column = tuple[Any, NDArray[np.bool_]]  # values, and a mask of the NULLs
_BATCH_ROWS = 16_384
# NumPy type of each PostgreSQL type OID that COPY can decode.
_NUMBERS = {16: "?", 20: ">i8", 21: ">i2", 23: ">i4", 700: ">f4", 701: ">f8"}
_TEXTS = (19, 25, 1042, 1043)
_HEADER_BYTES = 15  # length of signature and flags, which precede the length of the header extension
_END = b"\xff\xff"
_ENGINES = {"postgresql": "postgres", "postgres": "postgres", "sqlite": "sqlite", "duckdb": "duckdb"}


_DUCKDB_KINDS = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), "whole"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "whole"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "double"),
    **dict.fromkeys(("VARCHAR", "UUID"), "text"),
    "DECIMAL": "decimal",
    "BOOLEAN": "truth",
}
_POSTGRES_KINDS = {  # keys are type OIDs; the OIDs of built-in types never change
    **dict.fromkeys((20, 21, 23), "whole"),
    **dict.fromkeys((700, 701), "double"),
    **dict.fromkeys((18, 19, 25, 1042, 1043), "text"),
    **dict.fromkeys((1082, 1114, 1184), "moment"),
    1700: "decimal",
    16: "truth",
}


def _kind_of(value: Any) -> str:
    """Return the kind of a value returned by a driver; :meth:`Connection.kind` lists the kinds."""
    for kind, name in ((bool, "truth"), (int, "whole"), (float, "double"), (Decimal, "decimal")):
        if isinstance(value, kind):
            return name
    return "moment" if isinstance(value, date) else "text" if isinstance(value, str) else "unknown"


class Connection:
    """Adapter for a DB-API 2.0 connection."""

    def __init__(self, raw: Any, engine: str | None) -> None:
        self.raw = raw  # the connection of the driver
        self.engine = engine  # dialect of SQLGlot: "duckdb", "sqlite" or "postgres", or None for others
        self.borrowed: Any = None  # connection of a SQLAlchemy engine, to be returned by close()

    def run(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a query that returns few rows, and return the cursor."""
        cursor = self.raw.cursor()
        return (cursor.execute(query, tuple(parameters)) if parameters else cursor.execute(query)) or cursor

    def head(self, query: str, parameters: Sequence[Any] = ()) -> tuple[list[tuple[str, Any]], list[Any]]:
        """Return the column names and types of a query with a small result, and all its rows."""
        cursor = self.run(query, parameters)
        return [(str(column[0]), column[1]) for column in cursor.description], cursor.fetchall()

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a query of any size in batches."""
        cursor = self.run(query, parameters)
        while rows := cursor.fetchmany(_BATCH_ROWS):
            yield rows

    def kind(self, type_code: Any, values: Sequence[Any]) -> str:  # noqa: ARG002
        """Return the kind of a column: "whole", "double", "decimal", "truth", "moment", "text" or "unknown".

        The kind is derived from the declared type if the driver reports it, otherwise from ``values``.
        """
        kinds = {_kind_of(value) for value in values if value is not None}
        if kinds <= {"whole", "double", "decimal"} and len(kinds) > 1:
            return "double"
        return kinds.pop() if len(kinds) == 1 else "text" if "text" in kinds else "unknown"

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> Batches | None:  # noqa: ARG002
        """Return the rows of a query as Arrow batches, or None if the driver does not support Arrow."""
        return None

    def columns(self, query: str, parameters: Sequence[Any] = ()) -> Batches | None:  # noqa: ARG002
        """Return the rows of a query as one array per column, or None if the driver does not support this."""
        return None

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Run queries in a read-only transaction with one snapshot, where the engine supports it."""
        yield

    def escaped(self, text: str) -> str:
        """Return SQL text with escaped percent signs if the driver uses them for placeholders."""
        return text

    def close(self) -> None:
        """Return the connection to its SQLAlchemy engine, if any. Other connections stay open."""
        if self.borrowed is not None:
            self.borrowed.close()


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
    """Adapter for DuckDB, without cursors, because a cursor does not see temporary tables."""

    def run(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        return self.raw.execute(query, list(parameters)) if parameters else self.raw.execute(query)

    def head(self, query: str, parameters: Sequence[Any] = ()) -> tuple[list[tuple[str, Any]], list[Any]]:
        # Cursors of older DuckDB versions report NUMBER for integers, doubles and decimals.
        relation = self.raw.sql(query, params=list(parameters) or None)
        return list(zip(relation.columns, relation.types, strict=True)), relation.fetchall()

    def kind(self, type_code: Any, values: Sequence[Any]) -> str:  # noqa: ARG002
        name = str(type_code).upper().partition("(")[0]
        if name.startswith(("TIMESTAMP", "DATE")):
            return "moment"
        return "text" if name.startswith("ENUM") else _DUCKDB_KINDS.get(name, "unknown")

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> Batches | None:
        relation = self.raw.sql(query, params=list(parameters) or None)
        # The name of the method depends on the version of DuckDB.
        for name in ("to_arrow_reader", "fetch_arrow_reader", "fetch_record_batch"):
            if hasattr(relation, name):
                return _closing(getattr(relation, name)(_BATCH_ROWS))
        return None

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        # In an open transaction, two queries have the same transaction id.
        first, second = (self.raw.execute("SELECT txid_current()").fetchall() for _ in range(2))
        if first == second:
            yield
            return
        self.raw.execute("BEGIN TRANSACTION READ ONLY")
        try:
            yield
        finally:
            self.raw.execute("ROLLBACK")


class _Psycopg2(Connection):
    _options: ClassVar[Mapping[str, bool]] = {}

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        # A named cursor leaves its rows on the server, while an unnamed one would fetch all rows.
        with self.raw.cursor("steelyard_rows", **self._options) as cursor:
            cursor.execute(query, tuple(parameters) or None, **self._options)
            while rows := cursor.fetchmany(_BATCH_ROWS):
                yield rows

    def escaped(self, text: str) -> str:
        return text.replace("%", "%%")


class _Psycopg(_Psycopg2):
    # The binary format is used, because single-precision numbers sent as text become different doubles.
    _options: ClassVar[Mapping[str, bool]] = {"binary": True}

    def kind(self, type_code: Any, values: Sequence[Any]) -> str:
        return _POSTGRES_KINDS.get(type_code) or super().kind(type_code, values)

    def run(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        return self.raw.cursor(**self._options).execute(query, tuple(parameters) or None)

    def columns(self, query: str, parameters: Sequence[Any] = ()) -> Batches | None:
        if parameters:  # COPY does not support placeholders
            return None
        head = self.run(f"SELECT * FROM (\n{query}\n) AS steelyard_head LIMIT 0")  # noqa: S608  user's query
        types = [column.type_code for column in head.description]
        return self._copied(query, types) if can_copy(types) else None

    def _copied(self, query: str, types: Sequence[int]) -> Generator[list[Column], None, None]:
        # The line break ends a comment in the query.
        statement = f"COPY (\n{query}\n) TO STDOUT (FORMAT BINARY)"
        with self.raw.cursor() as cursor, cursor.copy(statement) as copy:
            yield from arrays_of(copy, types, self.raw.info.encoding, _BATCH_ROWS)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        from psycopg.pq import TransactionStatus

        fresh = self.raw.info.transaction_status == TransactionStatus.IDLE
        # Inside a user's transaction this creates a savepoint, so an error does not abort the transaction.
        with self.raw.transaction(force_rollback=True):
            level = "ISOLATION LEVEL REPEATABLE READ, " if fresh else ""
            self.raw.execute(f"SET TRANSACTION {level}READ ONLY")
            # JIT compilation of hundreds of sums takes longer than computing them.
            self.raw.execute("SET LOCAL jit = off")
            yield


class _Adbc(Connection):
    def run(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        with self.raw.cursor() as cursor:  # ADBC cursors must be closed
            cursor.execute(query, tuple(parameters) or None)
            rows = cursor.fetchall()
            return SimpleNamespace(description=cursor.description, fetchall=lambda: rows)

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> Batches | None:
        cursor = self.raw.cursor()
        cursor.execute(query, tuple(parameters) or None)
        return _closing(cursor.fetch_record_batch(), cursor)


_DRIVERS: dict[str, tuple[type[Connection], str]] = {
    "sqlite3": (_SQLite, "sqlite"),
    "duckdb": (_DuckDB, "duckdb"),
    "duckdb_engine": (_DuckDB, "duckdb"),  # the SQLAlchemy wrapper forwards all calls
    "psycopg": (_Psycopg, "postgres"),
    "psycopg2": (_Psycopg2, "postgres"),
}


def connected(connection: Any) -> Connection:
    """Return the adapter for an open DB-API, ADBC or SQLAlchemy connection, or for a SQLAlchemy engine."""
    if isinstance(connection, Connection):
        return connection
    modules = [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]
    module = modules[0].removeprefix("_")
    if module == "sqlalchemy":
        borrowed = connection.raw_connection() if hasattr(connection, "raw_connection") else None
        pooled = connection.connection if borrowed is None else borrowed
        adapter = connected(pooled.driver_connection)
        adapter.borrowed = borrowed
        return adapter
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


def _closing(reader: Any, cursor: Any = None) -> Generator[Any, None, None]:
    """Yield the batches of a reader and close it at the end; an open reader locks the database."""
    try:
        yield from reader
    finally:
        reader.close()
        if cursor is not None:
            cursor.close()


def database_error(error: Exception, source: str) -> DataError:
    """Return a DataError with the error message of the database."""
    if isinstance(error, DataError):
        return error
    return DataError(f"the database reported an error: {error_text(error)}.", source=source)


def error_text(error: Exception) -> str:
    """Return the message of an error on one line, without the final period."""
    return " ".join(str(error).split())[:300].rstrip(".")


# -- binary COPY of PostgreSQL --------------------------------------------------------------------------

# A message is a row: the number of columns in two bytes, then for each column the length of its value in four
# bytes (-1 for NULL) and the value, all in big-endian order. If all columns are numeric and no value is NULL,
# a batch of rows is read as one structured array. Otherwise columns are decoded one after the other, each for
# all rows of the batch.


def can_copy(types: Iterable[int]) -> bool:
    """Return whether columns of the given types can be decoded."""
    return all(kind in _NUMBERS or kind in _TEXTS for kind in types)


def arrays_of(
    messages: Iterable[Any], types: Sequence[int], encoding: str, batch: int
) -> Generator[list[Column], None, None]:
    """Yield the columns of each batch of rows of a COPY; ``types`` are the OIDs of the columns."""
    rows: list[bytes] = []
    for number, message in enumerate(messages):
        row = bytes(message)
        if not number:  # the first message begins with a header
            extension = int.from_bytes(row[_HEADER_BYTES : _HEADER_BYTES + 4], "big")
            row = row[_HEADER_BYTES + 4 + extension :]
        if row and not row.startswith(_END):
            rows.append(row)
        if len(rows) == batch:
            yield _columns(rows, types, encoding)
            rows = []
    if rows:
        yield _columns(rows, types, encoding)


def _columns(rows: list[bytes], types: Sequence[int], encoding: str) -> list[Column]:
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    data = b"".join(rows)
    if not any(kind in _TEXTS for kind in types):
        record = np.dtype([("", ">i2"), *(("", f) for kind in types for f in (">i4", _NUMBERS[kind]))])
        if (lengths == record.itemsize).all():
            records = np.frombuffer(data, dtype=record)
            present = np.zeros(len(rows), dtype=bool)
            return [(records[f"f{2 * k + 2}"], present) for k in range(len(types))]
    return _decode_columns(data, np.cumsum(lengths) - lengths + 2, types, encoding)


def _decode_columns(
    data: bytes, offsets: NDArray[np.int64], types: Sequence[int], encoding: str
) -> list[Column]:
    """Decode rows of different lengths; ``offsets`` contains the start of the first column of each row."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    found: list[Column] = []
    for kind in types:
        sizes = _numbers_at(buffer, offsets, ">i4")
        offsets = offsets + 4
        missing = sizes < 0
        ends = offsets + np.maximum(sizes, 0)
        values: Any
        if kind in _TEXTS:
            values = np.empty(len(offsets), dtype=object)
            spans = zip(offsets.tolist(), ends.tolist(), strict=True)
            values[:] = [data[begin:end].decode(encoding) for begin, end in spans]
        else:
            values = np.zeros(len(offsets), dtype=_NUMBERS[kind])
            values[~missing] = _numbers_at(buffer, offsets[~missing], _NUMBERS[kind])
        found.append((values, missing))
        offsets = ends
    return found


def _numbers_at(buffer: NDArray[np.uint8], offsets: NDArray[np.int64], kind: str) -> Any:
    """Return the numbers of NumPy type ``kind`` at the given offsets of a buffer."""
    picked = buffer[offsets[:, None] + np.arange(np.dtype(kind).itemsize)]
    return picked.view(kind).ravel()
