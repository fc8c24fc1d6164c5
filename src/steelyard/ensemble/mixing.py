"""Combination of the experts' scores: calibration, weights, threshold and probabilities.

Two classes: the recent out-of-sample scores of every expert are calibrated to log-odds by logistic regression
with one slope below and one above the middle between the classes (both classes weighted equally). Calibrated
log-odds are linear up to 1 + log(rows of the class), at most 6, because a few rows do not justify larger
values. Beyond this limit they grow logarithmically: they never saturate, so the order of the highest scores
is kept. The weight of an expert is

    prior * exp(15 * AUC - 5 * L - 10 * N),

where L is the log-loss with both classes weighted equally and N the log-loss with the observed class shares,
divided by the entropy of these shares. N is sensitive to the top of the ranking; its factor is 25 in long
streams. These weights are corrected by a logistic regression with a longer memory, see WeightCorrection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._threads import one_thread
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.multiclass import MulticlassWeights, weigh_classes
from steelyard.ensemble.row_buffer import last_rows
from steelyard.ensemble.score_buffer import ScoreBuffer, ScoreLog, TwoSides, with_new_experts
from steelyard.ensemble.settings import SETTINGS
from steelyard.thresholds import choose_threshold, mirrored_threshold

__all__ = ["ExpertWeights", "WeightCorrection", "platt_scaling", "weigh", "weigh_experts"]

_NEWTON_STEPS = 8
_NEWTON_TOLERANCE = 1e-3
_MAX_NEWTON_STEP = 3.0
_SLOPE_PENALTY = 3e-3  # ridge penalty of the slopes
_MIN_SLOPE = 1e-6
# Each slope is at least min(0.3, 5 / n) times the other slope, where n is the size of the rarer class.
_MAX_LEAST_SLOPE, _LEAST_SLOPE_ROWS = 0.3, 5.0
_MAX_BIAS = 5.0  # limit of the log-odds at the middle between the classes
# Knots of the calibration tables beyond the linear part, as linear log-odds minus the limit.
_EXCESS = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 1e3, 1e4, 1e6, 1e9])
_CORRECTION_STEPS = 5  # few steps, starting from 0, keep the correction small
_MIN_SHARE = 1e-4  # smallest class share in the log-loss at observed shares
_MOVED_LOG_ODDS = 1.0  # width of the range beyond the threshold and 0 in which the threshold moves decisions


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
        z, n, ridge = log_odds[:, :, 0], len(places), SETTINGS.correction_ridge
        row_weights = (n * np.array([1.0 - share, share]) / counts)[places]
        shift, values = np.log(share) - np.log1p(-share), np.zeros(len(weights))
        with one_thread():
            curvature = 0.25 * (z * row_weights[:, None]).T @ z + ridge * np.eye(len(weights))
            for _ in range(_CORRECTION_STEPS):
                error = row_weights * (_logistic(z @ (weights + values) + shift) - places)
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


@dataclass(frozen=True)
class ExpertWeights:
    """Calibration and weight of each expert, and the threshold, for two classes.

    Attributes
    ----------
    tables : list of (ndarray, ndarray)
        Calibration table of each expert: scores (knots), and the calibrated log-odds at these scores.
    auc : ndarray of shape (n_experts,)
        Recent AUC of each expert; NaN if it is unknown.
    weights : ndarray of shape (n_experts,)
        Weights of the experts, which sum to one.
    threshold : float
        Rows with a larger weighted sum of log-odds belong to the second class.
    decision_table : (ndarray, ndarray)
        Knots and values of the piecewise linear function that converts weighted sums to decisions. It is 0
        at the threshold and the identity beyond the knots, so that the highest decisions of different
        moments can be compared although the threshold moves.
    slope, bias : float
        Coefficients of the log-odds of the second class, ``slope * sum + bias``, for a weighted sum and for
        equally frequent classes.
    correction : WeightCorrection or None
        The correction that ``weights`` include.
    """

    tables: list[tuple[FloatArray, FloatArray]]
    auc: FloatArray
    weights: FloatArray
    threshold: float
    slope: float = 1.0
    bias: float = 0.0
    correction: WeightCorrection | None = None
    decision_table: tuple[FloatArray, FloatArray] = field(init=False, repr=False, compare=False)
    _flat_tables: tuple[FloatArray, FloatArray, IntArray] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        knots, values = (np.concatenate(parts) for parts in zip(*self.tables, strict=True))
        starts = np.cumsum([0, *(len(table[0]) for table in self.tables)])
        object.__setattr__(self, "_flat_tables", (knots, values, starts))
        object.__setattr__(self, "decision_table", _decision_table(self.threshold))

    def scores(self, raw: FloatArray) -> FloatArray:
        """Return weighted sums of calibrated log-odds. NaN counts as 0.

        ``raw`` has the shape (n_rows, n_experts) or (n_rows, n_experts, 1).
        """
        raw = np.ascontiguousarray(raw).reshape(raw.shape[:2])
        return _native.weigh_lookups(raw, *self._flat_tables, self.weights)

    def expert_log_odds(self, raw: FloatArray) -> FloatArray:
        """Return calibrated log-odds of every expert, 0 for NaN scores and for experts without a table."""
        out = np.zeros(raw.shape)
        for expert, (knots, values) in enumerate(self.tables):
            if len(knots) > 1:
                out[:, expert] = np.interp(raw[:, expert], knots, values)
        return np.where(np.isnan(out), 0.0, out)

    def decisions(self, totals: FloatArray) -> FloatArray:
        """Return decisions of weighted sums: positive for the second class, increasing with the sum."""
        # The sign of the difference is exact, that of the interpolation is not.
        return np.copysign(_interpolated(totals, *self.decision_table), totals - self.threshold)

    def totals_of(self, decisions: FloatArray) -> FloatArray:
        """Return the weighted sums that have these :meth:`decisions`."""
        return _interpolated(decisions, *self.decision_table[::-1])

    def log_odds(self, decisions: FloatArray) -> FloatArray:
        """Convert decisions to log-odds of the second class for equally frequent classes."""
        return self.slope * self.totals_of(decisions) + self.bias

    def get_state(self) -> dict[str, Any]:
        """Return the weights as arrays and plain values."""
        tables = [list(table) for table in self.tables]
        numbers = {"cut": self.threshold, "slope": self.slope, "bias": self.bias}
        return {"tables": tables, "auc": self.auc, "weights": self.weights, **numbers}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> ExpertWeights:
        """Restore the weights from the result of :meth:`get_state`; raise ValueError if inconsistent."""
        tables = [(np.array(knots, np.float64), np.array(z, np.float64)) for knots, z in state["tables"]]
        tables += [_NO_TABLE] * (n_experts - len(tables))
        auc = with_new_experts(state["auc"], n_experts, np.nan)
        weights = with_new_experts(state["weights"], n_experts, 0.0)
        if not len(tables) == len(auc) == len(weights) == n_experts:
            raise ValueError("corrupt weights: every field needs one entry per expert")
        if any(knots.ndim != 1 or not len(knots) or knots.shape != z.shape for knots, z in tables):
            raise ValueError("corrupt weights: a table needs one value at each knot")
        cut = float(state["cut"])
        # Files of version 0.2 contain no calibration; a unit slope around the threshold replaces it.
        return cls(tables, auc, weights, cut, float(state.get("slope", 1.0)), float(state.get("bias", -cut)))


_NO_TABLE = (np.zeros(1), np.zeros(1))


def _decision_table(threshold: float) -> tuple[FloatArray, FloatArray]:
    """Return the knots and values of :attr:`ExpertWeights.decision_table`.

    On the side of 0, sums are changed up to the distance of the threshold from 0, at least 1, so slopes
    are at least 1/2; on the other side up to 1 beyond the threshold.
    """
    near, far = max(_MOVED_LOG_ODDS, abs(threshold)), abs(threshold) + _MOVED_LOG_ODDS
    low, high = (-near, far) if threshold >= 0.0 else (-far, near)
    return np.array([low, threshold, high]), np.array([low, 0.0, high])


def _interpolated(x: FloatArray, knots: FloatArray, values: FloatArray) -> FloatArray:
    """Return a piecewise linear function that is the identity beyond the knots."""
    return np.asarray(np.interp(x, knots, values) + (x - np.clip(x, knots[0], knots[-1])))


def weigh(
    buffer: ScoreBuffer,
    threshold: Any,
    priors: FloatArray,
    *,
    is_long: bool = False,
    is_mirrored: bool = False,
    correction: WeightCorrection | None = None,
) -> ExpertWeights | MulticlassWeights | None:
    """Return weights from recent scores, or None if there are too few. Experts with prior 0 get weight 0.

    ``is_mirrored`` says that the first of two classes is the positive one, for which the threshold is chosen.
    """
    if len(buffer.classes) < 2:
        return None
    if len(buffer.classes) > 2:
        return weigh_classes(buffer, threshold, priors)
    (sides,) = buffer.sides()
    return weigh_experts(
        sides,
        threshold,
        priors,
        is_long=is_long,
        is_mirrored=is_mirrored,
        correction=correction,
    )


def weigh_experts(
    sides: TwoSides,
    threshold: Any,
    priors: FloatArray,
    *,
    is_long: bool = False,
    is_mirrored: bool = False,
    correction: WeightCorrection | None = None,
) -> ExpertWeights | None:
    """Return the expert weights for two classes, or None if a class has too few recent rows."""
    n_positive, n_experts = len(sides.positive), len(priors)
    scores = np.concatenate([sides.positive, sides.negative]).T
    known = ~np.isnan(scores)
    n_known = np.stack([known[:, :n_positive].sum(axis=1), known[:, n_positive:].sum(axis=1)])
    judged = np.flatnonzero((n_known.min(axis=0) >= SETTINGS.min_scored_rows) & (priors > 0.0))
    if not len(judged):
        return None
    fitted = _Calibration.fit(scores[judged], known[judged], n_positive, n_known[:, judged])
    auc = np.full(n_experts, np.nan)
    auc[judged] = fitted.auc
    weights = np.zeros(n_experts)
    weights[judged] = _weights(fitted, n_positive, sides.share, priors[judged], is_long=is_long)
    if correction is not None:
        share = min(max(sides.share, _MIN_SHARE), 1.0 - _MIN_SHARE)
        correction = correction.solved(weights, share)
        is_useful = fitted.auc > min(0.5, fitted.auc.max() - 1e-9)  # better than chance, or the best expert
        weights = correction.apply(weights, judged[is_useful])
    tables = [_NO_TABLE] * n_experts
    for line, expert in enumerate(judged):
        tables[expert] = fitted.table(line)
    total = (weights[judged, None] * fitted.log_odds).sum(axis=0)
    choose = mirrored_threshold if is_mirrored and threshold != "gmean" else choose_threshold
    best = choose(total[:n_positive], total[n_positive:], threshold, sides.share)
    if threshold == "gmean":  # the threshold is shrunk towards 0, where both classes are about equally likely
        is_small = min(n_positive, len(sides.negative)) < SETTINGS.min_threshold_rows
        best *= 0.0 if is_small else SETTINGS.threshold_trust
    slope, bias = platt_scaling(total, n_positive)
    return ExpertWeights(tables, auc, weights, best, slope, bias, correction)


@dataclass(frozen=True)
class _Calibration:
    """Calibrated scores: one array row per expert and one column per stream row, positives first."""

    middle: FloatArray
    below: FloatArray  # slope below the middle between the classes
    above: FloatArray  # slope above the middle between the classes
    bias: FloatArray
    # Absolute log-odds up to which the calibration is linear, for positive and for negative log-odds.
    limits: FloatArray
    log_odds: FloatArray  # calibrated log-odds; 0 where a score is unknown
    auc: FloatArray

    @classmethod
    def fit(cls, scores: FloatArray, known: Any, n_positive: int, n_known: IntArray) -> _Calibration:
        """Fit the slopes of all experts together by Newton's method."""
        order = np.argsort(scores, axis=1)
        ascending, n = np.take_along_axis(scores, order, axis=1), n_known.sum(axis=0)
        _, in_order = _native.rank_levels(ascending, order, n, n_positive)
        auc = in_order / (2.0 * n_known[0] * n_known[1])
        lines = np.arange(len(scores))
        low, high = ((q * (n - 1)).astype(int) for q in (0.05, 0.95))
        spread = ascending[lines, high] - ascending[lines, low]
        spread = np.where(spread > 0.0, spread, ascending[lines, n - 1] - ascending[lines, 0])
        scale = np.where(spread > 0.0, spread / 3.3, 1.0)
        medians = [_medians(scores[:, :n_positive], n_known[0]), _medians(scores[:, n_positive:], n_known[1])]
        middle = 0.5 * (medians[0] + medians[1])
        x = np.where(known, (scores - middle[:, None]) / scale[:, None], 0.0)
        below, above, bias = _fit_slopes(x, known, n_positive, n_known)
        # With few rows a slope may become 0, and the scores below or above the middle would lose their order.
        least = np.minimum(_MAX_LEAST_SLOPE, _LEAST_SLOPE_ROWS / n_known.min(axis=0))
        below, above = np.maximum(below, least * above), np.maximum(above, least * below)
        limits = np.minimum(SETTINGS.linear_log_odds, 1.0 + np.log1p(n_known))
        bias = np.clip(bias, -limits[1], limits[0])
        linear = below[:, None] * np.minimum(x, 0.0) + above[:, None] * np.maximum(x, 0.0) + bias[:, None]
        log_odds = np.where(known, _compressed(linear, limits), 0.0)
        return cls(middle, below / scale, above / scale, bias, limits, log_odds, auc)

    def table(self, line: int) -> tuple[FloatArray, FloatArray]:
        """Return the calibration table of an expert: knots, and the log-odds at the knots."""
        middle, bias = self.middle[line], self.bias[line]
        up, down = self.limits[:, line]
        low = middle - (bias + down + _EXCESS) / self.below[line]
        high = middle + (up + _EXCESS - bias) / self.above[line]
        beyond = np.log1p(_EXCESS)
        values = np.concatenate([-(down + beyond)[::-1], [bias], up + beyond])
        return np.concatenate([low[::-1], [middle], high]), values


