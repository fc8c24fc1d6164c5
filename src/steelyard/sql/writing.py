"""Writing of predictions to a new table in the database that contains the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from steelyard.exceptions import SteelyardError
from steelyard.tables.connections import connected, database_error
from steelyard.tables.databases import DatabaseSource, connect, open_database, quoted_table

_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE PRECISION"}
_INSERT_ROWS = 200  # number of rows per INSERT statement
Lines = list[dict[str, Any]]


def write_answers(
    address: str,
    query: str | None,
    into: str,
    answers: Callable[[DatabaseSource], Iterator[Lines]],
) -> int:
    """Write predictions for rows of a database to a new table of the same database in one transaction.

    Parameters
    ----------
    address : str
        Address of the rows, as for :func:`~steelyard.tables.databases.open_database`.
    query : str, optional
        A SELECT, instead of a table.
    into : str
        Name of the new table. An existing table is an error.
    answers : callable
        Takes a table of rows and yields lists of prediction lines.

    Returns
    -------
    int
        Number of lines written.
    """
    writing = connect(address, writes=True)
    # SQLite would deadlock with two connections.
    # DuckDB cannot open a read-only connection while another connection writes.
    scheme = urlsplit(address).scheme
    reading = writing if scheme == "sqlite" else writing.cursor() if scheme == "duckdb" else connect(address)
    try:
        with _transaction(writing), closing(open_database(address, query, reading)) as rows:
            return _write(writing, into, answers(rows))
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
    run = connected(connection).run
    if not hasattr(connection, "pgconn"):  # psycopg begins transactions implicitly
        run("BEGIN")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _write(connection: Any, into: str, parts: Iterable[Lines]) -> int:
    n_written = 0
    cursor = connection.cursor() if not hasattr(connection, "register") else connection
    placeholder = "%s" if hasattr(connection, "pgconn") else "?"
    insert = ""
    for lines in parts:
        if not insert:
            names = list(lines[0])
            types = [_type_of(line_value) for line_value in lines[0].values()]
            columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in zip(names, types, strict=True))
            cursor.execute(f"CREATE TABLE {quoted_table(into)} ({columns})")
            insert = f"INSERT INTO {quoted_table(into)} VALUES ({', '.join([placeholder] * len(names))})"
        _insert(cursor, insert, lines)
        n_written += len(lines)
    return n_written


def _insert(cursor: Any, insert: str, lines: Lines) -> None:
    rows = [tuple(line.values()) for line in lines]
    if not hasattr(cursor, "register"):
        cursor.executemany(insert, rows)
        return
    # DuckDB's executemany() inserts single rows and is slow; one statement with many rows is fast.
    for begin in range(0, len(rows), _INSERT_ROWS):
        some = rows[begin : begin + _INSERT_ROWS]
        one = insert[insert.index("VALUES ") + len("VALUES ") :]
        text = insert.removesuffix(one) + ", ".join([one] * len(some))
        cursor.execute(text, [value for row in some for value in row])


def _type_of(value: Any) -> str:
    return _TYPES.get(type(value), "TEXT")


def _quoted(name: str) -> str:
    return quoted_table('"' + name.replace('"', '""') + '"')
