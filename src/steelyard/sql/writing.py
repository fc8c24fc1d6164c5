"""Answers written back to the database that the rows came from: into a new table, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from steelyard.exceptions import SteelyardError
from steelyard.tables.connections import connected, database_error
from steelyard.tables.databases import DatabaseSource, connect, open_database, quoted_table

__all__ = ["write_answers"]

_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE PRECISION"}
_AT_ONCE = 200  # rows of one INSERT
Lines = list[dict[str, Any]]


def write_answers(
    address: str,
    query: str | None,
    into: str,
    answers: Callable[[DatabaseSource], Iterator[Lines]],
) -> int:
    """Make a new table of the answers to rows of the same database, whole or not at all.

    Parameters
    ----------
    address : str
        Where the rows are, as for :func:`~steelyard.tables.databases.open_database`.
    query : str, optional
        A SELECT, instead of a table.
    into : str
        The new table; one that is there already is refused.
    answers : callable
        Makes lines of a table of rows, some at a time.

    Returns
    -------
    int
        How many lines were written.
    """
    writing = connect(address, writes=True)
    # SQLite: a second connection would wait for the first, and the first for the second. DuckDB: one that
    # only reads cannot be opened beside one that writes.
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
    """All or nothing."""
    run = connected(connection).run
    if not hasattr(connection, "pgconn"):  # which begins by itself
        run("BEGIN")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _write(connection: Any, into: str, parts: Iterable[Lines]) -> int:
    done = 0
    cursor = connection.cursor() if not hasattr(connection, "register") else connection
    mark = "%s" if hasattr(connection, "pgconn") else "?"
    insert = ""
    for lines in parts:
        if not insert:
            names = list(lines[0])
            types = [_type_of(line_value) for line_value in lines[0].values()]
            columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in zip(names, types, strict=True))
            cursor.execute(f"CREATE TABLE {quoted_table(into)} ({columns})")
            insert = f"INSERT INTO {quoted_table(into)} VALUES ({', '.join([mark] * len(names))})"
        _insert(cursor, insert, lines)
        done += len(lines)
    return done


def _insert(cursor: Any, insert: str, lines: Lines) -> None:
    rows = [tuple(line.values()) for line in lines]
    if not hasattr(cursor, "register"):
        cursor.executemany(insert, rows)
        return
    # DuckDB takes rows one at a time; of many in one statement it makes a block.
    for begin in range(0, len(rows), _AT_ONCE):
        some = rows[begin : begin + _AT_ONCE]
        one = insert[insert.index("VALUES ") + len("VALUES ") :]
        text = insert.removesuffix(one) + ", ".join([one] * len(some))
        cursor.execute(text, [value for row in some for value in row])


def _type_of(value: Any) -> str:
    return _TYPES.get(type(value), "TEXT")


def _quoted(name: str) -> str:
    return quoted_table('"' + name.replace('"', '""') + '"')
