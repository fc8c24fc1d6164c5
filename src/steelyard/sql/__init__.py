"""Learning from tables that lie in a database, and models as SQL.

:func:`fit`, :func:`partial_fit` and :func:`forget` read the rows of a table or query through the database's
own connection into a :class:`~steelyard.tables.TableModel`; :func:`expression` writes a linear model as a
SELECT. :class:`StatisticsCube` keeps the statistics of every cell, so that any slice has its model.
"""

from steelyard.sql.cube import SliceStanding, StatisticsCube
from steelyard.sql.expression import expression
from steelyard.sql.learning import fit, forget, partial_fit, queries

__all__ = ["SliceStanding", "StatisticsCube", "expression", "fit", "forget", "partial_fit", "queries"]
