"""Learners as classifiers of CapyMOA, for its streams and evaluations (extra ``capymoa``; it needs Java)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.base import clone

from steelyard._types import FloatArray
from steelyard.exceptions import ParameterError

__all__ = ["to_capymoa"]


def to_capymoa(learner: Any, schema: Any, random_seed: int = 1) -> Any:
    """A learner as a classifier of CapyMOA, which takes instances one by one.

    Parameters
    ----------
    learner : Learner
        Any learner with ``partial_fit``; it is copied, without what it has learned.
    schema : capymoa.stream.Schema
        The schema of the stream: ``stream.get_schema()``.
    random_seed : int, default=1
        Given to a learner that takes its chances.

    Returns
    -------
    capymoa.base.Classifier
        Its ``learner`` is the learner, with all that it has learned; labels are CapyMOA's label indices.
    """
    if not hasattr(learner, "partial_fit"):
        raise ParameterError(
            f"a learner needs partial_fit() to follow a stream; got {type(learner).__name__}.",
            source="to_capymoa",
        )
    return _classifier()(learner, schema, random_seed)


@cache
def _classifier() -> type:
    """The class, made when CapyMOA is first needed: its import starts Java."""
    from capymoa.base import Classifier

    class CapyMOAClassifier(Classifier):
        """A learner among CapyMOA's classifiers."""

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
            """The index of the label; None before anything was learned."""
            return int(self.learner.predict(instance.x.reshape(1, -1))[0]) if self._knows() else None

        def predict_proba(self, instance: Any) -> FloatArray | None:
            """One number for each label of the schema; a learner without probabilities is sure of one."""
            if not self._knows():
                return None
            chances = np.zeros(self.schema.get_num_classes())
            if hasattr(self.learner, "predict_proba"):
                chances[self.learner.classes_] = self.learner.predict_proba(instance.x.reshape(1, -1))[0]
            else:
                chances[self.predict(instance)] = 1.0
            return chances

        def _knows(self) -> bool:
            return hasattr(self.learner, "classes_")

    return CapyMOAClassifier
