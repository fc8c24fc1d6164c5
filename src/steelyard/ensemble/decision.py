"""State behind the decisions of StreamClassifier: positive class, target rate, calibration and costs.

With costs per row, the cost of a miss is multiplied by a value of the row, such as a payment amount.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._concurrency import shallow_copy
from steelyard._labels import Label
from steelyard._types import FloatArray
from steelyard.ensemble.calibration import OnlineCalibration
from steelyard.ensemble.online_threshold import OnlineThreshold, is_promise
from steelyard.ensemble.row_buffer import Block
from steelyard.ensemble.snapshot import EnsembleSnapshot, ExpertWeights
from steelyard.exceptions import DataError, ParameterError

_HALF_LIFE_ROWS = 1000.0  # half-life of the means, in rows of the same class
_MIN_SHARE = 1e-6  # smallest class share in the prior log-odds


def is_prices(goal: object) -> bool:
    """Return whether a goal of ``threshold=`` has costs of misses and false alarms."""
    return isinstance(goal, Mapping) and set(goal) == {"miss", "alarm"}


def _checked_costs(sample_cost: Any, n_rows: int, source: str) -> FloatArray:
    costs = np.asarray(sample_cost, dtype=np.float64)
    if costs.shape != (n_rows,) or not (np.isfinite(costs).all() and (costs >= 0.0).all()):
        raise DataError(
            f"sample_cost must contain one finite number >= 0 for each of the {n_rows} rows.", source=source
        )
    return costs


@dataclass(frozen=True)
class RowCosts:
    """Decayed mean of the costs of recent rows of every class; immutable."""

    sums: dict[Any, tuple[float, float]] = field(default_factory=dict)  # decayed sum of costs, and of rows

    def after(self, sample_cost: Any, y: Any, source: str) -> RowCosts:
        """Return the means updated with more rows; raise DataError for invalid costs."""
        labels = np.asarray(y)
        costs, sums = _checked_costs(sample_cost, len(labels), source), dict(self.sums)
        for label in np.unique(labels).tolist():
            own = costs[labels == label]
            total, n = sums.get(label, (0.0, 0.0))
            decay = 0.5 ** (len(own) / _HALF_LIFE_ROWS)
            sums[label] = (decay * total + float(own.sum()), decay * n + len(own))
        return RowCosts(sums)

    def prices(self, prices: Mapping[str, float], positive: Any) -> dict[str, float]:
        """Return the costs of both errors, that of a miss times the mean cost of recent positive rows."""
        total, n = self.sums.get(positive, (0.0, 0.0))
        factor = total / n if n > 0.0 and total > 0.0 else 1.0
        return {"miss": prices["miss"] * factor, "alarm": prices["alarm"]}

    def get_state(self) -> dict[str, Any]:
        """Return the means as plain values."""
        return {"labels": list(self.sums), "sums": [list(pair) for pair in self.sums.values()]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> RowCosts:
        """Restore the means from the result of :meth:`get_state`. With None, there are no means."""
        if state is None:
            return cls()
        pairs = zip(state["labels"], state["sums"], strict=True)
        return cls({label: (float(total), float(n)) for label, (total, n) in pairs})


def cost_alarms(
    probabilities: FloatArray, sample_cost: Any, goal: Any, source: str, *, is_mirrored: bool = False
) -> NDArray[np.bool_]:
    """Return a mask of the rows for which an alarm has the lower expected cost (Elkan 2001).

    A miss costs ``goal["miss"]`` times the cost of the row, and a false alarm costs ``goal["alarm"]``.
    """
    if not is_prices(goal):
        raise ParameterError(
            f"sample_cost needs costs as the goal of the threshold; got threshold={goal!r}.",
            source=source,
            hint='for example threshold={"miss": 1, "alarm": 5}',
        )
    if probabilities.shape[1] != 2:
        raise DataError(f"sample_cost needs two classes; there are {probabilities.shape[1]}.", source=source)
    costs = _checked_costs(sample_cost, len(probabilities), source)
    p = probabilities[:, 0 if is_mirrored else 1]
    return np.asarray(p * goal["miss"] * costs > (1.0 - p) * goal["alarm"])


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
        is_same = current.goal == dict(goal) and current.sign == sign
        later = shallow_copy(current) if is_same else OnlineThreshold(goal, sign)
        return replace(self, online_threshold=later)

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
