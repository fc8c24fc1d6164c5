"""Functions that predict and learn a chunk of rows with any model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._labels import Codes, LabelEncoder, encode_labels, winners
from steelyard._types import FloatArray
from steelyard.streams.chunks import Chunk, padded


@dataclass(frozen=True)
class Predictions:
    """Predicted labels and scores of some rows."""

    classes: list[Any]  # classes of the learned rows
    indices: Codes  # index of each predicted label in `predicted`; -1 if the row has no prediction
    predicted: list[Any]  # distinct labels; may contain labels that are not in `classes`
    # One column per class, or for two classes only the scores of the second; None if the model has no scores.
    decision: FloatArray | None
    probabilities: FloatArray | None = None  # one column per class, if requested and available

    @classmethod
    def of(cls, labels: NDArray[Any], classes: list[Any], scores: FloatArray) -> Predictions:
        """Return predictions from labels and one column of scores per class."""
        predicted, indices = _encode_predicted(labels)
        return cls(classes, indices, predicted, scores)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def labels(self) -> NDArray[Any]:
        """Predicted label of each row, or None for rows without a prediction."""
        if len(self.indices) and self.indices.min() < 0:
            return np.array([None if index < 0 else self.predicted[index] for index in self.indices], object)
        return np.array(self.predicted)[self.indices]

    @property
    def scores(self) -> FloatArray:
        """Scores with one column per class; for two classes, the first is the negative of the second."""
        if self.decision is None:
            return np.zeros((len(self), len(self.classes)))
        return self.decision if self.decision.ndim == 2 else np.column_stack([-self.decision, self.decision])

    def codes(self, table: LabelEncoder) -> Codes:
        """Return the codes of the predicted labels in ``table``, -1 for rows without a prediction."""
        codes: Codes = np.append(table.numbers(self.predicted), -1)[self.indices]
        return codes

    def score_of(self, label: Any) -> FloatArray:
        """Return the scores of one class, or a constant below all other scores for an unknown class."""
        if label not in self.classes:
            return np.full(len(self), self.scores.min(initial=0.0) - 1.0)
        if self.decision is None:
            return np.zeros(len(self))
        index = self.classes.index(label)
        if self.decision.ndim == 2:
            return self.decision[:, index]
        return self.decision if index else -self.decision

    def by_label(
        self, values: FloatArray | None, labels: list[Any], unknown: FloatArray | float
    ) -> FloatArray:
        """Return one column per label of scores or probabilities, which are nan if ``values`` is None.

        Labels that the model does not know get the value ``unknown``.
        """
        if values is None:
            return np.full((len(self.indices), len(labels)), np.nan)
        table = np.empty((len(self.indices), len(labels)))
        table.T[:] = unknown
        for k, label in enumerate(labels):
            if label in self.classes:
                table[:, k] = values[:, self.classes.index(label)]
        return table

    def take(self, rows: NDArray[Any] | slice) -> Predictions:
        """Return the predictions of some of the rows."""
        return replace(
            self,
            indices=self.indices[rows],
            decision=None if self.decision is None else self.decision[rows],
            probabilities=None if self.probabilities is None else self.probabilities[rows],
        )


def is_ready(model: Any) -> bool:
    """Return whether a model can predict, usually because it is fitted."""
    if getattr(model, "predicts_unfitted", False):
        return True
    try:
        return len(model.classes_) > 0
    except (AttributeError, ValueError):
        return False


def rows_for_model(model: Any, chunk: Chunk) -> Any:
    """Return the rows of a chunk for prediction: as a table, or with the features that the model knows."""
    X = chunk.rows_for(model)
    if X is chunk.columns:
        return X
    n_more = X.shape[1] - getattr(model, "n_features_in_", X.shape[1])
    if n_more < 0:
        return padded(X, model.n_features_in_)
    # A feature that the model has not learned has weight zero, so it is left out.
    return np.ascontiguousarray(X[:, :-n_more]) if n_more else X


def predict_chunk(
    model: Any, chunk: Chunk, *, probabilities: bool = False, sample_cost: FloatArray | None = None
) -> Predictions:
    """Return the predictions of a model for a chunk.

    If the labels of a model follow from its scores, predict() is not called, so rows are scored only once.
    ``sample_cost`` is passed to models whose threshold minimises costs.
    """
    X = rows_for_model(model, chunk)
    classes = np.asarray(model.classes_).tolist()
    has_probabilities = probabilities and len(classes) > 1 and hasattr(model, "predict_proba")
    proba = np.asarray(model.predict_proba(X), dtype=np.float64) if has_probabilities else None
    uses_cost = sample_cost is not None and len(classes) == 2 and getattr(model, "takes_cost", False)
    if getattr(model, "labels_follow_scores", False) and not uses_cost:
        decision = _scores(model, X, len(classes))
        if decision is not None:
            return Predictions(classes, winners(decision, len(classes)), classes, decision, proba)
        if len(classes) == 1:
            return Predictions(classes, np.zeros(len(chunk), dtype=np.intp), classes, None)
    takes_time = getattr(model, "predict_takes_time", False)
    options = {"time": chunk.time} if takes_time else {}
    labels = model.predict(X, **options, **({"sample_cost": sample_cost} if uses_cost else {}))
    predicted, indices = _encode_predicted(np.asarray(labels))
    return Predictions(classes, indices, predicted, _scores(model, X, len(classes)), proba)


def learn_chunk(model: Any, chunk: Chunk, **options: Any) -> None:
    """Learn the rows of a chunk. A model that can grow first adds the new features.

    ``options`` are further arguments of ``partial_fit``, such as ``sample_weight``.
    """
    X = chunk.rows_for(model)
    if hasattr(model, "grow") and hasattr(model, "n_features_in_"):
        if X.shape[1] > model.n_features_in_:
            model.grow(X.shape[1])
        elif X.shape[1] < model.n_features_in_:
            X = padded(X, model.n_features_in_)
    if getattr(model, "takes_time", False):
        options["time"] = chunk.time
    model.partial_fit(X, chunk.y, **options)


def _encode_predicted(labels: NDArray[Any]) -> tuple[list[Any], Codes]:
    """Return the distinct labels and the index of each row's label, -1 for the label None."""
    if labels.dtype != object:
        predicted, codes = encode_labels(labels)
        return predicted, codes.astype(np.intp)
    rows = labels.tolist()
    index = {label: k for k, label in enumerate(dict.fromkeys(x for x in rows if x is not None))}
    return list(index), np.array([-1 if label is None else index[label] for label in rows], dtype=np.intp)


def _scores(model: Any, X: FloatArray, n_classes: int) -> FloatArray | None:
    """Return the scores (one column for two classes, else one per class), or None if there are none."""
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
