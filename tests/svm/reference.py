"""Reference for the soft-margin SVM: its optimality conditions, and scikit-learn's SVC with a small tol.

In z = y * alpha the problem is to minimise 1/2 z'Kz - y'z subject to sum(z) = 0 and lower <= z <= upper.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC


def limits(y, C, class_weight=None):
    """Return lower and upper bounds of z, for labels y of -1 and +1."""
    bounds = np.full(len(y), float(C))
    if class_weight == "balanced":
        bounds *= len(y) / (2.0 * np.where(y > 0, (y > 0).sum(), (y < 0).sum()))
    return np.where(y > 0, 0.0, -bounds), np.where(y > 0, bounds, 0.0)


def violation(K, y, z, b, bounds, *, at_bound=1e-11):
    """Return the largest violation of the optimality conditions.

    A coefficient is at a bound if its distance is below ``at_bound`` times the distance between the bounds.
    """
    lower, upper = bounds
    g = K @ z - y + b
    slack = at_bound * (upper - lower)
    conditions = (-g[z < upper - slack], g[z > lower + slack], lower - z, z - upper)
    return max(abs(z.sum()), *(values.max(initial=0.0) for values in conditions))


def middle_bias(K, y, z, bounds, at_bound=1e-9):
    """Return the mean bias of the free samples, or the middle of the bias interval if no sample is free."""
    lower, upper = bounds
    e = K @ z - y
    slack = at_bound * (upper - lower)
    grows, falls = z < upper - slack, z > lower + slack
    if (grows & falls).any():
        return -e[grows & falls].mean()
    return 0.5 * ((-e[grows]).max() + (-e[falls]).min())


def tight_svc(K, y, C, class_weight=None):
    """Return coefficients and bias of SVC at tol=1e-10, or None if it reaches its iteration limit.

    LIBSVM caches kernel values as float32, so K must be exact in float32. The bias is computed by
    middle_bias(): if no sample is free, a rounding error of one coefficient could determine the bias of
    LIBSVM.
    """
    svc = SVC(C=C, kernel="precomputed", class_weight=class_weight, tol=1e-10, max_iter=300_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            svc.fit(K, y)
        except ConvergenceWarning:
            return None
    z = np.zeros(len(y))
    z[svc.support_] = svc.dual_coef_[0]
    return z, middle_bias(K, y, z, limits(y, C, class_weight))
