"""Calibration of log-odds, expected recall of rows without labels, and tests of the precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from steelyard import _native
from steelyard._types import FloatArray

_HALF_LIVES_ROWS: FloatArray = np.array([300.0, 1000.0, 4000.0, 16_000.0])
_LOSS_HALF_LIFE_ROWS = 4000.0
_PRIOR_ROWS = 1.0  # strength of the ridge penalty that pulls each calibration towards the identity
_MAX_STEP = 0.5
_MIN_SLOPE = 0.05
_BLOCK_ROWS = 100  # number of rows per step of Newton's method
_EDGES: FloatArray = np.array([-14.0, -4.0, -2.0, 0.0, 2.0, 4.0, 14.0])  # each slope is valid between two
_IDENTITIES: FloatArray = np.tile([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0], (len(_HALF_LIVES_ROWS), 1))
_PENALTIES: FloatArray = np.tile(_PRIOR_ROWS * np.eye(len(_EDGES)), (len(_HALF_LIVES_ROWS), 1, 1))
_N_BINS = 15  # number of probabilities at which the mean error is corrected
_BIN_LOG_ODDS: FloatArray = np.log(np.arange(1.0, 2 * _N_BINS, 2) / np.arange(2.0 * _N_BINS - 1, 0, -2))
_BIN_HALF_LIFE_ROWS = 16_000.0
_BIN_PRIOR = 100.0  # shrinkage of the corrections, as a sum of p * (1 - p) over rows
# The corrections keep at least this part of the slope of the log-odds, so probabilities keep their order.
_MIN_CORRECTED_SLOPE = 0.05
# Corrections plus this line must be ascending.
_STEEPEST_CORRECTION: FloatArray = (1.0 - _MIN_CORRECTED_SLOPE) * _BIN_LOG_ODDS

_RECENT_ROWS = 1000  # number of predicted rows among which the expected recall is computed
_MIN_RECENT_ROWS = 200
_MIN_SHARE = 1e-6  # smallest share of positives in the prior log-odds
LEVELS: FloatArray = 0.5 ** np.arange(11, 0, -1.0)  # shares of the rows that would raise alarms
ERROR = 0.05  # maximum probability of ever accepting a level with a precision below the target
_ACCEPTING_WEALTH = len(LEVELS) / ERROR
_BETS: FloatArray = np.array([0.2, 0.5, 0.9])  # bets as fractions of the largest possible bet
_MAX_EXCESS = np.exp(2.0)  # limit of the wealth, as a multiple of the wealth at which a level is accepted


@dataclass(frozen=True)
class OnlineCalibration:
    """Piecewise linear calibrations with several half-lives, mixed by recent log-loss; immutable.

    A calibration of log-odds has one slope between neighbours of ``_EDGES`` and a bias, which follow the
    labels by Newton's method. Corrections of the mean error near 15 probabilities are added (calibeating,
    Foster and Hart 2023); see the page docs/guarantees.md.
    """

    # Slopes, which are positive, and bias: shape (n_half_lives, n_slopes + 1).
    coefficients: FloatArray = field(default_factory=_IDENTITIES.copy)
    curvature: FloatArray = field(default_factory=_PENALTIES.copy)  # decayed sums of second derivatives
    # Decayed log-losses, shape (n_half_lives,).
    losses: FloatArray = field(default_factory=lambda: np.zeros(len(_HALF_LIVES_ROWS)))
    # Decayed sums of label - p and of p * (1 - p), near each of the `_N_BINS` probabilities.
    bin_errors: FloatArray = field(default_factory=lambda: np.zeros(_N_BINS))
    bin_variances: FloatArray = field(default_factory=lambda: np.zeros(_N_BINS))

    def after(self, log_odds: FloatArray, is_positive: Any) -> OnlineCalibration:
        """Return the calibration updated with labelled rows and their out-of-sample log-odds."""
        fit = self.coefficients, self.curvature, self.losses
        errors, variances = self.bin_errors, self.bin_variances
        for begin in range(0, len(log_odds), _BLOCK_ROWS):
            rows = slice(begin, begin + _BLOCK_ROWS)
            block, labels = log_odds[rows], is_positive[rows]
            calibrated = _native.calibrate(fit[0], fit[2], block, _EDGES)
            fit = _native.learn_calibration(
                *fit, block, labels, _EDGES, _HALF_LIVES_ROWS, _LOSS_HALF_LIFE_ROWS, _PRIOR_ROWS, _MAX_STEP,
                _MIN_SLOPE, _BLOCK_ROWS,
            )  # fmt: skip
            # Rounded to 32 bits, because the last bits of exp() differ between machines.
            p = expit(calibrated).astype(np.float32).astype(np.float64)
            # Each row is shared between the two nearest bins.
            positions = np.interp(calibrated, _BIN_LOG_ODDS, np.arange(_N_BINS))
            low = np.minimum(positions.astype(np.int64), _N_BINS - 2)
            bins = np.concatenate([low, low + 1])
            shares = np.concatenate([low + 1 - positions, positions - low])
            keep = 0.5 ** (len(block) / _BIN_HALF_LIFE_ROWS)
            sums = shares * np.tile(labels - p, 2), shares * np.tile(p * (1.0 - p), 2)
            errors = keep * errors + np.bincount(bins, sums[0], minlength=_N_BINS)
            variances = keep * variances + np.bincount(bins, sums[1], minlength=_N_BINS)
        return OnlineCalibration(*fit, errors, variances)

    @cached_property
    def _corrections(self) -> FloatArray:
        wanted = self.bin_errors / (self.bin_variances + _BIN_PRIOR) + _STEEPEST_CORRECTION
        # The mean of the running maximum from the left and the running minimum from the right is ascending.
        ascending = np.maximum.accumulate(wanted) + np.minimum.accumulate(wanted[::-1])[::-1]
        return np.asarray(0.5 * ascending - _STEEPEST_CORRECTION)

    def log_odds(self, log_odds: FloatArray) -> FloatArray:
        """Return calibrated log-odds."""
        calibrated = _native.calibrate(self.coefficients, self.losses, log_odds, _EDGES)
        return np.asarray(calibrated + np.interp(calibrated, _BIN_LOG_ODDS, self._corrections))

    def get_state(self) -> dict[str, Any]:
        """Return the calibration as arrays."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> OnlineCalibration:
        """Restore a calibration from :meth:`get_state`, or return the identity if the state is None."""
        fresh = cls()
        if state is None:
            return fresh
        # Files of earlier versions have no errors of bins.
        arrays = {
            name: np.asarray(state.get(name, values) if name.startswith("bin_") else state[name], np.float64)
            for name, values in fresh.get_state().items()
        }
        for name, values in arrays.items():
            if values.shape != getattr(fresh, name).shape or not np.isfinite(values).all():
                raise ValueError(f"corrupt calibration: {name}")
        return cls(**arrays)


