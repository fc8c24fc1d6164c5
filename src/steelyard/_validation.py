"""The one path by which rows and labels come in: checked here, once, for all learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    column_or_1d,
    validate_data,
)

from steelyard import _native
from steelyard._labels import (
    PLAIN_LABELS,
    Label,
    check_kinds,
    check_sortable,
    encode_labels,
    is_plain_labels,
    numpy_labels,
    sorted_classes,
    unsortable_error,
)
from steelyard._limits import LARGEST, largest_value, too_large
from steelyard._sparse import canonical_csr
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, DataTypeError, NotFittedError, SteelyardError

__all__ = ["Batch", "Door"]


@dataclass(slots=True)
class Batch:
    """Rows that came in, checked: nothing below this can fail because of what the caller passed."""

    X: Any  # dense C-ordered array of float32 or float64, a CSR matrix, or a list of sequences
    labels: list[Label]  # the distinct labels of this batch, sorted
    codes: NDArray[np.int32]  # for each row, the position of its label in labels
    weights: FloatArray | None  # None: every row counts once


class Door(ClassifierMixin, BaseEstimator):
    """What a learner lets in: rows as users have them become a :class:`Batch`, or a sentence says why not."""

    _accepts_sparse: ClassVar[bool] = False
    # Learners whose arithmetic shows values that are not finite, and who look, skip the extra pass.
    _finds_nonfinite: ClassVar[bool] = False
    # How large a feature may be.
    _largest_feature: ClassVar[float] = LARGEST

    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def _is_started(self) -> bool:
        return "n_features_in_" in self.__dict__

    def _check_started(self, method: str) -> None:
        if not self._is_started():
            raise NotFittedError(
                "this learner is not fitted yet, it has seen no rows.",
                source=f"{type(self).__name__}.{method}",
                hint="call fit() or partial_fit() first"
                if hasattr(self, "partial_fit")
                else "call fit() first",
            )

    def _check_batch(self, X: Any, y: Any, sample_weight: Any, method: str, *, reset: bool = False) -> Batch:
        if not reset and sample_weight is None and self._is_plain(X) and is_plain_labels(y, len(X)):
            labels, codes = encode_labels(y)
            self._check_comparable(labels, method)
            return Batch(X if self._finds_nonfinite else self._check_finite(X, method), labels, codes, None)
        if y is None:
            raise DataError(
                "requires y to be passed, but the target y is None.", source=f"{type(self).__name__}.{method}"
            )
        X = self._check_table(X, method, reset=reset)
        try:
            y = _check_y(column_or_1d(numpy_labels(y), warn=True), estimator=self)
            n_rows = len(X) if isinstance(X, list) else X.shape[0]
            if len(y) != n_rows:
                raise DataError(
                    f"X has {n_rows} rows but y has {len(y)} labels.",
                    source=f"{type(self).__name__}.{method}",
                )
            if sample_weight is not None:
                sample_weight = _check_sample_weight(
                    sample_weight, X, dtype=np.float64, ensure_non_negative=True
                )
            labels, codes = self._encode(y, method)
        except SteelyardError:
            raise
        except (ValueError, TypeError) as error:
            raise DataError(f"{error}", source=f"{type(self).__name__}.{method}") from error
        if reset:
            self._label_type = type(labels[0])
        else:
            self._check_comparable(labels, method)
        return Batch(X, labels, codes, sample_weight)

    def _check_plainly(self, X: Any, y: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        """Rows and labels that any learner takes, for one inside this one, which checks the rest."""
        batch = self._check_batch(X, y, None, method, reset=not self._is_started())
        rows = np.ascontiguousarray(self._check_finite(batch.X, method), dtype=np.float64)
        return rows, sorted_classes(batch.labels)[batch.codes]

    def _encode(self, y: NDArray[Any], method: str) -> tuple[list[Label], NDArray[np.int32]]:
        try:
            labels, codes = encode_labels(y)
        except TypeError as error:
            raise unsortable_error(f"{type(self).__name__}.{method}", error) from error
        except DataError as error:
            raise error.with_source(f"{type(self).__name__}.{method}") from None
        if y.dtype.kind not in PLAIN_LABELS:
            check_classification_targets(y)
            check_kinds(labels, f"{type(self).__name__}.{method}")
        return labels, codes

    def _check_comparable(self, labels: list[Label], method: str) -> None:
        """Refuse labels that do not sort with those learned before: the classes could never be listed."""
        if type(labels[0]) is self.__dict__.get("_label_type"):
            return  # as at the call before; a stream of single rows pays for every call
        check_sortable([*self.classes_.tolist(), *labels], f"{type(self).__name__}.{method}")
        self._label_type = type(labels[0])

    def _check_rows(self, X: Any, method: str) -> Any:
        """Rows to score: the width and names that were learned, all values finite."""
        self._check_started(method)
        if not self._is_plain(X):
            return self._check_table(X, method, reset=False)
        return X if self._finds_nonfinite else self._check_finite(X, method)

    def _is_plain(self, X: Any) -> bool:
        """Whether X needs no conversion: a finished array of the right width, from a caller without names."""
        return (
            type(X) is np.ndarray
            and X.ndim == 2
            and X.dtype.char in "df"  # float64 or float32
            and X.dtype.isnative
            and X.flags.c_contiguous
            and X.shape[0] > 0
            and X.shape[1] == self.__dict__.get("n_features_in_")
            and "feature_names_in_" not in self.__dict__
            and self._sequence_kernel() is None
        )

    def _check_table(self, X: Any, method: str, *, reset: bool) -> Any:
        kernel = self._sequence_kernel()
        if kernel is not None:
            return self._check_sequences(kernel, X, method, reset=reset)
        try:
            X = validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr" if self._accepts_sparse else False,
                dtype=(np.float64, np.float32),
                order="C",
                ensure_all_finite=False,
            )
        except TypeError as error:
            raise DataTypeError(f"{error}", source=f"{type(self).__name__}.{method}") from error
        except ValueError as error:
            raise DataError(f"{error}", source=f"{type(self).__name__}.{method}") from error
        if sp.issparse(X):
            X = canonical_csr(X)
        return X if self._finds_nonfinite and not sp.issparse(X) else self._check_finite(X, method)

    def _sequence_kernel(self) -> Any:
        """The kernel, if it compares sequences: samples are then things that no table holds."""
        kernel = self.__dict__.get("kernel")
        return kernel if getattr(kernel, "takes_collections", False) else None

    def _check_sequences(self, kernel: Any, X: Any, method: str, *, reset: bool) -> list[Any]:
        """Samples of a learner of sequences, copied; their elements have the width that was learned."""
        source = f"{type(self).__name__}.{method}"
        if isinstance(X, str | bytes) or not hasattr(X, "__len__") or not len(X):
            raise DataTypeError(
                f"this kernel compares sequences, so X must be a list of one or more of them; "
                f"got {type(X).__name__}.",
                source=source,
            )
        items: list[Any] = kernel.check(X, source)
        width = kernel.width(items)
        if reset:
            self.n_features_in_ = width
        elif width != self.n_features_in_:
            raise DataError(
                f"sequences of elements of {self.n_features_in_} dimensions were learned; these have "
                f"{width}.",
                source=source,
            )
        return items

    def _check_finite(self, X: Any, method: str) -> Any:
        if type(X) is np.ndarray and X.dtype == np.float64 and X.flags.c_contiguous:
            if not _native.all_finite(X):  # a stream of single rows pays for every call
                raise self._nonfinite_error(X, method)
            return X
        values = X.data if sp.issparse(X) else X
        # One sum finds almost every trouble in a single fast pass; the exact search runs only then.
        with np.errstate(over="ignore", invalid="ignore"):
            suspicious = values.size and not np.isfinite(values.sum(dtype=np.float64))
        if suspicious and not np.isfinite(values).all():
            raise self._nonfinite_error(X, method)
        return X

    def _nonfinite_error(self, X: Any, method: str) -> DataError:
        """The sentence for the first value that is NaN or infinite, or for values that are too large."""
        values = X.data if sp.issparse(X) else X
        if np.isfinite(values).all():
            return self._overflow_error(X, method)
        if sp.issparse(X):
            position = int(np.flatnonzero(~np.isfinite(X.data))[0])
            row = int(np.searchsorted(X.indptr, position, side="right")) - 1
            column, value = int(X.indices[position]), X.data[position]
        else:
            row, column = map(int, np.argwhere(~np.isfinite(X))[0])
            value = X[row, column]
        kind = "NaN" if np.isnan(value) else "inf (infinity)"
        names = self.__dict__.get("feature_names_in_")
        where = f"column {column}" if names is None else f"column {column} ({str(names[column])!r})"
        return DataError(
            f"X has {kind} in row {row}, {where}; only finite numbers can be used, and nothing was changed.",
            source=f"{type(self).__name__}.{method}",
            hint="fill in or drop missing values first, for example with sklearn.impute.SimpleImputer",
        )

    def _overflow_error(self, X: Any, method: str) -> DataError:
        source, largest = f"{type(self).__name__}.{method}", largest_value(X)
        if largest > self._largest_feature:
            return too_large(largest, source, self._largest_feature)
        return DataError(
            "X and sample_weight have values so large that weighted squares overflow; nothing was changed.",
            source=source,
            hint="bring the features to a common scale first",
        )
