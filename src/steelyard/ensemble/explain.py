"""Ask it why: which expert carries the answer now, what it remembers, where the cut is, what was spared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.ensemble.experts import Expert
from steelyard.ensemble.multiclass import ManyJudgement
from steelyard.ensemble.panel import Panel

__all__ = ["ExpertRecord", "Explanation", "PlaneRecord", "explain_panel"]

_MOST_LINES = 12  # classes that the text lists; the table has all


@dataclass(frozen=True)
class ExpertRecord:
    """How one expert stands.

    Attributes
    ----------
    name, words : str
        Its name and what it does.
    record : float
        How well it predicted recent rows alone: its AUC for two classes, the mean over classes of its hit
        rates for more. NaN while nothing is known.
    weight : float
        Its part of the answer.
    n_rows : int
        Rows that it remembers.
    spared : str
        What is not done, or not always, so that a row does not cost too much; empty if nothing is.
    """

    name: str
    words: str
    record: float
    weight: float
    n_rows: int
    spared: str = ""


@dataclass(frozen=True)
class PlaneRecord:
    """How scores for one class are cut, and the share of that class among recent rows."""

    label: Label
    cut: float | None
    share: float


@dataclass(frozen=True)
class Explanation:
    """What a :class:`~steelyard.StreamClassifier` answers with, at the moment it was asked.

    Attributes
    ----------
    n_rows : int
        Rows learned so far.
    threshold : str or dict
        What the cut aims at.
    experts : list of ExpertRecord
        All experts.
    planes : list of PlaneRecord
        One for two classes, otherwise one a class.
    spared : dict of str to str
        What is not done, or not always, and why, by the name of what it concerns.
    drifts : list of int
        Rows at which the answers became worse than they had been, the latest last.
    """

    n_rows: int
    threshold: Any
    experts: list[ExpertRecord]
    planes: list[PlaneRecord]
    spared: dict[str, str]
    drifts: list[int]

    @property
    def leader(self) -> str:
        """Name of the expert with the largest weight; empty while nothing is known."""
        best = max(self.experts, key=lambda expert: expert.weight)
        return best.name if best.weight > 0.0 else ""

    def __str__(self) -> str:
        experts = [
            f"  {expert.name:<8} weight {expert.weight:.2f}  {self._measure} {_number(expert.record):>5}  "
            f"{expert.n_rows} rows  {expert.words}"
            for expert in self._by_weight()
        ]
        classes = [_class_sentence(plane) for plane in self.planes[:_MOST_LINES]]
        if len(self.planes) > _MOST_LINES:
            classes.append(f"... and {len(self.planes) - _MOST_LINES} more classes.")
        spared = [f"Spared, {name}: {why}." for name, why in self.spared.items()]
        return "\n".join([*self._opening(), *experts, *classes, *spared])

    __repr__ = __str__

    @property
    def _measure(self) -> str:
        return "recent AUC" if len(self.planes) < 2 else "recent mean hit rate"

    def _opening(self) -> list[str]:
        aim = f"After {self.n_rows} rows; the cut aims at {_aim(self.threshold, len(self.planes))}."
        if not self.leader:
            told = "Too few rows were scored so far; the planes over all rows answer alone."
        else:
            told = f"The answer is carried by {self.leader!r}."
        if self.drifts:
            rows = ", ".join(str(row) for row in self.drifts[-5:])
            told += f" Answers became worse at about row {rows}."
        return [aim, told]

    def _by_weight(self) -> list[ExpertRecord]:
        return sorted(self.experts, key=lambda expert: -expert.weight)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(expert.name)}</td><td>{escape(expert.words)}</td><td>{expert.n_rows}</td>"
            f"<td>{_number(expert.record)}</td><td>{expert.weight:.2f}</td><td>{escape(expert.spared)}</td></tr>"
            for expert in self._by_weight()
        )
        classes = "".join(
            f"<tr><td>{escape(str(plane.label))}</td><td>{100 * plane.share:.1f} %</td>"
            f"<td>{'none' if plane.cut is None else format(plane.cut, '.2f')}</td></tr>"
            for plane in self.planes
        )
        return (
            f"<p>{escape(' '.join(self._opening()))}</p><table><thead><tr><th>expert</th><th>what it is</th>"
            f"<th>rows</th><th>{self._measure}</th><th>weight</th><th>spared</th></tr></thead>"
            f"<tbody>{rows}</tbody></table><table><thead><tr><th>class</th><th>share lately</th><th>cut</th>"
            f"</tr></thead><tbody>{classes}</tbody></table>"
        )

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
        ax.barh([expert.name for expert in self.experts], [expert.weight for expert in self.experts])
        for place, expert in enumerate(self.experts):
            words = f" {_number(expert.record)}, {expert.n_rows} rows"
            ax.text(expert.weight, place, words, va="center")
        ax.set_xlim(0.0, 1.45)
        ax.invert_yaxis()
        ax.set_xlabel(f"weight (beside it: {self._measure}, rows remembered)")
        ax.set_title(f"who answers after {self.n_rows} rows")
        return ax


def explain_panel(
    panel: Panel,
    experts: Sequence[Expert],
    labels: Sequence[Label],
    shares: FloatArray,
    *,
    threshold: Any,
    n_rows: int,
    spared: Mapping[str, str],
    drifts: Sequence[int],
) -> Explanation:
    """The record of a panel and its experts in words and numbers."""
    judgement, n = panel.judgement, len(experts)
    if judgement is None:
        record, weights = np.full(n, np.nan), np.zeros(n)
        cuts: list[float | None] = [None] * len(labels)
    elif isinstance(judgement, ManyJudgement):
        record, weights, cuts = judgement.record, judgement.weights, judgement.cuts.tolist()
    else:
        record, weights, cuts = judgement.auc, judgement.weights, [judgement.cut, judgement.cut]
    records = [
        ExpertRecord(e.trade.name, e.trade.words, float(r), float(w), e.n_rows, spared.get(e.trade.name, ""))
        for e, r, w in zip(experts, record, weights, strict=True)
    ]
    planes = [PlaneRecord(*parts) for parts in zip(labels, cuts, shares.tolist(), strict=True)]
    return Explanation(
        n_rows, threshold, records, planes[1:] if len(labels) == 2 else planes, dict(spared), list(drifts)
    )


def _aim(threshold: Any, n_planes: int) -> str:
    if threshold == "gmean":
        return "the largest G-mean" if n_planes < 2 else "the largest mean of the classes' hit rates"
    if "alarms" in threshold:
        return f"alarms for at most {threshold['alarms']:.3g} of the rows"
    return f"the least cost, a miss at {threshold['miss']:g} and a false alarm at {threshold['alarm']:g}"


def _number(value: float) -> str:
    return "none" if np.isnan(value) else f"{value:.3f}"


def _class_sentence(plane: PlaneRecord) -> str:
    lately = f"Class {plane.label!r}, lately {100 * plane.share:.1f} % of the rows"
    if plane.cut is None:
        return f"{lately}, has no cut yet."
    return f"{lately}, is answered above a committee score of {plane.cut:.2f}."
