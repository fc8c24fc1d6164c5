"""What questions need of all that was learned: classes, planes and the map, of one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.base import Label, sorted_classes
from steelyard.features import RandomFeatures
from steelyard.proximal.rule.planes import Planes

__all__ = ["Answer", "Classes"]


class Classes:
    """The classes, and how labels of rows are written."""

    def __init__(self, labels: list[Label]) -> None:
        self.labels = labels
        self.array = sorted_classes(labels)
        # Labels of eight bytes are written as they are, places of the others.
        self.written = self.array.dtype.kind in "iuf" and self.array.itemsize == 8
        codes = self.array.view(np.uint64) if self.written else np.arange(len(labels), dtype=np.uint64)
        self.codes = np.repeat(codes, 2) if len(codes) == 1 else codes  # a single class wins on both sides

    def read(self, codes: NDArray[np.uint64]) -> NDArray[Any]:
        """The labels that were written."""
        return codes.view(self.array.dtype) if self.written else self.array.take(codes.view(np.int64))


@dataclass(frozen=True, slots=True)
class Answer:
    """What was learned, as questions need it."""

    classes: Classes
    planes: Planes
    feature_map: RandomFeatures | None
