"""Learning from database tables, and models as SQL.

:func:`fit`, :func:`partial_fit` and :func:`forget` learn the rows of a table or query. Either the database
computes the sums (push-down) or its rows are streamed. :func:`queries` returns the SELECTs of the sums, and
:func:`expression` converts a linear model to a SELECT. :class:`StatisticsCube` stores statistics for each
combination of column values, from which the model of any slice is computed.
"""

from steelyard._deprecation import former_names
from steelyard.sql.cube import StatisticsCube
from steelyard.sql.learning import fit, forget, partial_fit, queries, source
from steelyard.sql.scoring import expression
from steelyard.sql.slices import SliceSummary

__all__ = [
    "SliceSummary",
    "StatisticsCube",
    "expression",
    "fit",
    "forget",
    "partial_fit",
    "queries",
    "source",
]

__getattr__ = former_names(__name__, SliceStanding="SliceSummary")
