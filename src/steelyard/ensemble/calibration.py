"""Calibration of log-odds on recent out-of-sample log-odds and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
