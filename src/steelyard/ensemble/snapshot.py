"""Immutable state of the ensemble, used for predictions while another thread learns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from steelyard import _native
from steelyard._labels import winners
from steelyard._threads import one_thread
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.experts.base import Rule
from steelyard.ensemble.mixing import ExpertWeights
from steelyard.ensemble.multiclass import MulticlassWeights
from steelyard.ensemble.score_buffer import align, n_planes
from steelyard.ensemble.views import TransformedRows, Views

__all__ = ["EnsembleSnapshot"]


class JoinedRules:
    """Native scorer of the rules that have a native form, constructed when the first rows are scored.

    Snapshots that differ only in label frequency rules share one scorer.
    """

    __slots__ = ("_joined",)

    def __init__(self) -> None:
        self._joined: tuple[_native.RowExperts, list[int]] | None = None

    def of(self, snapshot: EnsembleSnapshot, n_features: int) -> tuple[_native.RowExperts, list[int]]:
        """Return the native scorer, and the indices of the rules that must be scored separately."""
        if self._joined is None:
            scorer, others = snapshot.views.row_experts(len(snapshot.rules), n_features), []
            classes = sorted(snapshot.classes)
            for number, rule in enumerate(snapshot.rules):
                if rule is None or rule.is_constant:
                    continue
                if rule.classes != classes or not rule.add_to(scorer, number):
                    others.append(number)
            self._joined = scorer, others
        return self._joined

    def __reduce__(self) -> tuple[type[JoinedRules], tuple[()]]:
        return JoinedRules, ()


@dataclass(frozen=True)
class EnsembleSnapshot:
    """Rules, weights and transformations that belong to one state of the ensemble.

    Attributes
    ----------
    classes : list of int
        Class codes in the order of their labels.
    labels : ndarray of shape (n_classes,)
        Their labels, sorted.
    rules : list of Rule or None
        Decision rule of each expert.
    weights : ExpertWeights, MulticlassWeights or None
        How the scores are combined; None while too few rows were scored.
    views : Views
        Transformations of rows.
    """

    classes: list[int]
    labels: NDArray[Any]
    rules: list[Rule | None]
    weights: ExpertWeights | MulticlassWeights | None
    views: Views
    joined: JoinedRules = field(default_factory=JoinedRules, repr=False, compare=False)

    def raw_scores(self, X: FloatArray, wide: sp.csr_matrix | None = None) -> FloatArray:
        """Return the scores of every expert as an array of shape (n_rows, n_experts, n_planes);

        NaN if unknown.

        ``wide`` has the rows before hashing, if they are hashed.
        """
        if len(self.classes) != 2 or self.views.layout is not None or not _native.all_finite(X):
            numbers = [number for number, rule in enumerate(self.rules) if rule is not None]
            scores = np.full((len(X), len(self.rules), n_planes(len(self.classes))), np.nan)
            return self._with_rules(numbers, scores, TransformedRows(X, self.views, wide))
        scorer, others = self.joined.of(self, X.shape[1])
        low, high = sorted(self.classes)  # codes of rules are in ascending order
        constants = np.full(len(self.rules), np.nan)
        for number, rule in enumerate(self.rules):
            if rule is not None and rule.is_constant:
                constants[number] = rule.constant([low, high])
        scores, ranks = scorer.scores(X, constants)
        if self.classes[0] == high:
            scores = -scores
        if not others:
            return scores
        known = None if self.views.ranks is None else ranks
        return self._with_rules(others, scores, TransformedRows(X, self.views, wide, known))

    def _with_rules(self, numbers: list[int], scores: FloatArray, rows: TransformedRows) -> FloatArray:
        """Write the scores of some experts, computed by their rules, to ``scores`` and return it."""
        with one_thread():
            for number in numbers:
                rule = self.rules[number]
                assert rule is not None
                scores[:, number] = align(rule.scores(rows), rule.classes, self.classes)
        return scores

    def after_labels(self, codes: list[int]) -> EnsembleSnapshot:
        """Return the snapshot updated with new labels, which only the label frequency rules use."""
        rules = [None if rule is None else rule.after_labels(codes) for rule in self.rules]
        return replace(self, rules=rules)

    def weights_for(self, classes: list[int]) -> ExpertWeights | MulticlassWeights | None:
        """Return the weights for another set of classes, or None if there are none."""
        if classes == self.classes or self.weights is None:
            return self.weights
        if isinstance(self.weights, MulticlassWeights) and len(classes) > 2:
            return self.weights.for_classes(classes)
        return None

    def decide(self, raw: FloatArray) -> FloatArray:
        """Return one score per plane: positive for the second class, or largest for the predicted class."""
        weights = self.weights
        if isinstance(weights, ExpertWeights):
            return weights.decisions(weights.scores(raw[:, :, 0]))[:, None]
        out = _first_known(raw) if weights is None else weights.scores(raw)
        unknown = np.isnan(raw).all(axis=1)
        if unknown.any():  # no expert knows these classes yet, so they get the lowest score
            lowest = np.where(unknown, 0.0, out).min(axis=1, keepdims=True)
            out = np.where(unknown, lowest - 1.0 if out.shape[1] > 1 else 0.0, out)
        return out

    def totals(self, raw: FloatArray) -> FloatArray:
        """Return the combined scores for two classes, without subtracting a threshold."""
        weights = self.weights
        return weights.totals(raw) if isinstance(weights, ExpertWeights) else self.decide(raw)[:, 0]

    def score_and_threshold(self, raw: FloatArray) -> tuple[FloatArray, float]:
        """Return the result of :meth:`totals`, and the threshold, which is NaN before the first weighing."""
        weights = self.weights
        return self.totals(raw), weights.threshold if isinstance(weights, ExpertWeights) else float("nan")

    def predict_codes(self, raw: FloatArray) -> IntArray:
        """Return the codes of the predicted classes."""
        return np.array(self.classes, dtype=np.int64)[winners(self.decide(raw), len(self.classes))]

    def log_odds(self, decisions: FloatArray) -> FloatArray:
        """Return log-probabilities up to a constant, one column per class, for equally frequent classes."""
        if decisions.shape[1] > 1:
            return decisions
        if isinstance(self.weights, ExpertWeights):
            decisions = self.weights.log_odds(decisions)
        return np.concatenate([np.zeros_like(decisions), decisions], axis=1)


def _first_known(raw: FloatArray) -> NDArray[np.float64]:
    """Return the scores of the first expert that has any; used before the first weighing."""
    out = raw[:, 0]
    for expert in range(1, raw.shape[1]):
        if not np.isnan(out).any():
            break
        out = np.where(np.isnan(out).all(axis=0), raw[:, expert], out)
    return out
