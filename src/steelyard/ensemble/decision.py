"""State behind the decisions of StreamClassifier: positive class, target rate, calibration and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._labels import Label
from steelyard._types import FloatArray
from steelyard.ensemble.calibration import OnlineCalibration
from steelyard.ensemble.mixing import ExpertWeights
from steelyard.ensemble.online_threshold import OnlineThreshold, is_promise
from steelyard.ensemble.row_buffer import Block
from steelyard.ensemble.row_costs import RowCosts, is_prices
from steelyard.ensemble.snapshot import EnsembleSnapshot

_MIN_SHARE = 1e-6  # smallest class share in the prior log-odds


@dataclass(frozen=True)
class DecisionState:
    """Learned state for decisions. Instances are immutable except for the online threshold."""

    positive: Label | None = None  # the positive class at the last update of the expert weights
    # None if the goal is no target rate; a learning call copies it first.
    online_threshold: OnlineThreshold | None = None
    # Calibration of the log-odds of two classes.
    calibration: OnlineCalibration = field(default_factory=OnlineCalibration)
    row_costs: RowCosts = field(default_factory=RowCosts)  # mean costs of recent rows

    def with_goal(self, goal: Any, is_mirrored: bool | None = None) -> DecisionState:
        """Return this state with a copy of its online threshold, or with a new one for another goal.

        There is none if the goal is not a target rate. ``is_mirrored`` says whether the first of two classes
        is the positive one; None means unchanged. Another positive class also needs a new threshold.
        """
        if not is_promise(goal):
            return self if self.online_threshold is None else replace(self, online_threshold=None)
        current = self.online_threshold or OnlineThreshold(goal)
        sign = current.sign if is_mirrored is None else -1.0 if is_mirrored else 1.0
        is_same = {current.name: current.target} == dict(goal) and current.sign == sign
        return replace(self, online_threshold=current.copy() if is_same else OnlineThreshold(goal, sign))

    def after(
        self, snapshot: EnsembleSnapshot, block: Block, totals: FloatArray, shares: FloatArray
    ) -> DecisionState:
        """Return the state updated with labelled rows of two classes and their combined out-of-sample scores.

        ``shares`` are the class shares of recent rows.
        """
        promise = self.online_threshold
        if promise is not None:
            is_positive = block.codes == snapshot.classes[0 if promise.sign < 0.0 else 1]
            promise.learn(totals, snapshot.threshold, block.keys, is_positive)
        if not isinstance(snapshot.weights, ExpertWeights):
            return self
        log_odds, is_second = totals + _log_odds(shares), block.codes == snapshot.classes[1]
        return replace(self, calibration=self.calibration.after(log_odds, is_second))

    def goal_for(self, threshold: Any, labels: Sequence[Label]) -> Any:
        """Return the goal for choosing the threshold between the given classes."""
        if is_prices(threshold) and len(labels) == 2:
            return self.row_costs.prices(threshold, labels[0 if self.is_mirrored(labels) else 1])
        promise = self.online_threshold
        if promise is None:
            return threshold
        return promise.per_row if len(labels) > 2 else promise

    def is_mirrored(self, labels: Sequence[Label] | NDArray[Any]) -> bool:
        """Return whether the first of two classes is the positive one."""
        return len(labels) == 2 and bool(labels[0] == self.positive)

    def log_odds(self, snapshot: EnsembleSnapshot, decisions: FloatArray, shares: FloatArray) -> FloatArray:
        """Return calibrated log-probabilities up to a constant, for equally frequent classes.

        ``shares`` are the class shares of recent rows.
        """
        weights = snapshot.weights
        if not isinstance(weights, ExpertWeights):
            return snapshot.log_odds(decisions)
        prior = _log_odds(shares)
        second = self.calibration.log_odds(weights.totals_of(decisions[:, 0]) + prior) - prior
        return np.stack([np.zeros_like(second), second], axis=1)


def _log_odds(shares: FloatArray) -> float:
    """Return the log-odds of the second of two classes with the given shares."""
    first, second = np.maximum(shares, _MIN_SHARE)
    return float(np.log(second / first))
