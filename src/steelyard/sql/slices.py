"""Slices of a cube: shrinkage of small slices towards all rows, and comparison with the common model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.model_selection import (
    CANDIDATE_ROWS,
    borrowed_share,
    compare_with_own_model,
    measure,
)

_CANDIDATE_ROWS = (0.0, *CANDIDATE_ROWS)


def shrink(all_rows: ClassStatistics, borrow: float) -> ClassStatistics:
    """Scale statistics in place to a total weight of at most ``borrow`` rows, and return them."""
    return all_rows.scale(borrowed_share(all_rows.n_rows, borrow))


def select_shrinkage(
    sum_of: Callable[[Mapping[Any, Any]], ClassStatistics],
    cells: Mapping[Any, tuple[int, Any]],
    own: Mapping[Any, Any],
    n_folds: int,
    parameters: Mapping[str, Any],
) -> float:
    """Return how many rows the statistics of the whole cube count as in the model of a slice.

    This is the candidate with the smallest cross-validated error. ``own`` maps the cells of the slice to
    their classes, ``cells`` all cells to fold and class. ``sum_of`` returns the sum of the statistics of the
    cells in such a mapping from cells to classes.
    """
    errors = dict.fromkeys(_CANDIDATE_ROWS, 0.0)
    for fold in range(n_folds):
        left_out = {label: c for label, c in own.items() if cells[label][0] == fold}
        if len(set(left_out.values())) < 2:
            continue  # a fold with a single class cannot be evaluated
        test = sum_of(left_out)
        rest = {label: c for label, c in own.items() if label not in left_out}
        others = {label: c for label, (_, c) in cells.items() if label not in left_out}
        all_rows = sum_of(others)
        for borrow in _CANDIDATE_ROWS:
            training = sum_of(rest) if rest else all_rows.empty()
            if borrow:
                training.merge(shrink(all_rows.copy(), borrow))
            if len(training.classes) < 2:
                errors[borrow] = np.inf
                continue
            errors_of_fold = measure(ProximalSVC(**parameters).merge(training), test)
            errors[borrow] += errors_of_fold["squared_error"] * test.n_rows
    return min(errors, key=lambda borrow: errors[borrow])


@dataclass(frozen=True)
class SliceSummary:
    """Errors of the common model and of the local model on one slice.

    Attributes
    ----------
    slice : tuple of str
        Values of the slice in the requested columns. A missing value is None.
    rows : float
        Number of rows.
    shares : mapping of str to float
        Fraction of the rows in each class.
    squared_error, own_squared_error : float
        Exact squared errors of the common model and of the local model on the rows of the slice.
    auc, own_auc, gmean, own_gmean : float
        AUC and G-mean of both models, computed from exact means and variances of the scores under the
        assumption that scores are normal. They are nan if the slice has fewer than two classes.
    """

    slice: tuple[str | None, ...]
    rows: float
    shares: Mapping[str, float]
    squared_error: float
    own_squared_error: float
    auc: float
    own_auc: float
    gmean: float
    own_gmean: float

    @property
    def name(self) -> str:
        """Values of the slice as text."""
        return format_slice(self.slice)


def format_slice(values: Iterable[str | None]) -> str:
    """Return the column values of a slice as one line of text."""
    return " · ".join("no value" if value is None else value for value in values)


def summarize_slices(
    all_rows: ClassStatistics, slices: Mapping[Any, ClassStatistics], parameters: Mapping[str, Any]
) -> list[SliceSummary]:
    """Return the summaries of all slices, sorted by decreasing number of rows.

    ``all_rows`` are the statistics of the common model. Both models have the given parameters.
    """
    common = ProximalSVC(**parameters).merge(all_rows)
    summaries = []
    for key, part in slices.items():
        common_errors, local_errors = compare_with_own_model(common, part, ProximalSVC(**parameters))
        summaries.append(
            SliceSummary(
                key if isinstance(key, tuple) else (key,),
                part.n_rows,
                {str(label): part.count(label) / part.n_rows for label in part.classes},
                common_errors["squared_error"],
                local_errors["squared_error"],
                common_errors["auc"],
                local_errors["auc"],
                common_errors["gmean"],
                local_errors["gmean"],
            )
        )
    return sorted(summaries, key=lambda summary: -summary.rows)
