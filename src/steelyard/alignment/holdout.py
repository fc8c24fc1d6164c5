"""Rows held out: who they are, how well scores rank them, and where to cut."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

from steelyard._types import FloatArray
from steelyard.alignment.view import Indices

__all__ = ["best_shift", "clearly_lower", "deal_splits", "ranking_losses"]

_ENOUGH = 60  # held-out rows of the rarer side that make a judgement
_MOST = 256  # scores that stand for a side
_CUTS = 65  # tried at a time


def deal_splits(
    signs: FloatArray, rows: Indices, fraction: float, random: Any
) -> list[tuple[Indices, Indices]]:
    """Pairs (rows to train on, rows held out), each side dealt evenly.

    One split holds out the given fraction. A rare side has few rows in it, so as many disjoint splits are
    made as it takes to hold out enough of them. No split if a side has but one row.
    """
    sides = [rows[signs[rows] == sign] for sign in (1.0, -1.0)]
    n_rare = min(map(len, sides))
    if n_rare < 2:
        return []
    n_folds = min(n_rare, max(2, round(1.0 / fraction)))
    folds = np.full(len(signs), -1)
    for side in sides:
        dealt = side if random is None else random.permutation(side)
        folds[dealt] = np.arange(len(side)) % n_folds
    wanted = min(n_folds, -(-_ENOUGH * n_folds // n_rare))
    return [(rows[folds[rows] != fold], rows[folds[rows] == fold]) for fold in range(wanted)]


def ranking_losses(scores: FloatArray, signs: FloatArray) -> FloatArray:
    """For each row of the rarer side the share of the other side that scores higher; ties count half.

    Their mean is the share of pairs in the wrong order, 1 - AUC.
    """
    rare, other = scores[signs > 0], np.sort(scores[signs < 0])
    higher = len(other) - np.searchsorted(other, rare, side="right")
    equal = np.searchsorted(other, rare, side="right") - np.searchsorted(other, rare, side="left")
    return np.asarray((higher + 0.5 * equal) / len(other))


def clearly_lower(losses: FloatArray, before: FloatArray, tol: float) -> bool:
    """Whether losses of the same rows fell on average by ``tol`` and by more than their standard error."""
    fall = before - losses
    return bool(fall.mean() >= max(tol, fall.std() / np.sqrt(len(fall))) and fall.mean() > 0.0)


def best_shift(scores: FloatArray, signs: FloatArray) -> float:
    """Return what to add to scores so that cutting at 0 has the largest G-mean to be expected.

    Where the few rare rows at hand have theirs is much of chance, so each side is smoothed first: a Gaussian
    bump stands on every score. Of equally good cuts it is the one in the middle.
    """
    low, high = float(scores.min()), float(scores.max())
    if low == high:
        return 0.0
    sides = [scores[signs > 0], scores[signs < 0]]
    widths = [max(_bump_width(side), 1e-9 * (high - low)) for side in sides]
    rare, other = map(_representatives, sides)
    for _ in range(2):  # coarse, then fine
        cuts = np.linspace(low, high, _CUTS)
        sensitivity = ndtr((rare - cuts[:, None]) / widths[0]).mean(axis=1)
        specificity = ndtr((cuts[:, None] - other) / widths[1]).mean(axis=1)
        product = sensitivity * specificity
        best = np.flatnonzero(product >= product.max() - 1e-12)
        low, high = cuts[max(best[0] - 1, 0)], cuts[min(best[-1] + 1, _CUTS - 1)]
    return float(-cuts[best].mean())


def _bump_width(scores: FloatArray) -> float:
    """Standard deviation of the bumps, by the rule of thumb for scores that are about normal."""
    lower, upper = np.quantile(scores, (0.25, 0.75))
    spread = float(scores.std())
    robust = float(upper - lower) / 1.349  # the same for a normal distribution, and blind to outliers
    return float(1.06 * (min(spread, robust) or spread) * len(scores) ** -0.2)


def _representatives(scores: FloatArray) -> FloatArray:
    """The scores, or evenly spaced quantiles if there are many."""
    if len(scores) <= _MOST:
        return scores
    return np.asarray(np.quantile(scores, (np.arange(_MOST) + 0.5) / _MOST))
