"""Verdicts: reached, better, or short.

The difference between our mean and that of the paper is signed so that more is better. The verdict is
*reached* if the difference is within the tolerance of the row or within two standard errors of the difference
of the two means, whichever is larger. Otherwise our result is *better* or *short by* the difference. A
measure whose aim is "one" is compared by its distance from 1. There is no verdict if the paper has no number,
or if one of the two numbers is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from papers.result import Aim, Row

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True)
class Verdict:
    """Comparison of our number with the published one."""

    kind: Literal["reached", "better", "short", "none"]
    by: float = 0.0  # absolute difference
    digits: int = 3

    def __str__(self) -> str:
        if self.kind == "none":
            return "-"
        if self.kind == "reached":
            return "reached"
        size = f"{self.by:.{self.digits}f}" if self.by >= 10.0**-self.digits else f"{self.by:.1e}"
        return f"better by {size}" if self.kind == "better" else f"short by {size}"


def judge(row: Row) -> Verdict:
    """Return the verdict on a row."""
    if row.paper is None or math.isnan(row.paper) or math.isnan(row.mean):
        return Verdict("none")
    gain = _worth(row.mean, row.aim) - _worth(row.paper, row.aim)
    rounds = max(row.rounds, 1)
    # The papers have as many rounds as a full run, so our number of rounds is used for both means.
    error = math.sqrt((row.std**2 + (row.paper_std or 0.0) ** 2) / rounds)
    if abs(gain) <= max(row.tolerance, 2.0 * error) * (1.0 + 1e-9):  # 0.95 - 0.94 > 0.01 by rounding
        return Verdict("reached")
    return Verdict("better" if gain > 0 else "short", abs(gain), row.digits)


def _worth(value: float, aim: Aim) -> float:
    if aim == "high":
        return value
    return -value if aim == "low" else -abs(value - 1.0)
