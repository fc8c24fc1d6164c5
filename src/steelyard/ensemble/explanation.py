"""Reports on a StreamClassifier: its experts, weights, thresholds and restrictions; and drift."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from steelyard._deprecation import renamed_attribute
from steelyard._types import FloatArray, IntArray
from steelyard.base import Label
from steelyard.ensemble.expert_ensemble import ExpertEnsemble
from steelyard.ensemble.multiclass import MulticlassWeights
from steelyard.ensemble.online_threshold import RealisedRate, is_promise
from steelyard.ensemble.settings import SETTINGS
from steelyard.proximal.drift_report import ClassMoments, DriftReport, compare_moments

_PROMISES = {
    "alarms": "share of alarms among the rows",
    "alarms_per_day": "alarms per day",
    "recall": "recall",
    "precision": "precision of at least",
}
_MAX_TEXT_CLASSES = 12  # maximum number of classes in the text; the HTML table has all classes


@dataclass(frozen=True)
class ExpertRecord:
    """State of one expert.

    Attributes
    ----------
    name, description : str
        Name and kind of the expert.
    quality : float
        Recent quality of the expert alone: AUC for two classes, mean recall for more classes. NaN while the
        quality is unknown.
    weight : float
        Share of the expert in the combined score.
    n_rows : int
        Number of rows that the expert remembers.
    limits : str
        How the compute budget restricts the expert, or an empty text if it does not.
    """

    name: str
    description: str
    quality: float
    weight: float
    n_rows: int
    limits: str = ""

    words = renamed_attribute("description", "words")
    record = renamed_attribute("quality", "record")
    spared = renamed_attribute("limits", "spared")


@dataclass(frozen=True)
class ClassRecord:
    """Decision threshold of a class and its share among recent rows."""

    label: Label
    threshold: float | None
    share: float

    cut = renamed_attribute("threshold", "cut")


@dataclass(frozen=True)
class Explanation:
    """State of a :class:`~steelyard.StreamClassifier` when ``explain()`` was called.

    Attributes
    ----------
    n_rows : int
        Number of rows seen so far.
    threshold : str or dict
        Goal of the decision threshold.
    experts : list of ExpertRecord
        All experts.
    classes : list of ClassRecord
        One record for the positive class if there are two classes, otherwise one for each class.
    limits : dict of str to str
        Restrictions by the compute budget. The keys are names of experts and of learning steps.
    drifts : list of int
        Row numbers at which a drift was detected, in ascending order.
    promise : list of RealisedRate
        Observed rates of alarms, recall and precision with intervals; empty if the goal is not a rate.
    positive : label or None
        The positive class; None if there are not exactly two classes.
    """

    n_rows: int
    threshold: Any
    experts: list[ExpertRecord]
    classes: list[ClassRecord]
    limits: dict[str, str]
    drifts: list[int]
    promise: list[RealisedRate] = field(default_factory=list)
    positive: Label | None = None

    planes = renamed_attribute("classes", "planes")
    spared = renamed_attribute("limits", "spared")

    @property
    def leader(self) -> str:
        """Name of the expert with the largest weight, or an empty text before the experts have weights."""
        best = max(self.experts, key=lambda expert: expert.weight)
        return best.name if best.weight > 0.0 else ""

    def __str__(self) -> str:
        experts = [
            f"  {expert.name:<11} weight {expert.weight:.2f}  {self._measure} {_number(expert.quality):>5}  "
            f"{expert.n_rows} rows  {expert.description}"
            for expert in self._by_weight()
        ]
        word = "Class" if self.positive is None else "Positive class"
        is_binary = len(self.classes) < 2
        classes = [_class_line(record, word, is_binary) for record in self.classes[:_MAX_TEXT_CLASSES]]
        if len(self.classes) > _MAX_TEXT_CLASSES:
            classes.append(f"... and {len(self.classes) - _MAX_TEXT_CLASSES} more classes.")
        limits = [f"Schedule, {name}: {limit}." for name, limit in self.limits.items()]
        return "\n".join([*self._summary(), *map(str, self.promise), *experts, *classes, *limits])

    __repr__ = __str__

    @property
    def _measure(self) -> str:
        return "recent AUC" if len(self.classes) < 2 else "recent mean recall"

    def _summary(self) -> list[str]:
        goal = f"After {self.n_rows} rows; goal of the threshold: {_goal(self.threshold, len(self.classes))}."
        if self.leader:
            state = f"The expert with the largest weight is {self.leader!r}."
        else:
            state = "Too few rows were scored so far; the linear expert over all rows predicts alone."
        if self.drifts:
            rows = ", ".join(str(row) for row in self.drifts[-5:])
            state += f" Drift was detected at row {rows}."
        return [goal, state]

    def _by_weight(self) -> list[ExpertRecord]:
        return sorted(self.experts, key=lambda expert: -expert.weight)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(expert.name)}</td><td>{escape(expert.description)}</td><td>{expert.n_rows}</td>"
            f"<td>{_number(expert.quality)}</td><td>{expert.weight:.2f}</td><td>{escape(expert.limits)}</td></tr>"
            for expert in self._by_weight()
        )
        classes = "".join(
            f"<tr><td>{escape(str(record.label))}</td><td>{100 * record.share:.1f} %</td>"
            f"<td>{'none' if record.threshold is None else format(record.threshold, '.2f')}</td></tr>"
            for record in self.classes
        )
        text = " ".join([*self._summary(), *map(str, self.promise)])
        return (
            f"<p>{escape(text)}</p><table><thead><tr><th>expert</th><th>description</th>"
            f"<th>rows</th><th>{self._measure}</th><th>weight</th><th>restricted by budget</th></tr></thead>"
            f"<tbody>{rows}</tbody></table><table><thead><tr><th>class</th><th>recent share</th>"
            f"<th>threshold</th></tr></thead><tbody>{classes}</tbody></table>"
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the weights of the experts as bars.

        Parameters
        ----------
        ax : matplotlib axes, optional
            The axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib axes
        """
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(layout="constrained")
        ax.barh([expert.name for expert in self.experts], [expert.weight for expert in self.experts])
        for place, expert in enumerate(self.experts):
            text = f" {_number(expert.quality)}, {expert.n_rows} rows"
            ax.text(expert.weight, place, text, va="center")
        ax.set_xlim(0.0, 1.45)
        ax.invert_yaxis()
        ax.set_xlabel(f"weight (text: {self._measure}, rows remembered)")
        ax.set_title(f"experts after {self.n_rows} rows")
        return ax


