"""What a model says to rows: labels, and a score for each class that it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.streams.chunks import Chunk, padded

__all__ = ["Answers", "ask", "is_ready", "teach"]


@dataclass(frozen=True)
class Answers:
    """Predictions for some rows.

    Attributes
    ----------
    labels : ndarray of shape (n_rows,)
        Predicted labels.
    classes : list
        The classes that the model knew.
    scores : ndarray of shape (n_rows, n_classes)
        The higher, the more likely; for two classes the second column is minus the first.
    """

    labels: NDArray[Any]
    classes: list[Any]
    scores: FloatArray

    def score_of(self, label: Any) -> FloatArray:
        """Scores that speak for one class; zero where the model does not know it."""
        if label not in self.classes or len(self.classes) < 2:
            return np.zeros(len(self.labels))
        return self.scores[:, self.classes.index(label)]

    def table(self, labels: list[Any]) -> FloatArray:
        """One column for each of the labels; a class that the model does not know scores lowest."""
        lowest = self.scores.min(axis=1, initial=0.0) - 1.0
        columns = [self.scores[:, self.classes.index(x)] if x in self.classes else lowest for x in labels]
        return np.column_stack(columns)


def is_ready(model: Any) -> bool:
    """Whether a model has learned enough to answer."""
    if getattr(model, "answers_at_once", False):
        return True
    try:
        return len(model.classes_) > 0
    except (AttributeError, ValueError):
        return False


def ask(model: Any, chunk: Chunk) -> Answers:
    """The model's answers, before it learns the labels."""
    X = chunk.rows_for(model)
    # A feature that the model has not met has weight zero: leaving it out is the same.
    width = model.n_features_in_ if hasattr(model, "n_features_in_") else X.shape[1]
    X = padded(X, width) if X.shape[1] <= width else np.ascontiguousarray(X[:, :width])
    labels = np.asarray(model.predict(X))
    classes = np.asarray(model.classes_).tolist()
    return Answers(labels, classes, _scores(model, X, len(classes)))


def teach(model: Any, chunk: Chunk) -> None:
    """Let the model learn the rows; one that can grow does so first."""
    X = chunk.rows_for(model)
    if hasattr(model, "grow") and is_ready(model):
        if X.shape[1] > model.n_features_in_:
            model.grow(X.shape[1])
        X = padded(X, model.n_features_in_)
    if getattr(model, "takes_time", False):
        model.partial_fit(X, chunk.y, time=chunk.time)
    else:
        model.partial_fit(X, chunk.y)


def _scores(model: Any, X: FloatArray, n_classes: int) -> FloatArray:
    if n_classes < 2:
        return np.zeros((len(X), n_classes))
    if hasattr(model, "decision_function"):
        scores = np.asarray(model.decision_function(X), dtype=np.float64)
    elif hasattr(model, "predict_proba"):
        scores = np.asarray(model.predict_proba(X), dtype=np.float64)
        if scores.shape[1] == 2:
            scores = scores[:, 1] - 0.5
    else:
        return np.zeros((len(X), n_classes))
    if scores.ndim == 1:
        return np.column_stack([-scores, scores])
    if scores.shape[1] == 1:
        return np.column_stack([-scores[:, 0], scores[:, 0]])
    return scores[:, :n_classes]