def _medians(scores: FloatArray, n_known: IntArray) -> FloatArray:
    """Return the median of each row, whose unknown scores are NaN."""
    ascending, lines = np.sort(scores, axis=1), np.arange(len(scores))  # NaN comes last
    low, high = ascending[lines, (n_known - 1) // 2], ascending[lines, n_known // 2]
    return np.asarray(0.5 * (low + high))


def _fit_slopes(x: FloatArray, known: Any, n_positive: int, n_known: IntArray) -> tuple[FloatArray, ...]:
    """Fit slopes below and above 0 and a bias to each row of ``x`` by logistic regression (Newton's method).

    Both classes are weighted equally. As in Platt scaling, targets are less certain the fewer rows there are.
    """
    positive, negative = (count[:, None].astype(np.float64) for count in n_known)
    is_positive = np.arange(x.shape[1]) < n_positive
    target = np.where(is_positive, (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0))
    row_weights = known * np.where(is_positive, 0.5 / positive, 0.5 / negative)
    below, above = np.minimum(x, 0.0), np.maximum(x, 0.0)
    squared = np.square(x)
    is_below = x < 0.0
    a, b, c = np.ones(len(x)), np.ones(len(x)), np.zeros(len(x))
    for _ in range(_NEWTON_STEPS):
        p = _logistic(a[:, None] * below + b[:, None] * above + c[:, None])
        g, h = row_weights * (p - target), row_weights * p * (1.0 - p)
        gx, hx, hxx = g * x, h * x, h * squared
        g_a = np.where(is_below, gx, 0.0).sum(axis=1) + _SLOPE_PENALTY * a
        g_b = gx.sum(axis=1) - (g_a - _SLOPE_PENALTY * a) + _SLOPE_PENALTY * b
        h_ac = np.where(is_below, hx, 0.0).sum(axis=1)
        h_bc = hx.sum(axis=1) - h_ac
        h_aa = np.where(is_below, hxx, 0.0).sum(axis=1)
        h_bb = hxx.sum(axis=1) - h_aa + _SLOPE_PENALTY
        h_aa = h_aa + _SLOPE_PENALTY
        # The mixed derivative by the two slopes is 0, so both slopes are eliminated from the system.
        step_c = (g.sum(axis=1) - h_ac * g_a / h_aa - h_bc * g_b / h_bb) / (
            h.sum(axis=1) + 1e-9 - h_ac * h_ac / h_aa - h_bc * h_bc / h_bb
        )
        step_a, step_b = (g_a - h_ac * step_c) / h_aa, (g_b - h_bc * step_c) / h_bb
        size = np.maximum(np.maximum(np.abs(step_a), np.abs(step_b)), np.abs(step_c))
        factor = 1.0 / np.maximum(1.0, size / _MAX_NEWTON_STEP)
        a, b, c = a - factor * step_a, b - factor * step_b, c - factor * step_c
        if size.max() < _NEWTON_TOLERANCE:
            break
    return np.maximum(a, _MIN_SLOPE), np.maximum(b, _MIN_SLOPE), np.clip(c, -_MAX_BIAS, _MAX_BIAS)


# NumPy computes tanh, exp and log by vector instructions. The functions of SciPy take three to five times as
# long.


def _logistic(log_odds: FloatArray) -> FloatArray:
    """Return the probabilities ``1 / (1 + exp(-log_odds))``."""
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * log_odds))


