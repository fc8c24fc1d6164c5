"""Shrinkage of slices with few rows towards all rows of a cube."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.model_selection import measure
from steelyard.proximal.shrinkage import CANDIDATE_ROWS, borrowed_share

_CANDIDATE_ROWS = (0.0, *CANDIDATE_ROWS)


@dataclass(frozen=True)
class Cells:
    """Cells of a cube, with the fold and the class of each cell."""

    # Returns the sum of the statistics of some cells, given a mapping of cell to class.
    sum_of: Callable[[Mapping[Any, Any]], ClassStatistics]
    folds_and_classes: Mapping[Any, tuple[int, Any]]  # fold and class of every cell
    n_folds: int


def shrink(all_rows: ClassStatistics, borrow: float) -> ClassStatistics:
    """Scale statistics in place to a total weight of at most ``borrow`` rows, and return them."""
    return all_rows.scale(borrowed_share(all_rows.n_rows, borrow))


def select_shrinkage(cells: Cells, own: Mapping[Any, Any], parameters: Mapping[str, Any]) -> float:
    """Return the weight of all rows of the cube that minimizes the cross-validated error on a slice.

    Parameters
    ----------
    cells : Cells
        All cells.
    own : mapping of label to label
        The cells of the slice, and the class of each.
    parameters : mapping
        Parameters of the ProximalSVC.
    """
    errors = dict.fromkeys(_CANDIDATE_ROWS, 0.0)
    for fold in range(cells.n_folds):
        left_out = {label: c for label, c in own.items() if cells.folds_and_classes[label][0] == fold}
        if len(set(left_out.values())) < 2:
            continue  # a fold with a single class cannot be evaluated
        test = cells.sum_of(left_out)
        rest = {label: c for label, c in own.items() if label not in left_out}
        others = {label: c for label, (_, c) in cells.folds_and_classes.items() if label not in left_out}
        all_rows = cells.sum_of(others)
        for borrow in _CANDIDATE_ROWS:
            training = cells.sum_of(rest) if rest else all_rows.empty()
            if borrow:
                training.merge(shrink(all_rows.copy(), borrow))
            if len(training.classes) < 2:
                errors[borrow] = np.inf
                continue
            errors_of_fold = measure(ProximalSVC(**parameters).merge(training), test)
            errors[borrow] += errors_of_fold["squared_error"] * test.n_rows
    return min(errors, key=lambda borrow: errors[borrow])
