"""Verdicts: reached, better, or short.

The rule: the difference between our mean and the paper's, signed so that more is better, counts as *reached*
if it is within the tolerance of the row or within two standard errors of the difference of the two means,
whichever is larger; beyond that it is *better* or *short by* the difference. A measure whose aim is one is
compared by its distance from one. Where the paper prints no number, or one of the two is not a number, there
is no verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from papers.result import Aim, Row

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True)
class Verdict:
    """Comparison of a number with the printed one."""

    kind: Literal["reached", "better", "short", "none"]
    by: float = 0.0  # how much better or short, never negative
    digits: int = 3

    def __str__(self) -> str:
        if self.kind == "none":
            return "-"
        if self.kind == "reached":
            return "reached"
        size = f"{self.by:.{self.digits}f}" if self.by >= 10.0**-self.digits else f"{self.by:.1e}"
        return f"better by {size}" if self.kind == "better" else f"short by {size}"


def judge(row: Row) -> Verdict:
    """Return the verdict of a row."""
    if row.paper is None or math.isnan(row.paper) or math.isnan(row.mean):
        return Verdict("none")
    gain = _worth(row.mean, row.aim) - _worth(row.paper, row.aim)
    rounds = max(row.rounds, 1)
    # The papers have as many rounds as a full run here, so the same number is used for both.
    error = math.sqrt((row.std**2 + (row.paper_std or 0.0) ** 2) / rounds)
    if abs(gain) <= max(row.tolerance, 2.0 * error) * (1.0 + 1e-9):  # 0.95 - 0.94 is more than 0.01
        return Verdict("reached")
    return Verdict("better" if gain > 0 else "short", abs(gain), row.digits)


def _worth(value: float, aim: Aim) -> float:
    if aim == "high":
        return value
    return -value if aim == "low" else -abs(value - 1.0)
