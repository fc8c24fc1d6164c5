"""Learning from tables that lie in a database, and models as SQL.

:func:`fit`, :func:`partial_fit` and :func:`forget` learn the rows of a table or query where they lie, by sums
that the database takes or by rows that it gives; :func:`queries` shows the sums as SELECTs, and
:func:`expression` writes a linear model as one. :class:`StatisticsCube` keeps statistics of every cell, so
that any slice has its model.
"""

from steelyard.sql.cube import StatisticsCube
from steelyard.sql.expression import expression
from steelyard.sql.learning import fit, forget, partial_fit, queries, source
from steelyard.sql.standings import SliceStanding

__all__ = [
    "SliceStanding",
    "StatisticsCube",
    "expression",
    "fit",
    "forget",
    "partial_fit",
    "queries",
    "source",
]
