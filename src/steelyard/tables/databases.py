"""Tables that lie in a database, read as streams: DuckDB, SQLite and PostgreSQL by their own connections.

Only reading: nothing is created or changed, and where the engine can promise that (read-only files and
transactions) it is asked to. Names are quoted; values are never pasted into a query.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import numpy as np

from steelyard.exceptions import DataError, FileAccessError, SteelyardError
from steelyard.tables.arrow_sources import arrow_batch, has_pyarrow
from steelyard.tables.columns import ColumnBatch, Columns, Place, near
from steelyard.tables.connections import Connection, connected, told, words_of
from steelyard.tables.postgres_copy import Column

__all__ = [
    "FIRST_ROWS",
    "SCHEMES",
    "DatabaseSource",
    "check_single",
    "connect",
    "is_address",
    "name_parts",
    "number_of",
    "open_database",
    "quoted",
    "quoted_table",
    "tables_of",
    "texts_of",
    "unknown_table",
]

SCHEMES = ("duckdb", "sqlite", "postgresql", "postgres")
FIRST_ROWS = 256  # by which columns are judged, as many as settle the grid of a learner
_BATCH = 16_384
_PLAIN = {float, int, bool, type(None)}
_QUESTIONS = ("select", "with", "from", "values", "table")
# Texts, quoted names and comments: what stands in them is no statement.
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME_PART = re.compile(r'"(?:[^"]|"")*"|[^."]+(?:"[^."]*)*')
_PARTS = ("this", "db", "catalog")  # of the name of a table, from the end
_PASSED_ON = ("table", "query")  # parts of an address that are ours and not the engine's


def is_address(source: object) -> bool:
    """Whether a text names a table in a database, such as ``sqlite:///shop.db?table=payments``."""
    return isinstance(source, str) and source.partition("://")[0] in SCHEMES and "://" in source


