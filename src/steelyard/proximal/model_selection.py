"""Selection of C, cross-validation and measures of models, from statistics of folds without the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.proximal.solver import PlaneEquations, System, plane_classes, score_moments
from steelyard.proximal.statistics import ClassStatistics

if TYPE_CHECKING:
    from steelyard.proximal.folds import FoldedStatistics
    from steelyard.proximal.planes import PlaneRule

C_GRID: FloatArray = np.logspace(-6.0, 8.0, 29)
# Losses with a smaller relative difference are ties, for which the smallest C is selected.
_TIE_TOLERANCE = 1e-9
_MEASURES = ("squared_error", "auc", "sensitivity", "specificity", "gmean")


class SelectedC(NamedTuple):
    """A selected C, with the plane parameters (``rule``) and the number of rows used for the selection."""

    C: float
    rule: Any
    n_rows: float

    def is_valid_for(self, n_rows: float) -> bool:
        """Return whether the number of rows has not doubled: the best C changes slowly."""
        return self.n_rows <= n_rows < 2.0 * self.n_rows


def best_C(losses: FloatArray) -> float:
    """Return the C of ``C_GRID`` with the smallest loss."""
    best = losses.min()
    return float(C_GRID[int(np.argmax(losses <= best + _TIE_TOLERANCE * abs(best)))])


# Scores of an extreme test row may overflow, but the loss of a fold is bounded.
@np.errstate(over="ignore", invalid="ignore")
def fold_losses(
    system: System, equations: PlaneEquations, training: System, paths: FloatArray, test: System
) -> FloatArray:
    """Return the squared error on the test rows for every C; the planes are fitted to the training rows.

    ``system`` and ``equations`` belong to all rows; they determine the weights and the kind of the error. The
    loss of a fold is limited to the loss of zero scores, so a single outlier cannot decide the selection.
    """
    loss = np.zeros(len(paths))
    planes = {
        training.labels[index]: plane for plane, index in enumerate(plane_classes(len(training.labels)))
    }
    for index in equations.classes:
        label = system.labels[index]
        if label not in planes or (len(system.labels) > 2) != (len(training.labels) > 2):
            continue  # a class whose rows are all in one fold cannot be tested
        solutions = paths[:, planes[label]]
        intercepts = solutions[:, -1] if equations.has_intercept else np.zeros(len(solutions))
        counts, sums, squares = _score_sums(training, training.raw(solutions), intercepts, test, label)
        rest = system.n_rows - system.counts[index]
        if equations.has_intercept:
            share = system.counts[index] / system.n_rows
            errors = counts[:, None] + squares - 2.0 * np.array([[1.0], [-1.0]]) * sums
            weights = np.array([1.0 - share, share])
            loss += np.fmin(weights @ errors, weights @ counts)
        elif rest > 0.0 and (counts > 0.0).all():  # the squared error summed over all pairs of rows
            means, variances = sums / counts[:, None], squares / counts[:, None]
            variances -= np.square(means)
            error = np.square(1.0 - means[0] + means[1]) + variances.sum(axis=0)
            loss += counts.prod() * np.fmin(error, 1.0) / (system.counts[index] * rest)
    return loss


def _score_sums(
    training: System, normals: FloatArray, intercepts: FloatArray, test: System, label: object
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return count, sum and sum of squares of the test scores of one class and of all other classes."""
    # Convert the planes to coordinates relative to the origin of the test rows.
    offsets = intercepts - normals @ (test.origin - training.origin)
    u = np.column_stack([normals * test.unit, offsets])
    own = [i for i, known in enumerate(test.labels) if known == label]
    counts = np.array([test.counts[own].sum(), test.n_rows - test.counts[own].sum()])
    total_sums, total_squares = u @ test.v.sum(axis=0), test.quadratics(None, u)
    sums = sum((u @ test.v[i] for i in own), np.zeros(len(u)))
    squares = sum((test.quadratics(i, u) for i in own), np.zeros(len(u)))
    return counts, np.stack([sums, total_sums - sums]), np.stack([squares, total_squares - squares])


# Candidate numbers of borrowed rows, from which cross-validation selects one.
CANDIDATE_ROWS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10_000.0)


def borrowed_share(n_rows: float, borrow: float) -> float:
    """Return the factor that scales the sums of ``n_rows`` rows to the weight of at most ``borrow`` rows."""
    return min(1.0, borrow / n_rows)


# -- evaluation measures -----------------------------------------------------------------------------


def validate_folds(rule: PlaneRule, state: FoldedStatistics) -> dict[str, FloatArray]:
    """Return the result of :meth:`ProximalSVC.cross_validate`; there must be at least two folds."""
    folds, measured = state.folds, []
    for test, fold in enumerate(folds):
        others = [number for number, other in enumerate(folds) if number != test and other.classes]
        training = state._subset(others)
        if len(training.classes) < 2:
            raise DataError(
                f"without fold {test} there are rows of {len(training.classes)} class(es); "
                "at least two are needed.",
                source="cross_validate",
                hint="use more rows or fewer folds",
            )
        planes = rule.planes(training, rule.select_C(training, state, others))
        measures = _measures(planes.coef, planes.intercept, training.classes, fold)
        measured.append({**{f"test_{name}": value for name, value in measures.items()}, "C": planes.C})
    return {name: np.array([measures[name] for measures in measured]) for name in measured[0]}


def measure(model: Any, statistics: ClassStatistics) -> dict[str, float]:
    """Return the measures of :func:`validate_folds` for a fitted learner on the rows of ``statistics``."""
    return _measures(model.coef_, model.intercept_, model.classes_.tolist(), statistics)


def compare_with_own_model(
    common: Any, statistics: ClassStatistics, fresh: Any
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the measures of a common model on some rows, and of ``fresh`` after it has learned these rows.

    The latter are nan if the rows have one class.
    """
    measures = measure(common, statistics)
    if len(statistics.classes) < 2:
        return measures, dict.fromkeys(measures, float("nan"))
    return measures, measure(fresh.merge(statistics), statistics)


def _measures(
    coefs: FloatArray, intercepts: FloatArray, labels: list[object], fold: ClassStatistics
) -> dict[str, float]:
    if not fold.classes:
        return {**dict.fromkeys(_MEASURES, np.nan), "rows": 0.0}
    test = System(fold)
    rows = [
        _plane_measures(coef, intercept, test, labels[index])
        for index, coef, intercept in zip(plane_classes(len(labels)), coefs, intercepts, strict=True)
    ]
    means = np.mean(rows, axis=0).tolist()
    return {**dict(zip(_MEASURES, means, strict=True)), "rows": test.n_rows}


def _plane_measures(coef: FloatArray, intercept: float, test: System, label: object) -> FloatArray:
    """Return the five measures of :func:`validate_folds` for one plane."""
    if label not in test.labels or len(test.labels) < 2:
        return np.full(len(_MEASURES), np.nan)
    # Coordinates relative to the origin of the fold.
    u = np.append(coef * test.unit, -(intercept + coef @ test.origin))
    means, variances = score_moments(test, [test.labels.index(label)], u[None])[0].T
    deviations = np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny))
    squared_error = 0.5 * float(np.sum(variances + np.square(means - np.array([1.0, -1.0]))))
    auc = ndtr((means[0] - means[1]) / np.hypot(*deviations))
    recalls = ndtr(np.array([1.0, -1.0]) * means / deviations)
    return np.array([squared_error, auc, *recalls, np.sqrt(recalls.prod())])
