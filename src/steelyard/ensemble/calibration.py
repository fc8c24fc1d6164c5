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

_HALF_LIVES_ROWS: FloatArray = np.array([300.0, 1000.0, 4000.0, 16_000.0])
_LOSS_HALF_LIFE_ROWS = 4000.0
_PRIOR_ROWS = 1.0  # strength of the ridge penalty that pulls each calibration towards the identity
_MAX_STEP = 0.5
_MIN_SLOPE = 0.05
_MAX_LOG_ODDS = 14.0
_BLOCK_ROWS = 100  # number of rows per step of Newton's method
# Each slope is valid between two of these log-odds.
_EDGES: FloatArray = np.array([-_MAX_LOG_ODDS, -4.0, -2.0, 0.0, 2.0, 4.0, _MAX_LOG_ODDS])
_LOW, _HIGH = _EDGES[:-1], _EDGES[1:]
_ORIGIN: FloatArray = np.clip(0.0, _LOW, _HIGH)
_IDENTITY: FloatArray = np.append(np.ones(len(_LOW)), 0.0)  # slopes and bias


_IDENTITIES: FloatArray = np.tile(_IDENTITY, (len(_HALF_LIVES_ROWS), 1))
_PENALTIES: FloatArray = np.tile(_PRIOR_ROWS * np.eye(len(_IDENTITY)), (len(_HALF_LIVES_ROWS), 1, 1))


@dataclass(frozen=True)
class OnlineCalibration:
    """Piecewise linear calibrations with several half-lives, mixed by recent log-loss; immutable.

    A calibration of log-odds has one slope between any two of the log-odds -4, -2, 0, 2 and 4, one on either
    side of them, and a bias. These coefficients follow the labels by one step of Newton's method per block of
    rows, with exponentially decaying second derivatives. The probability is the mean of the calibrations,
    weighted by ``exp(-decayed log-loss)``; it increases with the log-odds.

    Attributes
    ----------
    coefficients : ndarray of shape (n_half_lives, n_slopes + 1)
        Slopes, which are positive, and bias.
    curvature : ndarray of shape (n_half_lives, n_slopes + 1, n_slopes + 1)
        Decayed sums of second derivatives.
    losses : ndarray of shape (n_half_lives,)
        Decayed log-losses.
    """

    coefficients: FloatArray = field(default_factory=_IDENTITIES.copy)
    curvature: FloatArray = field(default_factory=_PENALTIES.copy)
    losses: FloatArray = field(default_factory=lambda: np.zeros(len(_HALF_LIVES_ROWS)))

    def after(self, log_odds: FloatArray, is_positive: Any) -> OnlineCalibration:
        """Return the calibration updated with labelled rows and their out-of-sample log-odds."""
        state = self
        for begin in range(0, len(log_odds), _BLOCK_ROWS):
            part = slice(begin, begin + _BLOCK_ROWS)
            state = state._after_block(log_odds[part], np.asarray(is_positive[part], dtype=np.float64))
        return state

    def _after_block(self, log_odds: FloatArray, target: FloatArray) -> OnlineCalibration:
        x, n = _features(log_odds), len(log_odds)
        z = self.coefficients @ x.T
        losses = -log_expit(np.where(target > 0.0, z, -z)).sum(axis=1)
        p = expit(z)
        keep, penalties, prior_rows = _decay(n)
        curvature = keep * self.curvature + penalties
        products = (x[:, :, None] * x[:, None, :]).reshape(n, -1)
        curvature = curvature + np.einsum("ln,nk->lk", p * (1.0 - p), products).reshape(curvature.shape)
        gradient = (p - target) @ x + prior_rows * (self.coefficients - _IDENTITY)
        step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        step /= np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True) / _MAX_STEP)
        coefficients = self.coefficients - step
        coefficients[:, :-1] = np.maximum(coefficients[:, :-1], _MIN_SLOPE)
        decay = 0.5 ** (n / _LOSS_HALF_LIFE_ROWS)
        return OnlineCalibration(coefficients, curvature, decay * self.losses + losses)

    def log_odds(self, log_odds: FloatArray) -> FloatArray:
        """Return calibrated log-odds."""
        z = self.coefficients @ _features(log_odds).T
        log_weights = (self.losses.min() - self.losses)[:, None]
        positive = np.logaddexp.reduce(log_weights + log_expit(z))
        return np.asarray(positive - np.logaddexp.reduce(log_weights + log_expit(-z)))

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
    """Return the part of the log-odds, counted from 0, that each slope multiplies, and 1 for the bias."""
    z = np.asarray(log_odds)[:, None]
    return np.append(np.clip(z, _LOW, _HIGH) - _ORIGIN, np.ones_like(z), axis=1)
