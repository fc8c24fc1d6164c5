"""Chunks of rows, and the base class of streams that produce them."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._labels import Codes, LabelEncoder
from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.params import Integer, check_value


@dataclass(slots=True)
class Chunk:
    """Consecutive rows of a stream.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
        Features. Later chunks may have more features, because each new category adds one at the end.
    y : ndarray of shape (n_rows,)
        Labels.
    first_row : int
        Number of rows of the stream before this chunk.
    time : ndarray of shape (n_rows,) or None
        Time of each row, in seconds.
    fixed : ndarray or None
        The same rows with a fixed number of features, for learners that cannot add features; None if the
        number of features of ``X`` never changes.
    codes : ndarray of shape (n_rows,) or None
        Code of each label in ``table``; None if the stream does not encode labels.
    table : LabelEncoder or None
        Encoder with all labels of the stream so far.
    kept : mapping of str to ndarray
        Columns that are returned unchanged, such as an id.
    unlabelled : Chunk or None
        Rows of this part of the stream whose labels are missing; they can be predicted but not learned. The
        other attributes do not include these rows.
    columns : ndarray, ColumnBatch or None
        The same rows for learners that read tables: columns with categories, or an array with NaN for missing
        values; None if it would equal ``X``.
    """

    X: FloatArray
    y: NDArray[Any]
    first_row: int = 0
    time: FloatArray | None = None
    fixed: FloatArray | None = None
    codes: Codes | None = None
    table: LabelEncoder | None = None
    kept: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    unlabelled: Chunk | None = None
    columns: Any = None

    def __len__(self) -> int:
        return len(self.y)

    def rows_for(self, model: Any) -> Any:
        """Return the rows in the form that a model accepts: ``columns``, ``X`` or ``fixed``."""
        if self.columns is not None and hasattr(model, "reads_table") and model.reads_table(self.columns):
            return self.columns
        return self.X if self.fixed is None or hasattr(model, "grow") else self.fixed

    def take(self, begin: int, end: int) -> Chunk:
        """Return the rows from ``begin`` to ``end`` (exclusive), without copying.

        ``unlabelled`` belongs to the part that begins at row 0.
        """
        part = self.select(slice(begin, end))
        part.first_row += begin
        part.unlabelled = None if begin else self.unlabelled
        return part

    def split(self, is_labelled: NDArray[np.bool_]) -> Chunk:
        """Return a chunk of the labelled rows; its attribute ``unlabelled`` contains the other rows."""
        if is_labelled.all():
            return self
        labelled = self.select(is_labelled)
        labelled.unlabelled = self.select(~is_labelled)
        return labelled

    def select(self, rows: Any) -> Chunk:
        """Return some rows in the given order, selected by slice, mask or index, without ``unlabelled``."""
        columns = self.columns
        if columns is not None:
            columns = columns[rows] if isinstance(columns, np.ndarray) else columns.select(rows)
        return Chunk(
            self.X[rows],
            self.y[rows],
            self.first_row,
            None if self.time is None else self.time[rows],
            None if self.fixed is None else self.fixed[rows],
            None if self.codes is None else self.codes[rows],
            self.table,
            {name: values[rows] for name, values in self.kept.items()},
            columns=columns,
        )

    def codes_in(self, table: LabelEncoder) -> Codes:
        """Return the codes of the labels in ``table``, to which new labels are added."""
        if self.codes is None or self.table is None:
            return table.codes(self.y)
        return self.codes if self.table is table else table.numbers(self.table.labels)[self.codes]


class RowStream:
    """Base class of streams: an iterable of chunks that uses bounded memory.

    Attributes
    ----------
    name : str
        Name in reports.
    chunk : int
        Rows per chunk; the last chunk may have fewer.
    n_rows : int or None
        Total number of rows; None if it is not known.
    drifts : list of (int, int)
        Start and end row of each known concept drift.
    live : bool
        Whether rows arrive while the stream is read, as from a pipe.
    """

    name: str = "stream"
    chunk: int = 1000
    n_rows: int | None = None
    drifts: tuple[tuple[int, int], ...] = ()
    live: bool = False
    _n_read: int = 0  # number of rows yielded so far; subclasses with ``n_rows`` count them

    @abstractmethod
    def __iter__(self) -> Iterator[Chunk]: ...

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features so far, or None if they have no names."""
        return None

    def fraction_read(self) -> float | None:
        """Return the fraction of the stream that has been read, or None if it is not known."""
        return self._n_read / self.n_rows if self._n_read and self.n_rows else None

    def fingerprint(self) -> str | None:
        """Return the SHA-256 of the data as hexadecimal digits, or None if it is not available."""
        return None


