"""Readers of files and tables, and the encoding of their rows as numbers.

Layers, bottom up: ``columns`` holds batches of columns and their roles, ``files`` opens files,
``connections`` adapts database drivers, ``source`` is the base of the readers (``text_sources``,
``arrow_sources``, ``databases``), which yield batches, and ``frames`` converts tables in memory.
``column_checks`` checks columns; ``encoding`` and ``schema`` turn columns and labels into numbers.
:class:`TableStream` combines these layers into a stream of chunks. :class:`TableModel` is an estimator
together with the encoder of its columns.
"""

from steelyard.tables.encoding import TableEncoder
from steelyard.tables.table_model import TableModel
from steelyard.tables.table_stream import TableStream, open_stream

__all__ = ["TableEncoder", "TableModel", "TableStream", "open_stream"]