def quoted(name: str) -> str:
    """A name as SQL writes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def name_parts(name: str) -> list[str]:
    """Catalog, schema and table of a name such as ``shop.payments``; dots in quotes separate nothing."""
    parts = _NAME_PART.findall(name)
    return [part[1:-1].replace('""', '"') if part[:1] == '"' else part for part in parts] or [name]


def quoted_table(name: str) -> str:
    """The name of a table as SQL writes it; dots separate schema and table."""
    return ".".join(map(quoted, name_parts(name)))


class DatabaseSource:
    """The rows of one query, column by column.

    Parameters
    ----------
    connection : object
        A connection of a driver, of ADBC or of SQLAlchemy.
    query : str
        A SELECT without a final semicolon.
    parameters : sequence
        Values for its placeholders.
    name : str
        What to call it in sentences.
    close : callable, optional
        Called when the rows have been read.
    table : str, optional
        The table that the query reads as a whole, or under a condition.
    where : str, optional
        That condition.

    Attributes
    ----------
    names : list of str
        The columns.
    declared : dict of str to str
        What each holds, as far as the driver or the first rows tell.
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
        self.connection, self.query, self.parameters = connected(connection), query, tuple(parameters)
        self._table, self._where = table, where
        self._given: Generator[ColumnBatch, None, None] | None = None
        self._close = close or (lambda: None)
        self.place = Place(name)
        self.n_rows: int | None = None
        try:
            check_single(query, name)
            with self.connection.reading():
                self._look()
        except Exception as error:
            self.close()
            raise told(error, name) from error
        # Moments are no features unless they are asked for.
        self.index_names = [column for column, kind in self.declared.items() if kind == "moment"]

    def _look(self) -> None:
        """Names and kinds of the columns."""
        columns, rows = self.connection.head(self.selected("*", FIRST_ROWS), self.parameters)
        self.names = [name for name, _ in columns]
        self.declared = {
            name: self.connection.kind(code, [row[place] for row in rows])
            for place, (name, code) in enumerate(columns)
        }

    def selected(self, chosen: str, limit: int | None = None) -> str:
        """The query that gives some columns of the rows."""
        cut = "" if limit is None else f" LIMIT {limit}"
        chosen = self.connection.escaped(chosen) if self.parameters else chosen
        return f"SELECT {chosen} FROM (\n{self.query}\n) AS steelyard_rows{cut}"

    def given(self, dialect: str) -> str:
        """The rows as a SELECT of another engine; what a caller has written is left as it is."""
        if self._table is None or dialect == self.connection.engine:
            return self.query
        from sqlglot import exp

        parts = [exp.to_identifier(part, quoted=True) for part in name_parts(self._table)]
        chosen = str(
            exp.select("*").from_(exp.Table(**dict(zip(_PARTS, reversed(parts), strict=False)))).sql(dialect)
        )
        return chosen if self._where is None else f"{chosen} WHERE {self._where}"

    def kinds(self, columns: Columns, wanted: list[str]) -> dict[str, str]:
        """Only what is to be categories must be said; the rest is judged by what comes."""
        return {name: "text" if name in columns.categorical else "declared" for name in wanted}

    def batches(
        self, wanted: list[str], kinds: dict[str, str], limit: int | None = None
    ) -> Generator[ColumnBatch, None, None]:
        """The rows as columns; an error comes after all rows before it."""
        self._given = self._batches(wanted, kinds, limit)
        return self._given

    def _batches(
        self, wanted: list[str], kinds: dict[str, str], limit: int | None
    ) -> Generator[ColumnBatch, None, None]:
        query = self.selected(", ".join(self._written(name, kinds[name]) for name in wanted), limit)
        try:
            with self.connection.reading():
                arrow = self.connection.arrow(query, self.parameters) if has_pyarrow() else None
                if arrow is not None:
                    with contextlib.closing(arrow):
                        yield from _arrow_batches(arrow, wanted, kinds)
                elif (columns := self.connection.columns(query, self.parameters)) is not None:
                    with contextlib.closing(columns):
                        yield from _array_batches(columns, wanted, kinds)
                else:
                    yield from self._plain_batches(query, wanted, kinds)
        except SteelyardError:
            raise
        except Exception as error:
            raise told(error, self.place.source) from error

    def _written(self, name: str, kind: str) -> str:
        """A column of the SELECT; a decimal becomes a double by the engine's own rounding, as in its sums."""
        column = quoted(name)
        exact = self.declared[name] == "decimal" and kind != "text" and self.connection.engine is not None
        return f"CAST({column} AS DOUBLE PRECISION) AS {column}" if exact else column

    def _plain_batches(self, query: str, wanted: list[str], kinds: dict[str, str]) -> Iterator[ColumnBatch]:
        settled: dict[str, str] = {name: kind for name, kind in kinds.items() if kind == "text"}
        done = 0
        for rows in self.connection.rows(query, self.parameters):
            values = list(zip(*rows, strict=True))
            columns = {
                name: self._column(name, column, settled, done)
                for name, column in zip(wanted, values, strict=True)
            }
            yield ColumnBatch(columns, len(rows))
            done += len(rows)

    def _column(self, name: str, values: Sequence[Any], settled: dict[str, str], done: int) -> Any:
        if name not in settled:
            known = next((value for value in values if value is not None), None)
            if known is None:
                return np.full(len(values), np.nan)
            settled[name] = "text" if isinstance(known, str) else "number"
        if settled[name] == "text":
            return texts_of(values)
        if set(map(type, values)) <= _PLAIN:
            return np.array(values, dtype=np.float64)  # None becomes nan
        numbers = np.empty(len(values))
        for row, value in enumerate(values):
            try:
                numbers[row] = number_of(value)
            except (TypeError, ValueError, OverflowError) as error:
                raise DataError(
                    f"expected a number; got {str(value)[:60]!r} ({type(value).__name__}).",
                    source=self.place.of_row(done + row, name),
                    hint="if this is a column of categories, name it so, or leave it out",
                ) from error
        return numbers

    def fraction_read(self) -> float | None:
        """Nobody knows."""
        return None

    def close(self) -> None:
        """End what is being read, and let go of the connection, if it is ours."""
        if self._given is not None:
            self._given.close()
        self.connection.close()
        self._close()


def _arrow_batches(batches: Iterable[Any], wanted: list[str], kinds: dict[str, str]) -> Iterator[ColumnBatch]:
    for batch in batches:
        for begin in range(0, batch.num_rows, _BATCH):
            part = batch.slice(begin, _BATCH)
            yield arrow_batch(dict(zip(wanted, part.columns, strict=True)), kinds, part.num_rows)


def _array_batches(
    batches: Iterable[list[Column]], wanted: list[str], kinds: dict[str, str]
) -> Iterator[ColumnBatch]:
    for batch in batches:
        columns = {}
        for name, (values, missing) in zip(wanted, batch, strict=True):
            if kinds[name] == "text" or values.dtype == object:
                known = zip(values.tolist(), missing.tolist(), strict=True)
                columns[name] = texts_of([None if gap else value for value, gap in known])
            else:
                columns[name] = values.astype(np.float64)
                columns[name][missing] = np.nan
        yield ColumnBatch(columns, len(batch[0][1]))


