"""Ask it why: which expert carries the answer now, what it remembers, where the cut is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from steelyard.base import Label
from steelyard.committee.evidence import Evidence
from steelyard.committee.experts import Expert
from steelyard.committee.panel import Panel

__all__ = ["ExpertRecord", "Explanation", "explain_panel"]


@dataclass(frozen=True)
class ExpertRecord:
    """How one expert stands: its name, what it does, its recent AUC, its weight, the rows it remembers."""

    name: str
    words: str
    auc: float
    weight: float
    n_rows: int


@dataclass(frozen=True)
class PlaneRecord:
    """How scores for one class are made and cut."""

    label: Label
    cut: float | None
    share: float
    experts: list[ExpertRecord]


@dataclass(frozen=True)
class Explanation:
    """What a :class:`~steelyard.StreamClassifier` answers with, at the moment it was asked.

    Attributes
    ----------
    n_rows : int
        Rows learned so far.
    threshold : str or dict
        What the cut aims at.
    planes : list of PlaneRecord
        One for two classes, otherwise one a class.
    """

    n_rows: int
    threshold: Any
    planes: list[PlaneRecord]

    @property
    def leader(self) -> str:
        """Name of the expert with the largest weight, over all planes."""
        totals: dict[str, float] = {}
        for plane in self.planes:
            for expert in plane.experts:
                totals[expert.name] = totals.get(expert.name, 0.0) + expert.weight
        return max(totals, key=totals.__getitem__) if totals else ""

    def __str__(self) -> str:
        return "\n".join([self._opening(), *(line for plane in self.planes for line in _plane_lines(plane))])

    __repr__ = __str__

    def _opening(self) -> str:
        return f"After {self.n_rows} rows; the cut aims at {_aim(self.threshold)}."

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(self._opening())}</p>"]
        for plane in self.planes:
            rows = "".join(
                f"<tr><td>{escape(expert.name)}</td><td>{escape(expert.words)}</td>"
                f"<td>{expert.n_rows}</td><td>{_number(expert.auc)}</td><td>{expert.weight:.2f}</td></tr>"
                for expert in _by_weight(plane)
            )
            parts.append(
                f"<p>{escape(_plane_sentence(plane))}</p><table><thead><tr><th>expert</th><th>what it is</th>"
                f"<th>rows</th><th>recent AUC</th><th>weight</th></tr></thead><tbody>{rows}</tbody></table>"
            )
        return "".join(parts)

    def plot(self, ax: Any = None) -> Any:
        """Draw the weights of the experts as bars.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; new ones when not given.

        Returns
        -------
        matplotlib axes
        """
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(layout="constrained")
        names = [expert.name for expert in self.planes[0].experts] if self.planes else []
        left = np.zeros(len(names))
        for plane in self.planes:
            weights = np.array([expert.weight for expert in plane.experts]) / len(self.planes)
            ax.barh(names, weights, left=left, label=f"class {plane.label}")
            left += weights
        ax.invert_yaxis()
        ax.set_xlabel("weight")
        ax.set_title(f"who answers after {self.n_rows} rows")
        if len(self.planes) > 1:
            ax.legend()
        return ax


def explain_panel(
    panel: Panel,
    experts: Sequence[Expert],
    labels: Sequence[Label],
    evidence: Evidence,
    *,
    threshold: Any,
    n_rows: int,
) -> Explanation:
    """The record of a panel and its experts in words and numbers."""
    positives = labels[1:] if len(labels) == 2 else labels
    shares = evidence.shares()[1:] if len(labels) == 2 else evidence.shares()
    planes = []
    for label, share, judgement in zip(positives, shares, panel.judgements, strict=False):
        auc = np.full(len(experts), np.nan) if judgement is None else judgement.auc
        weights = np.zeros(len(experts)) if judgement is None else judgement.weights
        records = [
            ExpertRecord(e.trade.name, e.trade.words, float(a), float(w), e.n_rows)
            for e, a, w in zip(experts, auc, weights, strict=True)
        ]
        planes.append(PlaneRecord(label, None if judgement is None else judgement.cut, float(share), records))
    return Explanation(n_rows, threshold, planes)


def _aim(threshold: Any) -> str:
    if threshold == "gmean":
        return "the largest G-mean"
    if "alarms" in threshold:
        return f"alarms for at most {threshold['alarms']:.3g} of the rows"
    return f"the least cost, a miss at {threshold['miss']:g} and a false alarm at {threshold['alarm']:g}"


def _number(value: float) -> str:
    return "none" if np.isnan(value) else f"{value:.3f}"


def _by_weight(plane: PlaneRecord) -> list[ExpertRecord]:
    return sorted(plane.experts, key=lambda expert: -expert.weight)


def _plane_sentence(plane: PlaneRecord) -> str:
    if plane.cut is None:
        return (
            f"Class {plane.label!r}: too few rows were scored so far; the planes over all rows answer alone."
        )
    return (
        f"Class {plane.label!r}, lately {100 * plane.share:.1f} % of the rows, is answered above a committee "
        f"score of {plane.cut:.2f}."
    )


def _plane_lines(plane: PlaneRecord) -> list[str]:
    experts = [
        f"  {expert.name:<8} weight {expert.weight:.2f}  recent AUC {_number(expert.auc):>5}  "
        f"{expert.n_rows} rows  {expert.words}"
        for expert in _by_weight(plane)
    ]
    return [_plane_sentence(plane), *experts]
