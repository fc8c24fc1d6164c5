"""Confidence intervals of a rate that hold at all times of a stream, even if the rate drifts.

Let x_1, x_2, ... be 0 or 1 with conditional means m_i given the past. Let S_n be the sum of x_1, ..., x_n and
M_n the mean of m_1, ..., m_n. For every fixed number a, exp(a S_n) / prod(1 + m_i (e^a - 1)) is a martingale
that starts at 1. The logarithm of 1 + m (e^a - 1) is concave in m, so the process does not become larger if
all m_i are replaced by M_n. By Ville's inequality, the average of these processes over several values of a
exceeds 1 / error at any time with probability at most ``error``. The interval contains all rates that, in
place of M_n, keep this average below 1 / error.

References: Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence
sequences", Annals of Statistics 49 (2021); Waudby-Smith, Ramdas, "Estimating means of bounded random
variables by betting", JRSS B 86 (2024).
"""

from __future__ import annotations

import numpy as np

_EXPONENTS = np.geomspace(0.004, 4.0, 16)  # values of |a| in the formula, used with both signs
_GRID_RATES, _REFINEMENTS = 33, 6


def rate_interval(n_events: int, n_rows: int, level: float = 0.95) -> tuple[float, float]:
    """Return a confidence interval of a rate that holds simultaneously at all times.

    Parameters
    ----------
    n_events, n_rows : int
        Number of events and number of rows so far.
    level : float, default=0.95
        Probability that the intervals after 1, 2, 3, ... rows all contain the mean rate up to that row.

    Returns
    -------
    tuple (low, high)

    Notes
    -----
    The interval may be computed after every row. If the rate drifts, the interval is for its mean so far.

    Examples
    --------
    >>> low, high = rate_interval(100, 10_000)
    >>> 0.005 < low < 0.01 < high < 0.016
    True
    >>> rate_interval(0, 0)
    (0.0, 1.0)
    """
    if n_rows <= 0:
        return 0.0, 1.0
    limit = np.log(2.0 / (1.0 - level)) + np.log(len(_EXPONENTS))

    def bound(outside: float, sign: float) -> float:
        inside, a = n_events / n_rows, sign * _EXPONENTS
        for _ in range(_REFINEMENTS):
            rates = np.linspace(inside, outside, _GRID_RATES)
            with np.errstate(divide="ignore"):
                logs = a * n_events - n_rows * np.log1p(rates[:, None] * np.expm1(a))
            highest = logs.max(axis=1)
            wealth = highest + np.log(np.exp(logs - highest[:, None]).sum(axis=1))
            # From the observed rate outwards, the logarithm of the average process (wealth) increases.
            first = min(int(np.count_nonzero(wealth < limit)), _GRID_RATES - 1)
            inside, outside = float(rates[max(first - 1, 0)]), float(rates[first])
        return outside

    return bound(0.0, 1.0), bound(1.0, -1.0)
