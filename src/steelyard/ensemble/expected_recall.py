"""Expected recall among recent rows without labels, from calibrated probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit

from steelyard import _native
from steelyard._types import FloatArray
from steelyard.ensemble.calibration import OnlineCalibration

_RECENT_ROWS = 1000  # number of predicted rows among which the expected recall is computed
_MIN_RECENT_ROWS = 200
_MIN_SHARE = 1e-6  # smallest share of positives in the prior log-odds


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