def explain_ensemble(ensemble: ExpertEnsemble) -> Explanation:
    """Return the explanation of an ensemble."""
    snapshot, experts, stream = ensemble.snapshot, ensemble.experts, ensemble.stream()
    labels, weights, n = ensemble.labels_of(snapshot.classes), snapshot.weights, len(experts)
    thresholds: list[float | None] = [None] * len(labels)
    if weights is None:
        quality, shown = np.full(n, np.nan), np.zeros(n)
    elif isinstance(weights, MulticlassWeights):
        quality, shown, thresholds = weights.recall, weights.weights, weights.thresholds.tolist()
    else:
        # The score of the first class is the negative score of the second class.
        quality, shown, thresholds = weights.auc, weights.weights, [-weights.threshold, weights.threshold]
    # An expert may have lost its rule since the last update of the expert weights.
    shown = np.where([expert.rule is None for expert in experts], 0.0, shown)
    budget, records = stream.budget, []
    for expert, q, w in zip(experts, quality, shown, strict=True):
        limit = expert.limits(budget)
        if limit is None:
            continue
        name, description = expert.config.name, expert.config.description
        records.append(ExpertRecord(name, description, float(q), float(w), expert.n_rows, limit))
    limits = {record.name: record.limits for record in records if record.limits}
    if not budget.weighs_experts:
        limits["weights and thresholds"] = (
            f"disabled: {budget.n_classes} classes are more than {SETTINGS.max_weighed_classes}"
        )
    shares, positive = ensemble.shares().tolist(), ensemble.find_positive()
    classes = [ClassRecord(*parts) for parts in zip(labels, thresholds, shares, strict=True)]
    if len(labels) == 2:
        classes = classes[:1] if positive == labels[0] else classes[1:]
    promise = ensemble.decision.online_threshold
    return Explanation(
        n_rows=ensemble.n_seen + ensemble.pending.n_rows,
        threshold=ensemble.params.threshold,
        experts=records,
        classes=classes,
        limits=limits,
        drifts=list(ensemble.drift.drifts),
        promise=[] if promise is None else promise.realised(),
        positive=positive,
    )


