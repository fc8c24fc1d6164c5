"""Readers of files and tables, and the encoding of their rows as numbers.

Layers, bottom up: ``files`` opens files, ``text_sources`` and ``arrow_sources`` read batches of columns,
``columns`` defines the roles of columns, ``labels`` reads the labels, and ``encoding`` turns columns into
numbers. :class:`TableStream` combines these layers into a stream of chunks. :class:`TableModel` is an
estimator together with the encoder of its columns.
"""

from steelyard.tables.encoding import TableEncoder
from steelyard.tables.table_model import TableModel
from steelyard.tables.table_stream import TableStream, open_stream

__all__ = ["TableEncoder", "TableModel", "TableStream", "open_stream"]