@dataclass(frozen=True)
class ExpectedRecall:
    """Calibrated probabilities of scores, and the threshold with a given expected recall; immutable."""

    # Calibration of the log-odds of :meth:`_log_odds`.
    calibration: OnlineCalibration = field(default_factory=OnlineCalibration)
    # The log-odds slope * (score - centre) / scale + bias are fitted to recent labelled scores.
    centre: float = 0.0
    scale: float = 1.0
    slope: float = 1.0
    bias: float = 0.0

    def fitted(self, positive: FloatArray, negative: FloatArray, share: float) -> ExpectedRecall:
        """Return the state for new recent scores of both classes and a share of positives."""
        scores = np.concatenate([positive, negative])
        centre, scale = float(scores.mean()), float(scores.std()) or 1.0
        slope, bias = _native.platt_scaling((scores - centre) / scale, len(positive))
        bias += float(logit(np.clip(share, _MIN_SHARE, 1.0 - _MIN_SHARE)))
        return replace(self, centre=centre, scale=scale, slope=slope, bias=bias)

    def _log_odds(self, scores: FloatArray) -> FloatArray:
        return np.asarray(self.slope * (scores - self.centre) / self.scale + self.bias)

    def after(self, scores: FloatArray, is_positive: Any) -> ExpectedRecall:
        """Return the state updated with labelled rows and their out-of-sample scores."""
        return replace(self, calibration=self.calibration.after(self._log_odds(scores), is_positive))

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return the calibrated probabilities that rows with these scores are positive."""
        return np.asarray(expit(self.calibration.log_odds(self._log_odds(scores))))

    @staticmethod
    def threshold(scores: FloatArray, probabilities: FloatArray, miss_share: float) -> float:
        """Return the largest threshold that misses at most ``miss_share``; inf with few predicted rows."""
        if len(scores) < _MIN_RECENT_ROWS:
            return np.inf
        scores, probabilities = scores[-_RECENT_ROWS:], probabilities[-_RECENT_ROWS:]
        order = np.argsort(scores)
        missed = np.cumsum(probabilities[order])
        n_missed = int(np.searchsorted(missed, miss_share * missed[-1], side="right"))
        return float(np.nextafter(scores[order[min(n_missed, len(order) - 1)]], -np.inf))

    @classmethod
    def from_state(cls, calibration: Mapping[str, Any] | None, sides: Any) -> ExpectedRecall:
        """Restore the state from the state of the calibration and the recent scores, if there are any."""
        made = cls(OnlineCalibration.from_state(calibration))
        return made if sides is None else made.fitted(*sides)


@dataclass(frozen=True)
class PrecisionLevels:
    """Betting tests for several levels: is the precision of the top share of the rows above the target?

    The wealth is a supermartingale if the precision is at most the target, so it rarely exceeds the accepting
    wealth (Ville's inequality). A limit of the wealth lets a few false alarms revoke the acceptance.
    """

    target: float  # the target precision
    wealth: FloatArray = field(default_factory=lambda: np.ones((len(LEVELS), len(_BETS))))

    def __post_init__(self) -> None:
        if self.wealth.shape != (len(LEVELS), len(_BETS)) or not (self.wealth >= 0.0).all():
            raise ValueError("corrupt precision levels: expected one wealth for each level and bet")

    def after(self, tails: FloatArray, is_positive: NDArray[np.bool_]) -> PrecisionLevels:
        """Return the tests updated with labelled rows. ``tails`` are shares of rows with higher scores."""
        wealth, limit = self.wealth.copy(), _MAX_EXCESS * _ACCEPTING_WEALTH
        bets = _BETS / max(self.target, 1e-9)  # every bet is below 1 / target, so the wealth stays positive
        factors = {flag: 1.0 + bets * (float(flag) - self.target) for flag in (False, True)}
        first = np.searchsorted(LEVELS, tails, side="left")  # index of the first level that contains the row
        for begin, flag in zip(first.tolist(), is_positive.tolist(), strict=True):
            if begin < len(LEVELS):
                wealth[begin:] = np.minimum(wealth[begin:] * factors[flag], limit)
        return PrecisionLevels(self.target, wealth)

    def largest(self) -> float | None:
        """Return the largest accepted level, or None if no level is accepted."""
        accepted = np.flatnonzero(self.wealth.mean(axis=1) >= _ACCEPTING_WEALTH)
        return float(LEVELS[accepted[-1]]) if len(accepted) else None
