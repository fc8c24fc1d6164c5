"""What all learners that manage another learner have in common: they answer as it does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if

from steelyard._concurrency import lock_of, shallow_copy, snapshot_read, transactional
from steelyard._types import FloatArray
from steelyard.base import GrowingMixin, check_parameters
from steelyard.exceptions import ParameterError
from steelyard.features import RandomFeatures

__all__ = ["Wrapper"]

Method = TypeVar("Method", bound=Callable[..., Any])


def _learner_has(name: str) -> Callable[[Method], Method]:
    has: Callable[[Method], Method] = available_if(lambda self: hasattr(self.learner, name))
    return has


class Wrapper(GrowingMixin):
    """A learner around a learner; ``learner_`` is the one at work, a clone of ``learner``.

    A call that learns replaces ``learner_`` and all that belongs to it at one moment.
    """

    _finds_nonfinite = True  # the learner inside looks

    _absent_at_first: ClassVar[frozenset[str]] = frozenset({"feature_names_in_", "n_rebuilt_"})

    learner: Any
    learner_: Any
    _map: RandomFeatures | None = None  # settled, where several learners share one

    def fit(self, X: ArrayLike, y: ArrayLike, **more: Any) -> Self:  # type: ignore[override]
        """Forget all, then learn these rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Their labels.
        **more : dict
            What else ``partial_fit`` takes.

        Returns
        -------
        self
        """
        with lock_of(self):
            fresh: Any = type(self)(**self.get_params(deep=False))
            fresh.partial_fit(X, y, **more)
            learned = fresh.__dict__.keys() | self._absent_at_first
            others = {name: value for name, value in self.__dict__.items() if name not in learned}
            self.__dict__ = fresh.__dict__ | others | {"_lock": lock_of(self)}
        return self

    @transactional
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,  # noqa: ARG002  one call serves all learners
    ) -> Self:
        """Learn these rows too, and let what is too old go; both or neither.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : ignored
            Here so that one call serves all learners.

        Returns
        -------
        self
        """
        self._check_params()
        is_first = not self._is_started()
        rows, labels = self._check_plainly(X, y, "partial_fit")
        self._take_in(rows, labels, is_first=is_first)
        return self

    @abstractmethod
    def _take_in(self, rows: FloatArray, labels: NDArray[Any], *, is_first: bool) -> None:
        """Learn checked rows, on a twin of this learner."""

    def _answering(self, method: str) -> Any:
        """The learner that answers now."""
        self._check_started(method)
        return self.learner_

    def _need_methods(self, *methods: str) -> None:
        for method in methods:
            if not hasattr(self.learner, method):
                raise ParameterError(
                    f"the learner must have {method}(); {type(self.learner).__name__} has not.",
                    source=type(self).__name__,
                )

    @property
    def labels_follow_scores(self) -> bool:  # type: ignore[override]
        """Whether the labels are those that the scores say, as with the learner inside."""
        return bool(getattr(self.learner, "labels_follow_scores", False))

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that the learner knows now."""
        self._need("classes_")
        return np.asarray(self.learner_.classes_)

    grow = _learner_has("grow")(GrowingMixin.grow)

    def _grow(self, n_features: int) -> None:
        self.learner_ = shallow_copy(self.learner_).grow(n_features)

    @_learner_has("decision_function")
    @snapshot_read
    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Scores of rows, as the learner gives them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        learner = self._answering("decision_function")
        return self._scores_of(learner, self._check_rows(X, "decision_function"))

    def _scores_of(self, learner: Any, rows: Any) -> FloatArray:
        return np.asarray(learner.decision_function(rows))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        # As all learners do. A single row that needs no conversion is a matter of the learner inside alone,
        # and who reads one attribute sees one moment.
        attributes = self.__dict__
        if "learner_" in attributes and self._hands_on(attributes, X):
            return np.asarray(attributes["learner_"].predict(X))
        return self._labels(X)

    def _hands_on(self, attributes: dict[str, Any], X: object) -> bool:
        """Whether the learner inside would be asked for the label of this very row."""
        return (
            type(X) is np.ndarray
            and X.shape == (1, attributes["n_features_in_"])
            and X.dtype.char == "d"
            and X.dtype.isnative
            and X.flags.c_contiguous
            and "feature_names_in_" not in attributes
        )

    @snapshot_read
    def _labels(self, X: ArrayLike) -> NDArray[Any]:
        learner = self._answering("predict")
        return self._labels_of(learner, self._check_rows(X, "predict"))

    def _labels_of(self, learner: Any, rows: Any) -> NDArray[Any]:
        return np.asarray(learner.predict(rows))

    @_learner_has("predict_proba")
    @snapshot_read
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probabilities of the classes, as the learner gives them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        learner = self._answering("predict_proba")
        return np.asarray(learner.predict_proba(self._check_rows(X, "predict_proba")))

    # -- files --------------------------------------------------------------------------------------

    def _fresh_learner(self, rows: FloatArray) -> Any:
        """A clone of the learner without rows; its feature map is settled by the first rows, for all of them.

        Several learners can only be brought together behind one map.
        """
        learner = clone(self.learner)
        if getattr(learner, "feature_map", None) is not None:
            if self._map is None:
                check_parameters(learner)
                self._map = learner.feature_map.settled(rows)
            learner.set_params(feature_map=self._map)
        return learner

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        return {"learner": self.learner_, "names": self.__dict__.get("feature_names_in_"), "map": self._map}

    def _set_state(self, state: dict[str, Any]) -> None:
        self.learner_ = self._of_my_kind(state["learner"])
        names, self._map = state.get("names"), state.get("map")  # files of earlier versions have none
        if self._map is not None and not isinstance(self._map, RandomFeatures):
            raise ValueError("the map inside must be one of random features")
        self._set_features({"n_features": self.learner_.n_features_in_, "feature_names": names})

    def _of_my_kind(self, learner: Any) -> Any:
        """A learner from a file, which could be anything."""
        if type(learner) is not type(self.learner) or not getattr(learner, "_is_started", bool)():
            raise ValueError(f"the learner inside must be a fitted {type(self.learner).__name__}")
        return learner
