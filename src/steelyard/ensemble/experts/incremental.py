"""Experts that learn and forget batches of rows exactly: proximal SVMs and a kernel SVM."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from steelyard import _native
from steelyard._concurrency import FrozenState, shallow_copy
from steelyard._types import FloatArray, IntArray
from steelyard._validation import Batch
from steelyard.ensemble.experts.base import (
    CostBudget,
    Expert,
    ExpertConfig,
    Rule,
    Stream,
    WindowExpert,
    restored_rows,
)
from steelyard.ensemble.row_buffer import Block, RowBuffer, last_rows, without_rows
from steelyard.ensemble.scores import n_planes
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.views import MAX_MAPPED, TransformedRows, Views, n_mapped
from steelyard.exceptions import DataError
from steelyard.explanation.attribution import Attribution, explain_kernel_sum, explain_linear
from steelyard.features import RandomFeatures
from steelyard.kernels import Kernel
from steelyard.kernels.expansion import KernelExpansion
from steelyard.proximal import ClassStatistics, ProximalSVC
from steelyard.proximal.planes import PlaneRule
from steelyard.svm import IncrementalSVC
from steelyard.svm.state import SupportState

__all__ = [
    "KernelExpert",
    "KernelRule",
    "LinearExpert",
    "LinearRule",
    "MappedLinearExpert",
    "MappedLinearRule",
    "RecentLinearExpert",
]

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
_OTHER_EXPERTS_US = 60.0  # cost per row of all other experts
_ROW_COST_US = (60.0, 25.0)  # cost of learning a row: minimum, and cost per binary problem
_MIN_SAMPLED_SHARE = 0.1  # smallest share of the rows that is learned; below it the expert is disabled
# Number of sampled rows per block with compute_budget="auto", or a quarter of the block if that is more.
_MAX_BLOCK_SAMPLE = 250
_CLASS_WEIGHT, _TOLERANCE = "balanced", 1e-3
_CACHE_BYTES = 200 << 20  # kernel values that the solver keeps


class IncrementalExpert(Expert):
    """Expert whose state learns and forgets batches of rows. The state is None before the first rows."""

    features: str  # attribute of TransformedRows that is learned

    def changed_state(self, n_features: int, add: Batch | None, forget: Batch | None) -> Any:
        """Return the state after learning and forgetting rows, or a new state if there is none.

        ``n_features`` may exceed the earlier number of features; new features are 0 in earlier rows.
        """
        raise NotImplementedError

    def apply(self, add: Block | None, forget: Block | None, views: Views) -> None:
        """Learn and forget rows."""
        batches: list[Batch | None] = [None, None]
        n_features = 0
        for place, block in enumerate((add, forget) if self.state is not None else (add,)):
            if block is not None and len(block):
                batch = block.batch(getattr(TransformedRows(block.X, views), self.features))
                batches[place], n_features = batch, max(n_features, batch.X.shape[1])
        if n_features:
            self.state = self.changed_state(n_features, *batches)


class IncrementalWindowExpert(IncrementalExpert, WindowExpert):
    """Expert whose state follows a list of rows by learning new rows and forgetting old ones."""

    def learn(self, before: IntArray, forgotten: Block | None, stream: Stream) -> None:
        new, old = _differences(self.held, before)
        leaving = stream.rows.at(old)
        if forgotten is not None:
            leaving = leaving.joined(forgotten)
        if self.state is None or not len(self.held):
            self.fit(stream.rows, stream.views)
            return
        try:
            self.apply(stream.rows.at(new), leaving, stream.views)
        except DataError:
            if not len(leaving):
                raise
            # All leaving rows were learned, so the error is caused by accumulated rounding errors.
            self.fit(stream.rows, stream.views)

    def fit(self, rows: RowBuffer, views: Views) -> None:
        """Replace the state by a new one that has learned the rows of ``self.held``."""
        self.state = None
        self.apply(rows.at(self.held), None, views)


def _differences(now: IntArray, before: IntArray) -> tuple[IntArray, IntArray]:
    """Return the numbers that are only in ``now``, and those only in ``before``. All arrays are ascending."""
    if len(now) and len(before) and now[0] >= before[0]:
        # In the usual case, the oldest rows left the window and all new rows are newer than the others.
        begin, end = int(before.searchsorted(now[0])), int(now.searchsorted(before[-1], side="right"))
        if np.array_equal(now[:end], before[begin:]):
            return now[end:], before[:begin]
    came = np.setdiff1d(now, before, assume_unique=True)
    return came, np.setdiff1d(before, now, assume_unique=True)


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
        solve_us = 60.0 + self.state.n_features**3 / 20_000.0  # estimated cost of one hyperplane
        cost = budget.n_planes * solve_us
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


class KernelExpert(IncrementalWindowExpert):
    """Incremental SVM on the rank-transformed last rows, including the last rows of each class.

    No expert costs more. If the budget does not cover all rows, the expert learns a sample: all rows of
    rare classes and evenly spaced rows of frequent classes. The state is updated in place; its version
    shows whether another call has changed it.
    """

    features = "ranks"
    uses_ranks = True
    is_expensive = True
    updates_in_place = True
    window_rows: int = 1000
    n_rows_per_class, max_class_rows = 200, 600
    min_new_rows = 100
    learns_in_batches = True

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__(config)
        self.state: SupportState | None
        self.sampled: IntArray = np.zeros(0, dtype=np.int64)  # ascending numbers of rows that may be learned
        self._version: int | None = None  # version of the state when it had learned exactly the rows `held`

    @staticmethod
    def sampled_share(budget: CostBudget) -> float:
        """Return the share of the rows that the budget covers, or 0 if the expert must be disabled."""
        fixed, each = _ROW_COST_US
        row_cost = max(fixed, each * budget.n_planes)
        if (budget.first_microseconds - _OTHER_EXPERTS_US) / row_cost < _MIN_SAMPLED_SHARE:
            return 0.0
        if budget.is_long and budget.is_auto:  # a long stream has a smaller sample
            return _MIN_SAMPLED_SHARE
        return min(max((budget.microseconds - _OTHER_EXPERTS_US) / row_cost, _MIN_SAMPLED_SHARE), 1.0)

    def is_affordable(self, budget: CostBudget) -> bool:
        return budget.weighs_experts and self.sampled_share(budget) > 0.0

    def limits(self, budget: CostBudget) -> str:
        share, planes = self.sampled_share(budget), f"{budget.n_planes} plane{'s' * (budget.n_planes > 1)}"
        if not self.is_affordable(budget):
            return f"disabled: {planes} would cost more than {budget}"
        if share < 1.0:
            return f"learns {100 * share:.0f} % of the rows: {planes}, {budget}"
        if not budget.is_auto:
            return ""
        return f"learns {_MAX_BLOCK_SAMPLE} rows of each larger chunk, or a quarter of it if that is more"

    def learner(self) -> IncrementalSVC | None:
        """Return an IncrementalSVC with the state of the expert, for files; None if there is no state."""
        if self.state is None:
            return None
        kernel = self.state.kernel
        learner = IncrementalSVC(
            kernel=kernel.kernel, gamma=kernel.gamma, class_weight=_CLASS_WEIGHT, tol=_TOLERANCE
        )
        learner._state, learner.n_features_in_ = self.state, self.state.n_features
        return learner

    def copy(self, rows: RowBuffer, views: Views) -> Self:
        expert = shallow_copy(self)
        if expert.state is not None and expert._version != expert.state.version:
            # An interrupted call has changed the state in place, so it is fitted again to the rows.
            expert.fit(rows, views)
        return expert

    def disable(self) -> None:
        super().disable()
        self.sampled = self.sampled[:0]

    def restart(self) -> Expert:
        expert = super().restart()
        assert isinstance(expert, KernelExpert)
        expert.sampled = self.sampled
        return expert

    def observe(self, block: Block, stream: Stream) -> bool:
        share, n = self.sampled_share(stream.budget), len(block)
        if stream.budget.is_auto:
            share *= min(1.0, max(_MAX_BLOCK_SAMPLE, n // 4) / n)
        first = int(block.numbers[0])
        n_sampled = int((first + n) * share) - int(first * share)
        self.sampled = np.concatenate([self.sampled, block.numbers[evenly_sampled(block.codes, n_sampled)]])
        limit = 2 * (self.window_rows + self.max_class_rows)
        if len(self.sampled) > 2 * limit:
            codes = stream.rows.codes_at(self.sampled)
            n_classes = max(stream.budget.n_classes, 2)
            self.sampled = last_rows(self.sampled, codes, limit // 2, limit // 2 // n_classes, 0)
        return super().observe(block, stream)

    def select(self, stream: Stream) -> IntArray:
        per_class = min(self.n_rows_per_class, self.max_class_rows // max(stream.budget.n_classes, 2))
        codes = stream.rows.codes_at(self.sampled)
        return last_rows(self.sampled, codes, self.window_rows, per_class, stream.window_start)

    def forget(self, block: Block, stream: Stream) -> None:
        self.sampled = without_rows(self.sampled, block.numbers)
        if self.is_ready(stream.views):
            super().forget(block, stream)

    def changed_state(self, n_features: int, add: Batch | None, forget: Batch | None) -> SupportState:
        state = self.state
        if state is None:
            state = SupportState(Kernel("laplacian", gamma=1.0 / n_features), n_features, _CACHE_BYTES)
        state.update(
            add, forget, C=1.0, class_weight=_CLASS_WEIGHT, tol=_TOLERANCE, source="StreamClassifier"
        )
        self._version = state.version
        return state

    def make_rule(self, stream: Stream) -> Rule | None:  # noqa: ARG002
        if self.state is None:
            return None
        predictor = self.state.predictor(nullcontext(), "zero")
        classes = predictor.classes.tolist()
        return KernelRule(classes, predictor.expansion) if len(classes) > 1 else None

    def held_rows(self) -> list[IntArray]:
        return [self.sampled]

    def __getstate__(self) -> dict[str, Any]:
        state = None if self.state is None else FrozenState(self.state)
        return {**self.__dict__, "state": state, "_version": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._version = None if self.state is None else self.state.version

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "learner": self.learner(), "sampled": self.sampled}

    def set_state(self, state: Mapping[str, Any], stream: Stream) -> None:
        super().set_state(state, stream)
        learner: IncrementalSVC | None = state["learner"]
        if learner is not None:
            self.state, self._version = learner._state, learner._state.version
        self.sampled = restored_rows(state["sampled"], stream)


@dataclass(frozen=True)
class KernelRule(Rule):
    """Kernel expansion on the rank-transformed features."""

    classes: list[int]
    expansion: KernelExpansion

    def scores(self, rows: TransformedRows) -> FloatArray:
        return self.expansion.scores(rows.ranks)

    def attribution(self, rows: TransformedRows, background: TransformedRows) -> Attribution:
        """Return Shapley values of the rank-transformed features."""
        e = self.expansion
        part = explain_kernel_sum(
            rows.ranks, e.kernel, e.vectors, e.coef, e.intercept, background=background.ranks
        )
        return rows.by_ranked_column(part)

    def add_to(self, scorer: _native.RowExperts, number: int) -> bool:
        plane = self.expansion.native_plane()
        if plane is None:
            return False
        scorer.add_machine(number, *plane)
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled copies do not contain the packed vectors of the expansion.
        e = self.expansion
        return KernelRule, (self.classes, KernelExpansion(e.kernel, e.vectors, e.coef, e.intercept))


def evenly_sampled(codes: IntArray, n_sampled: int) -> Any:
    """Return indices of about ``n_sampled`` rows: all rows of rare classes, evenly spaced rows of others."""
    if len(codes) <= n_sampled:
        return slice(None)
    counts = np.bincount(codes)
    present = np.flatnonzero(counts).tolist()
    each = n_sampled // len(present)
    # Number of rows that rare classes leave for frequent classes.
    spare = max(0, n_sampled - int(np.minimum(counts, each).sum()))
    chosen = []
    for code in present if n_sampled else ():
        rows = np.flatnonzero(codes == code)
        n = min(len(rows), each)
        n += min(len(rows) - n, spare)
        chosen.append(rows[np.arange(n) * len(rows) // max(n, 1)])
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)
