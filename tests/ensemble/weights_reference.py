"""Slow NumPy formulas of calibrations, expert weights, online calibration and tests for changes.

The native code computes the same quantities. The order of its sums differs, so results agree up to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit

EXCESS = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 1e3, 1e4, 1e6, 1e9])


class Calibrations(NamedTuple):
    """Calibrations of all experts: one entry, row or table per expert, and the log-odds of all rows."""

    auc: np.ndarray
    log_odds: np.ndarray  # one row per expert, 0 for unknown scores
    tables: list[np.ndarray]  # knots and values


def calibrate_experts(scores, n_positive, max_linear=6.0):
    """Fit the calibrations of all experts together; ``scores`` has one column per expert, positives first."""
    scores = scores.T
    known, is_positive = ~np.isnan(scores), np.arange(scores.shape[1]) < n_positive
    n = np.stack([(known & is_positive).sum(axis=1), (known & ~is_positive).sum(axis=1)])
    middle, scale = np.zeros(len(scores)), np.ones(len(scores))
    auc = np.zeros(len(scores))
    for expert, line in enumerate(scores):
        high, low = line[is_positive & known[expert]], line[~is_positive & known[expert]]
        middle[expert] = 0.5 * (np.median(high) + np.median(low))
        wins = (high[:, None] > low).sum() + 0.5 * (high[:, None] == low).sum()
        auc[expert] = wins / (len(high) * len(low))
        rare, frequent = sorted((high, low), key=len)
        copies = max((2 * len(frequent) + 10 * len(rare)) // (20 * len(rare)), 1)
        ascending = np.sort(np.concatenate([np.repeat(rare, copies), frequent]))
        quantiles = [ascending[int(q * (len(ascending) - 1))] for q in (0.05, 0.95)]
        spread = quantiles[1] - quantiles[0] or ascending[-1] - ascending[0]
        scale[expert] = spread / 3.3 or 1.0
    x = np.where(known, (scores - middle[:, None]) / scale[:, None], 0.0)
    below, above, bias = _slopes(x, known, is_positive, n)
    least = np.minimum(0.3, 5.0 / n.min(axis=0))
    below, above = np.maximum(below, least * above), np.maximum(above, least * below)
    up, down = np.minimum(max_linear, 1.0 + np.log1p(n))
    bias = np.clip(bias, -down, up)
    linear = below[:, None] * np.minimum(x, 0.0) + above[:, None] * np.maximum(x, 0.0) + bias[:, None]
    inside = np.clip(linear, -down[:, None], up[:, None])
    growth = np.minimum(1.0, np.where(linear > 0.0, n[0][:, None], n[1][:, None]) / 10.0)
    log_odds = inside + growth * np.sign(linear - inside) * np.log1p(np.abs(linear - inside))
    slopes = zip(below / scale, above / scale, strict=True)
    limits = zip(up, down, *np.minimum(1.0, n / 10.0), strict=True)
    tables = [_table(*numbers) for numbers in zip(middle, slopes, bias, limits, strict=True)]
    return Calibrations(auc, np.where(known, log_odds, 0.0), tables)


def _table(middle, slopes, bias, limits):
    (up, down, growth_up, growth_down), beyond = limits, np.log1p(EXCESS)
    low, high = middle - (bias + down + EXCESS) / slopes[0], middle + (up + EXCESS - bias) / slopes[1]
    values = np.concatenate([-(down + growth_down * beyond)[::-1], [bias], up + growth_up * beyond])
    return np.stack([np.concatenate([low[::-1], [middle], high]), values])


def _slopes(x, known, is_positive, n):
    """Fit slopes below and above 0 and a bias to each row of ``x`` by Newton's method."""
    positive, negative = n[:, :, None].astype(float)
    target = np.where(is_positive, (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0))
    weights = known * np.where(is_positive, 0.5 / positive, 0.5 / negative)
    terms = np.stack([np.minimum(x, 0.0), np.maximum(x, 0.0), np.ones_like(x)])
    coefficients = np.tile([[1.0], [1.0], [0.0]], len(x))
    penalty = np.diag([3e-3, 3e-3, 0.0])
    for _ in range(8):
        p = expit((coefficients[:, :, None] * terms).sum(axis=0))
        gradient = (weights * (p - target) * terms).sum(axis=2) + penalty @ coefficients
        hessian = np.einsum("en,ien,jen->eij", weights * p * (1.0 - p), terms, terms)
        hessian += penalty + np.diag([0.0, 0.0, 1e-9])
        step = np.linalg.solve(hessian, gradient.T[:, :, None])[:, :, 0].T
        size = np.abs(step).max(axis=0)
        coefficients = coefficients - step / np.maximum(1.0, size / 3.0)
        if size.max() < 1e-3:
            break
    below, above = np.maximum(coefficients[:2], 1e-6)
    return below, above, np.clip(coefficients[2], -5.0, 5.0)


