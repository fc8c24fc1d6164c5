"""Validation of labels, scores, weights and windows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._labels import LabelEncoder, encode_labels
from steelyard.exceptions import DataError
from steelyard.params import MAX_COUNT, Integer, check_value

Label: TypeAlias = Any  # any hashable and sortable value: str, int, bool, integral float, ...
Codes: TypeAlias = NDArray[np.intp]
Weights: TypeAlias = ArrayLike | None  # weight of each row, or None if all weights are 1


def plain(label: Any) -> Label:
    """Return the Python value of a NumPy scalar; return any other value unchanged."""
    return label.item() if isinstance(label, np.generic) else label


def sort_labels(labels: Iterable[Label], source: str) -> list[Label]:
    """Return the distinct labels in sorted order."""
    distinct = set(labels)
    try:
        return sorted(distinct)
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in distinct}))
        raise DataError(
            f"labels must be of one kind that can be ordered; got a mix of {kinds}.",
            source=source,
            hint="convert y_true and y_pred to the same type, for example all to strings",
        ) from error


def encode(y: ArrayLike, source: str, name: str) -> tuple[list[Label], Codes]:
    """Return the distinct labels, and the index of each row's label in them."""
    if isinstance(y, str | int | float | np.generic):  # fast path for a single row
        _check_label(label := plain(y), source, name)
        return [label], np.zeros(1, dtype=np.intp)
    values = _label_array(y, source, name)
    codes: NDArray[np.integer[Any]]
    if values.dtype != object:
        labels, codes = encode_labels(values) if len(values) else ([], np.zeros(0, dtype=np.int32))
    else:  # np.unique cannot sort values of mixed types
        rows = [plain(value) for value in values]
        encoder = LabelEncoder(dict.fromkeys(rows))
        labels, codes = encoder.labels, encoder.numbers(rows)
    for label in labels:
        _check_label(label, source, name)
    return labels, codes.astype(np.intp, copy=False)


def encode_pairs(
    encoder: LabelEncoder,
    y_true: tuple[list[Label], Codes],
    y_pred: ArrayLike,
    sample_weight: ArrayLike | None,
    source: str,
) -> tuple[Codes, Codes, NDArray[np.float64]]:
    """Return the codes of the true and the predicted labels, and the weights of the rows, by default 1.

    New labels are added to ``encoder``. ``y_true`` are the true labels as returned by :func:`encode`.
    """
    true_labels, true = y_true
    predicted_labels, predicted = encode(y_pred, source, "y_pred")
    check_same_length(len(true), len(predicted), source, "y_pred")
    weights = check_weights(sample_weight, len(true), source)
    labels = [*true_labels, *predicted_labels]
    if not all(map(encoder.__contains__, labels)):
        sort_labels([*encoder.labels, *labels], source)  # raises an error before a label is added
    codes = encoder.numbers(labels)
    rows = codes[true], codes[len(true_labels) :][predicted]
    return *rows, np.ones(len(true)) if weights is None else weights


def _label_array(y: ArrayLike, source: str, name: str) -> NDArray[Any]:
    values = np.asarray(y)
    if values.dtype.kind in "USO" and isinstance(y, list | tuple):
        # np.asarray([1, "a"]) would convert both values to strings.
        values = np.empty(len(y), dtype=object)
        values[:] = y
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim > 1:
        raise DataError(
            f"{name} must be one label or a column of labels; got shape {values.shape}.", source=source
        )
    return np.atleast_1d(values)


def _check_label(label: Label, source: str, name: str) -> None:
    try:
        missing = label is None or not bool(label == label)  # noqa: PLR0124  NaN is not equal to itself
    except TypeError:  # pandas.NA == pandas.NA is NA, which has no truth value
        missing = True
    if missing:
        raise DataError(f"every row of {name} needs a label; got {label!r}.", source=source)
    if isinstance(label, float) and not label.is_integer():
        raise DataError(
            f"{name} must contain class labels; got {label!r}.",
            source=source,
            hint="pass scores and probabilities as y_score",
        )


def check_weights(sample_weight: ArrayLike | None, n_rows: int, source: str) -> NDArray[np.float64] | None:
    """Return validated weights, which are finite and non-negative, or None if all weights are 1."""
    if sample_weight is None:
        return None
    weights = np.atleast_1d(np.asarray(sample_weight, dtype=np.float64))
    if weights.shape != (n_rows,):
        raise DataError(
            f"sample_weight must contain one number for each of {n_rows} rows; got shape {weights.shape}.",
            source=source,
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise DataError("sample_weight must be finite and not negative.", source=source)
    return weights


def check_scores(y_score: ArrayLike, n_rows: int, n_columns: int, source: str) -> NDArray[np.float64]:
    """Return validated (finite) scores as a contiguous array of shape (n_rows, n_columns)."""
    if n_rows == n_columns == 1 and isinstance(y_score, float) and math.isfinite(y_score):
        return np.array([[y_score]])
    try:
        scores = np.asarray(y_score, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"y_score must contain numbers; got {y_score!r:.60}.", source=source) from error
    expected = (n_rows,) if n_columns == 1 else (n_rows, n_columns)
    is_single_row = n_rows == 1 and scores.shape == (expected[1:])
    if scores.shape not in {expected, (n_rows, n_columns)} and not is_single_row:
        raise DataError(f"y_score must have shape {expected}; got {scores.shape}.", source=source)
    scores = np.ascontiguousarray(scores.reshape(n_rows, n_columns))
    bad_rows = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if bad_rows.size:
        row = bad_rows[0]
        raise DataError(
            f"every y_score must be a finite number; got {scores[row].tolist()} in row {row} "
            f"({bad_rows.size} such rows).",
            source=source,
        )
    return scores


def check_same_length(n_true: int, n_other: int, source: str, name: str) -> None:
    if n_true != n_other:
        raise DataError(
            f"y_true and {name} must have the same length; got {n_true} and {n_other} rows.", source=source
        )


def check_probabilities(scores: NDArray[np.float64], source: str) -> NDArray[np.float64]:
    """Return probabilities; raise DataError unless all are between 0 and 1."""
    if len(scores) and not (scores.min() >= 0.0 and scores.max() <= 1.0):
        worst = scores.min() if scores.min() < 0.0 else scores.max()
        raise DataError(
            f"probabilities must be between 0 and 1; got {worst!r}.",
            source=source,
            hint="predict_proba() gives probabilities, decision_function() does not",
        )
    return scores


def check_count(value: int, name: str, source: str) -> int:
    """Return a validated integer of at least 1."""
    check_value(name, value, Integer(1, MAX_COUNT), source)
    return int(value)


def required(value: ArrayLike | None, source: str, name: str) -> ArrayLike:
    """Return the value of a required argument; raise DataError if it is None."""
    if value is None:
        raise DataError(f"{name} is required; got None.", source=source)
    return value


def plain_labels(labels: ArrayLike) -> list[Label]:
    return [plain(label) for label in (labels if isinstance(labels, list | tuple) else np.asarray(labels))]
