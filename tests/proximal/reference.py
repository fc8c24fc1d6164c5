"""Reference implementation of the proximal SVM: textbook formulas with n x n matrices, plane by plane."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import StandardScaler


def plane(X, positive, C, sigma, *, penalize_intercept=True):
    """Return w and b of f(x) = x'w - b that minimize |[w; b]|^2 / C + sum sigma_i (y_i - x_i'w + b)^2."""
    n, d = X.shape
    E = np.column_stack([X, -np.ones(n)])
    D = np.where(positive, 1.0, -1.0)
    N = np.diag(sigma)
    penalty = np.eye(d + 1) / C
    if not penalize_intercept:
        penalty[d, d] = 0.0
    solution = np.linalg.solve(penalty + E.T @ N @ E, E.T @ N @ D)
    return solution[:d], solution[d]


def row_weights(y, label, class_weight):
    """Return the weight of every row in the plane of one class against the rest."""
    positive = y == label
    if class_weight == "balanced":
        share = positive.mean()
        return np.where(positive, 1.0 - share, share)
    if class_weight is None:
        return np.ones(len(y))
    return np.array([class_weight.get(value, 1.0) for value in y.tolist()])


def proximal(X, y, C=1.0, class_weight="balanced", *, standardize=True, penalize_intercept=True):
    """Return coef and intercept in raw units. With two classes, there is one plane, that of the second."""
    classes = np.unique(y)
    planes = classes if len(classes) > 2 else classes[-1:]
    scaler = StandardScaler().fit(X) if standardize else None
    Z = scaler.transform(X) if standardize else X
    coefs, intercepts = [], []
    for label in planes:
        sigma = row_weights(y, label, class_weight)
        w, b = plane(Z, y == label, C, sigma, penalize_intercept=penalize_intercept)
        if standardize:
            w = w / scaler.scale_
            b = b + scaler.mean_ @ w
        coefs.append(w)
        intercepts.append(-b)
    return np.array(coefs), np.array(intercepts)


def auc_direction(X, positive, C):
    """Return w that minimizes |w|^2 / C + mean over pairs of (1 - w'(x+ - x-))^2, pair by pair."""
    d = X.shape[1]
    matrix, rhs, n_pairs = np.eye(d) / C, np.zeros(d), positive.sum() * (~positive).sum()
    for a in X[positive]:
        for b in X[~positive]:
            difference = a - b
            matrix += np.outer(difference, difference) / n_pairs
            rhs += difference / n_pairs
    return np.linalg.solve(matrix, rhs)
