"""Coefficients and feature names of a linear model, for exports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from steelyard._types import FloatArray
from steelyard._validation import check_started
from steelyard.base import Label
from steelyard.exceptions import DataError
from steelyard.proximal import ProximalSVC
from steelyard.tables import TableModel


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Coefficients, labels and feature names of a linear model; features of categories come last."""

    # Shape (n_planes, n_features), where n_planes is 1 for up to two classes, else n_classes.
    coef: FloatArray
    intercept: FloatArray  # one intercept per plane, shape (n_planes,)
    classes: list[Label]
    features: list[str]
    categories: list[tuple[str, str]]

    @classmethod
    def of(cls, model: Any, source: str) -> Self:
        """Return the coefficients of a learner or table model; raise DataError if it is not linear."""
        learner = model.estimator if isinstance(model, TableModel) else model
        if not isinstance(learner, ProximalSVC) or learner.feature_map is not None:
            raise DataError(
                f"only a fitted ProximalSVC without a feature map is linear; got {type(learner).__name__}"
                f"{' with a feature map' if isinstance(learner, ProximalSVC) else ''}.",
                source=source,
            )
        check_started(learner, source)
        coef = np.atleast_2d(learner.coef_)
        n_features = coef.shape[1]
        names = learner.__dict__.get("feature_names_in_", learner.__dict__.get("_keys", ()))
        categories: list[tuple[str, str]] = []
        if isinstance(model, TableModel):
            late = model.encoder.numbers[len(model.encoder.numeric_) :]
            if late:
                raise DataError(
                    f"column {late[0]!r} was added to the model later, and cannot be exported.",
                    source=source,
                    hint="fit a model to a table that has all columns from the start",
                )
            names = model.feature_names[:n_features]
            categories = model.encoder.categories_[: n_features - len(model.encoder.numeric_)]
        features = [str(name) for name in names] or [f"x{column}" for column in range(n_features)]
        intercept = np.atleast_1d(learner.intercept_)
        return cls(coef, intercept, learner.classes_.tolist(), features, categories)
