"""Kernel expert: an incremental SVM with Laplacian kernel on recent rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from steelyard import _native
from steelyard._concurrency import FrozenState, shallow_copy
from steelyard._types import FloatArray, IntArray
from steelyard._validation import Batch
from steelyard.ensemble.experts.base import Expert, ExpertConfig, IncrementalWindowExpert, Rule, Stream
from steelyard.ensemble.row_buffer import Block, RowBuffer, last_rows, without_rows
from steelyard.ensemble.settings import CostBudget
from steelyard.ensemble.views import TransformedRows, Views
from steelyard.explanation.attribution import Attribution, explain_kernel_sum
from steelyard.kernels import Kernel
from steelyard.kernels.expansion import KernelExpansion
from steelyard.svm import IncrementalSVC
from steelyard.svm.state import SupportState

__all__ = ["KernelExpert", "KernelRule"]

_OTHER_EXPERTS_US = 60.0  # cost per row of all other experts
_ROW_COST_US = (60.0, 25.0)  # cost of learning a row: minimum, and cost per binary problem
_MIN_SAMPLED_SHARE = 0.1  # smallest share of the rows that is learned; below it the expert is disabled
# Number of sampled rows per block with compute_budget="auto", or a quarter of the block if that is more.
_MAX_BLOCK_SAMPLE = 250
_CLASS_WEIGHT, _TOLERANCE = "balanced", 1e-3
_CACHE_BYTES = 200 << 20  # kernel values that the solver keeps
_ROWS_OF_CLASSES = 600  # number of rows kept in addition to the window, divided among the classes


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
    rows_of_class = 200
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

    def observe(self, block: Block, stream: Stream) -> None:
        share, n = self.sampled_share(stream.budget), len(block)
        if stream.budget.is_auto:
            share *= min(1.0, max(_MAX_BLOCK_SAMPLE, n // 4) / n)
        first = int(block.numbers[0])
        n_sampled = int((first + n) * share) - int(first * share)
        self.sampled = np.concatenate([self.sampled, block.numbers[evenly_sampled(block.codes, n_sampled)]])
        limit = 2 * (self.window_rows + _ROWS_OF_CLASSES)
        if len(self.sampled) > 2 * limit:
            codes = stream.rows.codes_at(self.sampled)
            n_classes = max(stream.budget.n_classes, 2)
            self.sampled = last_rows(self.sampled, codes, limit // 2, limit // 2 // n_classes, 0)

    def select(self, stream: Stream) -> IntArray:
        per_class = min(self.rows_of_class, _ROWS_OF_CLASSES // max(stream.budget.n_classes, 2))
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
        self.sampled = np.asarray(state["sampled"], dtype=np.int64)
        if not stream.rows.has(self.sampled):
            raise ValueError("an expert samples rows that are not in the buffer")


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
