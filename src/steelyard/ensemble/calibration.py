"""Calibration of log-odds on recent out-of-sample log-odds and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

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
_MAX_FALL: FloatArray = (1.0 - _MIN_CORRECTED_SLOPE) * _BIN_LOG_ODDS


@dataclass(frozen=True)
class OnlineCalibration:
    """Piecewise linear calibrations with several half-lives, mixed by recent log-loss; immutable.

    A calibration of log-odds has one slope between any two of the log-odds -4, -2, 0, 2 and 4, one on either
    side of them, and a bias. These coefficients follow the labels by one step of Newton's method per block of
    rows, with exponentially decaying second derivatives. The probability is the mean of the calibrations,
    weighted by ``exp(-decayed log-loss)``; it increases with the log-odds.

    The mean error (label minus probability) of earlier rows with similar probabilities is then removed by
    adding a correction to the log-odds (calibeating, Foster and Hart 2023). The corrections are interpolated
    between 15 probabilities, shrunk towards 0, and follow errors that decay slowly.
    """

    # Slopes, which are positive, and bias: shape (n_half_lives, n_slopes + 1).
    coefficients: FloatArray = field(default_factory=_IDENTITIES.copy)
    curvature: FloatArray = field(default_factory=_PENALTIES.copy)  # decayed sums of second derivatives
    # Decayed log-losses, shape (n_half_lives,).
    losses: FloatArray = field(default_factory=lambda: np.zeros(len(_HALF_LIVES_ROWS)))
    # Decayed sums of errors and of p * (1 - p), near each of the probabilities.
    bin_errors: FloatArray = field(default_factory=lambda: np.zeros(_N_BINS))
    bin_variances: FloatArray = field(default_factory=lambda: np.zeros(_N_BINS))
    _corrections: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        wanted = self.bin_errors / (self.bin_variances + _BIN_PRIOR) + _MAX_FALL
        ascending = np.maximum.accumulate(wanted) + np.minimum.accumulate(wanted[::-1])[::-1]
        object.__setattr__(self, "_corrections", 0.5 * ascending - _MAX_FALL)

    def after(self, log_odds: FloatArray, is_positive: Any) -> OnlineCalibration:
        """Return the calibration updated with labelled rows and their out-of-sample log-odds."""
        after = self
        for begin in range(0, len(log_odds), _BLOCK_ROWS):
            rows = slice(begin, begin + _BLOCK_ROWS)
            after = after._after_block(log_odds[rows], is_positive[rows])
        return after

    def _after_block(self, log_odds: FloatArray, is_positive: Any) -> OnlineCalibration:
        after = _native.learn_calibration(
            self.coefficients, self.curvature, self.losses, log_odds, is_positive, _EDGES, _HALF_LIVES_ROWS,
            _LOSS_HALF_LIFE_ROWS, _PRIOR_ROWS, _MAX_STEP, _MIN_SLOPE, _BLOCK_ROWS,
        )  # fmt: skip
        keep = 0.5 ** (len(log_odds) / _BIN_HALF_LIFE_ROWS)
        errors, variances = self._bin_sums(log_odds, is_positive)
        errors, variances = keep * self.bin_errors + errors, keep * self.bin_variances + variances
        return OnlineCalibration(*after, errors, variances)

    def _bin_sums(self, log_odds: FloatArray, is_positive: Any) -> tuple[FloatArray, FloatArray]:
        """Return the errors and variances of rows without corrections, divided among adjacent bins."""
        calibrated = _native.calibrate(self.coefficients, self.losses, log_odds, _EDGES)
        # 32 bits, so that the sums do not depend on the last bits of the exponential function of a machine.
        p = expit(calibrated).astype(np.float32).astype(np.float64)
        positions = np.interp(calibrated, _BIN_LOG_ODDS, np.arange(_N_BINS))
        low = np.minimum(positions.astype(np.int64), _N_BINS - 2)
        bins, shares = np.concatenate([low, low + 1]), np.concatenate([low + 1 - positions, positions - low])
        errors = np.bincount(bins, shares * np.tile(is_positive - p, 2), minlength=_N_BINS)
        variances = np.bincount(bins, shares * np.tile(p * (1.0 - p), 2), minlength=_N_BINS)
        return errors.astype(np.float64), variances.astype(np.float64)

    def log_odds(self, log_odds: FloatArray) -> FloatArray:
        """Return calibrated log-odds."""
        calibrated = _native.calibrate(self.coefficients, self.losses, log_odds, _EDGES)
        return np.asarray(calibrated + np.interp(calibrated, _BIN_LOG_ODDS, self._corrections))

    def get_state(self) -> dict[str, Any]:
        """Return the calibration as arrays."""
        names = ("coefficients", "curvature", "losses", "bin_errors", "bin_variances")
        return {name: getattr(self, name) for name in names}

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
