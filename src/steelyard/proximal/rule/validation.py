"""Cross-validation from statistics of folds, without a second look at any row."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.proximal.rule.planes import Planes
from steelyard.proximal.rule.rule import Rule
from steelyard.proximal.rule.solver import plane_classes, score_moments
from steelyard.proximal.rule.system import System
from steelyard.proximal.state.folds import FoldedStatistics
from steelyard.proximal.state.statistics import ClassStatistics

__all__ = ["measure", "validate_folds"]


def validate_folds(rule: Rule, state: FoldedStatistics) -> dict[str, FloatArray]:
    """Measures of each fold under the planes that the other folds teach.

    Parameters
    ----------
    rule : Rule
        What becomes of statistics.
    state : FoldedStatistics
        Of the rows, in at least two folds.

    Returns
    -------
    dict of str to ndarray of shape (n_folds,)
        ``test_squared_error`` is exact: the mean of ``(score - target)**2``, targets +1 and -1, with both
        sides of a plane counted alike. ``test_auc``, ``test_sensitivity``, ``test_specificity`` and
        ``test_gmean`` follow from the exact means and variances of the scores of both sides, taken as
        normal. All are means over the planes; ``nan`` where a fold lacks a side. ``test_rows`` counts the
        rows of the fold and ``C`` is the one in use.
    """
    folds = state.folds
    measured = [_measure(rule, state, folds, held_out) for held_out in range(len(folds))]
    return {name: np.array([measures[name] for measures in measured]) for name in measured[0]}


def measure(model: Any, statistics: ClassStatistics) -> dict[str, float]:
    """Measures of a learner's planes on the rows behind statistics, as :func:`validate_folds` names them."""
    planes = Planes(model.coef_, model.intercept_, 1.0, model.C_)
    found = _scores(planes, model.classes_.tolist(), statistics)
    return {name.removeprefix("test_"): value for name, value in found.items()}


def _measure(
    rule: Rule, state: FoldedStatistics, folds: list[ClassStatistics], held_out: int
) -> dict[str, float]:
    others = [number for number, fold in enumerate(folds) if number != held_out and fold.classes]
    training = folds[0].empty()
    for number in others:
        training.merge(folds[number])
    if len(training.classes) < 2:
        raise DataError(
            f"without fold {held_out} there are rows of {len(training.classes)} class(es); "
            "at least two are needed.",
            source="cross_validate",
            hint="use more rows or fewer folds",
        )
    planes = rule.planes(training, rule.chosen_C(training, state, others))
    return {**_scores(planes, training.classes, folds[held_out]), "C": planes.C}


def _scores(planes: Planes, labels: list[object], fold: ClassStatistics) -> dict[str, float]:
    names = ("squared_error", "auc", "sensitivity", "specificity", "gmean")
    if not fold.classes:
        return {**{f"test_{name}": np.nan for name in names}, "test_rows": 0.0}
    test = System(fold)
    rows = [
        _plane_scores(coef, intercept, test, labels[index])
        for index, coef, intercept in zip(
            plane_classes(len(labels)), planes.coef, planes.intercept, strict=True
        )
    ]
    means = np.mean(rows, axis=0)
    return {
        **{f"test_{name}": float(mean) for name, mean in zip(names, means, strict=True)},
        "test_rows": test.n_rows,
    }


def _plane_scores(coef: FloatArray, intercept: float, test: System, label: object) -> FloatArray:
    """Squared error, AUC, hit rates of both sides and their geometric mean, for one plane."""
    if label not in test.labels or len(test.labels) < 2:
        return np.full(5, np.nan)
    u = np.append(coef * test.unit, -(intercept + coef @ test.origin))  # as seen from the fold's origin
    means, variances = score_moments(test, test.labels.index(label), u).T
    spread = np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny))
    squared_error = 0.5 * float(np.sum(variances + np.square(means - np.array([1.0, -1.0]))))
    auc = ndtr((means[0] - means[1]) / np.hypot(*spread))
    hits = ndtr(np.array([1.0, -1.0]) * means / spread)
    return np.array([squared_error, auc, *hits, np.sqrt(hits.prod())])
