"""Linear experts: proximal SVMs on all rows, on the last rows, and on random features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from steelyard import _native
from steelyard._concurrency import shallow_copy
from steelyard._types import FloatArray, IntArray
from steelyard._validation import Batch
from steelyard.ensemble.experts.base import (
    ExpertConfig,
    IncrementalExpert,
    IncrementalWindowExpert,
    Rule,
    Stream,
)
from steelyard.ensemble.row_buffer import Block, last_rows
from steelyard.ensemble.settings import SETTINGS, CostBudget, n_planes
from steelyard.ensemble.views import MAX_MAPPED, TransformedRows, n_mapped
from steelyard.exceptions import DataError
from steelyard.explanation.attribution import Attribution, explain_linear
from steelyard.features import RandomFeatures
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.planes import PlaneRule

__all__ = ["LinearExpert", "LinearRule", "MappedLinearExpert", "MappedLinearRule", "RecentLinearExpert"]

_RECENT_ROWS_OF_CLASS = 20  # minimum average number of rows per class in the window of recent rows
_SOLVE_GROWTH = 0.05  # large systems over all rows are solved again when the rows have grown by this share
_CHEAP_SOLVE_US = 300.0  # smaller systems are solved whenever the budget allows
_C = 1.0
# Parameters of the hyperplanes, as in ProximalSVC by default.
_PLANE_RULE = PlaneRule(
    _C,
    class_weight="balanced",
    standardize=True,
    objective="margin",
    threshold="zero",
    penalize_intercept=True,
)
_MAX_WINDOW_FACTOR = 10  # largest factor by which many classes enlarge the window of recent rows


class _LinearExpert(IncrementalExpert):
    """Base class of linear experts: class statistics, and when hyperplanes are computed from them."""

    features = "linear"
    state: ClassStatistics | None
    plane_rule: ClassVar[PlaneRule] = _PLANE_RULE

    def learner(self) -> ProximalSVC | None:
        """Return a ProximalSVC that has learned the rows of the expert, or None if there are none."""
        if self.state is None:
            return None
        return ProximalSVC(standardize=self.plane_rule.standardize).merge(self.state)

    def changed_state(self, n_features: int, add: Batch | None, forget: Batch | None) -> ClassStatistics:
        state = ClassStatistics(n_features) if self.state is None else self.state.copy()
        if n_features > state.n_features:
            state.grow(n_features)
        if add is not None:
            state.add_batch(add)
        if forget is not None:
            state.remove_batch(forget, "StreamClassifier")
        return state

    def needs_rule(self, stream: Stream) -> bool:
        if self.rule is None or self.state is None:
            return self.n_seen_at_update > self.n_seen_at_rule
        budget = stream.budget
        cost = budget.n_planes * (60.0 + self.state.n_features**3 / 20_000.0)
        wait = budget.interval_rows(cost, SETTINGS.solve_share)
        if self.window_rows is None and cost > _CHEAP_SOLVE_US:
            wait = max(wait, _SOLVE_GROWTH * self.n_seen_at_rule)
        wait = min(wait, 1 + self.n_seen_at_rule * budget.n_planes // 20)
        return self.n_seen_at_update - self.n_seen_at_rule >= max(
            1.0, wait / 10.0 if stream.new_class else wait
        )

    def make_rule(self, stream: Stream) -> LinearRule | None:  # noqa: ARG002
        if self.state is None or len(classes := self.state.classes) < 2:
            return None
        planes = self.plane_rule.planes(self.state, _C, classes)
        coef, intercept = np.ascontiguousarray(planes.coef), np.ascontiguousarray(planes.intercept)
        return LinearRule(classes, coef, intercept)

    def get_state(self) -> dict[str, Any]:
        rule = self.rule.get_state() if isinstance(self.rule, LinearRule) else None
        state = {"learner": self.learner(), "rule": rule, "answers_upto": self.n_seen_at_rule}
        return {**super().get_state(), **state}

    def set_state(self, state: Mapping[str, Any], stream: Stream) -> None:
        super().set_state(state, stream)
        learner: ProximalSVC | None = state["learner"]
        self.state = None if learner is None else learner.statistics_
        if state.get("rule") is not None:  # the saved rule may be older than the statistics
            self.rule = LinearRule.from_state(state["rule"])
            self.n_seen_at_rule = int(state["answers_upto"])


class _LongLinearExpert(_LinearExpert):
    """Proximal SVM on all rows in the window, which are represented by exact sums.

    The expert has learned the rows with ``window_start <= number < n_seen_at_update`` except forgotten rows.
    """

    learns_in_batches = True

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__(config)
        self.window_start = 0

    @property
    def n_rows(self) -> int:
        return 0 if self.state is None else self.n_seen_at_update - self.window_start

    def update(self, stream: Stream) -> None:
        new = stream.rows.between(max(self.n_seen_at_update, stream.window_start), stream.n_seen)
        leaving = (
            stream.rows.between(self.window_start, min(stream.window_start, self.n_seen_at_update))
            if stream.window_start > self.window_start
            else None
        )
        self.apply(new, leaving, stream.views)
        self.window_start, self.n_seen_at_update = stream.window_start, stream.n_seen

    def forget(self, block: Block, stream: Stream) -> None:
        self.apply(None, block, stream.views)

    def first_row(self) -> int | None:
        return self.window_start if self.is_enabled else None

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "low": self.window_start}

    def set_state(self, state: Mapping[str, Any], stream: Stream) -> None:
        super().set_state(state, stream)
        self.window_start = int(state["low"])
        if not 0 <= self.window_start <= self.n_seen_at_update:
            raise ValueError("the first row of an expert must not come after its last row")


class LinearExpert(_LongLinearExpert):
    """Proximal SVM on all rows in the window."""

    min_new_rows = 50

    def is_affordable(self, budget: CostBudget) -> bool:  # noqa: ARG002  predicts alone if classes are many
        return True

    def check_forget(self, add: Block | None, forget: Block, stream: Stream) -> None:
        new = stream.rows.between(self.n_seen_at_update, stream.n_seen)
        new = new if add is None else new.joined(add)
        if self.state is None and not len(new):
            raise DataError("there are no rows left to forget; nothing was changed.")
        trial = shallow_copy(self)
        trial.apply(new, None, stream.views)
        trial.apply(None, forget, stream.views)


class MappedLinearExpert(_LongLinearExpert):
    """Proximal SVM on random features of the rank-transformed rows, for all rows in the window."""

    features = "mapped"
    uses_ranks = True
    is_expensive = True
    min_new_rows = 100
    plane_rule = replace(_PLANE_RULE, standardize=False)

    def limits(self, budget: CostBudget) -> str:
        n = n_mapped(budget.n_classes)
        if n == MAX_MAPPED:
            return ""
        return f"{n} random features instead of {MAX_MAPPED}: {budget.n_classes} classes"

    def make_rule(self, stream: Stream) -> LinearRule | None:
        return self._over_map(super().make_rule(stream), stream)

    @staticmethod
    def _over_map(planes: LinearRule | None, stream: Stream) -> LinearRule | None:
        """Return a rule that applies hyperplanes to random features."""
        assert stream.views.map is not None
        return None if planes is None else MappedLinearRule.over(stream.views.map, planes)

    def set_state(self, state: Mapping[str, Any], stream: Stream) -> None:
        super().set_state(state, stream)
        if isinstance(self.rule, LinearRule):
            self.rule = self._over_map(self.rule, stream)


class RecentLinearExpert(_LinearExpert, IncrementalWindowExpert):
    """Proximal SVM on the last rows."""

    window_rows: int = 200
    min_new_rows = 10

    def select(self, stream: Stream) -> IntArray:
        n_classes = stream.budget.n_classes
        n = min(
            max(self.window_rows, _RECENT_ROWS_OF_CLASS * n_classes), _MAX_WINDOW_FACTOR * self.window_rows
        )
        return last_rows(stream.rows.numbers, stream.rows.codes, n, window_start=stream.window_start)

    def limits(self, budget: CostBudget) -> str:
        n = min(_RECENT_ROWS_OF_CLASS * budget.n_classes, _MAX_WINDOW_FACTOR * self.window_rows)
        return f"remembers {n} rows: {budget.n_classes} classes" if n > self.window_rows else ""


@dataclass(frozen=True)
class LinearRule(Rule):
    """Linear decision functions: one hyperplane per class, or one for two classes."""

    classes: list[int]
    coef: FloatArray
    intercept: FloatArray

    def scores(self, rows: TransformedRows) -> FloatArray:
        features = rows.linear
        if features.shape[1] > self.coef.shape[1]:  # features were added after the fit
            features = np.ascontiguousarray(features[:, : self.coef.shape[1]])
        return _linear_scores(features, self.coef, self.intercept)

    def attribution(self, rows: TransformedRows, background: TransformedRows) -> Attribution:
        """Return coefficients times the differences from the mean of the background rows."""
        n_features = self.coef.shape[1]  # features that were added after the fit are ignored
        mean = background.linear[:, :n_features].mean(axis=0)
        return rows.by_linear_column(
            explain_linear(rows.linear[:, :n_features], self.coef, self.intercept, mean)
        )

    def add_to(self, scorer: _native.RowExperts, number: int) -> bool:
        scorer.add_plane(number, False, self.coef[0], float(self.intercept[0]))
        return True

    def get_state(self) -> dict[str, Any]:
        """Return classes, coefficients and intercepts."""
        return {"classes": self.classes, "coef": self.coef, "intercept": self.intercept}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LinearRule:
        """Restore the rule from the result of :meth:`get_state`; raise ValueError if it is inconsistent."""
        coef, intercept = (np.array(state[name], np.float64, order="C") for name in ("coef", "intercept"))
        classes = list(state["classes"])
        if not all(isinstance(code, int) for code in classes) or len(set(classes)) < len(classes):
            raise ValueError("the classes of a rule must be different numbers")
        n = n_planes(len(classes))
        if coef.ndim != 2 or len(coef) != n or intercept.shape != (n,):
            raise ValueError("a rule needs one plane per class, or one for two classes")
        return cls(classes, coef, intercept)


@dataclass(frozen=True)
class MappedLinearRule(LinearRule):
    """Linear rule on random features that skips the last linear step of the feature map.

    That step is multiplied into the coefficients, so scores need only the intermediate values of the map.
    """

    intermediate_coef: FloatArray

    @classmethod
    def over(cls, feature_map: RandomFeatures, rule: LinearRule) -> MappedLinearRule:
        """Return a rule on the features of ``feature_map`` with the same scores as ``rule``."""
        return cls(rule.classes, rule.coef, rule.intercept, feature_map.map_.coef_of_intermediates(rule.coef))

    def scores(self, rows: TransformedRows) -> FloatArray:
        return _linear_scores(rows.map_intermediates, self.intermediate_coef, self.intercept)

    def attribution(self, rows: TransformedRows, background: TransformedRows) -> Attribution:
        """Return Shapley values of the rank-transformed features."""
        return rows.explain_mapped(self.intermediate_coef, self.intercept, background)

    def add_to(self, scorer: _native.RowExperts, number: int) -> bool:
        scorer.add_plane(number, True, self.intermediate_coef[0], float(self.intercept[0]))
        return True


def _linear_scores(rows: FloatArray, coef: FloatArray, intercept: FloatArray) -> FloatArray:
    scores = np.empty((len(rows), len(intercept)))
    _native.linear_scores(rows, coef, intercept, scores, 1)
    return scores
