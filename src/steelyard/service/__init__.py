"""A durable learning service: models that learn while they answer, and lose nothing they acknowledged.

Layers, bottom up: ``spec`` says what a model is, ``rows`` turns bodies of requests into columns, ``engine``
is one model (no I/O, no clock: the same events give the same model), ``store`` and ``sqlite`` keep events,
rows and snapshots, ``desk`` ties an engine to its place in the store, ``scribe`` is the one writer (group
commit, then publish, then acknowledge), ``http`` speaks to the world, ``page`` shows it.
"""

from steelyard.service.engine import Engine
from steelyard.service.scribe import Scribe
from steelyard.service.spec import Spec
from steelyard.service.sqlite import SQLiteStore

__all__ = ["Engine", "SQLiteStore", "Scribe", "Spec"]
