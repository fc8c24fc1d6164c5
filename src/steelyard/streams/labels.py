"""Labels of a stream, numbered once, as they come."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._labels import encode_labels

__all__ = ["Codes", "LabelTable"]

Codes = NDArray[np.intp]


class LabelTable:
    """Every label that has come, with its number: the order in which labels first came.

    Attributes
    ----------
    labels : list
        The labels; the number of a label is its place.

    Examples
    --------
    >>> import numpy as np
    >>> table = LabelTable()
    >>> table.codes(np.array(["ok", "ok", "fraud"])), table.codes(np.array(["new", "ok"]))
    (array([0, 0, 1]), array([2, 0]))
    >>> table.labels
    ['ok', 'fraud', 'new']
    """

    def __init__(self) -> None:
        self.labels: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def codes(self, y: NDArray[Any]) -> Codes:
        """The numbers of labels; new labels get theirs in the order of the rows."""
        if not len(y):
            return np.zeros(0, dtype=np.intp)
        distinct, positions = encode_labels(y)
        if not all(label in self._numbers for label in distinct):
            firsts = np.full(len(distinct), len(y))
            np.minimum.at(firsts, positions, np.arange(len(y)))
            for position in np.argsort(firsts).tolist():
                self.add(distinct[position])
        return self.numbers(distinct)[positions]

    def add(self, label: Any) -> int:
        """The number of a label, a new one if need be."""
        number = self._numbers.setdefault(label, len(self.labels))
        if number == len(self.labels):
            self.labels.append(label)
        return number

    def numbers(self, labels: list[Any]) -> Codes:
        """The numbers of labels that may be new."""
        return np.array([self.add(label) for label in labels], dtype=np.intp)

    def find(self, label: Any) -> int | None:
        """The number of a label, or of the one that is written like it; None if none has come."""
        if label in self._numbers:
            return self._numbers[label]
        alike = [number for number, known in enumerate(self.labels) if str(known) == label]
        return alike[0] if alike else None
