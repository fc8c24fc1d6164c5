"""Check whether rows are sorted by label, which makes prequential measures misleading."""

from __future__ import annotations

import numpy as np

from steelyard._labels import Codes

__all__ = ["LabelOrder"]

_MIN_EXPECTED_CHANGES = 20  # minimum number of expected label changes; smaller tables are not checked
# Rows count as sorted if the number of label changes is below this fraction of the expected number.
_SORTED_RATIO = 0.05


class LabelOrder:
    """Counter of label changes between consecutive rows, compared with the number expected in random order.

    If rows are sorted by label, a model that always predicts the previous label is nearly always right, even
    if the features are noise.
    """

    def __init__(self) -> None:
        self.n_changes = 0
        self._counts = np.zeros(0)
        self._previous: int | None = None

    def update(self, codes: Codes) -> None:
        """Count the labels of the next rows; ``codes`` is a non-empty array of class indices."""
        found = np.bincount(codes, minlength=len(self._counts)).astype(float)
        found[: len(self._counts)] += self._counts
        self._counts = found
        self.n_changes += int(np.count_nonzero(codes[1:] != codes[:-1]))
        self.n_changes += self._previous is not None and bool(codes[0] != self._previous)
        self._previous = int(codes[-1])

    def warning(self) -> str | None:
        """Return a warning with numbers if the rows are sorted by label, or None."""
        n_rows = int(self._counts.sum())
        # In random order, neighbouring rows differ with probability 1 - sum of squared class shares.
        expected = (n_rows - 1) * (1 - float(np.square(self._counts / max(n_rows, 1)).sum()))
        if expected < _MIN_EXPECTED_CHANGES or self.n_changes >= _SORTED_RATIO * expected:
            return None
        return (
            f"the rows are sorted by label: the label changes {self.n_changes:,} times in {n_rows:,} rows, "
            f"and about {expected:,.0f} times in random order, so the measures are misleading"
        )
