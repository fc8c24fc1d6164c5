"""Writing of predictions to a new table in the database that contains the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from steelyard.exceptions import SteelyardError
from steelyard.tables.connections import connected, database_error
from steelyard.tables.databases import DatabaseSource, connect, open_database, quoted, quoted_table

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

    ``answers`` takes the rows at ``address`` (or of ``query``) and yields lists of prediction lines. An
    existing table ``into`` is an error. Returns the number of lines written.
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
