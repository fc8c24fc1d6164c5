"""Base classes of experts: an expert consists of an update policy, a state and a decision rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from steelyard import _native
from steelyard._concurrency import shallow_copy
from steelyard._types import FloatArray, IntArray
from steelyard._validation import Batch
from steelyard.ensemble.row_buffer import Block, RowBuffer, without_rows
from steelyard.ensemble.settings import CostBudget
from steelyard.ensemble.views import TransformedRows, Views
from steelyard.exceptions import DataError
from steelyard.explanation.attribution import Attribution

__all__ = [
    "Expert",
    "ExpertConfig",
    "IncrementalExpert",
    "IncrementalWindowExpert",
    "Rule",
    "Stream",
    "WindowExpert",
]


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
    n_before: int  # number of rows seen before the last block
    views: Views
    budget: CostBudget
    seed: int = 0  # seed of all sampling
    new_class: bool = False  # whether the set of classes has just changed
    may_defer: bool = False  # whether a long fit may end after the call that starts it


class Rule:
    """Decision function of an expert; immutable, so any thread may use it while the expert learns.

    A subclass is a frozen dataclass that has the field ``classes`` and defines :meth:`scores` and
    :meth:`attribution`.
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

        Returns False if the rule has no native form. Then :meth:`scores` is called instead.
        """
        return False


class Expert:
    """One model of the ensemble with its own memory and update policy.

    Methods that change an expert run on a copy (:meth:`copy`). Attributes are replaced, never changed in
    place, so the original stays valid when a call fails.
    """

    uses_features: ClassVar[bool] = True  # False if all rows of a block have the same score
    uses_ranks: ClassVar[bool] = False  # whether the expert needs the fitted rank transformation
    uses_wide_rows: ClassVar[bool] = False  # whether the expert learns the columns before hashing
    is_expensive: ClassVar[bool] = False  # whether updates may run in a thread of their own
    updates_in_place: ClassVar[bool] = False  # whether updates change the state of the original expert too
    refits: ClassVar[bool] = False  # whether an update fits a new model, so that no rows are subtracted
    can_be_reenabled: ClassVar[bool] = False  # whether a disabled expert may be enabled again
    min_new_rows: ClassVar[int] = 1  # number of new rows for an update, or 5 % of the stream if that is less
    window_rows: int | None = None  # number of last rows that the expert represents, or None for all rows
    learns_in_batches: ClassVar[bool] = False  # whether updates wait for a full batch in long streams

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

    @property
    def may_wait(self) -> bool:
        """Whether the next update may wait for another thread."""
        return False

    def copy(self, rows: RowBuffer, views: Views) -> Self:  # noqa: ARG002  for KernelExpert
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

    def observe(self, block: Block, stream: Stream) -> None:
        """Record new rows. This method is called before any expert is updated."""

    def is_due(self, stream: Stream) -> bool:
        """Return whether enough rows have arrived since the last update."""
        if self.learns_in_batches and not stream.budget.passes_batch(stream.n_before, stream.n_seen):
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
        """Return the learned state as arrays, plain values and estimators."""
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
    """Expert that remembers a list of rows, all of which are in the row buffer."""

    can_be_reenabled = True

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__(config)
        self.held: IntArray = np.zeros(0, dtype=np.int64)  # ascending row numbers

    @property
    def n_rows(self) -> int:
        return len(self.held)

    def disable(self) -> None:
        super().disable()
        self.held = self.held[:0]

    def select(self, stream: Stream) -> IntArray:
        """Return the numbers of the rows to remember now, in ascending order."""
        raise NotImplementedError

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
        self.held = np.asarray(state["held"], dtype=np.int64)
        is_ascending = self.held.ndim == 1 and (np.diff(self.held) > 0).all()
        if not is_ascending or not stream.rows.has(self.held):
            raise ValueError("an expert remembers rows that are not in the buffer or not in order")


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

    def __init__(self, config: ExpertConfig) -> None:
        super().__init__(config)
        self.n_refits = 0

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
            self.n_refits += 1

    def fit(self, rows: RowBuffer, views: Views) -> None:
        """Replace the state by a new one that has learned the rows of ``self.held``."""
        self.state = None
        self.apply(rows.at(self.held), None, views)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "rebuilt": self.n_refits}

    def set_state(self, state: Mapping[str, Any], stream: Stream) -> None:
        super().set_state(state, stream)
        self.n_refits = int(state["rebuilt"])


def _differences(now: IntArray, before: IntArray) -> tuple[IntArray, IntArray]:
    """Return the numbers that are only in ``now``, and those only in ``before``. All arrays are ascending."""
    if len(now) and len(before) and now[0] >= before[0]:
        # In the usual case, the oldest rows left the window and all new rows are newer than the others.
        begin, end = int(before.searchsorted(now[0])), int(now.searchsorted(before[-1], side="right"))
        if np.array_equal(now[:end], before[begin:]):
            return now[end:], before[:begin]
    came = np.setdiff1d(now, before, assume_unique=True)
    return came, np.setdiff1d(before, now, assume_unique=True)
