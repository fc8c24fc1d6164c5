"""Fast parsers for blocks of CSV lines: a native parser for numbers, and pyarrow for other columns.

A parser returns the rows of a block of whole lines, or None if it cannot parse the block. In that case the
slower reader in ``text_sources`` parses the block row by row and reports bad lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from steelyard import _native
from steelyard.tables.arrow_sources import arrow_batch, has_pyarrow
from steelyard.tables.columns import ColumnBatch

BlockParser = Callable[[bytes], ColumnBatch | None]
_MAX_FAILURES = 8  # number of failed blocks after which NumberParser is disabled


def block_parsers(names: Sequence[str], delimiter: str, kinds: Mapping[str, str]) -> list[BlockParser]:
    """Return the parsers to try for each block, fastest first.

    ``names`` are all columns of the file. ``kinds`` contains the columns to read with their kind: number,
    boolean or text.
    """
    parsers: list[BlockParser] = []
    if all(kind == "number" for kind in kinds.values()):
        parsers.append(NumberParser(names, delimiter, list(kinds)))
    if has_pyarrow():
        parsers.append(_ArrowParser(names, delimiter, kinds))
    return parsers


class NumberParser:
    """Native parser for lines in which every requested cell is a number or empty."""

    def __init__(self, names: Sequence[str], delimiter: str, wanted: Sequence[str]) -> None:
        index = {name: k for k, name in enumerate(wanted)}
        self._indices = np.array([index.get(name, -1) for name in names], dtype=np.int32)
        self._delimiter, self._wanted = delimiter, list(wanted)
        self._n_failures = 0

    def __call__(self, lines: bytes) -> ColumnBatch | None:
        if self._n_failures == _MAX_FAILURES:
            return None
        matrix = _native.read_number_lines(lines, self._delimiter, self._indices, len(self._wanted))
        if matrix is None:
            self._n_failures += 1
            return None
        return ColumnBatch.from_matrix(self._wanted, matrix)


class _ArrowParser:
    """Parser that calls pyarrow's CSV reader once per block.

    Comparing every cell with all words for missing values, such as "NA", takes a sixth of the reader's time.
    Without text columns, such a word fails to parse as a number. So at first only empty cells count as
    missing; after the first failure all words do.
    """

    def __init__(self, names: Sequence[str], delimiter: str, kinds: Mapping[str, str]) -> None:
        import pyarrow as pa
        from pyarrow import csv

        types = {"number": pa.float64(), "boolean": pa.bool_(), "text": pa.string()}
        options = {
            "column_types": {name: types[kind] for name, kind in kinds.items()},
            "include_columns": list(kinds),
            "strings_can_be_null": True,
        }
        self._kinds = kinds
        self._read = csv.ReadOptions(use_threads=False, column_names=list(names))
        self._parse = csv.ParseOptions(delimiter=delimiter)
        self._all_words = csv.ConvertOptions(**options)
        self._empty_cells = csv.ConvertOptions(**options, null_values=[""])
        self._needs_words = "text" in kinds.values()

    def __call__(self, lines: bytes) -> ColumnBatch | None:
        import pyarrow as pa
        from pyarrow import csv

        self._read.block_size = len(lines) + 1
        self._parse.newlines_in_values = b'"' in lines
        for convert in [self._all_words] if self._needs_words else [self._empty_cells, self._all_words]:
            try:
                table = csv.read_csv(pa.BufferReader(lines), self._read, self._parse, convert)
            except pa.ArrowInvalid:
                continue
            self._needs_words |= convert is self._all_words
            columns = {name: table.column(name).combine_chunks() for name in self._kinds}
            return arrow_batch(columns, self._kinds, table.num_rows)
        return None
