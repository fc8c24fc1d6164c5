"""Adapters for classifiers of scikit-learn and river."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from steelyard._types import FloatArray
from steelyard.base import BatchLearner
from steelyard.exceptions import DataError, ParameterError
from steelyard.windowing import Refit


def as_stream_learner(model: Any) -> Any:
    """Return the model itself if ``partial_fit(X, y)`` can train it, otherwise an adapter.

    A classifier without ``partial_fit`` is refitted periodically. ``partial_fit`` of scikit-learn needs all
    labels in its first call; :class:`SklearnPeer` collects them.
    """
    if not hasattr(model, "partial_fit"):
        return Refit(model)
    is_learner = isinstance(model, BatchLearner | SklearnPeer | RiverPeer)
    if is_learner or "classes" not in inspect.signature(model.partial_fit).parameters:
        return model
    return SklearnPeer(model, scale=False)


class SklearnPeer:
    """Adapter for a scikit-learn classifier with ``partial_fit``, preceded by an incremental scaler.

    Such classifiers need all labels in the first call, so rows are buffered until there are two labels. Rows
    with labels that appear later are not learned; ``n_refused_`` counts these rows.

    Parameters
    ----------
    estimator : object
        A classifier with ``partial_fit``.
    scale : bool, default=True
        Whether features are scaled to mean 0 and variance 1 over all rows so far.
    """

    def __init__(self, estimator: Any, *, scale: bool = True) -> None:
        if not hasattr(estimator, "partial_fit"):
            raise ParameterError(
                "the classifier must have a method partial_fit().", source=type(estimator).__name__
            )
        self.estimator = estimator
        self.scaler = StandardScaler() if scale else None
        self.n_refused_ = 0
        self._buffered: list[tuple[FloatArray, NDArray[Any]]] = []

    def __repr__(self) -> str:
        return f"SklearnPeer({self.estimator!r}, scale={self.scaler is not None})"

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels that the estimator has learned."""
        return np.asarray(self.estimator.classes_)

    def __getattr__(self, name: str) -> Any:
        if name in {"decision_function", "predict_proba", "n_features_in_"}:
            inner = getattr(self.estimator, name)
            return inner if name == "n_features_in_" else lambda X: inner(self._scaled(X))
        raise AttributeError(name)

    def partial_fit(self, X: FloatArray, y: NDArray[Any]) -> Self:
        """Learn more rows."""
        if self.scaler is not None:
            self.scaler.partial_fit(X)
        if not hasattr(self.estimator, "classes_"):
            self._buffered.append((X, y))
            X, y = (np.concatenate(parts) for parts in zip(*self._buffered, strict=True))
            labels = np.unique(y)
            if len(labels) < 2:
                return self
            self._buffered = []
            self.estimator.partial_fit(self._scaled(X), y, classes=labels)
            return self
        known = np.isin(y, self.classes_)
        self.n_refused_ += int((~known).sum())
        if known.any():
            self.estimator.partial_fit(self._scaled(X[known]), y[known])
        return self

    def predict(self, X: FloatArray) -> NDArray[Any]:
        """Predict labels."""
        return np.asarray(self.estimator.predict(self._scaled(X)))

    def _scaled(self, X: FloatArray) -> FloatArray:
        return X if self.scaler is None else np.asarray(self.scaler.transform(X))


class RiverPeer:
    """Adapter for a river classifier, which learns row by row.

    Binary river models use the labels False and True. 0 becomes False and 1 becomes True; other labels are
    converted in order of appearance. Rows with a third label are not learned; ``n_refused_`` counts them.

    Parameters
    ----------
    model : river.base.Classifier
        The model or pipeline.
    scale : bool, default=True
        Whether to put a river ``StandardScaler`` before the model.
    labels : sequence, optional
        Labels that are known in advance, in addition to the labels of learned rows.
    features : sequence, optional
        Names of the features in the model; 0, 1, ... by default.
    """

    predicts_unfitted = True  # river models predict before they have learned anything

    def __init__(
        self, model: Any, *, scale: bool = True, labels: Sequence[Any] = (), features: Sequence[Hashable] = ()
    ) -> None:
        self._is_multiclass = bool(getattr(model, "_multiclass", True))
        if scale:
            from river import preprocessing

            model = preprocessing.StandardScaler() | model
        self.model = model
        self.n_refused_ = 0
        self._features = tuple(features)
        self._labels: dict[Any, Any] = {}  # label of the stream for each label of the river model
        for label in labels:
            self._river_label(label)

    def __repr__(self) -> str:
        return f"RiverPeer({self.model!r})"

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels seen so far, sorted."""
        return np.array(sorted(self._labels.values()))

    def partial_fit(self, X: FloatArray, y: NDArray[Any]) -> Self:
        """Learn more rows."""
        river_labels = {label: self._river_label(label) for label in dict.fromkeys(y.tolist())}
        for row, label in zip(self._rows(X), y.tolist(), strict=True):
            if river_labels[label] is None:
                self.n_refused_ += 1
            else:
                self.model.learn_one(row, river_labels[label])
        return self

    def _rows(self, X: FloatArray) -> list[dict[Hashable, float]]:
        """Return the rows as dictionaries."""
        names = self._features or range(X.shape[1])
        if len(names) != X.shape[1]:
            raise DataError(
                f"the model has {len(names)} named features, but the rows have {X.shape[1]}.",
                source="RiverPeer",
            )
        return [dict(zip(names, row, strict=True)) for row in X.tolist()]

    def _river_label(self, label: Any) -> Any:
        """Return the label that river uses, or None for a third label of a binary model."""
        for river_label, known in self._labels.items():
            if known == label:
                return river_label
        river_label = (
            label if self._is_multiclass else bool(label) if label in (0, 1) else len(self._labels) > 0
        )
        if river_label in self._labels:
            return None
        self._labels[river_label] = label
        return river_label

    def predict(self, X: FloatArray) -> NDArray[Any]:
        """Predict labels; rows without a prediction get the label None."""
        predicted = [self.model.predict_one(row) for row in self._rows(X)]
        return np.array([self._labels.get(label) for label in predicted], dtype=object)

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Predict probabilities of the labels seen so far."""
        order = sorted(self._labels, key=self._labels.__getitem__)
        rows = [self.model.predict_proba_one(row) for row in self._rows(X)]
        return np.array([[row.get(name, 0.0) for name in order] for row in rows]).reshape(len(X), len(order))
