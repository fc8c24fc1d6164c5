"""Release policy: small classes and small changes are withheld."""

from __future__ import annotations

from dataclasses import dataclass

from steelyard.exceptions import ParameterError
from steelyard.proximal import ClassStatistics


@dataclass(frozen=True)
class ReleasePolicy:
    """Conditions under which a site publishes, and the classes that it withholds.

    The statistics of a class with few rows reveal these rows. The difference of two updates reveals the rows
    learned between them, possibly those of one person. Therefore classes with fewer than ``least_rows`` rows
    are withheld, and an update is published only if every class in it is unchanged or has changed by at least
    ``least_change`` rows.

    Parameters
    ----------
    least_rows : int, default=20
        Minimum number of rows of a published class. Unless it is 1, at least twice as many rows as features
        are also needed: with fewer rows than features, the statistics determine the rows up to a rotation.
    least_change : int, default=10
        Minimum number of rows by which a changed class must differ from the last update.
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
        """Return a policy that publishes everything, for public data and experiments."""
        return cls(least_rows=1, least_change=0)

    def held_back(self, statistics: ClassStatistics) -> dict[str, str]:
        """Return the withheld classes and the reason for each."""
        min_rows = self.least_rows
        if min_rows > 1:
            min_rows = max(min_rows, 2 * statistics.n_features)
        return {
            str(label): f"fewer than {min_rows} rows"
            for label in statistics.classes
            if statistics.count(label) < min_rows
        }

    def refusal(
        self, before: ClassStatistics | None, now: ClassStatistics, n_changed: dict[str, float]
    ) -> str | None:
        """Return the reason why nothing may be published yet, or None if publishing is allowed.

        Parameters
        ----------
        before, now : ClassStatistics
            The published statistics, and the statistics to be published.
        n_changed : dict of str to float
            For each class, the number of rows learned or forgotten since the last update.
        """
        if before is None:
            return None if now.classes else "no class has enough rows yet"
        for label in sorted({*map(str, before.classes), *map(str, now.classes)}):
            changed = n_changed.get(label, 0.0)
            if 0 < changed < self.least_change:
                return f"class {label!r} has changed by fewer than {self.least_change} rows"
        return None