def expert_weights(fitted, n_positive, share, priors, *, sharpness=(15.0, 5.0, 10.0), least=0.01):
    """Return prior * exp(s0 * AUC - s1 * balanced loss - s2 * relative observed loss), with sum 1."""
    entropy = -(share * np.log(share) + (1.0 - share) * np.log1p(-share))
    shift = np.log(share) - np.log1p(-share)

    def loss(z, positive_share):
        positive, negative = -log_expit(z[:, :n_positive]), -log_expit(-z[:, n_positive:])
        return positive_share * positive.mean(axis=1) + (1.0 - positive_share) * negative.mean(axis=1)

    measures = fitted.auc, -loss(fitted.log_odds, 0.5), -loss(fitted.log_odds + shift, share) / entropy
    exponent = sum(s * measure for s, measure in zip(sharpness, measures, strict=True))
    weights = priors * np.exp(exponent - exponent.max())
    if fitted.auc.max() > 0.5:
        weights[fitted.auc <= 0.5] = 0.0
    if not weights.any():
        weights = (fitted.auc == fitted.auc.max()).astype(float)
    weights[weights < least * weights.max()] = 0.0
    return weights / weights.sum()


def platt_scaling(scores, n_positive):
    """Return slope and bias of balanced Platt scaling by Newton's method with a small ridge penalty."""
    is_positive = np.arange(len(scores)) < n_positive
    n_negative = len(scores) - n_positive
    target = np.where(is_positive, (n_positive + 1.0) / (n_positive + 2.0), 1.0 / (n_negative + 2.0))
    weights = np.where(is_positive, 0.5 / n_positive, 0.5 / n_negative)
    terms, found = np.stack([scores, np.ones(len(scores))]), np.array([1.0, 0.0])
    for _ in range(8):
        p = expit(found @ terms)
        gradient = terms @ (weights * (p - target)) + np.array([1e-3 * (found[0] - 1.0), 0.0])
        hessian = (terms * weights * p * (1.0 - p)) @ terms.T + np.diag([1e-3, 1e-9])
        step = np.linalg.solve(hessian, gradient)
        found = found - step / max(1.0, np.abs(step).max() / 3.0)
        if np.abs(step).max() < 1e-3:
            break
    return max(found[0], 1e-3), found[1]


def solve_correction(log_odds, places, weights, *, share, ridge, n_steps):
    """Return the correction of the weights after steps with the quadratic upper bound of the log-loss."""
    row_weights = (len(places) * np.array([1.0 - share, share]) / np.bincount(places, minlength=2))[places]
    curvature = 0.25 * (log_odds * row_weights[:, None]).T @ log_odds + ridge * np.eye(len(weights))
    shift, values = np.log(share) - np.log1p(-share), np.zeros(len(weights))
    for _ in range(n_steps):
        error = row_weights * (expit(log_odds @ (weights + values) + shift) - places)
        values = values - np.linalg.solve(curvature, log_odds.T @ error + ridge * values)
    return values


# -- online calibration -------------------------------------------------------------------------------

HALF_LIVES = np.array([300.0, 1000.0, 4000.0, 16_000.0])
EDGES = np.array([-14.0, -4.0, -2.0, 0.0, 2.0, 4.0, 14.0])
IDENTITY = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])


