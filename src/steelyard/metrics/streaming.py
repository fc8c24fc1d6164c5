"""Streaming metrics: their base class, the rows of a window, and confusion counts.

Counts are over all rows, a window, or with decay.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._labels import LabelEncoder
from steelyard.exceptions import DataError, FileFormatError, ParameterError
from steelyard.metrics import formulas
from steelyard.metrics._validation import (
    Codes,
    Label,
    check_count,
    encode,
    encode_pairs,
    plain,
    required,
    sort_labels,
)
from steelyard.params import Fraction, Positive, check_value

Weights: TypeAlias = NDArray[np.float64]


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
        """Validate and add rows with the true labels ``labels[codes]`` and the other inputs of ``update``."""

    @abstractmethod
    def get(self) -> float:
        """Return the current value, or ``nan`` with a warning if the denominator is zero."""

    def reset(self) -> Self:
        """Reset the metric to its initial state, without rows and labels."""
        self.__dict__ = type(self)(**self._parameter_values()).__dict__
        return self

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
        parameters = self._parameter_values()
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
        shown = ", ".join(f"{name}={value!r}" for name, value in self._parameter_values().items())
        return f"{type(self).__name__}({shown})"

    def _parameter_values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._parameters}

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


class ConfusionStream(StreamingMetric):
    """Base class of streaming confusion counts. New labels may appear at any time.

    The subclasses :class:`CumulativeConfusion`, :class:`WindowConfusion` and :class:`FadingConfusion` differ
    in the weight of past rows. The value of a measure equals that of the batch function of the same name on
    the same rows.
    """

    _parameters: ClassVar[tuple[str, ...]] = ("measure", "pos_label", "beta")

    def __init__(self, measure: str = "g_mean", *, pos_label: Label | None = None, beta: float = 1.0) -> None:
        _check_measure(measure, type(self).__name__)
        check_value("beta", beta, Positive(), type(self).__name__)
        self.measure = measure
        self.pos_label = plain(pos_label)
        self.beta = beta
        self._encoder = LabelEncoder()
        self._counts: NDArray[Any] = np.zeros((0, 0))  # weights by codes of the true and the predicted label

    def _add(self, labels: list[Label], codes: Codes, **inputs: Any) -> None:
        y_pred = required(inputs["y_pred"], self._source, "y_pred")
        rows = encode_pairs(self._encoder, (labels, codes), y_pred, inputs["sample_weight"], self._source)
        if len(codes):
            self._widen()
            self._count(*rows)

    def get(self, measure: str | None = None) -> float:
        """Return a measure, computed from the confusion counts.

        Parameters
        ----------
        measure : str, optional
            Any of ``accuracy``, ``cohen_kappa``, ``f_beta``, ``g_mean``, ``imbalance_ratio``, ``macro_f1``,
            ``macro_precision``, ``macro_recall``, ``precision``, ``relative_sensitivity``, ``sensitivity``,
            ``specificity``; by default the one given to the constructor.

        Returns
        -------
        float
            ``nan`` with a warning if the denominator is zero.
        """
        source = f"{type(self).__name__}.get"
        measure = self.measure if measure is None else measure
        _check_measure(measure, source)
        value = self._table().measure(measure, self.pos_label, source, self.beta)
        return formulas.defined_or_warn(measure, value)

    def recalls(self) -> dict[Label, float]:
        """Return the recall of every class that has true rows."""
        table = self._table()
        values = zip(table.labels, table.by_class.recalls().tolist(), strict=True)
        return {label: recall for label, recall in values if not math.isnan(recall)}

    def confusion(self) -> tuple[list[Label], NDArray[np.float64]]:
        """Return the sorted labels and the matrix of total weights by true and predicted label."""
        table = self._table()
        return table.labels, table.counts

    def _widen(self) -> None:
        """Add rows and columns for new labels to the counts."""
        n_new = len(self._encoder) - len(self._counts)
        if n_new:
            self._counts = np.pad(self._counts, (0, n_new))

    def _table(self) -> formulas.ConfusionTable:
        return formulas.ConfusionTable.of_present(self._encoder.labels, self._weights_by_label())

    def _restore_labels(self, state: dict[str, Any]) -> int:
        labels = list(state["labels"])
        if len(sort_labels(labels, type(self).__name__)) != len(labels):
            raise ValueError("a label occurs twice in the saved state")
        self._encoder = LabelEncoder(labels)
        self._widen()
        return len(labels)

    @abstractmethod
    def _count(self, true: Codes, predicted: Codes, weights: Weights) -> None: ...

    def _weights_by_label(self) -> NDArray[np.float64]:
        """Return the matrix of total weights, indexed by the codes of the true and the predicted label."""
        return self._counts


class CumulativeConfusion(ConfusionStream):
    """Confusion counts of all rows since the start.

    Parameters
    ----------
    measure : str, default="g_mean"
        The default measure of :meth:`get`.
    pos_label : label, optional
        The positive class. By default the rarer of two classes among the counted rows. This default can
        change during the stream, so it is better to pass the parameter.
    beta : float, default=1.0
        For ``f_beta``.

    Examples
    --------
    >>> from steelyard.metrics import CumulativeConfusion
    >>> stream = CumulativeConfusion("sensitivity", pos_label="bad")
    >>> stream.update(["ok", "ok", "bad"], ["ok", "bad", "bad"]).update("bad", "ok").get()
    0.5
    >>> stream.get("specificity"), stream.recalls()
    (0.5, {'bad': 0.5, 'ok': 0.5})
    """

    def _count(self, true: Codes, predicted: Codes, weights: Weights) -> None:
        # np.add.at adds row by row, so rounding errors of the weights do not depend on the batch size.
        np.add.at(self._counts, (true, predicted), weights)

    def _content(self) -> dict[str, Any]:
        return {"labels": list(self._encoder.labels), "counts": self._counts.copy()}

    def _restore(self, state: dict[str, Any]) -> None:
        n_labels = self._restore_labels(state)
        self._counts = stored_array(state, "counts", "f", (n_labels, n_labels))


class WindowConfusion(ConfusionStream):
    """Confusion counts of the last ``window`` rows.

    An update takes O(1) per row. Counts are integers, so removing a row from the window causes no rounding
    error. For the same reason, if some rows in the window have weights other than 1, :meth:`get` sums all
    weights again, in O(window).

    Parameters
    ----------
    window : int
        Number of rows.
    measure, pos_label, beta
        As for :class:`CumulativeConfusion`.

    Examples
    --------
    >>> from steelyard.metrics import WindowConfusion
    >>> stream = WindowConfusion(4, "accuracy")
    >>> stream.update([0, 0, 0, 1, 1], [1, 0, 0, 1, 0]).get()
    0.75
    """

    _parameters = ("window", *ConfusionStream._parameters)

    def __init__(
        self, window: int, measure: str = "g_mean", *, pos_label: Label | None = None, beta: float = 1.0
    ) -> None:
        super().__init__(measure, pos_label=pos_label, beta=beta)
        self.window = check_count(window, "window", type(self).__name__)
        codes = np.zeros(0, dtype=np.int32)
        self._rows = RowWindow(self.window, codes, codes, np.zeros(0))  # true and predicted codes, weights
        self._counts = np.zeros((0, 0), dtype=np.int64)
        self._n_weighted = 0  # number of rows in the window whose weight is not 1

    def _count(self, true: Codes, predicted: Codes, weights: Weights) -> None:
        left = self._rows.push(true, predicted, weights)
        # If there are more new rows than the window has, the first of them enter and leave it at once.
        entering = (true[-self.window :], predicted[-self.window :])
        np.subtract.at(self._counts, (left[0], left[1]), 1)
        np.add.at(self._counts, entering, 1)
        self._n_weighted += int((weights[-self.window :] != 1.0).sum()) - int((left[2] != 1.0).sum())

    def _weights_by_label(self) -> NDArray[np.float64]:
        if not self._n_weighted:
            return self._counts.astype(np.float64)
        true, predicted, weights = self._rows.content()
        sums = np.zeros(self._counts.shape)
        np.add.at(sums, (true, predicted), weights)
        return sums

    def _content(self) -> dict[str, Any]:
        true, predicted, weights = self._rows.content()
        return {
            "labels": list(self._encoder.labels),
            "cells": np.stack([true, predicted]),
            "weights": weights,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        n_labels = self._restore_labels(state)
        n_rows = len(state["weights"])
        if n_rows > self.window:
            raise ValueError(f"a window of {self.window} rows cannot contain {n_rows} rows")
        cells = stored_array(state, "cells", "i", (2, n_rows))
        check_codes(cells, n_labels)
        true, predicted = cells.astype(np.intp)
        self._count(true, predicted, stored_array(state, "weights", "f", (n_rows,)))


class FadingConfusion(CumulativeConfusion):
    r"""Confusion counts with exponential decay: each new row reduces the weight of all earlier rows.

    Parameters
    ----------
    factor : float, optional
        Factor that multiplies the weight of a row with each new row; from 1e-6 to 1.
    half_life : float, optional
        Instead of ``factor``: number of rows after which a weight is halved,
        :math:`factor = 2^{-1/half\_life}`.
    measure, pos_label, beta
        As for :class:`CumulativeConfusion`.

    Notes
    -----
    A row with sample weight :math:`w` and age :math:`a` (the newest row has age 0) has the weight
    :math:`w \cdot factor^{a}`. Counts are scaled by blocks of a few hundred rows: the t-th row of a block is
    added with the weight :math:`w \cdot factor^{-t}`, so earlier counts need no change until the block ends.
    All powers come from one table, so the result does not depend on how the stream is divided into batches.

    Examples
    --------
    >>> from steelyard.metrics import FadingConfusion
    >>> stream = FadingConfusion(half_life=1, measure="accuracy")
    >>> round(stream.update([0, 0, 1], [1, 0, 1]).get(), 4)  # (0.5 + 1) / (0.25 + 0.5 + 1)
    0.8571
    """

    _parameters = ("factor", *ConfusionStream._parameters)
    _MAX_WEIGHT_GROWTH = 2.0**30  # maximum factor by which the weight of new rows grows within a block
    _MAX_BLOCK_ROWS = 512

    def __init__(
        self,
        factor: float | None = None,
        *,
        half_life: float | None = None,
        measure: str = "g_mean",
        pos_label: Label | None = None,
        beta: float = 1.0,
    ) -> None:
        super().__init__(measure, pos_label=pos_label, beta=beta)
        if (factor is None) == (half_life is None):
            raise ParameterError(
                f"give either factor or half_life; got factor={factor!r}, half_life={half_life!r}.",
                source="FadingConfusion",
            )
        if half_life is not None:
            check_value("half_life", half_life, Positive(), "FadingConfusion")
            factor = 2.0 ** (-1.0 / half_life)
        check_value("factor", factor, Fraction(1e-6, 1.0), "FadingConfusion")
        self.factor = float(factor)  # type: ignore[arg-type]  # None does not satisfy the constraint
        decay = -math.log2(self.factor)
        growth = math.log2(self._MAX_WEIGHT_GROWTH)
        block = (
            self._MAX_BLOCK_ROWS if decay * self._MAX_BLOCK_ROWS <= growth else max(1, int(growth / decay))
        )
        self._powers = np.cumprod(np.r_[1.0, np.full(block, self.factor)])
        self._age = 0  # number of rows since the start of the block

    def _count(self, true: Codes, predicted: Codes, weights: Weights) -> None:
        block = len(self._powers) - 1
        done = 0
        while done < len(true):
            rows = slice(done, done + block - self._age)
            n_rows = len(true[rows])
            scaled = weights[rows] / self._powers[self._age + 1 : self._age + n_rows + 1]
            super()._count(true[rows], predicted[rows], scaled)
            self._age += n_rows
            done += n_rows
            if self._age == block:
                self._counts *= self._powers[block]
                self._age = 0

    def _weights_by_label(self) -> NDArray[np.float64]:
        return np.asarray(self._counts * self._powers[self._age])

    def _content(self) -> dict[str, Any]:
        return {**super()._content(), "age": self._age}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._age = int(state["age"])
        if not 0 <= self._age < len(self._powers) - 1:
            raise ValueError(f"age {self._age} is out of range")


def _check_measure(measure: str, source: str) -> None:
    if measure not in formulas.MEASURES:
        raise ParameterError(
            f"measure must be one of {', '.join(formulas.MEASURES)}; got {measure!r}.", source=source
        )
