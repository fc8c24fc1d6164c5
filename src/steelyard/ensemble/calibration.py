"""Calibration of log-odds on recent rows, expected recall of rows without labels, and tests of the precision.

Thresholds with a target recall or precision use the last two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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

_RECENT_ROWS = 1000  # number of predicted rows among which the expected recall is computed
_MIN_RECENT_ROWS = 200
_MIN_SHARE = 1e-6  # smallest share of positives in the prior log-odds
LEVELS: FloatArray = 0.5 ** np.arange(11, 0, -1.0)  # shares of the rows that would raise alarms
ERROR = 0.05  # maximum probability of ever accepting a level with a precision below the target
_BETS: FloatArray = np.array([0.2, 0.5, 0.9])  # bets as fractions of the largest possible bet
_MAX_EXCESS = np.exp(2.0)  # limit of the wealth, as a multiple of the wealth at which a level is accepted


@dataclass(frozen=True)
class OnlineCalibration:
    """Piecewise linear calibrations with several half-lives, mixed by recent log-loss; immutable.

    A calibration of log-odds has one slope between any two of the log-odds -4, -2, 0, 2 and 4, one on either
    side of them, and a bias. These coefficients follow the labels by one step of Newton's method per block of
    rows, with exponentially decaying second derivatives. The probability is the mean of the calibrations,
    weighted by ``exp(-decayed log-loss)``; it increases with the log-odds.
    """

    # Slopes, which are positive, and bias: shape (n_half_lives, n_slopes + 1).
    coefficients: FloatArray = field(default_factory=_IDENTITIES.copy)
    curvature: FloatArray = field(default_factory=_PENALTIES.copy)  # decayed sums of second derivatives
    # Decayed log-losses, shape (n_half_lives,).
    losses: FloatArray = field(default_factory=lambda: np.zeros(len(_HALF_LIVES_ROWS)))

    def after(self, log_odds: FloatArray, is_positive: Any) -> OnlineCalibration:
        """Return the calibration updated with labelled rows and their out-of-sample log-odds."""
        after = _native.learn_calibration(
            self.coefficients, self.curvature, self.losses, log_odds, is_positive, _EDGES, _HALF_LIVES_ROWS,
            _LOSS_HALF_LIFE_ROWS, _PRIOR_ROWS, _MAX_STEP, _MIN_SLOPE, _BLOCK_ROWS,
        )  # fmt: skip
        return OnlineCalibration(*after)

    def log_odds(self, log_odds: FloatArray) -> FloatArray:
        """Return calibrated log-odds."""
        return _native.calibrate(self.coefficients, self.losses, log_odds, _EDGES)

    def get_state(self) -> dict[str, Any]:
        """Return the calibration as arrays."""
        return {"coefficients": self.coefficients, "curvature": self.curvature, "losses": self.losses}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> OnlineCalibration:
        """Restore a calibration from :meth:`get_state`, or return the identity if the state is None."""
        fresh = cls()
        if state is None:
            return fresh
        made = cls(**{name: np.asarray(state[name], dtype=np.float64) for name in fresh.get_state()})
        for name, values in made.get_state().items():
            if values.shape != getattr(fresh, name).shape or not np.isfinite(values).all():
                raise ValueError(f"corrupt calibration: {name}")
        return made


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
        """Return the largest threshold with an expected share of misses of at most ``miss_share``.

        ``scores`` and ``probabilities`` belong to predicted rows, oldest first. Returns inf for too few rows.
        """
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


def _accepting_wealth() -> float:
    return len(LEVELS) / ERROR


def _new_wealth() -> FloatArray:
    return np.ones((len(LEVELS), len(_BETS)))


@dataclass(frozen=True)
class PrecisionLevels:
    """Betting tests for several levels: is the precision of the top share of the rows above the target?

    For every level, each labelled row whose score is in the top share is a bet against the hypothesis that
    the precision is at most the target: the wealth is multiplied by 1 + bet * (label - target). Under the
    hypothesis the wealth is a supermartingale, even with an upper limit, so the probability that it ever
    exceeds ``len(LEVELS) / ERROR`` is at most ``ERROR / len(LEVELS)`` (Ville's inequality). The limit makes
    the test react to drift: a few false alarms revoke the acceptance.
    """

    target: float  # the target precision
    wealth: FloatArray = field(default_factory=_new_wealth)  # shape (n_levels, n_bets)

    def __post_init__(self) -> None:
        if self.wealth.shape != _new_wealth().shape or not (self.wealth >= 0.0).all():
            raise ValueError("corrupt precision levels: expected one wealth for each level and bet")

    def after(self, tails: FloatArray, is_positive: NDArray[np.bool_]) -> PrecisionLevels:
        """Return the tests updated with labelled rows. ``tails`` are shares of rows with higher scores."""
        wealth, limit = self.wealth.copy(), _MAX_EXCESS * _accepting_wealth()
        bets = _BETS / max(self.target, 1e-9)  # every bet is below 1 / target, so the wealth stays positive
        factors = {flag: 1.0 + bets * (float(flag) - self.target) for flag in (False, True)}
        first = np.searchsorted(LEVELS, tails, side="left")  # index of the first level that contains the row
        for begin, flag in zip(first.tolist(), is_positive.tolist(), strict=True):
            if begin < len(LEVELS):
                wealth[begin:] = np.minimum(wealth[begin:] * factors[flag], limit)
        return PrecisionLevels(self.target, wealth)

    def largest(self) -> float | None:
        """Return the largest accepted level, or None if no level is accepted."""
        accepted = np.flatnonzero(self.wealth.mean(axis=1) >= _accepting_wealth())
        return float(LEVELS[accepted[-1]]) if len(accepted) else None
