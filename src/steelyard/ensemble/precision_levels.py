"""Anytime-valid tests of the precision among the rows with the highest scores."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray

LEVELS: FloatArray = 0.5 ** np.arange(11, 0, -1.0)  # shares of the rows that would raise alarms
ERROR = 0.05  # maximum probability of ever accepting a level with a precision below the target
_BETS: FloatArray = np.array([0.2, 0.5, 0.9])  # bets as fractions of the largest possible bet
_MAX_EXCESS = np.exp(2.0)  # limit of the wealth, as a multiple of the wealth at which a level is accepted


def _accepting_wealth() -> float:
    return len(LEVELS) / ERROR


def _new_wealth() -> FloatArray:
    return np.ones((len(LEVELS), len(_BETS)))


@dataclass(frozen=True)
class PrecisionLevels:
    """Betting tests for several levels: is the precision of the top share of the rows above the target?

    For every level, each labelled row whose score is in the top share is a bet against the hypothesis that
    the precision is at most the target: the wealth is multiplied by 1 + bet * (label - target). Under the
    hypothesis the wealth is a supermartingale, even with an upper limit, so the probability that it ever
    exceeds ``len(LEVELS) / ERROR`` is at most ``ERROR / len(LEVELS)`` (Ville's inequality). The limit makes
    the test react to drift: a few false alarms revoke the acceptance.
    """

    target: float  # the target precision
    wealth: FloatArray = field(default_factory=_new_wealth)  # shape (n_levels, n_bets)

    def __post_init__(self) -> None:
        if self.wealth.shape != _new_wealth().shape or not (self.wealth >= 0.0).all():
            raise ValueError("corrupt precision levels: expected one wealth for each level and bet")

    def after(self, tails: FloatArray, is_positive: NDArray[np.bool_]) -> PrecisionLevels:
        """Return the tests updated with labelled rows. ``tails`` are shares of rows with higher scores."""
        wealth, limit = self.wealth.copy(), _MAX_EXCESS * _accepting_wealth()
        bets = _BETS / max(self.target, 1e-9)  # every bet is below 1 / target, so the wealth stays positive
        factors = {flag: 1.0 + bets * (float(flag) - self.target) for flag in (False, True)}
        first = np.searchsorted(LEVELS, tails, side="left")  # index of the first level that contains the row
        for begin, flag in zip(first.tolist(), is_positive.tolist(), strict=True):
            if begin < len(LEVELS):
                wealth[begin:] = np.minimum(wealth[begin:] * factors[flag], limit)
        return PrecisionLevels(self.target, wealth)

    def largest(self) -> float | None:
        """Return the largest accepted level, or None if no level is accepted."""
        accepted = np.flatnonzero(self.wealth.mean(axis=1) >= _accepting_wealth())
        return float(LEVELS[accepted[-1]]) if len(accepted) else None
