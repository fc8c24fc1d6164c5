"""Batches of rows: checked, and labelled by class and fold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, column_or_1d

from steelyard import _native
from steelyard._labels import encode_labels, numpy_labels
from steelyard._threads import num_threads
from steelyard._validation import MAX_QUANTIZED_FEATURE, canonical_csr, magnitude_error
from steelyard.base import Batch, Label
from steelyard.exceptions import DataError
from steelyard.features import RandomFeatures

__all__ = [
    "BLOCK_ROWS",
    "FoldLabel",
    "blocks",
    "check_magnitude",
    "checked_batch",
    "fold_numbers",
    "row_hashes",
]

_MANY_VALUES = 1_000_000
BLOCK_ROWS = 2048  # rows that are mapped to random features at a time


class FoldLabel(NamedTuple):
    """What statistics in folds call a class: its label, and the fold of the rows."""

    label: Label
    fold: int


def checked_batch(X: Any, y: Any, sample_weight: Any, n_features: int, source: str) -> Batch:
    """Rows from a caller who is no learner; values may still be NaN, infinite or too large."""
    try:
        X = check_array(
            X, accept_sparse="csr", dtype=(np.float64, np.float32), order="C", ensure_all_finite=False
        )
        labels, codes = encode_labels(column_or_1d(numpy_labels(y)))
        if sample_weight is not None:
            sample_weight = np.array(column_or_1d(sample_weight), dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise DataError(f"{error}", source=source) from error
    if any(label is None or label != label for label in labels):  # noqa: PLR0124  nan
        raise DataError("y has missing values, which are no labels.", source=source)
    if X.shape[1] != n_features:
        raise DataError(f"X has {X.shape[1]} features, but {n_features} were expected.", source=source)
    lengths = {X.shape[0], len(codes), X.shape[0] if sample_weight is None else len(sample_weight)}
    if len(lengths) > 1:
        raise DataError(
            f"X, y and sample_weight must have the same number of rows; got {lengths}.", source=source
        )
    if sample_weight is not None and not (np.isfinite(sample_weight).all() and (sample_weight >= 0).all()):
        raise DataError("sample_weight must be finite and not negative.", source=source)
    return Batch(canonical_csr(X) if sp.issparse(X) else X, labels, codes, sample_weight)


def row_hashes(X: Any) -> NDArray[np.uint64]:
    """A hash of each row that depends on its values alone, dense or sparse."""
    if sp.issparse(X):
        return _native.sparse_row_hashes(X.data, X.indices, X.indptr)
    return _native.row_hashes(X)


def check_magnitude(batch: Batch) -> None:
    """Refuse values that are not finite, or near the end of the numbers."""
    values = batch.X.data if sp.issparse(batch.X) else batch.X
    # Few values are looked at in less time than asking for the number of cores takes.
    largest = _native.largest_magnitude(values, num_threads() if values.size >= _MANY_VALUES else 1)
    if MAX_QUANTIZED_FEATURE < largest < np.inf:
        raise magnitude_error(largest, "ClassStatistics", MAX_QUANTIZED_FEATURE)
    if not largest < np.inf:  # also refuses NaN
        raise DataError("X has NaN or inf; nothing was changed.", source="ClassStatistics")


def blocks(X: Any, feature_map: RandomFeatures | None) -> Iterator[tuple[slice, Any]]:
    """Rows as planes see them, and where they stand: as they are, or mapped some at a time."""
    if feature_map is None:
        yield slice(None), X
        return
    for begin in range(0, X.shape[0], BLOCK_ROWS):
        part = slice(begin, begin + BLOCK_ROWS)
        yield part, feature_map.map_rows(X[part])


def fold_numbers(X: Any, n_folds: int) -> NDArray[np.uint64]:
    """The fold of each row: a matter of its values alone, so a row is forgotten where it was learned."""
    if n_folds == 1:
        return np.zeros(X.shape[0], dtype=np.uint64)
    return row_hashes(X) % np.uint64(n_folds)
