"""Base class of the streaming metrics, which can save and restore their state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard.exceptions import DataError, FileFormatError
from steelyard.metrics._validation import Codes, Label, encode


class StreamingMetric(ABC):
    """Measure that is updated with each batch of predictions.

    The value does not depend on how the stream is divided into batches. A failing update changes nothing.
    """

    _parameters: ClassVar[tuple[str, ...]]

    def update(
        self,
        y_true: ArrayLike,
        y_pred: ArrayLike | None = None,
        y_score: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add one or more rows.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or label
            True labels, or a single label.
        y_pred : array-like of shape (n_samples,) or label
            Predicted labels. Measures of scores ignore them.
        y_score : array-like
            Finite scores of the rows, or of a single row. Confusion counts ignore them.
        sample_weight : array-like of shape (n_samples,) or float, optional
            Weight of each row. It must be None for measures of scores.

        Returns
        -------
        self
        """
        labels, codes = encode(y_true, self._source, "y_true")
        self._add(labels, codes, y_pred=y_pred, y_score=y_score, sample_weight=sample_weight)
        return self

    @abstractmethod
    def _add(self, labels: list[Label], codes: Codes, **inputs: Any) -> None:
        """Add rows with the true labels ``labels[codes]`` and the other inputs of :meth:`update`.

        All input is validated before the first change.
        """

    @abstractmethod
    def get(self) -> float:
        """Return the current value, or ``nan`` with a warning if the denominator is zero."""

    @abstractmethod
    def reset(self) -> Self:
        """Reset the metric to its initial state."""

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """Return the state as arrays and JSON values, which ``_restore`` reads."""

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Load a state; raise ``ValueError`` if it is not valid."""

    def to_state(self) -> dict[str, Any]:
        """Return the complete state as a dictionary of NumPy arrays and JSON values.

        Returns
        -------
        dict
            The argument of :meth:`from_state`.
        """
        parameters = {name: getattr(self, name) for name in self._parameters}
        for name, value in parameters.items():
            _check_storable(value, name)
        content = self._content()
        _check_storable(content.get("labels", []), "labels")
        return {"kind": type(self).__name__, "parameters": parameters, **content}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Restore a metric from :meth:`to_state`. The metric continues exactly where the original stopped.

        Parameters
        ----------
        state : dict
            The result of :meth:`to_state`.

        Returns
        -------
        StreamingMetric
            An instance of this class.
        """
        if state.get("kind") != cls.__name__:
            raise FileFormatError(
                f"expected a state of {cls.__name__}; got one of {state.get('kind')!r}.", source=cls.__name__
            )
        try:
            metric = cls(**state["parameters"])
            metric._restore(state)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise FileFormatError(f"the state is damaged: {error}.", source=cls.__name__) from error
        return metric

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._parameters)
        return f"{type(self).__name__}({shown})"

    @property
    def _source(self) -> str:
        return f"{type(self).__name__}.update"


class RowWindow:
    """The last ``size`` rows of a stream, stored as parallel columns in ring buffers.

    The buffers grow on demand; row t of the stream is stored at index t % size. The constructor gets empty
    arrays with the types and shapes of the columns.
    """

    def __init__(self, size: int, *columns: NDArray[Any]) -> None:
        self._size, self._columns, self._n_seen = size, list(columns), 0

    def push(self, *columns: NDArray[Any]) -> list[NDArray[Any]]:
        """Add rows and return the columns of the stored rows that leave the window."""
        n_before, n_new = self._n_seen, len(columns[0])
        self._n_seen += n_new
        capacity, needed = len(self._columns[0]), min(self._size, self._n_seen)
        if needed > capacity:
            n_added = min(self._size, max(needed, 2 * capacity)) - capacity
            self._columns = [
                np.append(c, np.zeros((n_added, *c.shape[1:]), c.dtype), 0) for c in self._columns
            ]
        places = np.arange(n_before + max(0, n_new - self._size), self._n_seen) % self._size
        leaving = places[places < n_before]
        left = [own[leaving] for own in self._columns]
        for own, new in zip(self._columns, columns, strict=True):
            own[places] = new[n_new - len(places) :]
        return left

    def content(self) -> list[NDArray[Any]]:
        """Return the columns, oldest row first."""
        order = np.arange(max(0, self._n_seen - self._size), self._n_seen) % self._size
        return [column[order] for column in self._columns]

    def clear(self) -> None:
        """Remove all rows."""
        self._n_seen = 0


def _check_storable(value: Any, name: str) -> None:
    for item in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(item, str | int | float | bool | None):
            raise DataError(
                f"{name} must be strings or numbers to be saved; got {item!r} of type {type(item).__name__}.",
                source="to_state",
            )


def stored_array(state: dict[str, Any], name: str, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array ``name`` of a state; raise ValueError if its type or shape is wrong."""
    values = np.array(state[name])
    if values.dtype.kind != kind or values.shape != shape:
        raise ValueError(f"{name} has type {values.dtype} and shape {values.shape}, expected {kind} {shape}")
    return values


def check_codes(codes: NDArray[Any], n_labels: int) -> None:
    if codes.size and not (codes.min() >= 0 and codes.max() < n_labels):
        raise ValueError("a label code is out of range")
