"""Measures of tallies: how many rows each class had, how many were found, how often it was answered.

A tally is an array whose last two axes are (hits, rows, answers) and the classes. Every measure here is a
ratio of such counts, so one formula serves a window, all rows, and a thousand resamples of either.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray

__all__ = ["MEASURES", "bands", "measures", "widened", "window_aucs"]

MEASURES = ("sensitivity", "specificity", "g_mean", "f1", "rs", "accuracy", "imbalance_ratio", "macro_recall")
_BANDED = ("sensitivity", "specificity", "g_mean", "f1", "macro_recall")
_LEVEL = 0.95


def measures(tallies: NDArray[np.int64] | FloatArray, positive: int | None) -> dict[str, FloatArray]:
    """Measures of one tally or of many at once; nan where there is nothing to divide by.

    Parameters
    ----------
    tallies : ndarray of shape (..., 3, n_classes)
        Hits, rows and answers of each class.
    positive : int or None
        The positive class; None: all classes count alike. Sensitivity is then the mean recall, F1 the mean
        of the classes' F1, and specificity and their ratio are not defined.

    Returns
    -------
    dict of str to ndarray
        One array of the leading shape for each of :data:`MEASURES`.
    """
    counts = np.asarray(tallies, dtype=np.float64)
    hits, rows, answers = counts[..., 0, :], counts[..., 1, :], counts[..., 2, :]
    present = rows > 0
    n_present = present.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = rows.sum(axis=-1)
        recalls = np.where(present, hits / rows, 0.0)
        macro = recalls.sum(axis=-1) / np.where(n_present > 0, n_present, np.nan)
        least = np.where(present, rows, np.inf).min(axis=-1, initial=np.inf)
        values = {
            "accuracy": hits.sum(axis=-1) / total,
            "imbalance_ratio": np.where(n_present > 1, rows.max(axis=-1, initial=0.0) / least, np.nan),
            "macro_recall": macro,
        }
        if positive is None:
            logs = np.log(np.where(present, recalls, 1.0)).sum(axis=-1)
            f1 = np.where(present, 2 * hits / (rows + answers), 0.0).sum(axis=-1)
            undefined = np.full(total.shape, np.nan)
            values |= {
                "sensitivity": macro,
                "specificity": undefined,
                "g_mean": np.where(n_present > 1, np.exp(logs / n_present), np.nan),
                "f1": f1 / np.where(n_present > 0, n_present, np.nan),
                "rs": undefined,
            }
        else:
            found, positives, alarms = (part[..., positive] for part in (hits, rows, answers))
            sensitivity = found / positives
            specificity = 1.0 - (alarms - found) / (total - positives)
            values |= {
                "sensitivity": sensitivity,
                "specificity": specificity,
                "g_mean": np.sqrt(sensitivity * specificity),
                "f1": 2 * found / (positives + alarms),
                "rs": np.where(specificity > 0, sensitivity / specificity, np.nan),
            }
    return {name: values[name] for name in MEASURES}


def bands(
    blocks: NDArray[np.int64] | FloatArray, draws: FloatArray, positive: int | None
) -> dict[str, tuple[float, float]]:
    """The middle 95 % of the measures of resampled blocks.

    Rows that stand together are alike, so resampling single rows would promise too much; whole blocks are
    resampled instead.

    Parameters
    ----------
    blocks : ndarray of shape (n_blocks, 3, n_classes)
        Tallies of consecutive blocks of rows.
    draws : ndarray of shape (n_resamples, n_blocks)
        How often each block is drawn.
    positive : int or None
        As for :func:`measures`.
    """
    drawn = (draws @ blocks.reshape(len(blocks), -1)).reshape(len(draws), *blocks.shape[1:])
    values = measures(drawn, positive)
    ordered = np.sort(np.array([values[name] for name in _BANDED]), axis=1)  # nan comes last
    found = {}
    for name, sample, n in zip(_BANDED, ordered, np.isfinite(ordered).sum(axis=1).tolist(), strict=True):
        cut = int((1 - _LEVEL) / 2 * n)
        found[name] = (float(sample[cut]), float(sample[n - 1 - cut])) if n else (np.nan, np.nan)
    return found


def window_aucs(is_positive: NDArray[np.bool_], scores: FloatArray, begins: Any, ends: Any) -> list[float]:
    """The share of pairs in the right order, ties counting half, of the rows of each window.

    Parameters
    ----------
    is_positive : ndarray of shape (n_rows,)
        Which rows are positive.
    scores : ndarray of shape (n_rows,)
        Their scores.
    begins, ends : ndarray of shape (n_windows,)
        The rows of each window.

    Returns
    -------
    list of float
        One for each window; nan where all rows are of one side.
    """
    sides = []
    for places in (np.flatnonzero(is_positive), np.flatnonzero(~is_positive)):
        borders = zip(places.searchsorted(begins).tolist(), places.searchsorted(ends).tolist(), strict=True)
        mine = scores[places]
        sides.append([mine[begin:end] for begin, end in borders])
    return [_auc(positives, np.sort(negatives)) for positives, negatives in zip(*sides, strict=True)]


def _auc(positives: FloatArray, ordered: FloatArray) -> float:
    """AUC of positive scores and of negative ones, these in order."""
    n_pairs = len(positives) * len(ordered)
    if not n_pairs:
        return math.nan
    doubled_wins = ordered.searchsorted(positives, "left") + ordered.searchsorted(positives, "right")
    return float(doubled_wins.sum() / (2 * n_pairs))


def widened(tallies: NDArray[np.int64], n_classes: int) -> NDArray[np.int64]:
    """The same tallies with room for classes that came later."""
    missing = n_classes - tallies.shape[-1]
    if missing <= 0:
        return tallies
    return np.concatenate([tallies, np.zeros((*tallies.shape[:-1], missing), dtype=tallies.dtype)], axis=-1)
