"""Learners as CapyMOA classifiers, for CapyMOA streams and evaluations (extra ``capymoa``, needs Java)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.base import clone

from steelyard._types import FloatArray
from steelyard.exceptions import ParameterError

__all__ = ["to_capymoa"]


def to_capymoa(learner: Any, schema: Any, random_seed: int = 1) -> Any:
    """Return a learner as a CapyMOA classifier, which learns instances one by one.

    Parameters
    ----------
    learner : Learner
        Any learner with ``partial_fit``; an unfitted clone of it is used.
    schema : capymoa.stream.Schema
        The schema of the stream: ``stream.get_schema()``.
    random_seed : int, default=1
        Value of the parameter ``random_state``, if the learner has one.

    Returns
    -------
    capymoa.base.Classifier
        A classifier whose attribute ``learner`` is the trained learner. The labels of the learner are the
        label indices of CapyMOA.
    """
    if not hasattr(learner, "partial_fit"):
        raise ParameterError(
            f"a learner needs partial_fit() to follow a stream; got {type(learner).__name__}.",
            source="to_capymoa",
        )
    return _classifier()(learner, schema, random_seed)


@cache
def _classifier() -> type:
    """Return the adapter class, which is created on first use because importing CapyMOA starts Java."""
    from capymoa.base import Classifier

    class CapyMOAClassifier(Classifier):
        """CapyMOA classifier that wraps a learner."""

        def __init__(self, learner: Any, schema: Any, random_seed: int = 1) -> None:
            super().__init__(schema=schema, random_seed=random_seed)
            self.learner = clone(learner)
            if "random_state" in self.learner.get_params():
                self.learner.set_params(random_state=random_seed)

        def __str__(self) -> str:
            return type(self.learner).__name__

        def train(self, instance: Any) -> None:
            self.learner.partial_fit(instance.x.reshape(1, -1), [instance.y_index])

        def predict(self, instance: Any) -> int | None:
            """Return the index of the predicted label, or None before the first instance is learned."""
            return int(self.learner.predict(instance.x.reshape(1, -1))[0]) if self._is_fitted() else None

        def predict_proba(self, instance: Any) -> FloatArray | None:
            """Return a probability for each label, which is 0 or 1 if the learner has no predict_proba()."""
            if not self._is_fitted():
                return None
            probabilities = np.zeros(self.schema.get_num_classes())
            if hasattr(self.learner, "predict_proba"):
                row = instance.x.reshape(1, -1)
                probabilities[self.learner.classes_] = self.learner.predict_proba(row)[0]
            else:
                probabilities[self.predict(instance)] = 1.0
            return probabilities

        def _is_fitted(self) -> bool:
            return hasattr(self.learner, "classes_")

    return CapyMOAClassifier
