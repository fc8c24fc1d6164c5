"""Learners of other libraries in the same race: scikit-learn's and river's."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError

__all__ = ["RiverPeer", "SklearnPeer"]


class SklearnPeer:
    """A scikit-learn classifier with ``partial_fit``, behind a scaler that learns along.

    Such classifiers must know all labels at their first rows. Rows wait until there are two labels; a label
    that comes later is not learned, and ``n_refused_`` counts such rows.

    Parameters
    ----------
    estimator : object
        A classifier with ``partial_fit``.
    scale : bool, default=True
        Whether features are brought to mean 0 and variance 1 as of all rows so far.
    """

    def __init__(self, estimator: Any, *, scale: bool = True) -> None:
        if not hasattr(estimator, "partial_fit"):
            raise ParameterError(
                "a stream needs a classifier with partial_fit(); it has none.",
                source=type(estimator).__name__,
            )
        self.estimator = estimator
        self.scaler = StandardScaler() if scale else None
        self.n_refused_ = 0
        self._waiting: list[tuple[FloatArray, NDArray[Any]]] = []

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels that the estimator knows; before its first rows there are none."""
        return np.asarray(self.estimator.classes_)

    def __getattr__(self, name: str) -> Any:
        if name in {"decision_function", "predict_proba", "n_features_in_"}:
            inner = getattr(self.estimator, name)
            return inner if name == "n_features_in_" else lambda X: inner(self._scaled(X))
        raise AttributeError(name)

    def partial_fit(self, X: FloatArray, y: NDArray[Any]) -> Self:
        """Learn these rows too."""
        if self.scaler is not None:
            self.scaler.partial_fit(X)
        if not hasattr(self.estimator, "classes_"):
            self._waiting.append((X, y))
            X, y = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
            labels = np.unique(y)
            if len(labels) < 2:
                return self
            self._waiting = []
            self.estimator.partial_fit(self._scaled(X), y, classes=labels)
            return self
        known = np.isin(y, self.classes_)
        self.n_refused_ += int((~known).sum())
        if known.any():
            self.estimator.partial_fit(self._scaled(X[known]), y[known])
        return self

    def predict(self, X: FloatArray) -> NDArray[Any]:
        """Labels of rows."""
        return np.asarray(self.estimator.predict(self._scaled(X)))

    def _scaled(self, X: FloatArray) -> FloatArray:
        return X if self.scaler is None else np.asarray(self.scaler.transform(X))


class RiverPeer:
    """A river classifier, fed row by row.

    Models that know only False and True are told the labels so: 0 and 1 as they are, others in the order in
    which they come. A third label is then not learned, and ``n_refused_`` counts such rows.

    Parameters
    ----------
    model : river.base.Classifier
        The model or pipeline.
    scale : bool, default=True
        Whether river's ``StandardScaler`` stands in front.
    labels : sequence, optional
        Labels that are known beforehand; an answer that means a label not known yet is no answer.
    features : sequence, optional
        What the columns are called in the model; 0, 1, ... by default.
    """

    answers_at_once = True  # river's models answer before they have learned anything

    def __init__(
        self,
        model: Any,
        *,
        scale: bool = True,
        labels: Sequence[Any] = (),
        features: Sequence[Hashable] = (),
    ) -> None:
        self._many = bool(getattr(model, "_multiclass", True))
        if scale:
            from river import preprocessing

            model = preprocessing.StandardScaler() | model
        self.model = model
        self.n_refused_ = 0
        self._features = tuple(features)
        self._labels: dict[Any, Any] = {}  # what river is told -> our label
        for label in labels:
            self._told(label)

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels seen so far, sorted."""
        return np.array(sorted(self._labels.values()))

    def partial_fit(self, X: FloatArray, y: NDArray[Any]) -> Self:
        """Learn these rows too."""
        told = {label: self._told(label) for label in dict.fromkeys(y.tolist())}
        for row, label in zip(self._rows(X), y.tolist(), strict=True):
            if told[label] is None:
                self.n_refused_ += 1
            else:
                self.model.learn_one(row, told[label])
        return self

    def _rows(self, X: FloatArray) -> list[dict[Hashable, float]]:
        """Rows as river has them."""
        names = self._features or range(X.shape[1])
        if len(names) != X.shape[1]:
            raise DataError(
                f"the model has {len(names)} named features; these rows have {X.shape[1]}.",
                source="RiverPeer",
            )
        return [dict(zip(names, row, strict=True)) for row in X.tolist()]

    def _told(self, label: Any) -> Any:
        """What river is told for a label; None if there is no room for it."""
        for told, known in self._labels.items():
            if known == label:
                return told
        told = label if self._many else bool(label) if label in (0, 1) else len(self._labels) > 0
        if told in self._labels:
            return None
        self._labels[told] = label
        return told

    def predict(self, X: FloatArray) -> NDArray[Any]:
        """Labels of rows; None where the model has no answer."""
        answers = [self.model.predict_one(row) for row in self._rows(X)]
        return np.array([self._labels.get(answer) for answer in answers], dtype=object)

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Probabilities of the labels seen so far."""
        told = sorted(self._labels, key=self._labels.__getitem__)
        rows = [self.model.predict_proba_one(row) for row in self._rows(X)]
        return np.array([[row.get(name, 0.0) for name in told] for row in rows]).reshape(len(X), len(told))
