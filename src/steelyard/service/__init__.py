"""A durable learning service: models that learn while they answer, and lose nothing they acknowledged.

Layers, bottom up: ``spec`` says what a model is, ``rows`` turns bodies of requests into columns, ``engine``
is one model (no I/O, no clock: the same events give the same model), ``store`` says what must be kept
(``sql_store`` in SQL, ``sqlite`` and ``postgres`` for their databases), ``desk`` ties an engine to its place
in the store, ``scribe`` is the one writer (group commit, then publish, then acknowledge) or, by ``follower``,
stays level with the process that is, ``http`` speaks to the world, ``page`` shows it.
"""

from typing import Any

from steelyard.exceptions import ParameterError
from steelyard.service.engine import Engine
from steelyard.service.spec import Spec
from steelyard.service.sqlite import SQLiteStore
from steelyard.service.writer import Writer

__all__ = ["Engine", "SQLiteStore", "Spec", "Writer", "open_store"]


def open_store(where: str) -> Any:
    """The store at a path, or at an address like ``postgresql://learner@db.example/payments``."""
    if not where.startswith(("postgresql://", "postgres://")):
        return SQLiteStore(where)
    try:
        from steelyard.service.postgres import PostgresStore
    except ImportError as error:
        raise ParameterError(
            f"a store in PostgreSQL needs the package {error.name!r}, which is not installed.",
            hint='pip install "steelyard[service,postgresql]"',
        ) from error
    return PostgresStore(where)
