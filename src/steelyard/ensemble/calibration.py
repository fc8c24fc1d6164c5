"""Calibration of log-odds on recent out-of-sample log-odds and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import expit, log_expit

from steelyard._types import FloatArray

__all__ = ["OnlineCalibration"]

_HALF_LIVES_ROWS: FloatArray = np.array([300.0, 1000.0, 4000.0])
_LOSS_HALF_LIFE_ROWS = 1000.0
_PRIOR_ROWS = 10.0  # strength of the ridge penalty that pulls each calibration towards the identity
_MAX_STEP = 0.5
_MIN_SLOPE = 0.05
_MAX_LOG_ODDS = 14.0
_BLOCK_ROWS = 100  # number of rows per step of Newton's method
_IDENTITY: FloatArray = np.array([1.0, 1.0, 0.0])  # slope below 0, slope above 0, bias


_IDENTITIES: FloatArray = np.tile(_IDENTITY, (len(_HALF_LIVES_ROWS), 1))
_PENALTIES: FloatArray = np.tile(_PRIOR_ROWS * np.eye(3), (len(_HALF_LIVES_ROWS), 1, 1))


@dataclass(frozen=True)
class OnlineCalibration:
    """Beta calibration with several half-lives, mixed by recent log-loss; immutable.

    Log-odds z become ``a * min(z, 0) + b * max(z, 0) + c``. The coefficients follow the labels by one step of
    Newton's method per block of rows, with exponentially decaying second derivatives. The probability is the
    mean of these calibrations and of the identity, weighted by ``exp(-decayed log-loss)``; it increases
    with z.

    Attributes
    ----------
    coefficients : ndarray of shape (n_half_lives, 3)
        Slope below 0, slope above 0 and bias.
    curvature : ndarray of shape (n_half_lives, 3, 3)
        Decayed sums of second derivatives.
    losses : ndarray of shape (n_half_lives + 1,)
        Decayed log-losses; the first one belongs to the identity.
    """

    coefficients: FloatArray = field(default_factory=_IDENTITIES.copy)
    curvature: FloatArray = field(default_factory=_PENALTIES.copy)
    losses: FloatArray = field(default_factory=lambda: np.zeros(1 + len(_HALF_LIVES_ROWS)))

    def after(self, log_odds: FloatArray, is_positive: Any) -> OnlineCalibration:
        """Return the calibration updated with labelled rows and their out-of-sample log-odds."""
        state = self
        for begin in range(0, len(log_odds), _BLOCK_ROWS):
            part = slice(begin, begin + _BLOCK_ROWS)
            state = state._after_block(log_odds[part], np.asarray(is_positive[part], dtype=np.float64))
        return state

    def _after_block(self, log_odds: FloatArray, target: FloatArray) -> OnlineCalibration:
        x, n = _features(log_odds), len(log_odds)
        z = self._calibrated(x)
        losses = -(target * log_expit(z) + (1.0 - target) * log_expit(-z)).sum(axis=1)
        p = expit(z[1:])
        keep, penalties, prior_rows = _decay(n)
        curvature = keep * self.curvature + penalties
        curvature = curvature + np.einsum("ln,ni,nj->lij", p * (1.0 - p), x, x)
        gradient = (p - target) @ x + prior_rows * (self.coefficients - _IDENTITY)
        step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        step /= np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True) / _MAX_STEP)
        coefficients = self.coefficients - step
        coefficients[:, :2] = np.maximum(coefficients[:, :2], _MIN_SLOPE)
        decay = 0.5 ** (n / _LOSS_HALF_LIFE_ROWS)
        return OnlineCalibration(coefficients, curvature, decay * self.losses + losses)

    def _calibrated(self, x: FloatArray) -> FloatArray:
        """Return an array with the unchanged log-odds in the first row, and one row per calibration."""
        return np.concatenate([(x[:, 0] + x[:, 1])[None], self.coefficients @ x.T])

    def log_odds(self, log_odds: FloatArray) -> FloatArray:
        """Return calibrated log-odds."""
        weights = np.exp(self.losses.min() - self.losses)
        weights /= weights.sum()
        z = self._calibrated(_features(log_odds))
        return np.asarray(np.log(weights @ expit(z)) - np.log(weights @ expit(-z)))

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


@lru_cache(maxsize=2 * _BLOCK_ROWS)
def _decay(n_rows: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the factor of the second derivatives after some rows, and the penalties that come back."""
    keep = 0.5 ** (n_rows / _HALF_LIVES_ROWS)[:, None]
    return keep[:, :, None], (1.0 - keep)[:, :, None] * _PENALTIES, (1.0 - keep) * _PRIOR_ROWS


def _features(log_odds: FloatArray) -> FloatArray:
    z = np.minimum(np.maximum(log_odds, -_MAX_LOG_ODDS), _MAX_LOG_ODDS)
    features = np.ones((len(z), 3))
    np.minimum(z, 0.0, out=features[:, 0])
    np.maximum(z, 0.0, out=features[:, 1])
    return features
