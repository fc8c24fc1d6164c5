"""Service with models that learn and predict at the same time. Acknowledged requests are never lost.

Layers, bottom up: ``spec``, ``rows`` and ``stored_rows`` (conversion of rows), ``engine`` (one model without
I/O), ``stores``, ``session`` (a model and its part of the store), ``commands``, ``writer`` (the thread that
changes models), ``http``.
"""

from typing import Any

from steelyard._deprecation import former_names
from steelyard.exceptions import ParameterError
from steelyard.service.engine import Engine
from steelyard.service.spec import Spec
from steelyard.service.stores.sqlite import SQLiteStore
from steelyard.service.writer import Writer

__all__ = ["Engine", "SQLiteStore", "Spec", "Writer", "open_store"]


def open_store(where: str) -> Any:
    """Open the store at a path or at a URL like ``postgresql://learner@db.example/payments``."""
    if not where.startswith(("postgresql://", "postgres://")):
        if "://" in where:  # a URL may contain a password, so the message does not repeat it
            raise ParameterError(
                "the store must be a file path or a postgresql:// URL; got a "
                f"{where.partition('://')[0]}:// URL."
            )
        return SQLiteStore(where)
    try:
        from steelyard.service.stores.postgres import PostgresStore
    except ImportError as error:
        raise ParameterError(
            f"a store in PostgreSQL needs the package {error.name!r}, which is not installed.",
            hint='pip install "steelyard[service,postgresql]"',
        ) from error
    return PostgresStore(where)


__getattr__ = former_names(__name__, Scribe="Writer")
