"""Combination of the experts' scores: calibration, weights, threshold and probabilities.

Two classes: the recent out-of-sample scores of every expert are calibrated to log-odds by logistic regression
with one slope below and one above the middle between the classes (all classes weighted alike). Calibrated
log-odds do not saturate, so the order of the highest scores is kept. The weight of an expert is

    prior * exp(15 * AUC - 5 * L - 5 * N),

where L is the log-loss with both classes weighted alike and N the log-loss with the observed class shares,
divided by the entropy of these shares. N is the loss that notices the top of the ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, log_expit

from steelyard import _native
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.multiclass import MulticlassWeights, weigh_classes
from steelyard.ensemble.score_buffer import ScoreBuffer, TwoSides, with_new_experts
from steelyard.ensemble.settings import SETTINGS
from steelyard.thresholds import choose_threshold

__all__ = ["ExpertWeights", "weigh", "weigh_experts"]

_NEWTON_STEPS = 8
_MAX_NEWTON_STEP = 3.0
_SLOPE_PENALTY = 3e-3  # ridge penalty of the slopes
_MIN_SLOPE = 1e-6
_MAX_BIAS = 5.0  # log-odds at the middle
# Log-odds beyond the linear part at which the calibration has knots; between knots it is interpolated.
_EXCESS = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 1e3, 1e4, 1e6, 1e9])
_MIN_SHARE = 1e-4  # of a class when the log-loss with observed shares is computed


@dataclass(frozen=True)
class ExpertWeights:
    """Calibration and weight of each expert, and the threshold, for two classes.

    Attributes
    ----------
    tables : list of (ndarray, ndarray)
        For each expert its scores at some knots, and the calibrated log-odds there.
    auc : ndarray of shape (n_experts,)
        Recent AUC of each expert; NaN where it has none.
    weights : ndarray of shape (n_experts,)
        They sum to one.
    threshold : float
        Rows with a larger weighted sum of log-odds belong to the second class.
    slope, bias : float
        ``slope * total + bias`` are the log-odds of the second class when both classes are equally frequent.
    """

    tables: list[tuple[FloatArray, FloatArray]]
    auc: FloatArray
    weights: FloatArray
    threshold: float
    slope: float = 1.0
    bias: float = 0.0
    _flat_tables: tuple[FloatArray, FloatArray, IntArray] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        knots, values = (np.concatenate(parts) for parts in zip(*self.tables, strict=True))
        starts = np.cumsum([0, *(len(table[0]) for table in self.tables)])
        object.__setattr__(self, "_flat_tables", (knots, values, starts))

    def scores(self, raw: FloatArray) -> FloatArray:
        """Return weighted sums of calibrated log-odds; ``raw`` has a column per expert, NaN counts nothing."""
        return _native.weigh_lookups(raw, *self._flat_tables, self.weights)

    def log_odds(self, decisions: FloatArray) -> FloatArray:
        """Return log-odds of the second class, equally frequent classes, from scores minus the threshold."""
        return self.slope * (decisions + self.threshold) + self.bias

    def get_state(self) -> dict[str, Any]:
        """Return everything as arrays and plain values."""
        tables = [list(table) for table in self.tables]
        numbers = {"cut": self.threshold, "slope": self.slope, "bias": self.bias}
        return {"tables": tables, "auc": self.auc, "weights": self.weights, **numbers}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> ExpertWeights:
        """Return the weights that :meth:`get_state` described; raise ValueError if they are inconsistent."""
        tables = [(np.array(knots, np.float64), np.array(z, np.float64)) for knots, z in state["tables"]]
        tables += [_NO_TABLE] * (n_experts - len(tables))
        auc = with_new_experts(state["auc"], n_experts, np.nan)
        weights = with_new_experts(state["weights"], n_experts, 0.0)
        if not len(tables) == len(auc) == len(weights) == n_experts:
            raise ValueError("corrupt weights: every field needs one entry per expert")
        if any(knots.ndim != 1 or not len(knots) or knots.shape != z.shape for knots, z in tables):
            raise ValueError("corrupt weights: a table needs one value at each knot")
        cut = float(state["cut"])
        # Version 0.2 has no calibration: a unit slope around the threshold.
        return cls(tables, auc, weights, cut, float(state.get("slope", 1.0)), float(state.get("bias", -cut)))


_NO_TABLE = (np.zeros(1), np.zeros(1))


def weigh(
    buffer: ScoreBuffer, threshold: Any, priors: FloatArray
) -> ExpertWeights | MulticlassWeights | None:
    """Return weights from recent scores, None if there are too few; experts with prior 0 get no weight."""
    if len(buffer.classes) < 2:
        return None
    if len(buffer.classes) > 2:
        return weigh_classes(buffer, threshold, priors)
    (sides,) = buffer.sides()
    return weigh_experts(sides, threshold, priors)


def weigh_experts(sides: TwoSides, threshold: Any, priors: FloatArray) -> ExpertWeights | None:
    """Return the weights of two classes; None if recent rows of a class are too few."""
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
    weights[judged] = _weights(fitted, n_positive, sides.share, priors[judged])
    tables = [_NO_TABLE] * n_experts
    for line, expert in enumerate(judged):
        tables[expert] = fitted.table(line)
    total = weights[judged] @ fitted.log_odds
    best = choose_threshold(total[:n_positive], total[n_positive:], threshold, sides.share)
    if threshold == "gmean":
        best *= SETTINGS.threshold_trust  # at 0 both classes are about equally likely
    slope, bias = _platt(total, n_positive)
    return ExpertWeights(tables, auc, weights, best, slope, bias)


@dataclass(frozen=True)
class _Calibration:
    """Calibrated scores of some experts, one line per expert; positives come first."""

    middle: FloatArray
    below: FloatArray  # slope below the middle
    above: FloatArray
    bias: FloatArray
    log_odds: FloatArray  # 0 where a score is unknown
    auc: FloatArray

    @classmethod
    def fit(cls, scores: FloatArray, known: Any, n_positive: int, n_known: IntArray) -> _Calibration:
        """Fit the slopes of all experts together by Newton's method."""
        order = np.argsort(scores, axis=1)
        ascending, n = np.take_along_axis(scores, order, axis=1), n_known.sum(axis=0)
        _, in_order = _native.rank_levels(ascending, order, n, n_positive)
        auc = in_order / (2.0 * n_known[0] * n_known[1])
        lines = np.arange(len(scores))
        spread = (
            ascending[lines, (0.95 * (n - 1)).astype(int)] - ascending[lines, (0.05 * (n - 1)).astype(int)]
        )
        spread = np.where(spread > 0.0, spread, ascending[lines, n - 1] - ascending[lines, 0])
        scale = np.where(spread > 0.0, spread / 3.3, 1.0)
        middle = 0.5 * (
            np.nanmedian(scores[:, :n_positive], axis=1) + np.nanmedian(scores[:, n_positive:], axis=1)
        )
        x = np.where(known, (scores - middle[:, None]) / scale[:, None], 0.0)
        features = np.stack([np.minimum(x, 0.0), np.maximum(x, 0.0), np.ones_like(x)])
        # Platt's targets: fewer rows give less certainty.
        target = np.concatenate([np.ones(n_positive), np.zeros(x.shape[1] - n_positive)])[None]
        sides = np.where(target > 0.0, n_known[0][:, None], n_known[1][:, None])
        target = np.where(target > 0.0, (sides + 1.0) / (sides + 2.0), 1.0 / (sides + 2.0))
        row_weights = known * 0.5 / sides
        v = np.tile([1.0, 1.0, 0.0], (len(scores), 1))
        penalty = np.array([_SLOPE_PENALTY, _SLOPE_PENALTY, 1e-9])
        for _ in range(_NEWTON_STEPS):
            p = expit(np.einsum("fer,ef->er", features, v))
            weighted = features * (row_weights * p * (1.0 - p))
            gradient = np.einsum("fer,er->ef", features, row_weights * (p - target)) + penalty * v
            hessian = np.einsum("fer,ger->efg", weighted, features) + np.diag(penalty + 1e-12)
            step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
            size = np.abs(step).max(axis=1, keepdims=True)
            v = v - step / np.maximum(1.0, size / _MAX_NEWTON_STEP)
            if size.max() < 1e-4:
                break
        below, above = np.maximum(v[:, :2], _MIN_SLOPE).T
        bias = np.clip(v[:, 2], -_MAX_BIAS, _MAX_BIAS)
        linear = below[:, None] * features[0] + above[:, None] * features[1] + bias[:, None]
        return cls(middle, below / scale, above / scale, bias, np.where(known, _compressed(linear), 0.0), auc)

    def table(self, line: int) -> tuple[FloatArray, FloatArray]:
        """Return knots of an expert's calibration and the log-odds there."""
        middle, bias, limit = self.middle[line], self.bias[line], SETTINGS.linear_log_odds
        low = middle - (bias + limit + _EXCESS) / self.below[line]
        high = middle + (limit + _EXCESS - bias) / self.above[line]
        values = limit + np.log1p(_EXCESS)
        return np.concatenate([low[::-1], [middle], high]), np.concatenate([-values[::-1], [bias], values])


