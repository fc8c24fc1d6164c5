"""Validation on held-out rows: stratified splits and the ranking loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._types import FloatArray
from steelyard.alignment.view import Indices

# Minimum number of held-out rows of the rarer class. Splits are added until this number is reached.
_MIN_RARE_ROWS = 60


def deal_splits(
    signs: FloatArray, rows: Indices, fraction: float, random: Any
) -> list[tuple[Indices, Indices]]:
    """Return stratified splits as pairs (training rows, held-out rows).

    The first split holds out ``fraction`` of ``rows``. If it holds out fewer than 60 rows of the rarer class,
    disjoint splits are added until 60 are held out. The list is empty if a class has only one row.
    """
    sides = [rows[signs[rows] == sign] for sign in (1.0, -1.0)]
    n_rare = min(map(len, sides))
    if n_rare < 2:
        return []
    n_folds = min(n_rare, max(2, round(min(1.0 / fraction, n_rare))))
    folds = np.full(len(signs), -1)
    for side in sides:
        shuffled = side if random is None else random.permutation(side)
        folds[shuffled] = np.arange(len(side)) % n_folds
    n_splits = min(n_folds, -(-_MIN_RARE_ROWS * n_folds // n_rare))
    return [(rows[folds[rows] != fold], rows[folds[rows] == fold]) for fold in range(n_splits)]


def ranking_losses(scores: FloatArray, signs: FloatArray) -> FloatArray:
    """Return the fraction of rows of the other class with a higher score, for each row of the rarer class.

    Ties count half. The mean of the result is the fraction of pairs in the wrong order, 1 - AUC.
    """
    rare, other = scores[signs > 0], np.sort(scores[signs < 0])
    higher = len(other) - np.searchsorted(other, rare, side="right")
    equal = np.searchsorted(other, rare, side="right") - np.searchsorted(other, rare, side="left")
    return np.asarray((higher + 0.5 * equal) / len(other))


def clearly_lower(losses: FloatArray, before: FloatArray, tol: float) -> bool:
    """Return whether the mean loss is lower than before, by at least ``tol`` and by its standard error."""
    fall = before - losses
    return bool(fall.mean() >= max(tol, fall.std() / np.sqrt(len(fall))) and fall.mean() > 0.0)
