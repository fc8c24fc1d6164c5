"""How much a slice with few rows is to borrow from all rows of a cube."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.rule.validation import measure

__all__ = ["Cells", "select_shrinkage", "shrink"]

_BORROWED = (0.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10_000.0)  # numbers of rows to choose from


@dataclass(frozen=True)
class Cells:
    """Cells of a cube, by what its statistics call them.

    Attributes
    ----------
    sum_of : callable
        The statistics of some of them, given the class that each stands for.
    folds_and_classes : mapping of label to (int, label)
        All of them.
    n_folds : int
        How many folds there are.
    """

    sum_of: Callable[[Mapping[Any, Any]], ClassStatistics]
    folds_and_classes: Mapping[Any, tuple[int, Any]]
    n_folds: int


def shrink(everything: ClassStatistics, borrow: float) -> ClassStatistics:
    """All rows with so much weight together as this many rows have; the statistics are changed."""
    return everything.scale(min(1.0, borrow / everything.n_rows))


def select_shrinkage(cells: Cells, own: Mapping[Any, Any], parameters: Mapping[str, Any]) -> float:
    """The weight of all rows under which rows of a slice that were left out are met best, fold by fold.

    Parameters
    ----------
    cells : Cells
        All cells.
    own : mapping of label to label
        Those of the slice, and the class that each stands for.
    parameters : mapping
        Those of the ProximalSVC.
    """
    errors = dict.fromkeys(_BORROWED, 0.0)
    for fold in range(cells.n_folds):
        left_out = {label: c for label, c in own.items() if cells.folds_and_classes[label][0] == fold}
        if len(set(left_out.values())) < 2:
            continue  # a fold of one class tells nothing
        test = cells.sum_of(left_out)
        rest = {label: c for label, c in own.items() if label not in left_out}
        others = {label: c for label, (_, c) in cells.folds_and_classes.items() if label not in left_out}
        everything = cells.sum_of(others)
        for borrow in _BORROWED:
            training = cells.sum_of(rest) if rest else everything.empty()
            if borrow:
                training.merge(shrink(everything.copy(), borrow))
            if len(training.classes) < 2:
                errors[borrow] = np.inf
                continue
            found = measure(ProximalSVC(**parameters).merge(training), test)
            errors[borrow] += found["squared_error"] * test.n_rows
    return min(errors, key=lambda borrow: errors[borrow])
