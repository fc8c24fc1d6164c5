"""Rows held out: who they are, and how well scores rank them."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard._types import FloatArray
from steelyard.alignment.view import Indices

__all__ = ["clearly_lower", "deal_splits", "ranking_losses"]

_ENOUGH = 60  # held-out rows of the rarer side that make a judgement


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
    n_folds = min(n_rare, max(2, round(min(1.0 / fraction, n_rare))))
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
