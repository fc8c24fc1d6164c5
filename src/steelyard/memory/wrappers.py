"""What all learners that manage another learner have in common: they answer as it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, NotFittedError, ParameterError

__all__ = ["Wrapper"]


Method = TypeVar("Method", bound=Callable[..., Any])


def _learner_has(name: str) -> Callable[[Method], Method]:
    has: Callable[[Method], Method] = available_if(lambda self: hasattr(self.learner, name))
    return has


class Wrapper(ClassifierMixin, BaseEstimator):
    """A learner around a learner; ``learner_`` is the one at work, a clone of ``learner``."""

    learner: Any
    learner_: Any

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget all, then learn these rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Their labels.

        Returns
        -------
        self
        """
        fresh = clone(self).partial_fit(X, y)
        self.__dict__.update(fresh.__dict__)
        return self

    def _answering(self) -> Any:
        """The learner that answers now."""
        if "learner_" not in self.__dict__:
            raise NotFittedError(
                "this learner is not fitted yet, it has seen no rows.",
                who=type(self).__name__,
                hint="call fit() or partial_fit() first",
            )
        return self.learner_

    def _need(self, *methods: str) -> None:
        for method in methods:
            if not hasattr(self.learner, method):
                raise ParameterError(
                    f"the learner must have {method}(); {type(self.learner).__name__} has not.",
                    who=type(self).__name__,
                )

    @property
    def labels_follow_scores(self) -> bool:
        """Whether the labels are those that the scores say, as with the learner inside."""
        return bool(getattr(self.learner, "labels_follow_scores", False))

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that the learner knows now."""
        return np.asarray(self._answering().classes_)

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return int(self._answering().n_features_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return "learner_" in self.__dict__

    @_learner_has("grow")
    def grow(self, n_features: int) -> Self:
        """Widen to more features at the end.

        Parameters
        ----------
        n_features : int
            The new number of features.

        Returns
        -------
        self
        """
        self._answering().grow(n_features)
        return self

    @_learner_has("decision_function")
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
        return np.asarray(self._answering().decision_function(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return np.asarray(self._answering().predict(X))

    @_learner_has("predict_proba")
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
        return np.asarray(self._answering().predict_proba(X))

    def _arrays(self, X: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[Any]]:
        """Rows and labels as arrays of one length; the learner checks the rest."""
        rows, labels = np.ascontiguousarray(X, dtype=np.float64), np.asarray(y)
        if rows.ndim != 2 or labels.shape != (len(rows),):
            raise DataError(
                f"expected a table and one label for each row; got shapes {rows.shape} and {labels.shape}.",
                who=type(self).__name__,
            )
        return rows, labels
