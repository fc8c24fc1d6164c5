"""What the work of the committee costs, and what is spared so that a row does not cost more than it may.

Costs are those of a common machine, as a function of the numbers of classes and columns. Nobody looks at a
clock, so the same rows give the same answers anywhere.
"""

from __future__ import annotations

import math
from typing import Any

from steelyard.ensemble.evidence import n_planes
from steelyard.ensemble.trees import growing_cost

__all__ = ["Work"]

_AUTO = (120.0, 64.0)  # microseconds a row may cost, at first and in a long stream
_RHYTHM = 400  # rows that heavy experts learn together in a long stream
_CHEAP = 60.0  # of these: all but the dear expert
_DEAR = (60.0, 25.0)  # what that one costs a row: at least, and for each plane
_LEAST_OFFERED = 0.1  # of the rows; with fewer the dear expert is left out
_MAP_FEATURES = 300  # of the random map; of many classes fewer
_MAP_BYTES = 32e6  # that the sums of these take, one and a half numbers a pair of features and class
_MOST_JUDGED = 200  # classes; beyond, the rows that could be looked at are too few of each
_SLOW = 250  # rows in a block up to which the dear expert is offered all; of more, a quarter
_SOLVING = 0.15  # of the budget: solving the planes of one expert
_JUDGING = 0.15  # and looking at the evidence
_GROWING = (0.2, 0.1)  # and growing trees, at first and in a long stream
_SELDOM_GROWN = 5_000  # rows; trees that would be grown less often are left out
_KERNEL_ROWS_OF_CLASSES = 600  # that are remembered beyond the window, of all classes together
_RECENT_OF_CLASS = 20  # rows of each class, on average, that the short window has at least


class Work:
    """How work is measured out, given how many classes there are.

    Parameters
    ----------
    budget : "auto" or float
        Microseconds that a row may cost.
    n_classes : int
        Number of classes.
    is_long : bool
        Whether the stream is long, so that "auto" means less for a row.

    Attributes
    ----------
    n_planes : int
        Planes of these classes.
    judges : bool
        Whether the classes are few enough to weigh experts by their records.
    n_mapped : int
        Features of a random map whose sums are not too large.
    offered_share : float
        Share of the rows that the dear expert can be offered.
    rhythm : int
        Experts that are heavy, or remember all rows, learn when the number of rows passes a multiple of it:
        then they do so side by side.
    judges_every : float
        Rows that must have come before the evidence is looked at again.
    """

    def __init__(self, budget: Any, n_classes: int, is_long: bool = False) -> None:
        self.budget, self.n_classes, self._is_long = budget, n_classes, is_long
        self.n_planes = n_planes(n_classes)
        self.rhythm = _RHYTHM if self._is_long and budget == "auto" else 1
        self._microseconds = _AUTO[self._is_long] if budget == "auto" else float(budget)
        self.judges = n_classes <= _MOST_JUDGED
        self.n_mapped = int(min(_MAP_FEATURES, math.sqrt(_MAP_BYTES / 12.0 / max(n_classes, 1))))
        share = self._share_of_dear(self._microseconds)
        self.judges_every = (500.0 + 300.0 * self.n_planes) / (_JUDGING * self._microseconds)
        # Who takes part at first does so for good; that a stream is long only makes it work less often.
        first = _AUTO[0] if budget == "auto" else float(budget)
        takes_part = self._share_of_dear(first) >= _LEAST_OFFERED
        self.offered_share = min(max(share, _LEAST_OFFERED), 1.0) if takes_part else 0.0
        self._left_out = {
            "kernel": not takes_part,
            "trees": self._growing_cost(5000, 10) > _SELDOM_GROWN * _GROWING[0] * first,
        }

    def _share_of_dear(self, microseconds: float) -> float:
        least, each = _DEAR
        return (microseconds - _CHEAP) / max(least, each * self.n_planes)

    def _growing_cost(self, n_rows: int, n_columns: int) -> float:
        return growing_cost(self.n_planes, n_rows, n_columns)

    def is_for(self, budget: Any, n_classes: int, is_long: bool) -> bool:
        """Whether it would be the same for these."""
        return self.n_classes == n_classes and self.budget == budget and self._is_long == is_long

    def solves_every(self, n_columns: int) -> float:
        """Rows that must have come before planes over so many columns are solved again."""
        cost = self.n_planes * (60.0 + n_columns**3 / 20_000.0)
        return cost / (_SOLVING * self._microseconds)

    def regrows_every(self, n_rows: int, n_columns: int) -> float:
        """Rows that must have come before trees are grown again from so many rows of so many columns."""
        share = _GROWING[self._is_long and self.budget == "auto"]
        return self._growing_cost(n_rows, n_columns) / (share * self._microseconds)

    def wants(self, expert: str) -> bool:
        """Whether an expert takes part."""
        return expert == "linear" or (self.judges and not self._left_out.get(expert, False))

    def n_offered(self, n_before: int, n_rows: int) -> int:
        """Rows of a block that the dear expert is offered; so many rows came before."""
        share = self.offered_share
        if self.budget == "auto":
            share *= min(1.0, max(_SLOW, n_rows // 4) / n_rows)
        return int((n_before + n_rows) * share) - int(n_before * share)

    def of_class(self, most: int) -> int:
        """Rows of each class that are remembered beyond a window."""
        return min(most, _KERNEL_ROWS_OF_CLASSES // max(self.n_classes, 2))

    def window(self, n_rows: int) -> int:
        """Rows in a short window: more than so many if there are many classes."""
        return min(max(n_rows, _RECENT_OF_CLASS * self.n_classes), 10 * n_rows)

    def spared(self) -> dict[str, str]:
        """What is not done, or not always, by the name of the expert it concerns, and why."""
        told = {}
        n = self.n_classes
        share, planes = self.offered_share, f"{self.n_planes} plane{'s' * (self.n_planes > 1)}"
        budget = f"{self._microseconds:.0f} microseconds a row"
        if self._is_long and self.budget == "auto":
            budget += ", as in all long streams"
        if share == 0.0:
            told["kernel"] = f"left out: {planes} would cost more than {budget}"
        elif share < 1.0:
            told["kernel"] = f"learns {100 * share:.0f} % of the rows: {planes}, {budget}"
        elif self.budget == "auto":
            told["kernel"] = f"learns {_SLOW} rows, or a quarter, of blocks that are larger"
        if self._left_out["trees"]:
            told["trees"] = f"left out: {planes} would cost more than {budget}"
        else:
            often = max(self.regrows_every(5000, 10), 1.0)
            told["trees"] = f"grown anew every {often:.0f} rows or so, the more columns the less often"
        if self.n_mapped < _MAP_FEATURES:
            told["mapped"] = f"{self.n_mapped} random features instead of {_MAP_FEATURES}: {n} classes"
        if not self.judges:
            told["weights and cuts"] = f"left out: {n} classes are more than {_MOST_JUDGED}"
        return told
