"""Combination of the experts' scores: calibration, weights, and threshold.

Two classes: the recent out-of-sample scores of every expert are calibrated to log-odds by logistic regression
with one slope below and one above the middle between the classes (both classes weighted equally). Calibrated
log-odds are linear up to 1 + log(rows of the class), at most 6, because a few rows do not justify larger
values. Beyond this limit they grow logarithmically: they never saturate, so the order of the highest scores
is kept. The weight of an expert is

    prior * exp(15 * AUC - 5 * L - 10 * N),

where L is the log-loss with both classes weighted equally and N the log-loss with the observed class shares,
divided by the entropy of these shares. N is sensitive to the top of the ranking; its factor is 25 in long
streams. These weights are corrected by a logistic regression with a longer memory, see WeightCorrection.

The loops over rows are native (``native/ensemble/logistic_fits.cpp``), with bit-identical results on every
machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.multiclass import MulticlassWeights, weigh_classes
from steelyard.ensemble.score_buffer import ScoreBuffer, ScoreLog, TwoSides, with_new_experts
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.snapshot import ExpertWeights
from steelyard.thresholds import choose_threshold, mirrored_threshold

_CORRECTION_STEPS = 5  # few steps, starting from 0, keep the correction small
_MIN_SHARE = 1e-4  # smallest class share in the log-loss at observed shares


@dataclass(frozen=True)
class WeightCorrection:
    """Correction that is added to the expert weights for two classes; immutable.

    The uncorrected weights depend on the quality of each expert alone. The correction also depends on their
    correlation: it favours experts that err on different rows over experts with similar scores. It is a ridge
    logistic regression of the labels on the out-of-sample log-odds of the experts, for the observed class
    shares; the penalty shrinks the result towards the uncorrected weights. The last 5,000 rows and the last
    100 rows of each class are remembered.
    """

    values: FloatArray  # the correction, shape (n_experts,)
    log: ScoreLog  # calibrated log-odds of recent rows for equally frequent classes, class indices and hashes

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
            log = log.take(_native.last_rows(log.rows[1], n_rows, per_class))
        return WeightCorrection(self.values, log)

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
        values = _native.solve_correction(
            log_odds[:, :, 0], places, weights, share, SETTINGS.correction_ridge, _CORRECTION_STEPS
        )
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


def weigh(
    buffer: ScoreBuffer, threshold: Any, priors: FloatArray, **options: Any
) -> ExpertWeights | MulticlassWeights | None:
    """Return weights from recent scores, or None if there are too few. Experts with prior 0 get weight 0.

    For two classes ``options`` are the keyword parameters of :func:`weigh_experts`.
    """
    if len(buffer.classes) < 2:
        return None
    if len(buffer.classes) > 2:
        return weigh_classes(buffer, threshold, priors)
    (sides,) = buffer.sides()
    return weigh_experts(sides, threshold, priors, **options)


def weigh_experts(
    sides: TwoSides,
    threshold: Any,
    priors: FloatArray,
    *,
    is_long: bool = False,
    is_mirrored: bool = False,
    correction: WeightCorrection | None = None,
) -> ExpertWeights | None:
    """Return the expert weights for two classes, or None if a class has too few recent rows.

    Experts with prior 0 get weight 0. ``is_mirrored`` says that the first class is the positive one, for
    which the threshold is chosen.
    """
    n_positive, n_negative = len(sides.positive), len(sides.negative)
    if not n_positive or not n_negative:
        return None
    scores = np.ascontiguousarray(np.concatenate([sides.positive, sides.negative]))
    fitted = _native.ExpertCalibrations(
        scores, n_positive, priors > 0.0, SETTINGS.min_scored_rows, SETTINGS.linear_log_odds
    )
    if not len(fitted):
        return None
    auc, share = fitted.auc(), min(max(sides.share, _MIN_SHARE), 1.0 - _MIN_SHARE)
    balanced, observed = SETTINGS.balanced_loss_sharpness, SETTINGS.observed_loss_sharpness[is_long]
    sharpness = SETTINGS.auc_sharpness, balanced, observed
    weights = fitted.weights(share, sharpness, SETTINGS.min_relative_weight, priors)
    if correction is not None:
        correction = correction.solved(weights, share)
        is_useful = auc > min(0.5, np.nanmax(auc) - 1e-9)  # better than chance, or the best expert
        weights = correction.apply(weights, is_useful)
    total = fitted.totals(weights)
    choose = mirrored_threshold if is_mirrored and threshold != "gmean" else choose_threshold
    best = choose(total[:n_positive], total[n_positive:], threshold, sides.share)
    if threshold == "gmean":  # the threshold is shrunk towards 0, where both classes are about equally likely
        is_small = min(n_positive, n_negative) < SETTINGS.min_threshold_rows
        best *= 0.0 if is_small else SETTINGS.threshold_trust
    slope, bias = _native.platt_scaling(total, n_positive)
    tables = [fitted.table(expert) for expert in range(len(priors))]
    return ExpertWeights(tables, auc, weights, best, slope, bias, correction)
