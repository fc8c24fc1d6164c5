"""Changes of the schema since version 2; a store applies those that it lacks when it is opened."""

from __future__ import annotations

__all__ = ["FIRST_VERSION", "MIGRATIONS", "SCHEMA_VERSION"]

FIRST_VERSION = 2  # the schemas of the stores are of this version
# One statement list per version, in the SQL that SQLite and PostgreSQL share. Append; never change or
# reorder. Statements can be repeated (IF NOT EXISTS).
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    # 3: deleting old responses must not read all of them
    ("CREATE INDEX IF NOT EXISTS answers_by_time ON answers (model, at)",),
    # 4: addresses of learners by process number of their database session
    ("CREATE TABLE IF NOT EXISTS learners (pid INTEGER PRIMARY KEY, url TEXT NOT NULL)",),
)
SCHEMA_VERSION = FIRST_VERSION + len(MIGRATIONS)
