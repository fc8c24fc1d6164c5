"""Learning from tables that lie in a database, and models as SQL.

:func:`fit`, :func:`partial_fit` and :func:`forget` read the rows of a table or query through the database's
own connection into a :class:`~steelyard.tables.TableModel`; :func:`expression` writes a linear model as a
SELECT.
"""

from steelyard.sql.expression import expression
from steelyard.sql.learning import fit, forget, partial_fit

__all__ = ["expression", "fit", "forget", "partial_fit"]
