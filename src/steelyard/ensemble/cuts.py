"""Where scores are cut, by what the scores of recent rows and their labels turned out to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._types import FloatArray
from steelyard.params import NonNegative, Positive

__all__ = ["ThresholdChoice", "choose_cut"]


class ThresholdChoice:
    """What ``threshold=`` accepts: "gmean", prices of both kinds of error, or a budget of alarms."""

    description = (
        '"gmean", prices such as {"miss": 20, "alarm": 1} (positive, finite numbers), or a budget such as '
        '{"alarms": 0.01} (a share of the rows between 0 and 1)'
    )

    def accepts(self, value: object) -> bool:
        if isinstance(value, str):
            return value == "gmean"
        if not isinstance(value, Mapping):
            return False
        if set(value) == {"miss", "alarm"}:
            return all(Positive().accepts(price) for price in value.values())
        return set(value) == {"alarms"} and NonNegative().accepts(value["alarms"]) and value["alarms"] < 1.0


@dataclass(frozen=True)
class _Rates:
    """Hit and alarm rates of every cut between two scores that differ, from the lowest to the highest."""

    cuts: FloatArray
    misses: FloatArray  # share of the positives at or below the cut
    alarms: FloatArray  # share of the negatives above it

    @classmethod
    def of(cls, positive: FloatArray, negative: FloatArray) -> _Rates:
        scores = np.concatenate([positive, negative])
        order = np.argsort(scores, kind="stable")
        scores, is_positive = scores[order], (order < len(positive)).astype(np.float64)
        last = np.flatnonzero(np.append(np.diff(scores) > 0.0, True))  # of every run of equal scores
        below = np.cumsum(is_positive)[last] / len(positive)
        quiet = np.cumsum(1.0 - is_positive)[last] / len(negative)
        values = scores[last]
        # In the middle between two scores; one cut lies below all of them, and one on the highest.
        middles = 0.5 * (values + np.append(values[1:], values[-1]))
        lowest = np.nextafter(values[0], -np.inf)
        return cls(
            np.append(lowest, middles), np.append(0.0, below), np.append(1.0, 1.0 - quiet).clip(min=0.0)
        )


def choose_cut(positive: FloatArray, negative: FloatArray, threshold: Any, share: float) -> float:
    """The cut that would have been best on recent rows; rows above it are called positive.

    Parameters
    ----------
    positive, negative : ndarray
        Scores that recent rows of both sides were given before their labels were known; some of each.
    threshold : "gmean" or mapping
        As :class:`ThresholdChoice` accepts it.
    share : float
        Share of the positives among recent rows; prices and budgets count rows, not rates.

    Returns
    -------
    float
        In the middle of the widest run of equally good cuts.
    """
    rates = _Rates.of(positive, negative)
    if threshold == "gmean":
        worth = (1.0 - rates.misses) * (1.0 - rates.alarms)
    elif "alarms" in threshold:
        raised = share * (1.0 - rates.misses) + (1.0 - share) * rates.alarms
        # The lowest cut within the budget: the alarms that are allowed find the most.
        worth = np.where(raised <= threshold["alarms"], raised, -1.0)
    else:
        worth = -threshold["miss"] * share * rates.misses - threshold["alarm"] * (1.0 - share) * rates.alarms
    return float(rates.cuts[int(np.argmax(worth))])