def labelled_report(ensemble: ExpertEnsemble, class_count: IntArray) -> DriftReport:
    """Compare the last labelled rows with earlier rows. With too few rows, no change is reported."""
    changes, has_gaps = ensemble.changes, ensemble.views.layout is not None
    _, names = ensemble.input.monitored(ensemble.rows.block.X[:0], has_gaps=has_gaps)
    report = changes.report(names)
    if report is not None:
        return report
    counts = class_count.astype(np.float64)
    shares = (counts / max(counts.sum(), 1.0)).tolist()
    both = {x: (share, share) for x, share in zip(ensemble.snapshot.labels.tolist(), shares, strict=True)}
    return DriftReport([], {}, [], both, (float(counts.sum()), 0.0), None, changes.event_list())


def unlabelled_report(ensemble: ExpertEnsemble, X: FloatArray) -> DriftReport:
    """Compare unlabelled rows and their scores with the rows in the row buffer."""
    snapshot, both = ensemble.snapshot, [ensemble.rows.block.X, X]
    has_gaps = ensemble.views.layout is not None
    (known, _), (new, names) = (ensemble.input.monitored(rows, has_gaps=has_gaps) for rows in both)
    names = names or [f"x{k}" for k in range(new.shape[1])]
    if len(snapshot.classes) == 2:
        scores = [snapshot.decide(snapshot.raw_scores(rows)) for rows in both]
        known, new = np.hstack([known, scores[0]]), np.hstack([new, scores[1]])
        names = [*names, "score"]
    before, after = (ClassMoments.of_rows(rows, np.zeros(len(rows), int), ["all"]) for rows in (known, new))
    return compare_moments(before, after, names)


def _goal(threshold: Any, n_classes: int) -> str:
    if isinstance(threshold, str):
        many = {
            "gmean": "largest mean recall",
            "kappa": "largest kappa of each class",
            "f1": "largest F1 of each class",
        }
        two = {"gmean": "largest G-mean", "kappa": "largest Cohen's kappa", "f1": "largest F1 score"}
        return (two if n_classes < 2 else many)[threshold]
    if is_promise(threshold):
        ((name, target),) = threshold.items()
        return f"{_PROMISES[name]} {target:.4g}"
    return f"lowest cost, {threshold['miss']:g} for a miss and {threshold['alarm']:g} for a false alarm"


def _number(value: float) -> str:
    return "none" if np.isnan(value) else f"{value:.3f}"


def _class_line(record: ClassRecord, word: str, is_binary: bool) -> str:
    share = f"{word} {record.label!r}, recently {100 * record.share:.1f} % of the rows"
    if record.threshold is None:
        return f"{share}, has no threshold yet."
    if is_binary:
        rule = f"the weighted sum of log-odds is above {record.threshold:.2f} (decision_function above 0)"
        return f"{share}, is predicted if {rule}."
    return f"{share}, is predicted above a combined score of {record.threshold:.2f}."
