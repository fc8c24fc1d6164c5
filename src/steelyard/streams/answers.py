"""What a model says to rows: a score for each class that it knows, and the label that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._labels import encode_labels, winners
from steelyard._types import FloatArray
from steelyard.base import BatchLearner
from steelyard.streams.chunks import Chunk, padded
from steelyard.streams.labels import Codes, LabelTable

__all__ = ["Answers", "ask", "is_ready", "rows_taken", "teach"]


@dataclass(frozen=True)
class Answers:
    """Predictions for some rows.

    Attributes
    ----------
    classes : list
        The classes that the model knew.
    positions : ndarray of shape (n_rows,)
        The place of each row's answer among ``said``; -1 where the model had none.
    said : list
        Labels that were answered; ``classes`` unless the model says what it never learned.
    given : ndarray of shape (n_rows,) or (n_rows, n_classes), or None
        Scores as the model gives them: for two classes one column, which speaks for the second. None where
        it gives none.
    """

    classes: list[Any]
    positions: Codes
    said: list[Any]
    given: FloatArray | None

    @classmethod
    def of(cls, labels: NDArray[Any], classes: list[Any], scores: FloatArray) -> Answers:
        """Answers that were given as labels and scores of each class."""
        said, positions = _numbered(labels)
        return cls(classes, positions, said, scores)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def labels(self) -> NDArray[Any]:
        """The label of each row; None where the model had no answer."""
        if len(self.positions) and self.positions.min() < 0:
            return np.array([None if place < 0 else self.said[place] for place in self.positions], object)
        return np.array(self.said)[self.positions]

    @property
    def scores(self) -> FloatArray:
        """One column for each class, the higher the more likely; of two classes one is minus the other."""
        if self.given is None:
            return np.zeros((len(self), len(self.classes)))
        return self.given if self.given.ndim == 2 else np.column_stack([-self.given, self.given])

    def codes(self, table: LabelTable) -> Codes:
        """The numbers of the answers; -1 where there is none."""
        numbers = np.append(table.numbers(self.said), -1)  # the last one is for no answer
        codes: Codes = numbers[self.positions]
        return codes

    def score_of(self, label: Any) -> FloatArray:
        """Scores that speak for one class; zero where the model does not know it."""
        if self.given is None or label not in self.classes:
            return np.zeros(len(self))
        place = self.classes.index(label)
        if self.given.ndim == 2:
            return self.given[:, place]
        return self.given if place else -self.given

    def table(self, labels: list[Any]) -> FloatArray:
        """One column for each of the labels; a class that the model does not know scores lowest."""
        scores = self.scores
        columns = np.empty((len(self), len(labels)))
        columns[:] = (scores.min(axis=1, initial=0.0) - 1.0)[:, None]
        known = [(place, self.classes.index(x)) for place, x in enumerate(labels) if x in set(self.classes)]
        if known:
            ours, theirs = zip(*known, strict=True)
            columns[:, ours] = scores[:, theirs]
        return columns

    def some(self, mask: NDArray[np.bool_] | slice) -> Answers:
        """The answers to some of the rows."""
        given = None if self.given is None else self.given[mask]
        return Answers(self.classes, self.positions[mask], self.said, given)


def is_ready(model: Any) -> bool:
    """Whether a model has learned enough to answer."""
    if getattr(model, "answers_at_once", False):
        return True
    try:
        return len(model.classes_) > 0
    except (AttributeError, ValueError):
        return False


def rows_taken(model: Any, chunk: Chunk) -> FloatArray:
    """The rows of a chunk in the width that the model has learned."""
    X = chunk.rows_for(model)
    # A feature that the model has not met has weight zero: leaving it out is the same.
    width = model.n_features_in_ if hasattr(model, "n_features_in_") else X.shape[1]
    return padded(X, width) if X.shape[1] <= width else np.ascontiguousarray(X[:, :width])


def ask(model: Any, chunk: Chunk) -> Answers:
    """The model's answers, before it learns the labels.

    Rows are scored once: learners whose labels follow from their scores are not asked for labels.
    """
    X = rows_taken(model, chunk)
    classes = np.asarray(model.classes_).tolist()
    if getattr(model, "labels_follow_scores", False):
        given = _scores(model, X, len(classes))
        if given is not None:
            return Answers(classes, winners(given, len(classes)), classes, given)
        if len(classes) == 1:
            return Answers(classes, np.zeros(len(X), dtype=np.intp), classes, None)
    said, positions = _numbered(np.asarray(model.predict(X)))
    return Answers(classes, positions, said, _scores(model, X, len(classes)))


def teach(model: Any, chunk: Chunk) -> None:
    """Let the model learn the rows; one that can grow does so first."""
    X = chunk.rows_for(model)
    if hasattr(model, "grow") and hasattr(model, "n_features_in_"):
        if X.shape[1] > model.n_features_in_:
            model.grow(X.shape[1])
        X = padded(X, model.n_features_in_)
    if getattr(model, "takes_time", False):
        model.partial_fit(X, chunk.y, time=chunk.time)
    else:
        model.partial_fit(X, chunk.told_labels() if isinstance(model, BatchLearner) else chunk.y)


def _numbered(labels: NDArray[Any]) -> tuple[list[Any], Codes]:
    """Distinct answers and the place of each; -1 for None."""
    if labels.dtype != object:
        said, positions = encode_labels(labels)
        return said, positions.astype(np.intp)
    said = list(dict.fromkeys(label for label in labels.tolist() if label is not None))
    places = {label: place for place, label in enumerate(said)}
    return said, np.array(
        [-1 if label is None else places[label] for label in labels.tolist()], dtype=np.intp
    )


def _scores(model: Any, X: FloatArray, n_classes: int) -> FloatArray | None:
    """One column for two classes, one a class for more; None where a model gives no scores."""
    if n_classes < 2:
        return None
    if hasattr(model, "decision_function"):
        scores = np.asarray(model.decision_function(X), dtype=np.float64)
    elif hasattr(model, "predict_proba"):
        scores = np.asarray(model.predict_proba(X), dtype=np.float64)
        if scores.shape[1] == 2:
            scores = scores[:, 1] - 0.5
    else:
        return None
    if scores.ndim == 2 and scores.shape[1] == 1:
        return scores[:, 0]
    return scores[:, :n_classes] if scores.ndim == 2 else scores
