"""Reference implementation of EnclosingClassifier, with full matrices and a general-purpose solver."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize


def kernel_matrix(X, Z, kernel, *, gamma=1.0, degree=3, coef0=0.0):
    if kernel == "linear":
        return X @ Z.T
    if kernel == "polynomial":
        return (gamma * X @ Z.T + coef0) ** degree
    distances = ((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-gamma * distances)


def solve_dual(G, bounds):
    """Return weights that maximize sum a_i G_ii - a'Ga, by a general solver from several starting points."""
    n, diagonal = len(G), np.diag(G)
    scale = max(np.abs(diagonal).max(), 1e-300)
    start = bounds / bounds.sum()
    answer = minimize(
        lambda a: (a @ G @ a - a @ diagonal) / scale,
        start,
        jac=lambda a: (2 * G @ a - diagonal) / scale,
        bounds=[(0.0, b) for b in bounds],
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1.0, "jac": lambda a: np.ones(n)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    return answer.x


def dual_value(G, alpha):
    return alpha @ np.diag(G) - alpha @ G @ alpha


def squared_distances(G, alpha):
    return np.diag(G) - 2 * G @ alpha + alpha @ G @ alpha


def whitened_matrix(K, ridge):
    """Return phi(x_i)' (S + ridge I)^-1 phi(x_j) of centered rows, from the kernel matrix of one class."""
    l = len(K)
    H = np.eye(l) - 1.0 / l
    centred = H @ K @ H
    # Let P contain the centred feature vectors of the l rows, S = P'P / l and K_c = PP'. Then
    # P (S + ridge I)^-1 P' = l K_c (K_c + l ridge I)^-1 (push-through identity).
    return l * centred @ np.linalg.inv(centred + l * ridge * np.eye(l))


def four_steps(distances, radii):
    """Return the class of one row by the four-step decision of the paper, equations (9) to (11)."""
    inside = [m for m in range(len(radii)) if distances[m] <= radii[m]]
    if len(inside) == 1:  # step 2
        return inside[0]
    if not inside:  # step 3: the largest R / d
        return int(np.argmax([radius / d for radius, d in zip(radii, distances, strict=True)]))
    # step 4: the largest 1 - d / R; a class that does not contain the row has a negative membership
    return int(np.argmax([1.0 - d / radius for radius, d in zip(radii, distances, strict=True)]))