def _log_loss(log_odds: FloatArray) -> FloatArray:
    """Return the log-loss ``log(1 + exp(-log_odds))`` of positive rows."""
    return np.asarray(np.log(1.0 + np.exp(-np.abs(log_odds))) + np.maximum(-log_odds, 0.0))


def _compressed(log_odds: FloatArray, limits: FloatArray) -> FloatArray:
    """Return log-odds that grow only logarithmically beyond the limits, to reduce the effect of outliers."""
    up, down = limits[:, :, None]
    inside = np.clip(log_odds, -down, up)
    beyond = log_odds - inside
    return inside + np.sign(beyond) * np.log1p(np.abs(beyond))


def _weights(
    fitted: _Calibration, n_positive: int, share: float, priors: FloatArray, *, is_long: bool
) -> FloatArray:
    """Return the weights of calibrated experts. Experts worse than chance get 0, unless all are worse."""
    share = min(max(share, _MIN_SHARE), 1.0 - _MIN_SHARE)
    entropy = -(share * np.log(share) + (1.0 - share) * np.log1p(-share))
    shift = np.log(share) - np.log1p(-share)

    def loss(log_odds: FloatArray, positive_share: float) -> FloatArray:
        positive = _log_loss(log_odds[:, :n_positive]).mean(axis=1)
        negative = _log_loss(-log_odds[:, n_positive:]).mean(axis=1)
        return np.asarray(positive_share * positive + (1.0 - positive_share) * negative)

    auc, best = fitted.auc, fitted.auc.max()
    exponent = (
        SETTINGS.auc_sharpness * auc
        - SETTINGS.balanced_loss_sharpness * loss(fitted.log_odds, 0.5)
        - SETTINGS.observed_loss_sharpness[is_long] * loss(fitted.log_odds + shift, share) / entropy
    )
    weights = priors * np.exp(exponent - exponent.max())
    if best > 0.5:
        weights[~(auc > 0.5)] = 0.0
    if not weights.any():
        weights = (auc == best).astype(np.float64)
    weights[weights < SETTINGS.min_relative_weight * weights.max()] = 0.0
    return np.asarray(weights / weights.sum())


