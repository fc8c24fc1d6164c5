"""Validation of rows and labels: every learner converts its input with the functions of this module."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    column_or_1d,
    validate_data,
)

from steelyard import _native
from steelyard._labels import (
    PLAIN_LABEL_KINDS,
    Label,
    check_label_types,
    check_sortable,
    encode_labels,
    is_plain_labels,
    numpy_labels,
    sorted_classes,
    unsortable_error,
)
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, DataTypeError, NotFittedError, SteelyardError

if TYPE_CHECKING:
    from steelyard.base import BatchLearner

MAX_FEATURE = 1e75  # limit for which the square of a product of two features is finite
MAX_KERNEL_VALUE = 1e100  # limit for which sums of products of two kernel values are finite


@dataclass(slots=True)
class Batch:
    """Validated rows and labels. Code that receives a batch need not check the input again."""

    X: Any  # dense C-ordered array of float32 or float64, a CSR matrix, or a list of sequences
    labels: list[Label]  # distinct labels of this batch, sorted
    codes: NDArray[np.int32]  # index of the label of each row in `labels`
    weights: FloatArray | None  # None if every row has weight 1


def check_started(learner: BatchLearner, method: str) -> None:
    """Raise NotFittedError if a learner has not learned any rows."""
    if "n_features_in_" not in learner.__dict__ and not learner._is_started():
        raise NotFittedError(
            "this learner is not fitted yet: it has learned no rows.",
            source=_source(learner, method),
            hint="call fit() or partial_fit() first"
            if hasattr(learner, "partial_fit")
            else "call fit() first",
        )


def validate_batch(
    learner: BatchLearner,
    X: Any,
    y: Any,
    sample_weight: Any,
    method: str,
    *,
    reset: bool = False,
    forget: bool = False,
) -> Batch:
    """Return validated rows, labels and weights for learning.

    With ``reset``, for the first rows, the learner takes over the number and the names of the features of
    ``X``; otherwise they must equal those of ``X``. With ``forget`` new columns and categories in the rows
    are not learned. Error messages name the ``method``.
    """
    if not reset and sample_weight is None and is_plain(learner, X) and is_plain_labels(y, len(X)):
        labels, codes = encode_labels(y)
        if type(labels[0]) is not learner.__dict__.get("_label_type"):
            _check_label_type(learner, labels, _source(learner, method))
        return Batch(X if learner._finds_nonfinite else check_finite(learner, X, method), labels, codes, None)
    source = _source(learner, method)
    if y is None:
        raise DataError("requires y to be passed, but the target y is None.", source=source)
    X = validate_table(learner, X, method, reset=reset, learn=not forget)
    try:
        y = column_or_1d(numpy_labels(y), warn=True)
        _check_labels_present(y, source)
        y = _check_y(y, estimator=learner)
        n_rows = len(X) if isinstance(X, list) else X.shape[0]
        if len(y) != n_rows:
            raise DataError(f"X has {n_rows} rows but y has {len(y)} labels.", source=source)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        labels, codes = _validate_labels(y, source)
    except SteelyardError:
        raise
    except (ValueError, TypeError) as error:
        raise DataError(f"{error}", source=source) from error
    if reset:
        learner._label_type = type(labels[0])
    elif type(labels[0]) is not learner.__dict__.get("_label_type"):
        _check_label_type(learner, labels, source)
    return Batch(X, labels, codes, sample_weight)


def validate_plain_rows(
    learner: BatchLearner, X: Any, y: Any, method: str
) -> tuple[FloatArray, NDArray[Any]]:
    """Return rows as a dense float64 array and labels as an array, a format that every estimator accepts.

    The learner takes over the number and names of the features, so ``_is_started()`` is True afterwards.
    """
    batch = validate_batch(learner, X, y, None, method, reset=not learner._is_started())
    rows = np.ascontiguousarray(check_finite(learner, batch.X, method), dtype=np.float64)
    return rows, sorted_classes(batch.labels)[batch.codes]


def validate_rows(learner: BatchLearner, X: Any, method: str) -> Any:
    """Return validated rows to score, which must be finite and have the learned features."""
    if is_plain(learner, X):  # only a learner with rows has a number of features
        return X if learner._finds_nonfinite else check_finite(learner, X, method)
    check_started(learner, method)
    return validate_table(learner, X, method, reset=False, learn=False)


def is_plain(learner: BatchLearner, X: Any) -> bool:
    """Return whether X is a C-ordered float array of the learned width, which needs no conversion."""
    known = learner.__dict__
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype.char in "df"  # float64 or float32
        and X.dtype.isnative
        and X.flags.c_contiguous
        and X.shape[0] > 0
        and X.shape[1] == known.get("n_features_in_")
        and "feature_names_in_" not in known
        # Only learners with kernels may compare sequences.
        and (("kernel" not in known and "kernels" not in known) or learner._sequence_kernel() is None)
    )


def check_finite(learner: BatchLearner, X: Any, method: str) -> Any:
    """Return X; raise DataError if a value is NaN or infinite."""
    if type(X) is np.ndarray and X.dtype == np.float64 and X.flags.c_contiguous:
        if not _native.all_finite(X):
            raise nonfinite_error(learner, X, method)
        return X
    values = X.data if sp.issparse(X) else X
    # A finite sum proves that all values are finite. The slower search runs only if the sum is not finite.
    with np.errstate(over="ignore", invalid="ignore"):
        is_suspicious = values.size and not np.isfinite(values.sum(dtype=np.float64))
    if is_suspicious and not np.isfinite(values).all():
        raise nonfinite_error(learner, X, method)
    return X


def check_not_infinite(learner: BatchLearner, X: FloatArray, method: str) -> None:
    """Raise DataError if X has infinite values. NaN is allowed as a missing value."""
    infinite = np.isinf(X)
    if infinite.any():
        raise nonfinite_error(learner, np.where(infinite, X, 0.0), method)


def largest_magnitude(X: Any) -> float:
    """Return the largest absolute value of a finite array or sparse matrix, or 0 if it is empty."""
    values = X.data if sp.issparse(X) else X
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0))) if values.size else 0.0


def check_magnitude(X: Any, source: str, limit: float = MAX_FEATURE) -> None:
    """Raise DataError if a value of X exceeds a limit."""
    largest = largest_magnitude(X)
    if largest > limit:
        raise magnitude_error(largest, source, limit)


def magnitude_error(largest: float, source: str, limit: float = MAX_FEATURE) -> DataError:
    """Return the error for values that exceed a limit."""
    reason = "whose squares overflow" if limit == MAX_FEATURE else "near the end of the floating-point range"
    return DataError(
        f"X has values beyond {limit:g} (up to {largest:g}), {reason}; nothing was changed.",
        source=source,
        hint="bring the features to a common scale first",
    )


def canonical_csr(X: Any) -> Any:
    """Return CSR rows with sorted, unique columns, so that sums over features have a fixed order."""
    rows = X.tocsr()
    if not rows.has_canonical_format:
        if rows is X:
            rows = X.copy()  # the caller's matrix is not changed
        rows.sum_duplicates()
    return rows


def _source(learner: BatchLearner, method: str) -> str:
    return f"{type(learner).__name__}.{method}"


def validate_table(learner: BatchLearner, X: Any, method: str, *, reset: bool, learn: bool) -> Any:
    """Return rows of any type as an array, CSR matrix or list of sequences; see :func:`validate_batch`."""
    source, kernel = _source(learner, method), learner._sequence_kernel()
    if kernel is not None:
        return _validate_sequences(learner, kernel, X, source, reset=reset)
    coded = learner._encode_table(X, source, reset=reset, learn=learn)
    if coded is not None:
        return coded
    try:
        X = validate_data(
            learner,
            X,
            reset=reset,
            accept_sparse="csr" if learner._accepts_sparse else False,
            dtype=(np.float64, np.float32),
            order="C",
            ensure_all_finite=False,
        )
    except (TypeError, ValueError) as error:
        raise _conversion_error(learner, X, error, source) from error
    if sp.issparse(X):
        X = canonical_csr(X)
    elif learner._finds_nonfinite:
        return X
    return check_finite(learner, X, method)


def call_of(owner: type) -> str:
    """Return the text of a call that creates an instance, with the parameters that have no default.

    >>> from steelyard.windowing import Refit
    >>> call_of(Refit)
    'Refit(estimator)'
    """
    parameters = inspect.signature(owner).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
    return f"{owner.__name__}({', '.join(needed)})"


def _conversion_error(
    learner: BatchLearner, X: Any, error: Exception, source: str
) -> DataError | DataTypeError:
    """Return the error for rows that scikit-learn rejects; it names the first column that is not numeric."""
    kind = DataTypeError if isinstance(error, TypeError) else DataError
    hint = f"TableModel({call_of(type(learner))}) learns text, dates and missing values"
    if isinstance(X, list) and X and isinstance(X[0], Mapping):
        return kind("expected an array of numbers; got a list of dictionaries.", source=source, hint=hint)
    names = getattr(X, "column_names", getattr(X, "columns", ()))  # the first is that of pyarrow
    name = next((name for name in names if not _is_numeric(X[name])), None)
    if name is None:
        return kind(f"{error}", source=source)
    reason = f": {error}" if "could not convert" in str(error) else ""
    return kind(f"column {name!r} contains values that are not numbers{reason}.", source=source, hint=hint)


def _is_numeric(column: Any) -> bool:
    values = np.asarray(column)
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return values.dtype.kind not in "mM"


def _validate_sequences(learner: BatchLearner, kernel: Any, X: Any, source: str, *, reset: bool) -> list[Any]:
    """Return copies of sequences, whose elements must have the learned number of dimensions."""
    if isinstance(X, str | bytes) or not hasattr(X, "__len__") or not len(X):
        raise DataTypeError(
            f"this kernel compares sequences, so X must be a non-empty list of sequences; "
            f"got {type(X).__name__}.",
            source=source,
        )
    items: list[Any] = kernel.check(X, source)
    width = kernel.width(items)
    if reset:
        learner.n_features_in_ = width
    elif width != learner.n_features_in_:
        raise DataError(
            f"elements of sequences must have {learner.n_features_in_} dimensions, as learned; got {width}.",
            source=source,
        )
    return items


def _validate_labels(y: NDArray[Any], source: str) -> tuple[list[Label], NDArray[np.int32]]:
    try:
        labels, codes = encode_labels(y)
    except TypeError as error:
        raise unsortable_error(source, error) from error
    except DataError as error:
        raise error.with_source(source) from None
    if y.dtype.kind not in PLAIN_LABEL_KINDS:
        check_classification_targets(y)
        check_label_types(labels, source)
    return labels, codes


def _check_labels_present(y: NDArray[Any], source: str) -> None:
    """Raise DataError if labels are missing (None, NaN, NaT or pandas.NA)."""
    if y.dtype.kind == "f":
        missing = np.flatnonzero(np.isnan(y)).tolist()
    elif y.dtype.kind == "O":
        missing = [row for row, label in enumerate(y.tolist()) if _is_missing(label)]
    else:
        return
    if missing:
        raise DataError(
            f"y contains NaN or None: row {missing[0]} has no label ({len(missing)} of {len(y)} missing).",
            source=source,
            hint="predict rows without a label, and learn them when their labels are known",
        )


def _is_missing(label: Any) -> bool:
    return label is None or (not isinstance(label, str) and str(label) in {"nan", "NaT", "<NA>"})


def _check_label_type(learner: BatchLearner, labels: list[Label], source: str) -> None:
    """Raise DataTypeError if labels of another type cannot be sorted together with those learned before."""
    check_sortable([*learner.classes_.tolist(), *labels], source)
    learner._label_type = type(labels[0])


def checked_times(time: Any, n_rows: int) -> FloatArray:
    """Return the times of rows as an array; raise DataError unless every row has one finite time."""
    times = np.asarray(time, dtype=np.float64)
    if times.shape != (n_rows,):
        raise DataError(f"expected one time for each of {n_rows} rows; got an array of shape {times.shape}.")
    if not np.isfinite(times).all():
        raise DataError("all times must be finite; got NaN or infinity.")
    return times


def check_ascending(times: FloatArray, latest: FloatArray) -> None:
    """Raise DataError if times decrease. ``latest`` has the time of the row before them, if there is one."""
    steps = np.diff(np.concatenate([latest, times]))
    if (steps < 0).any():
        index = int((steps < 0).argmax())
        row = index + 1 - len(latest)
        raise DataError(
            f"the times of the rows must not decrease; row {row} is {-steps[index]:g} seconds earlier than "
            "the row before it; nothing was changed.",
            hint="sort the rows by time",
        )


def first_nonfinite(X: Any) -> tuple[int, int, Any]:
    """Return row, column and value of the first value of an array or CSR matrix that is not finite."""
    if sp.issparse(X):
        position = int(np.flatnonzero(~np.isfinite(X.data))[0])
        row = int(np.searchsorted(X.indptr, position, side="right")) - 1
        return row, int(X.indices[position]), X.data[position]
    row, column = map(int, np.argwhere(~np.isfinite(X))[0])
    return row, column, X[row, column]


def nonfinite_error(learner: BatchLearner, X: Any, method: str) -> DataError:
    """Return the error for the first NaN or infinite value, or for finite values that are too large."""
    source = _source(learner, method)
    values = X.data if sp.issparse(X) else X
    if np.isfinite(values).all():
        largest = largest_magnitude(X)
        if largest > learner._max_feature:
            return magnitude_error(largest, source, learner._max_feature)
        return DataError(
            "X and sample_weight have values so large that weighted squares overflow; nothing was changed.",
            source=source,
            hint="bring the features to a common scale first",
        )
    row, column, value = first_nonfinite(X)
    is_missing = bool(np.isnan(value))
    kind = "NaN" if is_missing else "inf (infinity)"
    names = learner.__dict__.get("feature_names_in_")
    place = f"column {column}" if names is None else f"column {column} ({str(names[column])!r})"
    return DataError(
        f"X has {kind} in row {row}, {place}; only finite numbers can be used, and nothing was changed.",
        source=source,
        hint=_nonfinite_hint(learner, is_missing=is_missing),
    )


def _nonfinite_hint(learner: BatchLearner, *, is_missing: bool) -> str:
    name = type(learner).__name__
    if learner.__sklearn_tags__().input_tags.allow_nan:
        if is_missing:
            return "pass dense rows: in an array NaN is a missing value"
        if "feature_names_in_" in learner.__dict__:
            return "make infinite values missing; with pandas: X = X.replace([np.inf, -np.inf], np.nan)"
        return (
            "replace infinite values by NaN, which is a missing value: X = np.where(np.isinf(X), np.nan, X)"
        )
    if not is_missing:
        return "replace infinite values by finite numbers, for example np.clip(X, -1e9, 1e9)"
    return (
        f"steelyard.TableModel({call_of(type(learner))}) and StreamClassifier learn rows with missing "
        f"values; for {name} itself fill them in first, for example with sklearn.impute.SimpleImputer"
    )
