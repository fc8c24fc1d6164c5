"""Reference implementation of kernel boundary alignment (KBA), with explicit feature vectors and matrices."""

from __future__ import annotations

import math
import statistics

import numpy as np
from sklearn.svm import SVC


def imbalanced(rng, n=220, n_rare=24, d=3):
    y = np.zeros(n, dtype=int)
    y[rng.choice(n, n_rare, replace=False)] = 1
    return rng.normal(size=(n, d)) + 1.3 * y[:, None], y


def cost(eta, scores, signs):
    total = 0.0
    for f, y in zip(scores, signs, strict=True):
        if abs(f) <= 1 and y * f < 0:
            total += np.exp(-y * (f + eta)) if y > 0 else np.log(1 + np.exp(-y * (f + eta)))
    return total


def points(phi, pairs, beta):
    return np.array([(1 - beta) * phi[i] + beta * phi[j] for i, j in pairs])


def nearest_pairs(phi, rare, other):
    def closest(i, candidates):
        return min(candidates, key=lambda j: np.sum((phi[i] - phi[j]) ** 2))

    return sorted({(i, closest(i, other)) for i in rare} | {(closest(j, rare), j) for j in other})


def widths(boundary, margin=np.inf, most=None):
    result = []
    for b, point in enumerate(boundary):
        others = np.array([np.sum((point - q) ** 2) for c, q in enumerate(boundary) if c != b])
        others = others[others > 1e-9]  # omit points at distance zero
        near = np.sort(others[others < margin**2])[:most]
        result.append(near.mean() if len(near) else others.min())
    return np.array(result)


def factor(phi_x, boundary, tau2, floor):
    bumps = [[np.exp(-np.sum((x - b) ** 2) / t) for b, t in zip(boundary, tau2, strict=True)] for x in phi_x]
    return floor + (1 - floor) * np.max(bumps, axis=1)


def smooth_share_above(threshold, scores):
    """Return the probability of scores above ``threshold`` under a Gaussian kernel density estimate."""
    quarter, _, three_quarters = statistics.quantiles(scores, n=4, method="inclusive")
    width = 1.06 * min(statistics.pstdev(scores), (three_quarters - quarter) / 1.349) * len(scores) ** -0.2
    scale = width * math.sqrt(2.0)
    return statistics.fmean(0.5 * math.erfc((threshold - score) / scale) for score in scores)


def smooth_product(threshold, scores, signs):
    """Return the squared G-mean at ``threshold`` under the smoothed distributions of both classes."""
    rare, other = scores[signs > 0].tolist(), scores[signs < 0].tolist()
    return smooth_share_above(threshold, rare) * (1.0 - smooth_share_above(threshold, other))


def embed(K):
    """Return vectors whose matrix of inner products is ``K``."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def aligned_scores(K_all, signs, C, betas, *, floor):
    """Run one round of KBA for each beta. ``K_all`` is the kernel matrix of training rows and new rows.

    Return the scores of the new rows, the product of the factors of all rounds, and the transformed kernel
    matrix.
    """
    n_train = len(signs)
    product = np.ones(len(K_all))
    K = K_all.copy()
    for beta in [*betas, None]:
        svc = SVC(C=C, kernel="precomputed").fit(K[:n_train, :n_train], signs)
        if beta is None:
            return svc.decision_function(K[n_train:, :n_train]), product, K
        phi = embed(K)
        dual = np.zeros(n_train)
        dual[svc.support_] = svc.dual_coef_[0]
        pairs = nearest_pairs(phi, np.flatnonzero(dual > 0), np.flatnonzero(dual < 0))
        boundary = points(phi, pairs, beta)
        D = factor(phi, boundary, widths(boundary, most=5), floor)
        D *= np.sqrt(np.trace(K[:n_train, :n_train]) / (np.diag(K)[:n_train] @ D[:n_train] ** 2))
        K = D[:, None] * D * K
        product *= D
    return None


def printed_scores(K_all, signs, C, betas):
    """Run rounds as published (equations 4 to 8): mean of the Gaussians, no floor, no scale.

    Return the scores of the new rows, and the numbers of support vectors of both classes in each round.
    """
    n_train = len(signs)
    K, ratios = K_all.copy(), []
    for beta in [*betas, None]:
        svc = SVC(C=C, kernel="precomputed", tol=1e-6).fit(K[:n_train, :n_train], signs)
        dual = np.zeros(n_train)
        dual[svc.support_] = svc.dual_coef_[0]
        ratios.append((int((dual > 0).sum()), int((dual < 0).sum())))
        if beta is None:
            return svc.decision_function(K[n_train:, :n_train]), ratios
        phi = embed(K)
        pairs = nearest_pairs(phi, np.flatnonzero(dual > 0), np.flatnonzero(dual < 0))
        boundary = points(phi, pairs, beta)
        M = 2.0 / math.sqrt(dual @ K[:n_train, :n_train] @ dual)  # the margin
        tau2 = [printed_width(b, boundary, M) for b in range(len(boundary))]
        D = np.array(
            [
                np.mean([math.exp(-np.sum((x - b) ** 2) / t) for b, t in zip(boundary, tau2, strict=True)])
                for x in phi
            ]
        )
        K = D[:, None] * D * K
    return None


def printed_width(b, boundary, M):
    """Return the squared width of point b by equation 7, where M is the margin.

    It is the mean squared distance to points with a squared distance below M, or to the nearest point if
    there is none.
    """
    squared = [np.sum((boundary[b] - q) ** 2) for c, q in enumerate(boundary) if c != b]
    squared = [value for value in squared if value > 1e-9]
    near = [value for value in squared if value < M]
    return np.mean(near) if near else min(squared)
