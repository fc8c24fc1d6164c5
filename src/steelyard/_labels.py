"""Labels: told apart, numbered, sorted, and read off scores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError, DataTypeError

__all__ = [
    "PLAIN_LABELS",
    "Label",
    "NumberedLabels",
    "check_kinds",
    "check_sortable",
    "encode_labels",
    "is_plain_labels",
    "none_left",
    "numpy_labels",
    "restored_labels",
    "sorted_classes",
    "too_many",
    "unsortable_error",
    "winners",
]

Label = Any  # str, int, float or bool: whatever the user's labels are

# Kinds of numpy types whose values are labels whatever they are: integers, booleans and strings.
PLAIN_LABELS = "iubU"
_LARGEST_INT64 = np.iinfo(np.int64).max


class NumberedLabels(np.ndarray[Any, Any]):
    """Labels that were told apart already: :func:`encode_labels` need not do so again.

    Whatever is made of them, such as a part, is an array like any other.
    """

    _encoded: tuple[list[Label], NDArray[np.int32]] | None = None

    def __array_finalize__(self, made_of: Any) -> None:
        self._encoded = None

    @classmethod
    def of(cls, y: NDArray[Any], codes: NDArray[np.integer[Any]], labels: list[Label]) -> NumberedLabels:
        """Labels whose distinct values, ``labels``, and numbers among them are known."""
        counts = np.bincount(codes, minlength=len(labels))
        present = sorted(np.flatnonzero(counts).tolist(), key=labels.__getitem__)
        ranks = np.zeros(len(labels), dtype=np.int32)
        ranks[present] = np.arange(len(present))
        numbered = y.view(cls)
        numbered._encoded = [labels[code] for code in present], ranks[codes]
        return numbered


def is_plain_labels(y: Any, n_rows: int) -> bool:
    return (
        (type(y) is np.ndarray or type(y) is NumberedLabels)
        and y.ndim == 1
        and y.shape[0] == n_rows
        and y.dtype.kind in PLAIN_LABELS
    )


def numpy_labels(y: Any) -> Any:
    """Labels of types beside NumPy's usual ones as these, where scikit-learn would refuse or round them.

    Texts that NumPy would cut stay whole, for :func:`encode_labels` to refuse them.
    """
    if isinstance(y, list | tuple) and any(map(_ends_with_nul, y)):
        return np.array(y, dtype=object)
    dtype = getattr(y, "dtype", None)
    if getattr(dtype, "kind", None) == "T":  # NumPy's strings of any length
        return np.asarray(y, dtype=object)
    numpy_dtype = getattr(dtype, "numpy_dtype", None)  # of pandas' types that know missing values
    if getattr(numpy_dtype, "kind", "") in set("iub") and not y.isna().any():
        return y.to_numpy(dtype=numpy_dtype)
    return y


def _ends_with_nul(label: object) -> bool:
    return isinstance(label, str) and label.endswith("\0")


def _check_whole(labels: Iterable[Label]) -> None:
    """Refuse texts that NumPy, and so ``classes_``, shows without their end: two of them would look alike."""
    cut = next(filter(_ends_with_nul, labels), None)
    if cut is not None:
        raise DataError(
            f"the label {cut!r} ends with the character NUL, which arrays of text leave out; nothing was "
            "changed.",
            hint="take the character away, for example with label.rstrip('\\0')",
        )


def check_kinds(labels: Iterable[Label], source: str) -> None:
    """Refuse labels that are neither numbers nor text nor true or false: no file could hold them."""
    for label in labels:
        if not isinstance(label, str | int | float | np.generic):
            raise DataTypeError(
                f"labels must be numbers, strings or booleans; got {str(label)[:40]!r}, which is of type "
                f"{type(label).__name__}; nothing was changed.",
                source=source,
                hint="make text of them, for example with str(label)",
            )


def check_sortable(labels: Iterable[Label], source: str) -> None:
    """Refuse labels of which no sorted list can be made, as ``classes_`` is one."""
    try:
        sorted(labels)
    except TypeError as error:
        raise unsortable_error(source, error) from error


def restored_labels(labels: Iterable[Label]) -> list[Label]:
    """Labels as a file has them; those that no learner could have learned are refused."""
    found = list(labels)
    check_kinds(found, "a file")
    check_sortable(found, "a file")
    return found


def unsortable_error(source: str, error: TypeError) -> DataTypeError:
    """The sentence for labels that cannot be compared."""
    return DataTypeError(
        f"all labels, also those learned before, must be of one sortable type, such as all numbers or "
        f"all strings; these cannot be compared ({error}); nothing was changed.",
        source=source,
    )


def encode_labels(y: NDArray[Any]) -> tuple[list[Label], NDArray[np.int32]]:
    """Distinct labels, sorted, and for each row the position of its label among them.

    >>> labels, codes = encode_labels(np.array(["ok", "fraud", "ok"]))
    >>> labels
    ['fraud', 'ok']
    >>> codes
    array([1, 0, 1], dtype=int32)
    """
    if type(y) is NumberedLabels and y._encoded is not None:
        return y._encoded
    if y.dtype.kind == "O":
        _check_whole(y.tolist())
    if len(y) == 1:
        return y.tolist(), np.zeros(1, dtype=np.int32)
    if y.dtype.kind in "iub":
        low, high = int(y.min()), int(y.max())
        if high - low == 1 and high <= _LARGEST_INT64:
            return np.array([low, high]).astype(y.dtype).tolist(), (y != low).astype(np.int32)
        # A table of the few labels beats sorting many rows.
        if high - low < 10_000 and high <= _LARGEST_INT64:
            present = np.zeros(high - low + 1, dtype=np.int32)
            positions = y.astype(np.int64) - low
            present[positions] = 1
            ranks = np.cumsum(present, dtype=np.int32) - 1
            labels = (np.flatnonzero(present) + low).astype(y.dtype).tolist()
            return labels, ranks.take(positions)
    distinct, codes = np.unique(y, return_inverse=True)
    return distinct.tolist(), codes.astype(np.int32)


def sorted_classes(labels: list[Label]) -> NDArray[Any]:
    """Labels as the sorted array that ``classes_`` shows."""
    classes = np.array(sorted(labels))
    if classes.dtype.kind == "f" and any(type(label) is int for label in labels):
        exact = np.array(sorted(labels), dtype=object)
        # Whole numbers too large for one type of integer would be rounded, two of them to the same label.
        return classes if (classes == exact).all() else exact
    return classes


def winners(scores: NDArray[np.float64], n_classes: int) -> NDArray[np.intp]:
    """Place, among the sorted classes, of the one that wins each row.

    One column, or a flat array, is a single plane: the second class, if there is one, lies above zero. Of
    several columns the largest wins.
    """
    if scores.ndim == 2 and scores.shape[1] > 1:
        return scores.argmax(axis=1)
    if n_classes < 2:
        return np.zeros(len(scores), dtype=np.intp)
    return (scores.reshape(-1) > 0.0).astype(np.intp)


def none_left(source: str) -> DataError:
    """The sentence for a question after all rows were forgotten."""
    return DataError(
        "all rows have been forgotten, so there is no class to predict.",
        source=source,
        hint="learn rows with partial_fit() first",
    )


def too_many(wanted: float, present: float, source: str, label: Label) -> DataError:
    """The sentence for more rows of a class to forget than there are."""
    return DataError(
        f"{wanted:g} rows of class {label!r} were to be forgotten, but only {present:g} are "
        "learned; nothing was changed.",
        source=source,
        hint="forget only rows that were learned before; check what decides which rows retire",
    )
