"""Statistics of the writer: commits, failures and delays of labels."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

# Upper bounds in seconds.
_COMMIT_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class HistogramCounts:
    """Histogram: counts of values between bounds, and the sum of the values.

    ``bounds`` are the upper bounds of the intervals; larger values are counted in a last interval.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def n_values(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def quantile(self, share: float, unit: float = 1.0) -> float | None:
        """Return the upper bound of the interval of a quantile, times ``unit``, or None without values."""
        reached, total = 0, self.n_values
        for bound, count in zip(self.bounds, self.counts, strict=False):
            reached += count
            if total and reached >= share * total:
                return unit * bound
        return 2.0 * unit * self.bounds[-1] if total else None

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
        self.write_failures: Counter[str] = Counter()  # number of failed transactions for each kind of error
        self.erase_failures = 0
        # Callback with the name of the model and the delays in seconds.
        self.on_labels: Callable[[str, list[float]], None] | None = None
