"""Class labels: integer codes, sorting, validation, and labels from scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.exceptions import DataError, DataTypeError

Label = Any  # str, int, float or bool
Codes = NDArray[np.intp]

PLAIN_LABEL_KINDS = "iubU"  # NumPy kinds that need no further checks: integers, booleans and strings
_MAX_INT64 = np.iinfo(np.int64).max
_MAX_LOOKUP_RANGE = 10_000  # maximum range of integer labels for a lookup table


_POSITIVE_LABELS = frozenset({"1", "1.0", "True", "true"})
_NEGATIVE_LABELS = frozenset({"0", "0.0", "-1", "-1.0", "False", "false"})
_HELD_FACTOR = 2.0  # the positive class changes only when it has twice as many rows as the other class


def positive_class(
    counts: Mapping[Label, float], given: Label | None = None, held: Label | None = None
) -> Label | None:
    """Return the positive class for the number of rows of each class, or None unless there are two classes.

    It is the class that the user has ``given``, as a label or its text; None and a warning if that is neither
    of the two. Otherwise it is 1, True or "1" if the other class is 0, -1, False or their text. Otherwise it
    is the rarer class, or the larger label if both have equally many rows; the class ``held`` before stays
    the positive one until it has twice as many rows as the other.

    >>> positive_class({"fraud": 12, "ok": 300}), positive_class({0: 3, 1: 40})
    ('fraud', 1)
    >>> positive_class({"down": 40, "up": 60}, held="up"), positive_class({"down": 40, "up": 90}, held="up")
    ('up', 'down')
    """
    if len(counts) != 2:
        return None
    if given is not None:
        known = label_named(counts, given)
        if known is None:
            warnings.warn(
                f"positive={given!r} is neither of the two classes so far, {sorted(counts)}; "
                "no class is positive. hint: correct the label, unless its rows are still to come",
                UserWarning,
                stacklevel=2,
            )
        return known
    first, second = sorted(counts)
    for label, other in ((second, first), (first, second)):
        if str(label) in _POSITIVE_LABELS and str(other) in _NEGATIVE_LABELS:
            return label
    if held in counts:
        other = first if held == second else second
        return held if counts[held] <= _HELD_FACTOR * counts[other] else other
    return second if counts[second] <= counts[first] else first


def label_named(labels: Iterable[Label], given: Label) -> Label | None:
    """Return the label that equals a value or its text, or None if there is no such label.

    The columns of a table store booleans as 1 and 0, so True and False in any common spelling name these too.

    >>> label_named([3, 5], "5"), label_named([0, 1], "True"), label_named(["no", "yes"], "true")
    (5, 1, None)
    """
    known, text = list(labels), str(given)
    for label in known:
        if label == given or str(label) == text:
            return label
    number = {"true": 1, "false": 0}.get(text.lower())
    return next((label for label in known if number is not None and label == number), None)


class LabelEncoder:
    """Encoder that assigns codes to labels in the order of their first occurrence.

    The code of a label is its index in the list ``labels``.

    >>> encoder = LabelEncoder()
    >>> encoder.codes(np.array(["ok", "ok", "fraud"])), encoder.codes(np.array(["new", "ok"]))
    (array([0, 0, 1]), array([2, 0]))
    >>> encoder.labels
    ['ok', 'fraud', 'new']
    """

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        self.labels: list[Label] = list(labels)
        self._codes: dict[Label, int] = {label: code for code, label in enumerate(self.labels)}

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: Label) -> bool:
        return label in self._codes

    def codes(self, y: NDArray[Any]) -> Codes:
        """Return the codes of labels. New labels are added in the order of the rows."""
        if not len(y):
            return np.zeros(0, dtype=np.intp)
        distinct, positions = encode_labels(y)
        if not all(label in self._codes for label in distinct):
            first_rows = np.full(len(distinct), len(y))
            np.minimum.at(first_rows, positions, np.arange(len(y)))
            for position in np.argsort(first_rows).tolist():
                self.add(distinct[position])
        return self.numbers(distinct)[positions]

    def add(self, label: Label) -> int:
        """Return the code of a label, added if it is new; raise DataTypeError if it cannot be compared."""
        code = self._codes.get(label)
        if code is not None:
            return code
        if self.labels:
            try:
                label < self.labels[0]  # noqa: B015 - only whether the comparison is possible matters
            except TypeError as error:
                raise unsortable_error("labels", error) from error
        code = self._codes.setdefault(label, len(self.labels))
        self.labels.append(label)
        return code

    def numbers(self, labels: Iterable[Label]) -> Codes:
        """Return the codes of a list of labels. New labels are added in the order of the list."""
        codes, labels = self._codes, list(labels)
        try:
            return np.array([codes[label] for label in labels], dtype=np.intp)
        except KeyError:
            return np.array([self.add(label) for label in labels], dtype=np.intp)

    def array(self) -> NDArray[Any]:
        """Return the labels as an array."""
        return np.array(self.labels)

    def find(self, label: Label) -> int | None:
        """Return the code of a label, given as value or text, or None if there is no such label."""
        if label in self._codes:
            return self._codes[label]
        known = label_named(self.labels, label)
        return None if known is None else self._codes[known]


def is_plain_labels(y: Any, n_rows: int) -> bool:
    """Return whether y is an array of labels that needs no conversion and no checks."""
    return (
        type(y) is np.ndarray and y.ndim == 1 and y.shape[0] == n_rows and y.dtype.kind in PLAIN_LABEL_KINDS
    )


def numpy_labels(y: Any) -> Any:
    """Convert labels of extension types to NumPy types if scikit-learn would reject or round them."""
    # Strings that NumPy would truncate are kept as objects, so that encode_labels() can reject them.
    if isinstance(y, list | tuple) and any(map(_ends_with_nul, y)):
        return np.array(y, dtype=object)
    dtype = getattr(y, "dtype", None)
    if getattr(dtype, "kind", None) == "T":  # NumPy strings of variable length
        return np.asarray(y, dtype=object)
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return _without_objects(y)
    numpy_dtype = getattr(dtype, "numpy_dtype", None)  # only nullable pandas types have this attribute
    if getattr(numpy_dtype, "kind", "") in set("iub") and not y.isna().any():
        return y.to_numpy(dtype=numpy_dtype)
    return y


def _without_objects(y: Any) -> Any:
    """Convert objects that are all booleans or all integers, which scikit-learn rejects; keep all others."""
    labels = np.asarray(y, dtype=object).ravel().tolist()
    kinds = {type(label) for label in labels}
    if kinds and kinds <= {bool, np.bool_}:
        return np.asarray(y, dtype=bool)
    if kinds and all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        exact = np.array(labels)  # objects if an integer is too large, floats if the signs differ as well
        return exact.reshape(np.shape(y)) if exact.dtype.kind in "iu" else y
    return y


def _ends_with_nul(label: object) -> bool:
    return isinstance(label, str) and label.endswith("\0")


def _check_no_trailing_nul(labels: Iterable[Label]) -> None:
    """Raise DataError for strings that NumPy arrays such as ``classes_`` would truncate."""
    truncated = next(filter(_ends_with_nul, labels), None)
    if truncated is not None:
        raise DataError(
            f"the label {truncated!r} ends with the character NUL, which arrays of strings cannot store; "
            "nothing was changed.",
            hint="remove the character, for example with label.rstrip('\\0')",
        )


def check_label_types(labels: Iterable[Label], source: str) -> None:
    """Raise DataTypeError for labels that are neither numbers, strings nor booleans."""
    for label in labels:
        if not isinstance(label, str | int | float | np.generic):
            raise DataTypeError(
                f"labels must be numbers, strings or booleans; got {str(label)[:40]!r}, which is of type "
                f"{type(label).__name__}; nothing was changed.",
                source=source,
                hint="convert the labels to strings, for example with str(label)",
            )


def check_sortable(labels: Iterable[Label], source: str) -> None:
    """Raise DataTypeError for labels that cannot be sorted."""
    try:
        sorted(labels)
    except TypeError as error:
        raise unsortable_error(source, error) from error


def restored_labels(labels: Iterable[Label], source: str = "a file") -> list[Label]:
    """Return labels read from a file; raise DataTypeError for labels that no learner accepts."""
    found = list(labels)
    check_label_types(found, source)
    check_sortable(found, source)
    return found


def unsortable_error(source: str, error: TypeError) -> DataTypeError:
    """Return the error for labels that cannot be compared."""
    return DataTypeError(
        f"all labels, including those learned before, must be of one sortable type, such as all numbers or "
        f"all strings; the given labels cannot be compared ({error}); nothing was changed.",
        source=source,
    )


def encode_labels(y: NDArray[Any]) -> tuple[list[Label], NDArray[np.int32]]:
    """Return the sorted distinct labels, and the index of each row's label in them.

    >>> labels, codes = encode_labels(np.array(["ok", "fraud", "ok"]))
    >>> labels
    ['fraud', 'ok']
    >>> codes
    array([1, 0, 1], dtype=int32)
    """
    if y.dtype.kind == "O":
        _check_no_trailing_nul(y.tolist())
    if len(y) == 1:
        return y.tolist(), np.zeros(1, dtype=np.int32)
    if y.dtype.kind in "iub":
        low, high = int(y.min()), int(y.max())
        if high - low == 1 and high <= _MAX_INT64:
            return np.array([low, high]).astype(y.dtype).tolist(), (y != low).astype(np.int32)
        # A lookup table is faster than sorting the rows.
        if high - low < _MAX_LOOKUP_RANGE and high <= _MAX_INT64:
            present = np.zeros(high - low + 1, dtype=np.int32)
            positions = y.astype(np.int64) - low
            present[positions] = 1
            ranks = np.cumsum(present, dtype=np.int32) - 1
            labels = (np.flatnonzero(present) + low).astype(y.dtype).tolist()
            return labels, ranks.take(positions)
    distinct, codes = np.unique(y, return_inverse=True)
    return distinct.tolist(), codes.astype(np.int32)


def sorted_classes(labels: list[Label]) -> NDArray[Any]:
    """Return labels as a sorted array, the format of ``classes_``."""
    classes = np.array(sorted(labels))
    if classes.dtype.kind == "f" and any(type(label) is int for label in labels):
        exact = np.array(sorted(labels), dtype=object)
        # NumPy would round integers that exceed its integer types, and two labels could become equal.
        return classes if (classes == exact).all() else exact
    return classes


def winners(scores: NDArray[np.float64], n_classes: int) -> NDArray[np.intp]:
    """Return the index of the predicted class in the sorted classes for each row.

    One column, or a one-dimensional array, is a decision function of two classes: positive scores predict the
    second class. With several columns the column with the largest score is predicted.
    """
    if scores.ndim == 2 and scores.shape[1] > 1:
        return scores.argmax(axis=1)
    if n_classes < 2:
        return np.zeros(len(scores), dtype=np.intp)
    return (scores.reshape(-1) > 0.0).astype(np.intp)


def all_forgotten_error(source: str) -> DataError:
    """Return the error for a prediction after all rows have been forgotten."""
    return DataError(
        "all rows have been forgotten, so there is no class to predict.",
        source=source,
        hint="learn rows with partial_fit() first",
    )


def too_many_rows_error(wanted: float, present: float, source: str, label: Label) -> DataError:
    """Return the error for a request to forget more rows of a class than were learned."""
    return DataError(
        f"{wanted:g} rows of class {label!r} were to be forgotten, but only {present:g} are "
        "learned; nothing was changed.",
        source=source,
        hint="forget only rows that were learned before",
    )