def _compressed(log_odds: FloatArray) -> FloatArray:
    """Return log-odds that grow logarithmically beyond the linear part: outliers count, but not too much."""
    limit = SETTINGS.linear_log_odds
    size = np.abs(log_odds)
    return np.where(
        size <= limit, log_odds, np.sign(log_odds) * (limit + np.log1p(np.maximum(size - limit, 0.0)))
    )


def _weights(fitted: _Calibration, n_positive: int, share: float, priors: FloatArray) -> FloatArray:
    """Return the weights of calibrated experts; an expert worse than chance gets none, unless all are."""
    share = min(max(share, _MIN_SHARE), 1.0 - _MIN_SHARE)
    entropy = -(share * np.log(share) + (1.0 - share) * np.log1p(-share))
    shift = np.log(share) - np.log1p(-share)

    def loss(log_odds: FloatArray, positive_share: float) -> FloatArray:
        positive = -log_expit(log_odds[:, :n_positive]).mean(axis=1)
        negative = -log_expit(-log_odds[:, n_positive:]).mean(axis=1)
        return np.asarray(positive_share * positive + (1.0 - positive_share) * negative)

    auc, best = fitted.auc, fitted.auc.max()
    exponent = (
        SETTINGS.auc_sharpness * auc
        - SETTINGS.balanced_loss_sharpness * loss(fitted.log_odds, 0.5)
        - SETTINGS.observed_loss_sharpness * loss(fitted.log_odds + shift, share) / entropy
    )
    weights = priors * np.exp(exponent - exponent.max())
    if best > 0.5:
        weights[~(auc > 0.5)] = 0.0
    if not weights.any():
        weights = (auc == best).astype(np.float64)
    weights[weights < SETTINGS.min_relative_weight * weights.max()] = 0.0
    return np.asarray(weights / weights.sum())


def _platt(total: FloatArray, n_positive: int) -> tuple[float, float]:
    """Return slope and bias of log-odds over the weighted sums (Platt scaling, both classes weighted alike)."""
    n_negative = len(total) - n_positive
    is_positive = np.arange(len(total)) < n_positive
    target = np.where(is_positive, (n_positive + 1.0) / (n_positive + 2.0), 1.0 / (n_negative + 2.0))
    row_weights = np.where(is_positive, 0.5 / n_positive, 0.5 / n_negative)
    slope, bias = 1.0, 0.0
    for _ in range(_NEWTON_STEPS):
        p = expit(slope * total + bias)
        g, h = row_weights * (p - target), row_weights * p * (1.0 - p)
        gradient = np.array([(g * total).sum() + 1e-3 * (slope - 1.0), g.sum()])
        cross = (h * total).sum()
        hessian = np.array([[(h * total * total).sum() + 1e-3, cross], [cross, h.sum() + 1e-9]])
        step = np.linalg.solve(hessian, gradient)
        step /= max(1.0, np.abs(step).max() / _MAX_NEWTON_STEP)
        slope, bias = slope - float(step[0]), bias - float(step[1])
    return max(slope, 1e-3), bias
