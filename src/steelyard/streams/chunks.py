"""What flows: chunks of rows, and the streams that give them."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._labels import PLAIN_LABEL_KINDS, EncodedLabels
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError
from steelyard.params import Integer
from steelyard.streams.labels import Codes, LabelTable

__all__ = ["ArrayStream", "Chunk", "RowStream", "check_chunk", "padded", "small_first"]


@dataclass(slots=True)
class Chunk:
    """Some consecutive rows of a stream.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
        Features. Later chunks may be wider: a new category is a new feature at the end.
    y : ndarray of shape (n_rows,)
        Labels.
    first_row : int
        How many rows of the stream came before.
    time : ndarray of shape (n_rows,) or None
        When each row happened, in seconds.
    fixed : ndarray or None
        The same rows in a width that never changes, for learners that cannot grow; None where ``X``
        itself never changes its width.
    codes : ndarray of shape (n_rows,) or None
        The number of each label in ``table``, where the stream has numbered them.
    table : LabelTable or None
        The labels of the stream so far.
    kept : mapping of str to ndarray
        Columns that are passed through as they came, such as an id.
    """

    X: FloatArray
    y: NDArray[Any]
    first_row: int = 0
    time: FloatArray | None = None
    fixed: FloatArray | None = None
    codes: Codes | None = None
    table: LabelTable | None = None
    kept: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    _told: NDArray[Any] | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.y)

    def rows_for(self, model: Any) -> FloatArray:
        """The form of the rows that a model can take: growing, or of one width."""
        return self.X if self.fixed is None or hasattr(model, "grow") else self.fixed

    def take(self, begin: int, end: int) -> Chunk:
        """Some of these rows; nothing is copied."""
        return Chunk(
            self.X[begin:end],
            self.y[begin:end],
            self.first_row + begin,
            None if self.time is None else self.time[begin:end],
            None if self.fixed is None else self.fixed[begin:end],
            None if self.codes is None else self.codes[begin:end],
            self.table,
            {name: values[begin:end] for name, values in self.kept.items()},
        )

    def told_labels(self) -> NDArray[Any]:
        """The labels, for learners of ours, which do not number them again."""
        if self.codes is None or self.table is None or self.y.dtype.kind not in PLAIN_LABEL_KINDS:
            return self.y
        if self._told is None:
            self._told = EncodedLabels.of(self.y, self.codes, self.table.labels)
        return self._told

    def numbered(self, table: LabelTable) -> Codes:
        """The numbers of the labels in ``table``, which takes in new ones."""
        if self.codes is None or self.table is None:
            return table.codes(self.y)
        return self.codes if self.table is table else table.numbers(self.table.labels)[self.codes]


class RowStream:
    """Something that gives chunks, one after the other, in bounded memory.

    Attributes
    ----------
    name : str
        What to call it in a report.
    chunk : int
        Rows in a chunk; the last one may have fewer.
    n_rows : int or None
        How many rows there will be, where that is known.
    drifts : list of (int, int)
        Rows between which the concept changes, where that is known.
    """

    name: str = "stream"
    chunk: int = 1000
    n_rows: int | None = None
    drifts: tuple[tuple[int, int], ...] = ()

    @abstractmethod
    def __iter__(self) -> Iterator[Chunk]: ...

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features so far; None where they have none."""
        return None

    def fraction_read(self) -> float | None:
        """How much of the stream has come, from 0 to 1; None where nobody knows."""
        return None

    def fingerprint(self) -> str | None:
        """SHA-256 of the data, in hexadecimal digits; None where there is nothing to take it of."""
        return None


class ArrayStream(RowStream):
    """Rows that are in memory already, chunk by chunk.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
        Features.
    y : array-like of shape (n_rows,)
        Labels.
    chunk : int, default=1000
        Rows in a chunk.
    time : array-like of shape (n_rows,), optional
        When each row happened, in seconds.
    name : str, default="arrays"
        What to call it in a report.

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
            self._y = np.asarray(y)
            self._time = None if time is None else np.asarray(time, dtype=np.float64)
        except (ValueError, TypeError) as error:
            raise DataError(
                f"X and time must be arrays of numbers: {error}.",
                source="ArrayStream",
                hint="open_stream() takes tables with text; a sparse matrix needs toarray() first",
            ) from error
        n_times = self._y.shape if self._time is None else self._time.shape
        if self._X.ndim != 2 or self._y.shape != self._X.shape[:1] or n_times != self._y.shape:
            raise DataError(
                f"expected a table X and as many labels and times; got X of shape "
                f"{self._X.shape}, labels of shape {self._y.shape} and times of shape {n_times}.",
                source="ArrayStream",
            )
        self.n_rows = len(self._y)

    def fingerprint(self) -> str | None:
        """SHA-256 of the rows, their labels and their times."""
        digest = hashlib.sha256(self._X.tobytes())
        for part in (self._y, self._time):
            digest.update(b"" if part is None else repr(part.tolist()).encode())
        return digest.hexdigest()

    def __iter__(self) -> Iterator[Chunk]:
        whole = Chunk(self._X, self._y, 0, self._time)
        for begin in range(0, len(whole), self.chunk):
            yield whole.take(begin, begin + self.chunk)


def small_first(chunks: Iterable[Chunk], parts: int = 20) -> Iterator[Chunk]:
    """The same rows, the first chunk in several parts: a model has learned some before most are tested."""
    for number, chunk in enumerate(chunks):
        size = len(chunk) if number else -(-len(chunk) // parts)
        for begin in range(0, len(chunk), size):
            yield chunk.take(begin, begin + size)


def check_chunk(chunk: int, source: str) -> int:
    """A number of rows that a chunk can have."""
    if not Integer(1).accepts(chunk):
        raise ParameterError(f"chunk must be a whole number of at least 1; got {chunk!r}.", source=source)
    return int(chunk)


def padded(X: FloatArray, width: int) -> FloatArray:
    """The same rows with zeros for features that came later."""
    missing = width - X.shape[1]
    return np.pad(X, ((0, 0), (0, missing))) if missing > 0 else X
