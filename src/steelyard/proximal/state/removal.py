"""What shows that rows which are to be taken out were never there.

Always detected: more rows of a class than it has; a class that would be left without rows but not without
sums; negative sums of squares; a mean farther out than the squares allow; a direction in which squares are
negative by more than 1e-8 of their size; a value between the steps of a feature that never rounded; and,
while a class has few rows and is kept as these, any row that is not among them. Whatever leaves sums that
some other rows could have given cannot be told from them: only a ledger of the rows can.
"""

from __future__ import annotations

from steelyard.base import Label
from steelyard.exceptions import DataError

__all__ = ["INDEFINITE", "OTHER_GRID", "TOO_MANY", "never_learned"]

OTHER_GRID = "take out statistics that were made on the grid of those they were merged into: quantizer=model.quantizer_"
INDEFINITE = 1e-8  # relative; far above the one rounding of each number
TOO_MANY = 1  # as native code numbers the reasons of a refusal


def never_learned(source: str, label: Label, hint: str | None = None) -> DataError:
    return DataError(
        f"some rows of class {label!r} that were to be forgotten were never learned; nothing was changed.",
        source=source,
        hint=hint or "forget rows with exactly the values, labels and weights with which they were learned",
    )
