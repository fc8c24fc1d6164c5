"""Test tables with the same rows in SQLite, DuckDB and PostgreSQL."""

from __future__ import annotations

import contextlib
import sqlite3

import duckdb
import numpy as np
import pandas as pd

ENGINES = ("sqlite", "duckdb", "postgres")
_TYPES = {"f": "DOUBLE PRECISION", "i": "BIGINT", "b": "BOOLEAN", "M": "TIMESTAMP"}


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


@contextlib.contextmanager
def opened(engine, postgres=None):
    """Yield a connection to an empty database of an engine."""
    if engine == "postgres":
        import psycopg

        connection = psycopg.connect(postgres, autocommit=True)
    else:
        connection = sqlite3.connect(":memory:") if engine == "sqlite" else duckdb.connect()
    try:
        yield connection
    finally:
        connection.close()


def fill(connection, table, frame, types=None):
    """Create a table from a data frame. ``types`` overrides the types of some columns."""
    types = types or {}
    kinds = {name: types.get(name) or _TYPES.get(frame[name].dtype.kind, "TEXT") for name in frame}
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())
    connection.cursor().execute(f"CREATE TABLE {quoted(table)} ({columns})")
    plain = frame.astype(object).where(pd.notna(frame), None)
    rows = [
        tuple(value.to_pydatetime() if isinstance(value, pd.Timestamp) else value for value in row)
        for row in plain.itertuples(index=False, name=None)
    ]
    if hasattr(connection, "pgconn"):
        with connection.cursor() as cursor, cursor.copy(f"COPY {quoted(table)} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        return connection
    if isinstance(connection, sqlite3.Connection):
        placeholders = ", ".join("?" * len(kinds))
        connection.executemany(f"INSERT INTO {quoted(table)} VALUES ({placeholders})", rows)
        connection.commit()
        return connection
    given = pd.DataFrame(rows, columns=list(frame))  # noqa: F841  DuckDB reads the variable by name
    chosen = ", ".join(f"CAST({quoted(name)} AS {kind})" for name, kind in kinds.items())
    connection.execute(f"INSERT INTO {quoted(table)} SELECT {chosen} FROM given")
    return connection


def payments(n=700, seed=0, n_classes=2):
    """Return rows with columns of all supported types."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, size=n)
    return pd.DataFrame(
        {
            "amount": rng.lognormal(3.0, 1.5, size=n) + 3.0 * y,
            "n items": rng.integers(-4, 9, size=n),
            'o"dd %s': rng.integers(0, 400, size=n) / 8.0,
            "known": rng.random(n) < 0.3,
            "country": rng.choice(["NZ", "AU", "o'dd", "a%b"], size=n, p=[0.6, 0.3, 0.09, 0.01]),
            "card": rng.choice(["gold", "blue"], size=n),
            "kind": np.array(["ok", "fraud", "odd"])[y],
        }
    )
