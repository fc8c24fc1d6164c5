"""Files and tables, from bytes on a disk to chunks of numbers.

Layers, bottom up: ``files`` opens them, ``text_sources`` and ``arrow_sources`` cut them into tables,
``columns`` and ``labels`` say what a column is, ``encoding`` turns columns into numbers,
:class:`TableStream` joins all that into a stream of chunks, and :class:`TableModel` is a learner together
with the columns it knows.
"""

from steelyard.tables.encoding import TableEncoder
from steelyard.tables.table_model import TableModel
from steelyard.tables.table_stream import TableStream, open_stream

__all__ = ["TableEncoder", "TableModel", "TableStream", "open_stream"]