def check_single(query: str, source: str) -> None:
    """Refuse what is not one question: a second statement could write."""
    bare = _QUOTED.sub("", query)
    first = bare.lstrip("( \t\r\n").split(maxsplit=1)
    if ";" in bare or not first or first[0].lower() not in _QUESTIONS:
        raise DataError(
            "expected one SELECT, without a semicolon.",
            source=source,
            hint="nothing but questions is ever asked of a database",
        )


def texts_of(values: Sequence[Any]) -> Any:
    """Values of a column of categories, as objects with None."""
    texts = np.empty(len(values), dtype=object)
    texts[:] = [None if value is None else _text(value) for value in values]
    return texts


def number_of(value: Any) -> float:
    """A value of a driver as a number; TypeError where it is none."""
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
    """Open a table by its address.

    Parameters
    ----------
    address : str
        ``duckdb:///file.db?table=t``, ``sqlite:///file.db?table=t`` or ``postgresql://...?table=t``.
    query : str, optional
        A SELECT, instead of a table.
    connection : object, optional
        A connection to it that is open already, and stays so; by default one that can only read.
    """
    parts = urlsplit(address)
    options = parse_qs(parts.query)
    name = f"{parts.scheme} {Path(unquote(parts.path)).name}"
    close = None
    if connection is None:
        connection = connect(address)
        close = connection.close
    if query is None:
        query = options["query"][0] if "query" in options else None
    table = options["table"][0] if "table" in options and query is None else None
    if query is None:
        there = tables_of(connected(connection))
        if table is None or (table not in there and name_parts(table)[-1] not in there):
            if close is not None:
                close()
            hint = "add ?table=NAME to the address, or give a query"
            raise unknown_table(table, there, name, hint)
        table = quoted(table) if table in there else table
        query = f"SELECT * FROM {quoted_table(table)}"
    called = f"{name}, {options['table'][0] if table is not None else 'query'}"
    return DatabaseSource(connection, query, name=called, close=close, table=table)


def unknown_table(table: str | None, there: list[str], source: str, hint: str | None = None) -> DataError:
    """The refusal of a table that is not there, with those that are."""
    closest = None if table is None else near(table, there)
    said = "no table is named" if table is None else f"there is no table {table!r}"
    return DataError(
        f"{said}; there are {', '.join(map(repr, there[:20])) or 'none'}.",
        source=source,
        hint=f"did you mean {closest!r}?" if closest else hint,
    )


def connect(address: str, *, writes: bool = False) -> Any:
    """A connection by its address, which can only read unless it is to write.

    Parameters
    ----------
    address : str
        As for :func:`open_database`.
    writes : bool, default=False
        Whether it may write.
    """
    scheme = urlsplit(address).scheme
    try:
        return _driver_connection(address, writes=writes)
    except ImportError as error:
        raise DataError(
            f"{scheme} needs the package {error.name!r}, which is not installed.",
            hint='pip install "steelyard[sql]"',
        ) from error
    except Exception as error:
        raise FileAccessError(f"cannot be opened: {words_of(error)}.", source=scheme) from error


def _driver_connection(address: str, *, writes: bool) -> Any:
    parts = urlsplit(address)
    if parts.scheme == "sqlite":
        import sqlite3

        file = Path(unquote(parts.path[1:])).absolute()  # four slashes begin an absolute path
        mode = "rw" if writes else "ro"
        return sqlite3.connect(f"{file.as_uri()}?mode={mode}", uri=True, isolation_level=None)
    if parts.scheme == "duckdb":
        import duckdb

        file = Path(unquote(parts.path[1:]))
        if writes and not file.exists():  # one that writes would make it
            raise FileNotFoundError(f"there is no file {str(file)!r}")
        return duckdb.connect(str(file), read_only=not writes)
    import psycopg

    kept = "&".join(part for part in parts.query.split("&") if part.partition("=")[0] not in _PASSED_ON)
    connection = psycopg.connect(urlunsplit(("postgresql", parts.netloc, parts.path, kept, "")))
    connection.read_only = not writes
    return connection


def tables_of(connection: Connection) -> list[str]:
    """Names of the tables and views that a connection can see."""
    if connection.engine == "sqlite":
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
    else:
        query = (
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY table_name"
        )
    return [str(row[0]) for row in connection.run(query).fetchall()]
