"""Base class of the window wrappers, and the buffer of the rows in a window."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if

from steelyard._concurrency import lock_of, shallow_copy, snapshot_read, transactional
from steelyard._deprecation import renamed_attribute
from steelyard._types import FloatArray
from steelyard._validation import check_started, validate_plain_rows, validate_rows
from steelyard.base import (
    BatchLearner,
    GrowingMixin,
    Learner,
    Traits,
    check_parameters,
    estimator_has,
    fitted_property,
    traits_of,
)
from steelyard.exceptions import ParameterError
from steelyard.explanation.attribution import Attribution
from steelyard.explanation.neighbors import RememberedRows
from steelyard.features import RandomFeatures
from steelyard.params import check_not_class
from steelyard.streams.chunks import padded


@dataclass(slots=True, eq=False)
class WindowRows:
    """Rows of a window with labels and times, oldest first. Methods return new buffers."""

    X: FloatArray
    y: NDArray[Any]
    time: FloatArray

    @classmethod
    def empty(cls, n_features: int) -> WindowRows:
        return cls(np.zeros((0, n_features)), np.zeros(0, dtype=np.int64), np.zeros(0))

    @classmethod
    def from_arrays(cls, X: Any, y: Any, time: Any, max_features: int) -> WindowRows:
        """Return a buffer of arrays read from a file; raise ValueError if the arrays are inconsistent."""
        X, y, time = np.asarray(X), np.asarray(y), np.asarray(time)
        if X.ndim != 2 or X.dtype != np.float64 or X.shape[1] > max_features:
            raise ValueError("the rows of a window must be a two-dimensional array of numbers")
        if y.shape != X.shape[:1] or time.shape != X.shape[:1] or time.dtype != np.float64:
            raise ValueError("every row of a window needs one label and one time")
        return cls(X, y, time)

    def __len__(self) -> int:
        return len(self.y)

    def append(self, X: FloatArray, y: NDArray[Any], time: FloatArray | None = None) -> WindowRows:
        """Return a buffer with rows appended; narrower rows are padded with zeros."""
        return WindowRows(
            np.concatenate([padded(self.X, X.shape[1]), X]),
            np.concatenate([self.y, y]) if len(self) else y,
            np.concatenate([self.time, np.zeros(len(y)) if time is None else time]),
        )

    def without_oldest(self, n_rows: int) -> WindowRows:
        """Return a buffer without the oldest ``n_rows`` rows."""
        newer = self.X[n_rows:], self.y[n_rows:], self.time[n_rows:]
        # If most rows leave, the others are copied, so that the memory of the large array can be freed.
        return WindowRows(*(array.copy() for array in newer) if 2 * n_rows > len(self) else newer)


class WindowWrapper(GrowingMixin, Learner):
    """Base class of wrappers that decide which rows of a stream their estimator remembers.

    ``estimator`` is the unfitted learner, ``estimator_`` the fitted one. A subclass defines ``_learn_rows``
    or ``_slide``, which replace ``estimator_`` in a shallow copy of the wrapper.
    """

    _finds_nonfinite = True  # the estimator checks for NaN and infinity

    # Attributes of an earlier fit that fit() must remove, because partial_fit() does not always set them.
    _removed_by_fit: ClassVar[frozenset[str]] = frozenset({"_lock", "feature_names_in_", "n_rebuilt_"})
    # Number of rows after which the saved state stops growing, or None if it never stops; with None, the
    # contract check of the memory is skipped.
    _full_after_rows: int | None = None

    estimator: Any
    estimator_: Any
    _map: RandomFeatures | None = None  # fitted feature map that several estimators share

    learner_ = renamed_attribute("estimator_", "learner_")

    @property
    def _traits(self) -> Traits:  # type: ignore[override]
        exempt = {}
        if self._full_after_rows is not None and self._full_after_rows > 1000:
            exempt["memory_stays_bounded"] = f"it grows for the first {self._full_after_rows} rows"
        return Traits(
            rounding=traits_of(self.estimator).exact,
            bounded_memory=self._full_after_rows is not None,
            exempt=exempt,
        )

    @transactional
    def fit(self, /, X: ArrayLike, y: ArrayLike, **kwargs: Any) -> Self:  # type: ignore[override]
        """Discard the learned state and learn the given rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Labels of the rows.
        **kwargs : dict
            Further arguments of ``partial_fit``.

        Returns
        -------
        self
        """
        fitted: Any = type(self)(**self.get_params(deep=False))
        fitted.partial_fit(X, y, **kwargs)
        kept = {name: value for name, value in self.__dict__.items() if name not in self._removed_by_fit}
        self.__dict__ = kept | fitted.__dict__ | {"_lock": lock_of(self)}
        return self

    def partial_fit(  # type: ignore[override]  # no sample_weight: the age of a row determines its weight
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,  # noqa: ARG002  every learner has this parameter
        *,
        time: ArrayLike | None = None,
    ) -> Self:
        """Learn the given rows and forget rows that are too old. The call is atomic.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Labels of the rows.
        classes : ignored
            Accepted for compatibility with other learners.
        time : array-like of shape (n_samples,), optional
            Times of the rows in seconds, in increasing order; required if the window is a duration, and
            ignored otherwise.

        Returns
        -------
        self
        """
        with lock_of(self):
            working = shallow_copy(self)
            working._slide(X, y, time, published=self)
            self.__dict__ = working.__dict__
        return self

    def _slide(self, X: ArrayLike, y: ArrayLike, time: ArrayLike | None, *, published: Any) -> None:  # noqa: ARG002
        """Learn rows and forget others. ``self`` is a shallow copy; other threads see ``published``."""
        self._check_params()
        is_first = not self._is_started()
        rows, labels = validate_plain_rows(self, X, y, "partial_fit")
        self._learn_rows(rows, labels, is_first=is_first)

    @abstractmethod
    def _learn_rows(self, rows: FloatArray, labels: NDArray[Any], *, is_first: bool) -> None:
        """Learn validated rows and set ``estimator_``. ``is_first`` says that none were learned before."""

    def _check_methods(self, *methods: str) -> None:
        check_not_class(self.estimator, type(self).__name__)
        for method in methods:
            if not hasattr(self.estimator, method):
                raise ParameterError(
                    f"the estimator must have {method}(); {type(self.estimator).__name__} does not.",
                    source=type(self).__name__,
                )

    @property
    def labels_follow_scores(self) -> bool:  # type: ignore[override]
        """Whether predict() of the estimator is the sign or argmax of its decision_function()."""
        return bool(getattr(self.estimator, "labels_follow_scores", False))

    @fitted_property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that the estimator currently knows."""
        return np.asarray(self.estimator_.classes_)

    grow = estimator_has("grow")(GrowingMixin.grow)

    def _grow(self, n_features: int) -> None:
        self.estimator_ = shallow_copy(self.estimator_).grow(n_features)

    decision_function = estimator_has("decision_function")(GrowingMixin.decision_function)
    explain = estimator_has("decision_function")(GrowingMixin.explain)

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        estimator = self._fitted_estimator(method)
        scores = self._result(estimator, "decision_function", validate_rows(self, X, method))
        return scores[:, None] if scores.ndim == 1 else scores, np.asarray(estimator.classes_)

    def _validated_result(self, method: str, X: Any) -> NDArray[Any]:
        return self._result(self._fitted_estimator(method), method, validate_rows(self, X, method))

    def _result(self, estimator: Any, method: str, rows: Any) -> NDArray[Any]:
        """Return the result of a method of the fitted estimator for validated rows."""
        return np.asarray(getattr(estimator, method)(rows))

    def _remembered_rows(self) -> RememberedRows | None:
        estimator = self.estimator_
        return estimator._remembered_rows() if isinstance(estimator, BatchLearner) else None

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        estimator = self.estimator_
        if isinstance(estimator, BatchLearner):
            return estimator._attribution(X, background)
        return super()._attribution(X, background)

    def _fitted_estimator(self, method: str) -> Any:
        check_started(self, method)
        return self.estimator_

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        # Fast path: the estimator directly predicts a single row that needs no conversion.
        # A single attribute is read, so no snapshot is necessary.
        attributes = self.__dict__
        if "estimator_" in attributes and self._can_delegate(attributes, X):
            return np.asarray(attributes["estimator_"].predict(X))
        return self._predict(X)

    def _can_delegate(self, attributes: dict[str, Any], X: object) -> bool:
        """Return whether X is one row that ``estimator_`` accepts without conversion."""
        return (
            type(X) is np.ndarray
            and X.shape == (1, attributes["n_features_in_"])
            and X.dtype.char == "d"
            and X.dtype.isnative
            and X.flags.c_contiguous
            and "feature_names_in_" not in attributes
        )

    @snapshot_read
    def _predict(self, X: ArrayLike) -> NDArray[Any]:
        return self._validated_result("predict", X)

    def _has_probabilities(self) -> bool:
        return hasattr(self.estimator, "predict_proba")

    @available_if(lambda wrapper: wrapper._has_probabilities())  # type: ignore[untyped-decorator]
    @snapshot_read
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the class probabilities of the estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._validated_result("predict_proba", X)

    def _new_estimator(self, rows: FloatArray) -> Any:
        """Return an unfitted clone of the estimator. All share one feature map, so they can be merged."""
        estimator = clone(self.estimator)
        if getattr(estimator, "feature_map", None) is not None:
            if self._map is None:
                check_parameters(estimator)
                self._map = estimator.feature_map.fitted_on(rows)
            estimator.set_params(feature_map=self._map)
        return estimator

    # -- saving and loading -------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        return {"learner": self.estimator_, "names": self.__dict__.get("feature_names_in_"), "map": self._map}

    def _set_state(self, state: dict[str, Any]) -> None:
        estimator: Any = state["learner"]
        if type(estimator) is not type(self.estimator) or not getattr(estimator, "_is_started", bool)():
            raise ValueError(f"the estimator must be a fitted {type(self.estimator).__name__}")
        self.estimator_ = estimator
        names, self._map = state.get("names"), state.get("map")  # missing in files of earlier versions
        if self._map is not None and not isinstance(self._map, RandomFeatures):
            raise ValueError("the feature map must be an object of class RandomFeatures")
        self._set_features({"n_features": self.estimator_.n_features_in_, "feature_names": names})
