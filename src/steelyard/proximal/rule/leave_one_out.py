"""What the scores of learned rows would be, had the rows not been learned.

A learned row pulls the plane towards itself, the more the fewer rows and the more features there are. For a
(weighted) ridge regression with matrix ``A`` the score of row ``i`` without that row is known exactly,

    s_i' = y_i - (y_i - s_i) / (1 - h_i),      h_i = sigma_i x_i' inv(A) x_i,

and although single leverages ``h_i`` need the rows, the mean leverage of a class follows from its statistics:
``trace(inv(A) M_c) * sigma_c / l_c``. With it mean and variance of the scores of a class become those of rows
left out, which is where a cut belongs: scores of learned rows lie farther apart than those of rows to come.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from steelyard._types import FloatArray
from steelyard.proximal.rule.solver import PlaneEquations
from steelyard.proximal.rule.system import System

__all__ = ["moments_left_out"]

_MOST = 0.95  # of leverage: a class of a single row would have no other row to be judged by
_TARGETS = np.array([1.0, -1.0])


def moments_left_out(
    system: System, equations: PlaneEquations, scores: FloatArray, weights: FloatArray, C: float
) -> FloatArray:
    """Mean and variance of scores of rows left out, for two classes; for more, those of learned rows.

    Parameters
    ----------
    system, equations : System, PlaneEquations
        Of all rows.
    scores : ndarray of shape (n_planes, 2, 2)
        [[mean, variance] of the positive side, of the negative side] of each plane, of learned rows.
    weights : ndarray of shape (2,)
        Weight of a positive and of a negative row.
    C : float
        The C in use.
    """
    if len(system.labels) != 2:
        return scores
    inverse = _inverse(equations.penalized(equations.matrix(0), C))
    if inverse is None:
        return scores
    index = equations.classes[0]
    counts = system.counts[[index, 1 - index]]
    matrices = [system.matrix(index), system.all_rows - system.matrix(index)]
    means, variances = scores[0].T
    if equations.has_intercept:
        traces = np.array([_trace(inverse, matrix) for matrix in matrices])
        scale, middle = 1.0, 0.0
    else:
        # Ranking all pairs is least squares with weights 1 / l_c and a free intercept, up to the scale of w:
        # with B the matrix without dd', w is inv(B) d / (1 + q) here and inv(B) d / (1 + q / 2) there. The
        # gap of the means, q / (1 + q), tells q.
        scale, middle = 2.0 / (2.0 - float(means[0] - means[1])), float(means.mean())
        traces = _pair_traces(inverse, equations.rhs[0], matrices, counts)
    kept = 1.0 - np.clip(weights * traces / counts, 0.0, _MOST)
    left_out = _TARGETS - (_TARGETS - scale * (means - middle)) / kept
    spread = variances / np.square(kept)
    return np.column_stack([left_out / scale + middle, spread])[None]


def _pair_traces(
    inverse: FloatArray, difference: FloatArray, matrices: list[FloatArray], counts: FloatArray
) -> FloatArray:
    """``l_c`` times the trace of each class, measured from the middle of both means, intercept included."""
    symmetric = inverse + np.tril(inverse, -1).T
    pull = symmetric @ difference
    half = 0.5 / (1.0 - 0.5 * float(difference @ pull))  # takes dd' / 2 out of the matrix again
    traces = np.empty(2)
    for side, (matrix, count) in enumerate(zip(matrices, counts, strict=True)):
        mean = -matrix[-1, :-1] / count
        scatter = matrix[:-1, :-1] / count
        spread = _trace(inverse, scatter) - float(mean @ symmetric @ mean)
        spread += half * (_quadratic(scatter, pull) - float(mean @ pull) ** 2)
        between = 0.25 * (float(difference @ pull) + half * float(difference @ pull) ** 2)
        traces[side] = count * (0.5 + spread + between)
    return traces


def _inverse(lower: FloatArray) -> FloatArray | None:
    """Lower triangle of the inverse; None where rounding has made the matrix singular."""
    factor, failed = lapack.dpotrf(lower.T, lower=0, clean=0)
    if failed:
        return None
    inverse, failed = lapack.dpotri(factor, lower=0, overwrite_c=1)
    return None if failed else np.tril(inverse.T)


def _trace(left: FloatArray, right: FloatArray) -> float:
    """Trace of the product of two symmetric matrices, given by their lower triangles."""
    return float(2.0 * np.vdot(left, right) - left.diagonal() @ right.diagonal())


def _quadratic(lower: FloatArray, vector: FloatArray) -> float:
    product = lower @ vector
    return float(2.0 * (vector @ product) - np.square(vector) @ lower.diagonal())
