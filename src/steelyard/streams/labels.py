"""Labels of a stream, numbered once, as they come."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard._labels import encode_labels, unsortable_error

__all__ = ["Codes", "LabelTable"]

Codes = NDArray[np.intp]
_WIDEST_LOOKUP = 10_000


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
        self._low, self._lookup = 0, np.zeros(0, dtype=np.intp)  # of whole numbers, from the lowest on
        self._lookup_is_full = False  # no number between two labels that is none

    def __len__(self) -> int:
        return len(self.labels)

    def codes(self, y: NDArray[Any]) -> Codes:
        """The numbers of labels; new labels get theirs in the order of the rows."""
        if not len(y):
            return np.zeros(0, dtype=np.intp)
        if y.dtype.kind == "i" and (known := self.looked_up(y)) is not None:
            return known
        distinct, positions = encode_labels(y)
        if not all(label in self._numbers for label in distinct):
            firsts = np.full(len(distinct), len(y))
            np.minimum.at(firsts, positions, np.arange(len(y)))
            for position in np.argsort(firsts).tolist():
                self.add(distinct[position])
        if y.dtype.kind == "i" and distinct[-1] - distinct[0] < _WIDEST_LOOKUP:
            self._low, self._lookup = distinct[0], np.full(distinct[-1] - distinct[0] + 1, -1, dtype=np.intp)
            self._lookup[np.array(distinct) - self._low] = self.numbers(distinct)
            self._lookup_is_full = len(distinct) == len(self._lookup)
        return self.numbers(distinct)[positions]

    def looked_up(self, y: NDArray[Any]) -> Codes | None:
        """The numbers of labels that are whole numbers; None unless all were seen lately."""
        places = y - self._low
        if not len(y) or places.min() < 0 or places.max() >= len(self._lookup):
            return None
        codes = self._lookup[places]
        return codes if self._lookup_is_full or codes.min() >= 0 else None

    def add(self, label: Any) -> int:
        """The number of a label, a new one if need be; labels that do not sort have no place in one table."""
        number = self._numbers.get(label)
        if number is not None:
            return number
        if self.labels:
            try:
                label < self.labels[0]  # noqa: B015 - whether they can be compared, not how it ends
            except TypeError as error:
                raise unsortable_error("labels", error) from error
        number = self._numbers.setdefault(label, len(self.labels))
        self.labels.append(label)
        return number

    def numbers(self, labels: list[Any]) -> Codes:
        """The numbers of labels that may be new."""
        return np.array([self.add(label) for label in labels], dtype=np.intp)

    def texts(self, y: NDArray[Any]) -> Codes:
        """The numbers of labels that are objects of text; new ones get theirs in the order of the rows."""
        numbers, values = self._numbers, y.tolist()
        try:
            return np.array([numbers[label] for label in values], dtype=np.intp)
        except KeyError:
            return np.array([self.add(label) for label in values], dtype=np.intp)

    def array(self) -> NDArray[Any]:
        """The labels as an array."""
        return np.array(self.labels)

    def find(self, label: Any) -> int | None:
        """The number of a label, or of the one that is written like it; None if none has come."""
        if label in self._numbers:
            return self._numbers[label]
        alike = [number for number, known in enumerate(self.labels) if str(known) == label]
        return alike[0] if alike else None
