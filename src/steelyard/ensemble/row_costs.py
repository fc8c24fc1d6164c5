"""Costs per row: the cost of a miss is multiplied by a value of the row, such as a payment amount."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError

_HALF_LIFE_ROWS = 1000.0  # half-life of the means, in rows of the same class


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
