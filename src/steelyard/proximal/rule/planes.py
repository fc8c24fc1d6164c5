"""Planes that decide, and what they make of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, softmax

from steelyard import _native
from steelyard._labels import winners
from steelyard._threads import num_threads
from steelyard._types import FloatArray

__all__ = ["Planes"]

_FEW_ROWS = 16  # that one thread scores before others are awake


def _threads_for(rows: Any) -> int:
    return num_threads() if len(rows) > _FEW_ROWS else 1


@dataclass(frozen=True)
class Planes:
    """What the rule makes of the statistics.

    Attributes
    ----------
    coef : ndarray of shape (n_planes, n_features)
        Normals in the units of the (mapped) features.
    intercept : ndarray of shape (n_planes,)
        Scores are ``x @ coef.T + intercept``.
    slope : float
        Log-odds per unit of score.
    C : float
        The C that was used.
    """

    coef: FloatArray
    intercept: FloatArray
    slope: float
    C: float

    def write_scores(self, rows: Any, scores: FloatArray) -> bool:
        """Write the scores of rows for all planes; return whether all are finite."""
        if type(rows) is np.ndarray or not sp.issparse(rows):
            threads = _threads_for(rows)
            return _native.linear_scores(rows, self.coef, self.intercept, scores, threads) or self._mend(
                rows, scores
            )
        with np.errstate(over="ignore", invalid="ignore"):
            np.add(rows @ self.coef.T, self.intercept, out=scores)
        return bool(np.isfinite(scores).all()) or self._mend(rows, scores)

    def _mend(self, rows: Any, scores: FloatArray) -> bool:
        """Write scores anew whose terms are beyond the doubles, by mantissas and exponents; all finite?

        A score that is itself beyond them becomes the largest there is. Rows with NaN or inf stay so.
        """
        for i in np.flatnonzero(~np.isfinite(scores).all(axis=1)):
            row = rows[[i]].toarray()[0] if sp.issparse(rows) else rows[i]
            if np.isfinite(row).all():
                scores[i] = self._careful_scores(row.astype(np.float64))
        return bool(np.isfinite(scores).all())

    def _careful_scores(self, row: FloatArray) -> FloatArray:
        values, powers = np.frexp(np.append(row, 1.0))
        weights, more_powers = np.frexp(np.column_stack([self.coef, self.intercept]))
        terms, exponents = values * weights, powers + more_powers
        top = np.where(terms != 0.0, exponents, -4000).max(axis=1, keepdims=True)
        sums = np.ldexp(terms, exponents - top).sum(axis=1)
        with np.errstate(over="ignore"):
            limit = np.finfo(np.float64).max
            return np.clip(np.ldexp(sums, top[:, 0]), -limit, limit)

    def write_labels(self, rows: Any, labels_of: NDArray[np.uint64], labels: NDArray[np.uint64]) -> bool:
        """Write the label of the winning plane of each row; return whether all scores are finite.

        A single plane has two labels, that of its negative and that of its positive side.
        """
        if type(rows) is np.ndarray or not sp.issparse(rows):
            threads = _threads_for(rows)
            if _native.linear_labels(rows, self.coef, self.intercept, labels_of, labels, threads):
                return True
        scores = np.empty((rows.shape[0], len(self.coef)))
        finite = self.write_scores(rows, scores)
        labels_of.take(winners(scores, len(labels_of)), out=labels)
        return finite

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Probabilities of classes that are taken as equally frequent, two for a single plane."""
        scaled = self.slope * scores
        if scaled.shape[1] == 1:
            return np.column_stack([expit(-scaled[:, 0]), expit(scaled[:, 0])])
        return np.asarray(softmax(scaled, axis=1))