def platt_scaling(total: FloatArray, n_positive: int) -> tuple[float, float]:
    """Return slope and bias that convert weighted sums to log-odds (Platt scaling, balanced classes)."""
    n_negative = len(total) - n_positive
    is_positive = np.arange(len(total)) < n_positive
    target = np.where(is_positive, (n_positive + 1.0) / (n_positive + 2.0), 1.0 / (n_negative + 2.0))
    row_weights = np.where(is_positive, 0.5 / n_positive, 0.5 / n_negative)
    slope, bias = 1.0, 0.0
    for _ in range(_NEWTON_STEPS):
        p = _logistic(slope * total + bias)
        g, h = row_weights * (p - target), row_weights * p * (1.0 - p)
        ht = h * total
        g_slope, g_bias = float((g * total).sum()) + 1e-3 * (slope - 1.0), float(g.sum())
        h_slope, h_cross, h_bias = float((ht * total).sum()) + 1e-3, float(ht.sum()), float(h.sum()) + 1e-9
        determinant = h_slope * h_bias - h_cross * h_cross
        step_slope = (h_bias * g_slope - h_cross * g_bias) / determinant
        step_bias = (h_slope * g_bias - h_cross * g_slope) / determinant
        size = max(abs(step_slope), abs(step_bias))
        factor = 1.0 / max(1.0, size / _MAX_NEWTON_STEP)
        slope, bias = slope - factor * step_slope, bias - factor * step_bias
        if size < _NEWTON_TOLERANCE:
            break
    return max(slope, 1e-3), bias