class ArrayStream(RowStream):
    """Stream of rows in memory.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
        Features.
    y : array-like of shape (n_rows,)
        Labels. Rows whose label is None or NaN are predicted but not learned.
    chunk : int, default=1000
        Rows per chunk.
    time : array-like of shape (n_rows,), optional
        Time of each row, in seconds.
    name : str, default="arrays"
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.streams import ArrayStream
    >>> [len(chunk) for chunk in ArrayStream(np.zeros((25, 2)), np.zeros(25, dtype=int), chunk=10)]
    [10, 10, 5]
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        chunk: int = 1000,
        time: ArrayLike | None = None,
        name: str = "arrays",
    ) -> None:
        self.chunk = check_chunk(chunk, "ArrayStream")
        self.name = name
        try:
            self._X = np.ascontiguousarray(X, dtype=np.float64)
            self._y, self._is_labelled = _labels_of(np.asarray(y))
            self._time = None if time is None else np.asarray(time, dtype=np.float64)
        except (ValueError, TypeError) as error:
            raise DataError(
                f"X and time must be arrays of numbers: {error}.",
                source="ArrayStream",
                hint="open_stream() reads tables with text; convert a sparse matrix with toarray()",
            ) from error
        n_times = self._y.shape if self._time is None else self._time.shape
        if self._X.ndim != 2 or self._y.shape != self._X.shape[:1] or n_times != self._y.shape:
            raise DataError(
                f"expected a matrix X with one label and one time per row; got X of shape "
                f"{self._X.shape}, labels of shape {self._y.shape} and times of shape {n_times}.",
                source="ArrayStream",
            )
        self.n_rows = len(self._y)

    def fingerprint(self) -> str | None:
        """Return the SHA-256 of the rows, labels and times."""
        digest = hashlib.sha256(self._X.tobytes())
        for part in (self._y, self._time):
            digest.update(b"" if part is None else repr(part.tolist()).encode())
        return digest.hexdigest()

    def __iter__(self) -> Iterator[Chunk]:
        rows = Chunk(self._X, self._y, 0, self._time)
        for begin in range(0, len(rows), self.chunk):
            part = rows.take(begin, begin + self.chunk)
            yield (
                part
                if self._is_labelled is None
                else part.split(self._is_labelled[begin : begin + self.chunk])
            )


def _labels_of(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return the labels, and a mask of the known labels if only some are known.

    Missing labels are replaced by an arbitrary known label. NumPy stores integers together with NaN as
    floats; if all known labels are whole numbers, they become integers again.
    """
    if y.dtype.kind not in "fO" or y.ndim != 1:
        return y, None
    is_float = y.dtype.kind == "f"
    is_known = ~(np.isnan(y) if is_float else np.array([_is_missing(label) for label in y], dtype=bool))
    if is_known.all() or not is_known.any():
        return y, None
    filled = np.where(is_known, y, y[is_known.argmax()])
    if not is_float:
        return np.array(filled.tolist()), is_known
    return filled.astype(np.int64) if (filled == np.rint(filled)).all() else filled, is_known


def _is_missing(label: Any) -> bool:
    return label is None or (isinstance(label, float) and math.isnan(label)) or str(label) in {"<NA>", "NaT"}


def small_first(chunks: Iterable[Chunk], parts: int = 20) -> Iterator[Chunk]:
    """Split the first chunk into ``parts`` parts, so that models learn some rows before most are tested."""
    for number, chunk in enumerate(chunks):
        size = max(1, len(chunk) if number else -(-len(chunk) // parts))
        for begin in range(0, max(1, len(chunk)), size):
            yield chunk.take(begin, begin + size)


def check_chunk(chunk: int, source: str) -> int:
    """Return the number of rows per chunk; raise ParameterError if it is not valid."""
    check_value("chunk", chunk, Integer(1), source)
    return int(chunk)


def padded(X: FloatArray, width: int) -> FloatArray:
    """Return the rows padded with zeros to ``width`` features."""
    missing = width - X.shape[1]
    return np.pad(X, ((0, 0), (0, missing))) if missing > 0 else X
