"""What may leave a site: not a class of few rows, and not a change of few rows."""

from __future__ import annotations

from dataclasses import dataclass

from steelyard.exceptions import ParameterError
from steelyard.proximal import ClassStatistics

__all__ = ["ReleasePolicy"]


@dataclass(frozen=True)
class ReleasePolicy:
    """When a site may publish, and which classes.

    The statistics of a class with few rows reveal these rows, and the difference of two bulletins is what
    came between them, perhaps one person. So classes below a least count are held back, and a new bulletin is
    published only when every class in it has either not changed at all or changed by enough rows.

    Parameters
    ----------
    least_rows : int, default=20
        Rows that a class must have to be published; twice as many as there are features are needed in any
        case, unless this is 1: with fewer rows than features the statistics are the rows, turned.
    least_change : int, default=10
        Rows by which a class must have changed since the last bulletin, or not at all.
    """

    least_rows: int = 20
    least_change: int = 10

    def __post_init__(self) -> None:
        if self.least_rows < 1 or self.least_change < 0:
            raise ParameterError(
                f"least_rows must be at least 1 and least_change not negative; got {self.least_rows} and "
                f"{self.least_change}.",
                source="ReleasePolicy",
            )

    @classmethod
    def open(cls) -> ReleasePolicy:
        """Everything may leave: for data that is no secret, and for trials."""
        return cls(least_rows=1, least_change=0)

    def held_back(self, statistics: ClassStatistics) -> dict[str, str]:
        """Classes that may not be published, each with the reason."""
        least = self.least_rows if self.least_rows == 1 else max(self.least_rows, 2 * statistics.n_features)
        return {
            str(label): f"fewer than {least} rows"
            for label in statistics.classes
            if statistics.count(label) < least
        }

    def refusal(
        self, before: ClassStatistics | None, now: ClassStatistics, n_moved: dict[str, float]
    ) -> str | None:
        """Why nothing may be published yet; None if it may.

        Parameters
        ----------
        before, now : ClassStatistics
            What was published last, and what would be.
        n_moved : dict of str to float
            For each class, rows that were learned or forgotten since.
        """
        if before is None:
            return None if now.classes else "no class has enough rows yet"
        for label in sorted({*map(str, before.classes), *map(str, now.classes)}):
            moved = n_moved.get(label, 0.0)
            if 0 < moved < self.least_change:
                return f"class {label!r} has changed by fewer than {self.least_change} rows"
        return None
