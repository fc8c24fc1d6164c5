"""Correction of the expert weights by logistic regression on the experts' out-of-sample log-odds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from steelyard._threads import one_thread
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.row_buffer import last_rows
from steelyard.ensemble.score_buffer import ScoreLog, with_new_experts
from steelyard.ensemble.settings import SETTINGS

__all__ = ["WeightCorrection"]

_STEPS = 5  # few steps, starting from 0, keep the correction small


@dataclass(frozen=True)
class WeightCorrection:
    """Correction that is added to the expert weights for two classes; immutable.

    The uncorrected weights depend on the quality of each expert alone. The correction also depends on their
    correlation: it favours experts that err on different rows over experts with similar scores. It is a ridge
    logistic regression of the labels on the out-of-sample log-odds of the experts, for the observed class
    shares; the penalty shrinks the result towards the uncorrected weights. The last 5,000 rows and the last
    100 rows of each class are remembered.

    Attributes
    ----------
    values : ndarray of shape (n_experts,)
        The correction.
    log : ScoreLog
        Calibrated log-odds of recent rows for equally frequent classes, class indices and row hashes.
    """

    values: FloatArray
    log: ScoreLog

    @classmethod
    def none(cls, n_experts: int) -> WeightCorrection:
        """Return a correction of 0 without remembered rows."""
        return cls(np.zeros(n_experts), ScoreLog.empty(n_experts, 1))

    def after(self, log_odds: FloatArray, places: IntArray, keys: NDArray[np.uint64]) -> WeightCorrection:
        """Return the correction with more remembered rows, whose class indices are ``places``."""
        rounded = log_odds.astype(np.float32).astype(np.float64)  # files store 32-bit numbers
        log, n_rows = self.log.append(rounded[:, :, None], places, keys), SETTINGS.correction_rows
        if log.n > (1.0 + SETTINGS.slack) * n_rows:
            per_class = SETTINGS.score_rows_of_class[1]
            log = log.take(last_rows(np.arange(log.n), log.rows[1], n_rows, per_class, 0))
        return replace(self, log=log)

    def without(self, place: int, keys: NDArray[np.uint64]) -> WeightCorrection:
        """Return the correction without the rows of a class that have the given hashes.

        ``place`` is the index of the class. If a row was found, the correction is 0 until it is solved again.
        """
        log = self.log.without(place, keys)
        if log.n == self.log.n:
            return self
        return WeightCorrection(np.zeros(len(self.values)), log)

    def solved(self, weights: FloatArray, share: float) -> WeightCorrection:
        """Return the correction for the given weights; ``share`` is the share of the positive class.

        Each step minimizes a quadratic upper bound of the log-loss (with curvature 1/4), so the steps cannot
        diverge.
        """
        log_odds, places, _ = self.log.rows
        counts = np.bincount(places, minlength=2)
        if counts.min() < SETTINGS.min_scored_rows or len(places) < SETTINGS.min_correction_rows:
            return WeightCorrection(np.zeros(len(weights)), self.log)
        z, n, ridge = log_odds[:, :, 0], len(places), SETTINGS.correction_ridge
        row_weights = (n * np.array([1.0 - share, share]) / counts)[places]
        shift, values = np.log(share) - np.log1p(-share), np.zeros(len(weights))
        with one_thread():
            curvature = 0.25 * (z * row_weights[:, None]).T @ z + ridge * np.eye(len(weights))
            for _ in range(_STEPS):
                error = row_weights * (expit(z @ (weights + values) + shift) - places)
                values = values - np.linalg.solve(curvature, z.T @ error + ridge * values)
        return WeightCorrection(values, self.log)

    def apply(self, weights: FloatArray, judged: Any) -> FloatArray:
        """Return corrected, nonnegative weights with sum 1; experts not in ``judged`` get 0."""
        corrected = np.zeros(len(weights))
        corrected[judged] = np.maximum(weights[judged] + self.values[judged], 0.0)
        total = corrected.sum()
        return corrected / total if total > 0.0 else weights

    def get_state(self) -> dict[str, Any]:
        """Return the state as a dictionary of arrays and plain values, for saving."""
        log_odds, places, keys = self.log.rows
        log_odds, places = log_odds[:, :, 0].astype(np.float32), places.astype(np.int8)
        return {"values": self.values, "log_odds": log_odds, "places": places, "keys": keys}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> WeightCorrection:
        """Restore the correction from the result of :meth:`get_state`; raise ValueError if inconsistent.

        Experts that are not in the file have a correction of 0.
        """
        correction = cls.none(n_experts)
        if not state:
            return correction
        values = with_new_experts(state["values"], n_experts, 0.0)
        log_odds = with_new_experts(state["log_odds"], n_experts, 0.0, axis=1)
        places, keys = np.asarray(state["places"]), np.asarray(state["keys"])
        has_shape = values.shape == (n_experts,) and log_odds.shape == (len(keys), n_experts)
        if not has_shape or places.shape != keys.shape or not np.isin(places, (0, 1)).all():
            raise ValueError("the correction of the weights does not have the shape of the experts")
        if not (np.isfinite(values).all() and np.isfinite(log_odds).all()):
            raise ValueError("the correction of the weights must be finite numbers")
        log = correction.log.append(log_odds[:, :, None], places.astype(np.int64), keys)
        return cls(values, log)
