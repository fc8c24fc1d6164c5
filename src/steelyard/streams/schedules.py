"""Schedules that define the share of the rare classes at each row of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import ParameterError


@dataclass(frozen=True)
class ImbalanceSchedule:
    """Share of positive rows at each row of a stream.

    The class methods create schedules. :meth:`consistent_decrease`, :meth:`increase_then_decrease` and
    :meth:`random_variation` are the schedules of figure 5.2 of the DCIL thesis (Lei Zhu), with a constant
    share in each stage.

    Parameters
    ----------
    name : str
        Name of the schedule.
    share : callable
        Function from an array of row numbers to shares between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.streams import ImbalanceSchedule
    >>> ImbalanceSchedule.linear(0.5, 0.1, over=100).share(np.array([0, 50, 100, 500]))
    array([0.5, 0.3, 0.1, 0.1])
    >>> ImbalanceSchedule.step({0: 0.2, 10: 0.01}).share(np.array([9, 10]))
    array([0.2 , 0.01])
    """

    name: str
    share: Callable[[NDArray[np.int64]], FloatArray]

    @classmethod
    def constant(cls, share: float = 0.1) -> ImbalanceSchedule:
        """Return a schedule with a constant share."""
        _check_shares(share)
        return cls("constant", lambda rows: np.full(len(rows), share))

    @classmethod
    def linear(cls, first: float, last: float, *, over: int) -> ImbalanceSchedule:
        """Return a schedule that changes linearly during the first ``over`` rows and is then constant."""
        _check_shares(first, last)
        return cls("linear", lambda rows: first + (last - first) * np.clip(rows / over, 0.0, 1.0))

    @classmethod
    def step(cls, shares: dict[int, float]) -> ImbalanceSchedule:
        """Return a schedule of steps, given as ``{row: share from this row on}``; the first row must be 0."""
        rows_of_steps = np.array(sorted(shares))
        values = np.array([shares[row] for row in rows_of_steps.tolist()])
        _check_shares(*values)
        if not len(values) or rows_of_steps[0] != 0:
            raise ParameterError(
                f"the first step must be at row 0; got {shares!r}.", source="ImbalanceSchedule.step"
            )
        return cls("step", lambda rows: values[np.searchsorted(rows_of_steps, rows, side="right") - 1])

    @classmethod
    def sine(cls, low: float, high: float, *, period: int) -> ImbalanceSchedule:
        """Return a schedule that oscillates between two values, starting upwards from the middle."""
        _check_shares(low, high)
        middle, swing = (low + high) / 2, (high - low) / 2
        return cls("sine", lambda rows: middle + swing * np.sin(2 * np.pi * rows / period))

    @classmethod
    def consistent_decrease(cls, low: float = 0.05, *, over: int, stages: int = 9) -> ImbalanceSchedule:
        """Return a schedule with decreasing imbalance: the share rises in stages from ``low`` to one half."""
        return cls._staged("consistent decrease", np.linspace(low, 0.5, stages), over)

    @classmethod
    def increase_then_decrease(cls, low: float = 0.05, *, over: int, stages: int = 9) -> ImbalanceSchedule:
        """Return a schedule whose share falls in stages from one half to ``low`` and then rises again."""
        distance = np.abs(np.linspace(-1.0, 1.0, stages))
        return cls._staged("increase then decrease", low + (0.5 - low) * distance, over)

    @classmethod
    def random_variation(
        cls, low: float = 0.05, high: float = 0.95, *, over: int, stages: int = 9, seed: int = 0
    ) -> ImbalanceSchedule:
        """Return a schedule with a random share in each stage; either class can be the rare one."""
        shares = np.random.default_rng(seed).uniform(low, high, size=stages)
        return cls._staged("random variation", shares, over)

    @classmethod
    def _staged(cls, name: str, shares: FloatArray, over: int) -> ImbalanceSchedule:
        _check_shares(*shares)
        stages = len(shares)
        return cls(name, lambda rows: shares[np.minimum(rows * stages // over, stages - 1)])


def _check_shares(*shares: float) -> None:
    for share in shares:
        if not 0.0 <= share <= 1.0:
            raise ParameterError(
                f"a share must be between 0 and 1; got {share!r}.", source="ImbalanceSchedule"
            )