def calibration_features(log_odds):
    """Return the part of the log-odds between any two edges, counted from 0, and 1 for the bias."""
    z = np.asarray(log_odds)[:, None]
    parts = np.clip(z, EDGES[:-1], EDGES[1:]) - np.clip(0.0, EDGES[:-1], EDGES[1:])
    return np.append(parts, np.ones_like(z), axis=1)


def learn_calibration(coefficients, curvature, losses, log_odds, is_positive):
    """Return the state after one step of Newton's method per 100 rows."""
    for begin in range(0, len(log_odds), 100):
        x, target = calibration_features(log_odds[begin : begin + 100]), is_positive[begin : begin + 100]
        z = coefficients @ x.T
        p, keep = expit(z), 0.5 ** (len(x) / HALF_LIVES)[:, None]
        new_losses = -log_expit(np.where(target, z, -z)).sum(axis=1)
        curvature = keep[:, :, None] * curvature + (1.0 - keep)[:, :, None] * np.eye(len(IDENTITY))
        curvature = curvature + np.einsum("ln,ni,nj->lij", p * (1.0 - p), x, x)
        gradient = (p - target) @ x + (1.0 - keep) * (coefficients - IDENTITY)
        step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        coefficients = coefficients - step / np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True) / 0.5)
        coefficients[:, :-1] = np.maximum(coefficients[:, :-1], 0.05)
        losses = 0.5 ** (len(x) / 4000.0) * losses + new_losses
    return coefficients, curvature, losses


def calibrated(coefficients, losses, log_odds):
    """Return the log-odds of the mean probability, weighted by exp(-loss)."""
    z = coefficients @ calibration_features(log_odds).T
    log_weights = (losses.min() - losses)[:, None]
    positive = np.logaddexp.reduce(log_weights + log_expit(z))
    return positive - np.logaddexp.reduce(log_weights + log_expit(-z))


# -- tests for changes --------------------------------------------------------------------------------


def share_bets(counts, codes, uniform, factors):
    """Return the bets on the class shares, of shape (n_rows, n_classes, n_factors)."""
    is_class = codes[:, None] == np.arange(len(counts))
    past = np.cumsum(is_class, axis=0) - is_class + counts
    n = counts.sum() + np.arange(len(codes))[:, None]
    p = np.where(is_class, uniform * (past + 1.0), past + uniform * (n - past + 1.0)) / (n + 1.0)
    share = (past + 0.5) / (n + 1.0)
    highs = [np.minimum(factor, 0.9 / share) for factor in factors]
    return np.stack([np.where(p <= share, h, (1.0 - h * share) / (1.0 - share)) for h in highs], axis=2)


def shiryaev_roberts(sums, bets):
    """Return ``S = (S + 1) * bet`` after all bets; the first axis of the bets is time."""
    for bet in bets:
        sums = (sums + 1.0) * bet
    return sums


def hit_rates(rows, hits, codes, hit):
    """Return decayed numbers of rows and hits, and whether the short-term hit rate has fallen."""
    decay = 0.5 ** (len(codes) / np.array([[75.0], [1000.0]]))
    rows = rows * decay + np.bincount(codes, minlength=rows.shape[1])
    hits = hits * decay + np.bincount(codes, hit, minlength=rows.shape[1])
    compared = (rows >= 5.0).all(axis=0)
    n = np.count_nonzero(compared)
    if not n:
        return rows, hits, False
    short, long = (hits[:, compared] + 0.5) / (rows[:, compared] + 1.0)
    deviation = np.sqrt((long * (1.0 - long) / (2.0 * rows[0, compared])).sum()) / n
    return rows, hits, bool((long - short).mean() > max(0.05, 4.0 * deviation))


def error_rates(positive, negative):
    """Return all thresholds between distinct scores (ascending) with their miss and false alarm rates."""
    values = np.unique(np.concatenate([positive, negative]))
    middles = 0.5 * (values + np.append(values[1:], values[-1]))
    thresholds = np.append(np.nextafter(values[0], -np.inf), middles)
    missed = (positive[:, None] <= np.append(-np.inf, values)).mean(axis=0)
    quiet = (negative[:, None] <= np.append(-np.inf, values)).mean(axis=0)
    return thresholds, missed, 1.0 - quiet
