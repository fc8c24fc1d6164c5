"""Comparison of the common model with the models of the slices of a cube."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.model_selection import compare_with_own_model


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

    Parameters
    ----------
    all_rows : ClassStatistics
        Statistics of the common model.
    slices : mapping of value or tuple of values to ClassStatistics
        Statistics of the slices.
    parameters : mapping
        Parameters of the ProximalSVC of both models.
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
