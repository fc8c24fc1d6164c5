"""Base classes of experts: an expert consists of an update policy, a state and a decision rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from steelyard import _native
from steelyard._concurrency import shallow_copy
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.row_buffer import Block, RowBuffer, last_rows, without_rows
from steelyard.ensemble.scores import n_planes
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.views import TransformedRows, Views
from steelyard.explanation.attribution import Attribution

__all__ = ["CostBudget", "Expert", "ExpertConfig", "Rule", "Stream", "WindowExpert"]


class CostBudget:
    """Compute budget in microseconds per row, and how often it allows expensive steps.

    Costs are estimated from the numbers of rows, columns and classes for a typical computer. They are never
    measured, so the same rows give the same model everywhere.
    In a long stream, the budget "auto" is smaller.
    """

    def __init__(self, compute_budget: Any, n_classes: int, is_long: bool = False) -> None:
        self.arguments = compute_budget, n_classes, is_long
        self.n_classes, self.is_long = n_classes, is_long
        self.n_planes = n_planes(n_classes)
        self.is_auto = compute_budget == "auto"
        # Budget per row at the beginning of the stream, and now.
        self.first_microseconds = SETTINGS.budget_us if self.is_auto else float(compute_budget)
        is_reduced = is_long and self.is_auto
        self.microseconds = SETTINGS.long_budget_us if is_reduced else self.first_microseconds
        # Expensive experts learn when the number of rows passes a multiple of this number, all at the same
        # time, so that they can run in parallel.
        self.batch_rows = SETTINGS.long_batch_rows if is_reduced else 1
        # Whether there are few enough classes to compute expert weights from recent scores.
        self.weighs_experts = n_classes <= SETTINGS.max_weighed_classes
        fixed, each = SETTINGS.weigh_cost_us
        # Number of rows after which the expert weights are updated.
        self.weigh_rows = self.interval_rows(fixed + each * self.n_planes, SETTINGS.weigh_share)

    def interval_rows(self, cost_us: float, share: float) -> float:
        """Return the minimum number of rows between two runs of a step with a given share of the budget."""
        return cost_us / (share * self.microseconds)

    def __str__(self) -> str:
        long = " (the stream is long)" if self.is_long and self.is_auto else ""
        return f"{self.microseconds:.0f} microseconds per row{long}"


@dataclass(frozen=True)
class ExpertConfig:
    """Name, description and prior weight of an expert, and a function that creates it."""

    name: str  # shown by StreamClassifier.explain(), as the description
    description: str
    prior: float  # factor of the weight of the expert
    make: Callable[[ExpertConfig], Expert]


@dataclass(frozen=True)
class Stream:
    """State of the stream that experts read: rows, transformations and budget.

    The window holds the rows with ``window_start <= number < n_seen``.
    """

    rows: RowBuffer  # recent rows and all rows that any expert remembers
    window_start: int
    n_seen: int
    views: Views
    budget: CostBudget
    seed: int = 0  # seed of all sampling
    completes_batch: bool = True  # whether the last block completed a batch for expensive experts
    new_class: bool = False  # whether the set of classes has just changed
    may_defer: bool = False  # whether a long fit may end after the call that starts it


class Rule:
    """Decision function of an expert; immutable, so any thread may use it while the expert learns.

    A subclass is a frozen dataclass that has the field ``classes`` and defines :meth:`scores` and
    :meth:`attribution`. ``X`` of the rows may contain NaN, their ranks never do.
    """

    classes: list[int]  # codes of the classes that the rule knows, ascending
    uses_wide_rows: ClassVar[bool] = False  # whether the rule scores the columns before hashing

    def scores(self, rows: TransformedRows) -> FloatArray:
        """Return scores: for two classes one column, high for the second class; else one column per class.

        Scores may have any scale. Scores of two classes are calibrated before they are combined. With more
        classes all columns are divided by one number.
        """
        raise NotImplementedError

    def attribution(self, rows: TransformedRows, background: TransformedRows) -> Attribution:
        """Return the contributions of the columns to the scores, relative to the background rows."""
        raise NotImplementedError

    def after_labels(self, codes: list[int]) -> Rule:  # noqa: ARG002  only LabelFrequencyRule changes
        """Return the rule updated with labels that the expert has not learned yet."""
        return self

    def constant(self, classes: list[int]) -> float | None:  # noqa: ARG002  LabelFrequencyRule uses it
        """Return the score of all rows for two classes, NaN if it is unknown, or None if rows differ."""
        return None

    def add_to(self, scorer: _native.RowExperts, number: int) -> bool:  # noqa: ARG002
        """Add the rule for two classes, as expert ``number``, to a native scorer.

        Returns False if the rule has no native form. Then every prediction calls :meth:`scores`, which takes
        longer, above all for single rows.
        """
        return False


class Expert:
    """One model of the ensemble with its own memory and update policy.

    Methods that change an expert run on a copy (:meth:`copy`). Attributes are replaced, never changed in
    place, so the original stays valid when a call fails.
    """

    uses_features: ClassVar[bool] = True  # False if all rows of a block have the same score
    # Whether the expert needs the fitted rank transformation. It starts again when this is fitted again.
    uses_ranks: ClassVar[bool] = False
    uses_wide_rows: ClassVar[bool] = False  # whether the expert learns the columns before hashing
    is_expensive: ClassVar[bool] = False  # whether updates may run in a thread of their own
    updates_in_place: ClassVar[bool] = False  # whether updates change the state of the original expert too
    refits: ClassVar[bool] = False  # whether an update fits a new model, so that no rows are subtracted
    can_be_reenabled: ClassVar[bool] = False  # whether a disabled expert may be enabled again
    min_new_rows: ClassVar[int] = 1  # number of new rows for an update, or 5 % of the stream if that is less
    # Number of last rows that the expert represents, or None for all rows. It does not select rows: if labels
    # are late, the prior of an expert with few rows is smaller; expensive updates with many rows start first.
    window_rows: int | None = None
    learns_in_batches: ClassVar[bool] = False  # whether updates wait for a full batch in long streams
    next_fit: Any = None  # fit that runs in another thread; the next update may wait for it

    def __init__(self, config: ExpertConfig) -> None:
        self.config = config
        self.state: Any = None  # what an incremental expert has learned
        self.rule: Rule | None = None
        self.is_enabled = True
        self.n_seen_at_update = 0  # number of rows seen at the last update
        self.n_seen_at_rule = 0  # number of rows seen when the rule was derived

    @property
    def n_rows(self) -> int:
        """Number of rows that the expert remembers."""
        raise NotImplementedError

    def copy(self, rows: RowBuffer, views: Views) -> Self:  # noqa: ARG002  KernelExpert uses them
        """Return a copy of the expert that can be updated without changing the original."""
        return shallow_copy(self)

    def is_affordable(self, budget: CostBudget) -> bool:
        """Return whether the budget covers the expert with the current number of classes."""
        return budget.weighs_experts

    def limits(self, budget: CostBudget) -> str | None:  # noqa: ARG002
        """Return a text on how the budget restricts the expert, or an empty text.

        None means that the stream does not contain the kind of rows that the expert learns.
        """
        return ""

    def is_ready(self, views: Views) -> bool:
        """Return whether the expert is enabled and the transformation that it needs is fitted."""
        return self.is_enabled and (not self.uses_ranks or views.ranks is not None)

    def disable(self) -> None:
        """Disable the expert and drop its learned state."""
        self.is_enabled, self.state, self.rule = False, None, None

    def restart(self) -> Expert:
        """Return a new expert of the same kind that has learned nothing."""
        expert = self.config.make(self.config)
        expert.is_enabled = self.is_enabled
        return expert

    def observe(self, block: Block, stream: Stream) -> bool:  # noqa: ARG002
        """Record new rows, before any expert is updated. Returns whether an update is due."""
        if self.learns_in_batches and not stream.completes_batch:
            return False
        return stream.n_seen - self.n_seen_at_update >= min(self.min_new_rows, 1 + stream.n_seen // 20)

    def update(self, stream: Stream) -> None:
        """Learn all rows up to now, and forget the rows that have left the window."""
        raise NotImplementedError

    def check_forget(self, add: Block | None, forget: Block, stream: Stream) -> None:
        """Raise DataError for rows that were never learned and are not in ``add``, if the expert can tell."""

    def forget(self, block: Block, stream: Stream) -> None:
        """Forget rows that were removed from the row buffer. All earlier rows must have been learned."""
        raise NotImplementedError

    def needs_rule(self, stream: Stream) -> bool:  # noqa: ARG002
        """Return whether the rule must be derived again from the state."""
        return self.n_seen_at_update > self.n_seen_at_rule

    def refresh_rule(self, stream: Stream) -> None:
        """Derive the rule from the state. The rule is None while fewer than two classes are known."""
        self.rule, self.n_seen_at_rule = self.make_rule(stream), self.n_seen_at_update

    def make_rule(self, stream: Stream) -> Rule | None:
        """Return the decision rule of the state."""
        raise NotImplementedError

    def held_rows(self) -> list[IntArray]:
        """Return the numbers of the rows that the row buffer must keep for this expert."""
        return []

    def first_row(self) -> int | None:
        """Return the number of the oldest remembered row if the expert has no list of rows, else None."""
        return None

    def get_state(self) -> dict[str, Any]:
        """Return the learned state as arrays, plain values and estimators.

        Files keep the names of earlier versions: "high" is ``n_seen_at_update``, "left_out" means disabled.
        """
        return {"high": self.n_seen_at_update, "left_out": not self.is_enabled}

    def set_state(self, state: Mapping[str, Any], stream: Stream) -> None:
        """Restore this expert from the result of :meth:`get_state`; raise ValueError if inconsistent.

        If the state contains no rule, the rule is derived afterwards.
        """
        self.n_seen_at_update = int(state["high"])
        self.is_enabled = not state.get("left_out", False)
        if not 0 <= self.n_seen_at_update <= stream.n_seen:
            raise ValueError("an expert remembers rows that have not been seen yet")


class WindowExpert(Expert):
    """Expert that remembers a list of rows, all of which are in the row buffer.

    A subclass that has no state of its own defines only :meth:`make_rule`, which reads the rows
    ``stream.rows.at(self.held)``. It sets the numbers of rows below, and usually ``window_rows``.
    """

    can_be_reenabled = True
    n_last_rows: int = 200  # number of last rows that select() returns
    n_rows_per_class: int = 0  # number of last rows of each class that select() returns in addition
    max_class_rows: int = 0  # maximum number of these additional rows, over all classes

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__(config)
        self.held: IntArray = np.zeros(0, dtype=np.int64)  # ascending row numbers

    @property
    def n_rows(self) -> int:
        return len(self.held)

    def disable(self) -> None:
        super().disable()
        self.held = self.held[:0]

    def is_outdated(self, stream: Stream) -> bool:
        """Return whether a tenth of the remembered rows has left the window."""
        return 10 * int(self.held.searchsorted(stream.window_start)) > len(self.held)

    def select(self, stream: Stream) -> IntArray:
        """Return the numbers of the rows to remember now, in ascending order."""
        per_class = min(self.n_rows_per_class, self.max_class_rows // max(stream.budget.n_classes, 2))
        rows = stream.rows
        return last_rows(rows.numbers, rows.codes, self.n_last_rows, per_class, stream.window_start)

    def learn(self, before: IntArray, forgotten: Block | None, stream: Stream) -> None:
        """Learn the rows of ``self.held``, if the expert has a state of its own.

        So far it has learned the rows numbered ``before`` and the rows ``forgotten``, which are no longer in
        the row buffer.
        """

    def update(self, stream: Stream) -> None:
        before, self.held = self.held, self.select(stream)
        self.n_seen_at_update = stream.n_seen
        self.learn(before, None, stream)

    def forget(self, block: Block, stream: Stream) -> None:
        block = block.take(np.isin(block.numbers, self.held))
        before = without_rows(self.held, block.numbers)
        self.held = self.select(stream)
        self.learn(before, block, stream)

    def held_rows(self) -> list[IntArray]:
        return [self.held]

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "held": self.held}

    def set_state(self, state: Mapping[str, Any], stream: Stream) -> None:
        super().set_state(state, stream)
        self.held = restored_rows(state["held"], stream)


def restored_rows(numbers: Any, stream: Stream) -> IntArray:
    """Return row numbers from a file; raise ValueError if they are not in the buffer or not ascending."""
    held = np.asarray(numbers, dtype=np.int64)
    if held.ndim != 1 or not (np.diff(held) > 0).all() or not stream.rows.has(held):
        raise ValueError("an expert remembers rows that are not in the buffer or not in order")
    return held
