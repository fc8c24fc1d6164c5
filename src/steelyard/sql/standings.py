"""How a common model fares on the slices of a cube, beside the slices' own models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.model_selection import measure

__all__ = ["SliceStanding", "shown", "standings"]


@dataclass(frozen=True)
class SliceStanding:
    """How the common model fares on a slice, beside the slice's own.

    Attributes
    ----------
    slice : tuple of str
        The values that it has in the columns asked for; None for rows without one.
    rows : float
        Its rows.
    shares : mapping of str to float
        The share of each class.
    squared_error, own_squared_error : float
        Of the common and of the slice's own model on its rows; exact.
    auc, own_auc, gmean, own_gmean : float
        The same by the exact means and variances of the scores, taken as normal; nan without two classes.
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
        """The values, to be shown to people."""
        return shown(self.slice)


def shown(values: Iterable[str | None]) -> str:
    """Values of a slice in a line; a column without one says so."""
    return " · ".join("no value" if value is None else value for value in values)


def standings(
    everything: ClassStatistics, slices: Mapping[Any, ClassStatistics], parameters: Mapping[str, Any]
) -> list[SliceStanding]:
    """Where the common model fails, and by how much: largest slices first.

    Parameters
    ----------
    everything : ClassStatistics
        What the common model is made of.
    slices : mapping of value or tuple of values to ClassStatistics
        The parts.
    parameters : mapping
        Those of the ProximalSVC that both are.
    """
    common = ProximalSVC(**parameters).merge(everything)
    found = []
    for key, part in slices.items():
        together = measure(common, part)
        alone = dict.fromkeys(("squared_error", "auc", "gmean"), float("nan"))
        if len(part.classes) > 1:
            alone = measure(ProximalSVC(**parameters).merge(part), part)
        found.append(
            SliceStanding(
                key if isinstance(key, tuple) else (key,),
                part.n_rows,
                {str(label): part.count(label) / part.n_rows for label in part.classes},
                together["squared_error"],
                alone["squared_error"],
                together["auc"],
                alone["auc"],
                together["gmean"],
                alone["gmean"],
            )
        )
    return sorted(found, key=lambda standing: -standing.rows)
