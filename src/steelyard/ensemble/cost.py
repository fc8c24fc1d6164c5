"""Compute budget of the ensemble."""

from __future__ import annotations

from typing import Any

from steelyard.ensemble.score_buffer import n_planes
from steelyard.ensemble.settings import SETTINGS

__all__ = ["CostBudget"]


class CostBudget:
    """Compute budget in microseconds per row, and how often it allows expensive steps.

    Costs are estimated from the numbers of rows, columns and classes for a typical computer. They are never
    measured, so the same rows give the same model everywhere.

    Parameters
    ----------
    compute_budget : "auto" or float
        Budget in microseconds per row.
    n_classes : int
        Number of classes.
    is_long : bool, default=False
        Whether the stream is long, which makes "auto" smaller.

    Attributes
    ----------
    arguments : tuple
        The arguments of the constructor.
    n_planes : int
        Number of scores per row: one for two classes, otherwise one per class.
    microseconds, first_microseconds : float
        The budget per row now, and at the beginning of the stream.
    weighs_experts : bool
        Whether there are few enough classes to compute expert weights from recent scores.
    weigh_rows : float
        Number of rows after which the expert weights are updated.
    batch_rows : int
        Expensive experts learn when the number of rows passes a multiple of ``batch_rows``, all at the same
        time, so that they can run in parallel.
    """

    def __init__(self, compute_budget: Any, n_classes: int, is_long: bool = False) -> None:
        self.arguments = compute_budget, n_classes, is_long
        self.n_classes, self.is_long = n_classes, is_long
        self.n_planes = n_planes(n_classes)
        self.is_auto = compute_budget == "auto"
        self.first_microseconds = SETTINGS.budget_us if self.is_auto else float(compute_budget)
        is_reduced = is_long and self.is_auto
        self.microseconds = SETTINGS.long_budget_us if is_reduced else self.first_microseconds
        self.batch_rows = SETTINGS.long_batch_rows if is_reduced else 1
        self.weighs_experts = n_classes <= SETTINGS.max_weighed_classes
        fixed, each = SETTINGS.weigh_cost_us
        self.weigh_rows = self.interval_rows(fixed + each * self.n_planes, SETTINGS.weigh_share)

    def interval_rows(self, cost_us: float, share: float) -> float:
        """Return the minimum number of rows between two runs of a step with a given share of the budget."""
        return cost_us / (share * self.microseconds)

    def passes_batch(self, n_before: int, n_seen: int) -> bool:
        """Return whether the last block completed a batch of :attr:`batch_rows` rows."""
        return n_seen // self.batch_rows != n_before // self.batch_rows

    def __str__(self) -> str:
        long = " (the stream is long)" if self.is_long and self.is_auto else ""
        return f"{self.microseconds:.0f} microseconds per row{long}"
