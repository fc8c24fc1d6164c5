"""Statistics of the writer: commits, failures, delays of labels and slow models."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Sequence
from statistics import median

__all__ = ["GroupTimes", "HistogramCounts", "WriterStatistics"]

_SLOW_SECONDS = 0.01  # a model may get its own thread if its requests in a group take longer than this
_SLOW_RATIO = 4.0  # minimum ratio of the time of a slow model to the median time of the other models
_STILL_SLOW_RATIO = 2.0  # minimum ratio for a model that was slow before
_N_GROUPS = 5  # number of recent groups of requests whose median time is compared

_COMMIT_BOUNDS = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
)  # upper bounds in seconds


class HistogramCounts:
    """Histogram: counts of values between bounds, and the sum of the values.

    Parameters
    ----------
    bounds : sequence of float
        Upper bounds of the intervals; larger values are counted in a last interval.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Return pairs of an upper bound and the number of values up to this bound, as Prometheus expects."""
        total, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class WriterStatistics:
    """Counters of one writer. The writer thread changes them, and other threads read them."""

    def __init__(self) -> None:
        self.commit_seconds = HistogramCounts(_COMMIT_BOUNDS)
        self.write_failures: dict[str, int] = {}  # number of failed transactions for each kind of error
        self.erase_failures = 0
        # Callback with the name of the model and the delays in seconds.
        self.on_labels: Callable[[str, list[float]], None] | None = None

    def write_failed(self, error: Exception) -> None:
        """Count a group of requests that could not be written."""
        kind = type(error.__cause__ or error).__name__
        self.write_failures[kind] = self.write_failures.get(kind, 0) + 1


class GroupTimes:
    """Recent processing times of each model, to find models that delay the others.

    A time is the number of seconds that the requests for one model took in a commit group, the requests that
    the writer processes in one transaction.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, deque[float]] = {}

    def add(self, model: str, seconds: float) -> None:
        """Record the time of the requests for a model in one group."""
        self._seconds.setdefault(model, deque(maxlen=_N_GROUPS)).append(seconds)

    def drop(self, model: str) -> None:
        """Forget the times of a model."""
        self._seconds.pop(model, None)

    def is_slow(self, model: str, others: Collection[str], *, was_slow: bool = False) -> bool:
        """Return whether the requests for a model take much longer than those for the other models.

        The median over several groups is compared, because the first request of a process imports modules,
        and other programs can interrupt any group. ``was_slow`` says whether the model was slow before.
        """
        seconds = self.typical(model)
        if seconds is None or seconds <= _SLOW_SECONDS:  # most calls end here
            return False
        # ``others`` is copied, because another thread may add or remove models meanwhile.
        typical = [self.typical(name) for name in tuple(others) if name != model]
        known = [one for one in typical if one is not None]
        ratio = _STILL_SLOW_RATIO if was_slow else _SLOW_RATIO
        return bool(known) and seconds > ratio * median(known)

    def typical(self, model: str) -> float | None:
        """Return the median time of a model over the last groups, or None if there were too few."""
        recent = self._seconds.get(model, ())
        return median(recent) if len(recent) == _N_GROUPS else None
