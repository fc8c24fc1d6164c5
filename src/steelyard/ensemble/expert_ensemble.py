"""Experts of StreamClassifier, the rows that they share, and the five steps of learning a block of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steelyard import _native
from steelyard._concurrency import FrozenState, shallow_copy
from steelyard._labels import Label, positive_class, sorted_classes
from steelyard._threads import one_thread, run_tasks
from steelyard._types import FloatArray, IntArray
from steelyard._validation import check_ascending, checked_times
from steelyard.ensemble.change_monitor import ChangeMonitor, DriftDetector
from steelyard.ensemble.decision import DecisionState
from steelyard.ensemble.experts import EXPERTS, Expert, Stream
from steelyard.ensemble.experts.base import CostBudget
from steelyard.ensemble.layout import Layout
from steelyard.ensemble.mixing import (
    EnsembleSnapshot,
    ExpertWeights,
    OnlineCalibration,
    PredictedScores,
    weigh,
)
from steelyard.ensemble.multiclass import MulticlassWeights
from steelyard.ensemble.row_buffer import Block, PendingRows, RowBuffer, last_rows, union_of_rows
from steelyard.ensemble.scores import LabelRun, ScoreBuffer, WeightCorrection, align, n_planes
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.views import RowInput, Views
from steelyard.exceptions import DataError
from steelyard.windowing.sliding import window_size

_MIN_SHARE = 1e-6  # smallest class share in the prior log-odds


class EnsembleParams(NamedTuple):
    """Parameters of StreamClassifier, which a user may change between two calls."""

    threshold: Any
    window: str | int | timedelta
    compute_budget: str | float
    random_state: int
    positive: Label | None

    def window_size(self) -> int | timedelta | None:
        """Return the window as a number of rows or a duration, or None for all rows."""
        return None if self.window == "auto" else window_size(self.window)


class _WeighResult(NamedTuple):
    """New weights of the experts, and the state that changes together with them."""

    weights: ExpertWeights | MulticlassWeights | None
    decision: DecisionState
    correction: WeightCorrection
    weighed_at: int


class ExpertEnsemble:
    """Learned state of a StreamClassifier for coded rows.

    A call that learns works on a shallow copy. Attributes are replaced, never changed in place, so the
    original stays valid when the call fails, and other threads may predict with the original meanwhile.
    """

    def __init__(self, n_columns: int, params: EnsembleParams, row_input: RowInput) -> None:
        self.params, self.input = params, row_input
        self.labels: list[Label] = []  # label of each class code, in the order of first occurrence
        self.code_of: dict[Label, int] = {}
        self.counts: IntArray = np.zeros(0, dtype=np.int64)  # rows of each class in the window
        # The window holds the rows with window_start <= number < n_seen.
        self.n_seen = self.window_start = 0
        # Number of rows at the last update of the expert weights, and at the last fit of the views.
        self.weighed_at = self.views_at = 0
        # Recent rows and all rows that experts remember, and rows that were scored but not yet learned.
        self.rows = RowBuffer.empty(min(n_columns, SETTINGS.max_columns))
        self.pending = PendingRows()
        self.views = Views()  # no transformation is fitted yet
        self.experts: list[Expert] = [config.make(config) for config in EXPERTS]
        # Out-of-sample scores of labelled rows, and of rows that wait for their labels.
        self.recent_scores = ScoreBuffer(len(EXPERTS))
        self.predicted = PredictedScores()
        self.correction = WeightCorrection.none(len(EXPERTS))
        self.drift = DriftDetector()  # a drift shortens the score buffer
        self.label_run = LabelRun()
        self.decision = DecisionState().with_goal(params.threshold)
        self.calibration = OnlineCalibration()  # calibration of the combined log-odds of two classes
        self.changes = ChangeMonitor()  # changes of columns and classes, shown in reports
        self.snapshot = EnsembleSnapshot([], np.zeros(0), [None] * len(EXPERTS), None, self.views)
        self._known_budget: CostBudget | None = None
        self._selected_for: CostBudget | None = None  # the budget for which experts were enabled and disabled

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "experts": [FrozenState(expert) for expert in self.copied_experts()]}

    def copied_experts(self) -> list[Expert]:
        """Return copies of the experts, which can be updated without changing the originals."""
        return [expert.copy(self.rows, self.views) for expert in self.experts]

    # -- class labels and codes ---------------------------------------------------------------------

    def codes_of(self, labels: list[Label], *, learn: bool) -> IntArray:
        """Return the class codes of labels. With ``learn``, new labels get new codes."""
        new = [label for label in labels if label not in self.code_of]
        if new and not learn:
            raise DataError(f"no rows of class {new[0]!r} were ever learned; nothing was changed.")
        if new:
            self.labels = [*self.labels, *new]
            self.code_of = {label: code for code, label in enumerate(self.labels)}
        return np.array([self.code_of[label] for label in labels], dtype=np.int64)

    def class_codes(self) -> list[int]:
        """Return the codes of the classes that have rows, in the order of their labels."""
        codes: list[int] = np.flatnonzero(self.counts).tolist()
        return codes if len(codes) < 2 else sorted(codes, key=self.labels.__getitem__)

    def labels_of(self, codes: list[int]) -> list[Label]:
        """Return the labels of class codes."""
        return [self.labels[code] for code in codes]

    def shares(self) -> FloatArray:
        """Return the class shares among recent rows, or among all rows if there are too many classes.

        One row that is divided among the classes is added, so that the share of a class that has hardly
        occurred is not estimated as almost 0.
        """
        if self.recent_scores.classes == self.snapshot.classes:
            return self.recent_scores.shares(extra_rows=1.0)
        counts = self.counts[self.snapshot.classes].astype(np.float64)
        return counts / max(counts.sum(), 1.0)

    def _prior_log_odds(self) -> float:
        """Return the log-odds of the second of two classes, from the class shares among recent rows."""
        first, second = np.maximum(self.shares(), _MIN_SHARE)
        return float(np.log(second / first))

    def log_odds(self, decisions: FloatArray) -> FloatArray:
        """Return calibrated log-probabilities up to a constant, for equally frequent classes."""
        weights = self.snapshot.weights
        if not isinstance(weights, ExpertWeights):
            return self.snapshot.log_odds(decisions)
        prior = self._prior_log_odds()
        second = self.calibration.log_odds(weights.totals_of(decisions[:, 0]) + prior) - prior
        return np.stack([np.zeros_like(second), second], axis=1)

    def find_positive(self) -> Label | None:
        """Return the positive class, or None if it is unknown or there are not exactly two classes."""
        counts = {self.labels[code]: int(self.counts[code]) for code in self.class_codes()}
        return positive_class(counts, self.params.positive, self.decision.positive)

    def _count(self, block: Block, sign: int) -> None:
        counts = sign * np.bincount(block.codes, minlength=len(self.labels))
        counts[: len(self.counts)] += self.counts
        self.counts = counts

    # -- new rows -----------------------------------------------------------------------------------

    def extend_layout(self, X: FloatArray) -> None:
        """Extend the layout by new columns, missing values and categories of rows that will be learned."""
        layout, categorical = self.views.layout, self.input.categorical
        if layout is None:
            if not categorical and X.shape[1] == self.rows.n_columns and _native.all_finite(X):
                return
            first = self.rows.block.X if self.n_seen or self.pending.n_rows else X
            layout = Layout.of_rows(first, categorical if first is X else ())
        if X.shape[1] > self.rows.n_columns:
            self.rows = self.rows.widened(X.shape[1])
            self.pending = self.pending.widened(X.shape[1])
        layout = layout.extended(X, self.rows.block.X, categorical)
        if layout is not self.views.layout:
            self.views = self.views.with_layout(layout)
            self.snapshot = replace(self.snapshot, views=self.views)

    def times_for_window(self, time: ArrayLike | None, n_rows: int) -> FloatArray | None:
        """Return the times of new rows. Raises DataError for invalid times if the window is a duration."""
        if not isinstance(self.params.window_size(), timedelta):
            times = np.zeros(0) if time is None else np.asarray(time, dtype=np.float64)
            # If the window is not a duration, only the change monitor uses the times.
            return times if times.shape == (n_rows,) and np.isfinite(times).all() else None
        if time is None:
            raise DataError(
                "a window of time needs the times of the rows; got none.",
                hint='pass time= to partial_fit(), or time="COLUMN" to TableModel or open_stream(), or give '
                "the window as a number of rows",
            )
        times = checked_times(time, n_rows)
        check_ascending(times, self.rows.block.times[-1:])
        return times

    # -- learning -----------------------------------------------------------------------------------

    def change(self, added: Block | None, forgotten: Block | None) -> None:
        """Learn some rows and forget others. A few new rows may stay buffered until more rows arrive."""
        is_small = added is not None and forgotten is None and len(added) < SETTINGS.pending_rows
        if added is not None and is_small and self._add_pending(added):
            if self.pending.n_rows < SETTINGS.pending_rows:
                return
            added = None
        self.recent_scores, self.experts = shallow_copy(self.recent_scores), self.copied_experts()
        if self.pending.n_rows:
            pending, self.pending = self.pending.together(), PendingRows()
            self._learn_block(*pending, may_defer=added is None and forgotten is None)
        if forgotten is not None:
            self._check_forget(added, forgotten)
        begin = 0
        while added is not None and begin < len(added):
            size = min(SETTINGS.max_block_rows, max(SETTINGS.first_block_rows, self.n_seen))
            part = added.take(slice(begin, begin + size))
            is_only_block = len(part) == len(added) and forgotten is None
            self._learn_block(part, self._score(part), may_defer=is_only_block)
            begin += size
        if forgotten is not None:
            self._forget_block(forgotten)

    def _add_pending(self, block: Block) -> bool:
        """Buffer a block that is too small to be learned alone; return whether it was buffered.

        Only the label frequency experts use buffered rows immediately.
        """
        n = len(block)
        if not (
            self.pending.n_rows + n <= min(SETTINGS.pending_rows, self.n_seen // 20)
            and len(self.snapshot.classes) > 1
            and self.params.window == "auto"
            and self.counts.size == len(self.labels)
            and self.counts[block.codes].all()
        ):
            return False
        scores = self._score(block)
        assert scores is not None
        self.pending = self.pending.added(block, scores)
        self.snapshot = self.snapshot.after_labels(block.codes.tolist())
        return True

    def _learn_block(self, block: Block, scores: FloatArray | None, *, may_defer: bool) -> None:
        """Learn rows that :meth:`_score` has scored: the steps record, update, weigh and publish.

        With ``may_defer``, a long fit that begins now may end after a later block.
        """
        stream, due = self._record(block, scores, may_defer=may_defer)
        weighed = self._update_and_weigh(stream, due, block, scores)
        self._publish(stream, weighed)

    def _score(self, block: Block) -> FloatArray | None:
        """Return the scores of all experts before the rows are learned, or None while there is one class.

        Rows that were predicted before keep the scores of that prediction.
        """
        snapshot = self.snapshot
        if len(snapshot.classes) < 2:
            return None
        scores = np.empty((len(block), len(snapshot.rules), n_planes(len(snapshot.classes))))
        is_new = self.predicted.take(block.keys, snapshot.classes, scores)
        if is_new.all():
            return snapshot.raw_scores(block.X, block.wide)
        if is_new.any():
            new = block.take(is_new)
            scores[is_new] = snapshot.raw_scores(new.X, new.wide)
        return scores

    def _record(
        self, block: Block, scores: FloatArray | None, *, may_defer: bool
    ) -> tuple[Stream, set[Expert]]:
        """Add rows to the row buffer, compare decisions with labels, and adjust window and views.

        Returns the stream and the experts that are due to learn.
        """
        n_before, known_classes = self.n_seen, self.snapshot.classes
        self.n_seen += len(block)
        if scores is not None:
            self._record_decisions(block, scores)
        block = replace(block, numbers=np.arange(n_before, self.n_seen))
        self._count(block, 1)
        self.rows = self.rows.append(block)
        if self.params.window != "auto":
            self._move_window()
        classes, budget = self.class_codes(), self._budget()
        if budget is not self._selected_for:
            self._select_experts(budget)
        if any(self.views_at < n <= self.n_seen for n in SETTINGS.view_rows):
            self._fit_views(budget)
        stream = self.stream(budget, n_before, new_class=classes != known_classes, may_defer=may_defer)
        enabled = [expert for expert in self.experts if expert.is_enabled]
        due = {expert for expert in enabled if expert.observe(block, stream) or stream.new_class}
        return stream, due

    def _record_decisions(self, block: Block, scores: FloatArray) -> None:
        """Compare the decisions for labelled rows with the labels: calibration, target rate, drift."""
        snapshot, codes = self.snapshot, block.codes
        if len(snapshot.classes) == 2:
            totals, threshold = snapshot.totals(scores), snapshot.threshold
            promise, (first, second) = self.decision.online_threshold, snapshot.classes
            if promise is not None:
                is_positive = codes == (first if promise.sign < 0.0 else second)
                promise.learn(totals, threshold, block.keys, is_positive)
            if isinstance(snapshot.weights, ExpertWeights):
                self.calibration = self.calibration.after(totals + self._prior_log_odds(), codes == second)
            predicted = np.where(totals > (0.0 if np.isnan(threshold) else threshold), second, first)
        else:
            predicted = snapshot.predict_codes(scores)
        self.drift = self.drift.after(codes, predicted == codes, len(self.labels), self.n_seen)

    def _move_window(self) -> None:
        """Move the start of the window, and subtract the leaving rows from the class counts."""
        size, start = self.params.window_size(), 0
        if isinstance(size, int):
            start = self.n_seen - size
        elif size is not None:
            rows = self.rows.block
            begin = int(np.searchsorted(rows.times, rows.times[-1] - size.total_seconds(), side="right"))
            start = int(rows.numbers[begin])
        if start > self.window_start:
            self._count(self.rows.between(self.window_start, start), -1)
            self.window_start = start

    def _record_scores(self, block: Block, scores: FloatArray | None, classes: list[int]) -> None:
        """Add scores to the score buffer, and for two classes to the rows that correct the weights."""
        recent, snapshot = self.recent_scores, self.snapshot
        if classes != recent.classes:
            recent.set_classes(classes)
        if not classes:
            return
        if scores is not None:
            is_same = classes == snapshot.classes
            scores = scores if is_same else align(scores, snapshot.classes, classes)
            # The label frequency experts, whose scores in long runs without a new label are not recorded.
            of_labels = np.array([not expert.uses_features for expert in self.experts])
            self.label_run, in_long_run = self.label_run.after(scores[:, of_labels])
            if in_long_run.any():
                scores = np.where(in_long_run[:, None, None] & of_labels[:, None], np.nan, scores)
            if len(classes) != 2 or not is_same:
                self.correction = WeightCorrection.none(len(EXPERTS))
            elif isinstance(snapshot.weights, ExpertWeights):
                log_odds = snapshot.weights.expert_log_odds(scores[:, :, 0])
                places = (block.codes == classes[1]).astype(np.int64)
                self.correction = self.correction.after(log_odds, places, block.keys)
        place_of = np.full(len(self.labels), -1)
        place_of[classes] = np.arange(len(classes))
        recent.push(place_of[block.codes], scores, block.keys, block.weights)
        # A short score buffer helps after a rare drift, but not in a stream that changes constantly.
        drifts = self.drift.drifts
        is_rare = len(drifts) < 2 or drifts[-1] - drifts[-2] >= SETTINGS.min_rows_between_drifts
        if is_rare and self.drift.is_within(SETTINGS.short_after_drift_rows, self.n_seen):
            recent.shorten()

    def _update_and_weigh(
        self, stream: Stream, due: set[Expert], block: Block, scores: FloatArray | None
    ) -> _WeighResult:
        """Update the experts that are due and derive their rules; record scores and weigh in parallel.

        Expensive experts are updated in parallel. The weights depend on the recent scores and on which
        experts have a rule, but not on the new rules. If an expert gets its first rule or loses its rule, the
        experts are weighed again.
        """
        has_rule = self._has_rule()
        ready = [expert for expert in self.experts if expert.is_ready(stream.views)]

        def update(experts: list[Expert]) -> None:
            for expert in experts:
                if expert in due:
                    expert.update(stream)
                if expert.needs_rule(stream):
                    expert.refresh_rule(stream)

        expensive = [expert for expert in ready if expert in due and expert.is_expensive]
        # Experts that are updated in place are sorted first, because the calling thread runs the first task.
        # No other thread may change these experts after the call has ended.
        # The longest of the other tasks come next, so that no thread waits for a long task that starts late.
        # The longest tasks are refits with a long memory. Updates that may wait for a fit come last.
        expensive.sort(key=lambda e: (not e.updates_in_place, not e.refits, -(e.window_rows or np.inf)))
        cheap = [expert for expert in ready if expert not in expensive]

        def record_and_weigh() -> _WeighResult:
            self._record_scores(block, scores, self.class_codes() if stream.budget.weighs_experts else [])
            return self._weigh(stream, has_rule)

        X, names = self.input.monitored(block.X, has_gaps=self.views.layout is not None)
        find_changes = partial(self.changes.after, X, block.codes, self.labels, names, block.times)
        tasks: list[Callable[[], Any]] = [
            *(partial(update, [expert]) for expert in expensive if expert.next_fit is None),
            record_and_weigh,
            partial(one_thread()(update), cheap),
            find_changes,
            *(partial(update, [expert]) for expert in expensive if expert.next_fit is not None),
        ]
        is_parallel = bool(expensive) and len(block) >= SETTINGS.min_rows_for_threads
        result_of = dict(zip(tasks, run_tasks(tasks, parallel=is_parallel), strict=True))
        self.changes, weighed = result_of[find_changes], result_of[record_and_weigh]
        return weighed if self._has_rule() == has_rule else self._weigh(stream, self._has_rule())

    def _has_rule(self) -> list[bool]:
        """Return for each expert whether it can predict."""
        return [expert.rule is not None for expert in self.experts]

    def _weigh(self, stream: Stream, has_rule: list[bool]) -> _WeighResult:
        """Return new weights if enough rows have arrived since the last update, else the current weights."""
        budget, classes = stream.budget, self.class_codes()
        waited = self.n_seen - self.weighed_at
        wait = float(SETTINGS.weigh_min_rows)
        if not self.drift.is_within(SETTINGS.short_after_drift_rows, self.n_seen):
            wait = max(wait, budget.batch_rows, budget.weigh_rows)
        # Early in the stream, and after a change of the classes, fewer rows are enough.
        wait = min(wait, 1 + self.n_seen * budget.n_planes // 20) / (10.0 if stream.new_class else 1.0)
        if waited >= wait or (stream.new_class and len(classes) <= 3):
            return self._new_weights(has_rule)
        snapshot = self.snapshot
        weights = snapshot.weights if classes == snapshot.classes else snapshot.weights_for(classes)
        return _WeighResult(weights, self.decision, self.correction, self.weighed_at)

    def _new_weights(self, has_rule: list[bool]) -> _WeighResult:
        """Return weights computed from the recent scores. Experts without a rule get weight 0."""
        delay_rows = min(self.predicted.delay_rows, SETTINGS.max_delay_rows)
        priors = np.array(
            [self._prior(expert, has, delay_rows) for expert, has in zip(self.experts, has_rule, strict=True)]
        )
        labels = self.labels_of(self.recent_scores.classes)
        decision = replace(self.decision, positive=self.find_positive())
        decision = decision.with_goal(self.params.threshold, decision.is_mirrored(labels))
        weights = weigh(
            self.recent_scores,
            decision.goal_for(self.params.threshold, labels),
            priors,
            is_long=self.n_seen >= SETTINGS.long_stream_rows,
            is_mirrored=decision.is_mirrored(labels),
            correction=self.correction,
        )
        correction = weights.correction if isinstance(weights, ExpertWeights) else None
        return _WeighResult(weights, decision, correction or self.correction, self.n_seen)

    def _prior(self, expert: Expert, has_rule: bool, delay_rows: int) -> float:
        """Return the prior weight of an expert, or 0 if it cannot predict."""
        is_outdated = self.label_run.is_long and not expert.uses_features
        if not has_rule or is_outdated:
            return 0.0
        # An expert whose memory is short compared with the delay of the labels is outdated.
        return expert.config.prior / (1.0 + delay_rows / (expert.window_rows or np.inf))

    def _publish(self, stream: Stream, weighed: _WeighResult) -> None:
        """Make the new rules and weights visible to predictions."""
        weights, self.decision, self.correction, self.weighed_at = weighed
        promise = self.decision.online_threshold
        if promise is not None and isinstance(weights, ExpertWeights):
            threshold = promise.decision_threshold(weights.scores)
            if not np.isnan(threshold):  # otherwise the goal is new, and no threshold was chosen for it yet
                weights = replace(weights, threshold=threshold, is_promised=True)
        self.snapshot = self.new_snapshot(weights)
        max_rows = (1.0 + SETTINGS.slack) * (SETTINGS.buffer_rows + 2 * SETTINGS.buffer_rows_of_classes)
        if self.params.window != "auto" or len(self.rows) > max_rows:
            self._drop_rows(stream.budget, max_rows)

    def _drop_rows(self, budget: CostBudget, max_rows: float) -> None:
        """Drop rows that no expert needs. With the window "auto", up to ``max_rows`` of them are kept."""
        rows, held = self.rows, [numbers for expert in self.experts for numbers in expert.held_rows()]
        if self.params.window == "auto":
            if len(rows) <= max_rows + (1.0 + SETTINGS.slack) * sum(map(len, held)):
                return
            per_class = SETTINGS.buffer_rows_of_classes // max(budget.n_classes, 2)
            numbers = last_rows(rows.numbers, rows.codes, SETTINGS.buffer_rows, per_class)
            slack = SETTINGS.slack
        else:
            first = [row for expert in self.experts if (row := expert.first_row()) is not None]
            start = min([self.window_start, *first])
            numbers, slack = rows.numbers[rows.numbers.searchsorted(start) :], 0.0
            held = [older[: older.searchsorted(start)] for older in held]  # newer rows are in the window
        self.rows = rows.keep(union_of_rows([*held, numbers]), slack)

    def new_snapshot(self, weights: ExpertWeights | MulticlassWeights | None) -> EnsembleSnapshot:
        """Return a snapshot of the current classes, rules and views with the given weights."""
        classes, rules = self.class_codes(), [expert.rule for expert in self.experts]
        is_same = classes == self.snapshot.classes
        labels = self.snapshot.labels if is_same else sorted_classes(self.labels_of(classes))
        return EnsembleSnapshot(classes, labels, rules, weights, self.views)

    def _budget(self) -> CostBudget:
        is_long = self.n_seen >= SETTINGS.long_stream_rows and not self.drift.is_within(
            SETTINGS.long_after_drift_rows, self.n_seen
        )
        arguments = self.params.compute_budget, int(np.count_nonzero(self.counts)), is_long
        if self._known_budget is None or self._known_budget.arguments != arguments:
            self._known_budget = CostBudget(*arguments)
        return self._known_budget

    def _select_experts(self, budget: CostBudget) -> None:
        """Disable experts that a new budget does not cover, and enable those again that it does cover.

        An expert of wide rows is disabled if the rows are not wide.
        """
        self._selected_for = budget
        for expert in self.experts:
            is_affordable = expert.is_affordable(budget)
            is_affordable &= self.input.keeps_wide or not expert.uses_wide_rows
            if expert.is_enabled and not is_affordable:
                expert.disable()
            elif is_affordable and not expert.is_enabled and expert.can_be_reenabled:
                expert.is_enabled = True

    def _fit_views(self, budget: CostBudget) -> None:
        """Fit the rank transformation and the random map after 100 rows, and again after 1,000."""
        block = self.rows.block
        self.views = self.views.fit(block.X, block.codes, budget.n_classes, self.params.random_state)
        self.views_at = self.n_seen
        # Experts that use ranks restart. The row buffer still contains all rows that they have learned.
        self.experts = [expert.restart() if expert.uses_ranks else expert for expert in self.experts]

    def stream(self, budget: CostBudget | None = None, n_before: int | None = None, **flags: bool) -> Stream:
        """Return the stream as experts see it; by default between two calls, after all rows were learned."""
        budget, n_before = budget or self._budget(), self.n_seen if n_before is None else n_before
        flags["completes_batch"] = self.n_seen // budget.batch_rows != n_before // budget.batch_rows
        seed = self.params.random_state
        return Stream(self.rows, self.window_start, self.n_seen, self.views, budget, seed, **flags)

    # -- forgetting ---------------------------------------------------------------------------------

    def _check_forget(self, add: Block | None, forget: Block) -> None:
        """Raise DataError for rows that were never learned, before any expert changes."""
        has_all_rows = len(self.rows) == int(self.counts.sum())
        if self.params.window == "auto" and not has_all_rows:
            for expert in self.experts:
                expert.check_forget(add, forget, self.stream())
            return
        rows = self.rows
        if add is not None:
            rows = rows.append(replace(add, numbers=np.arange(self.n_seen, self.n_seen + len(add))))
        indices = rows.find(forget)
        is_unknown = indices < 0
        is_unknown[~is_unknown] = rows.numbers[indices[~is_unknown]] < self.window_start
        if is_unknown.any():
            left = "" if self.params.window == "auto" else ", it has left the window"
            raise DataError(
                f"row {int(is_unknown.argmax())} is not remembered: it was never learned with this label and "
                f"weight{left}, or it was forgotten before; nothing was changed."
            )

    def _forget_block(self, block: Block) -> None:
        stream = self.stream()
        for expert in self.experts:  # an expert can forget a row only after learning it
            if expert.is_ready(stream.views) and not expert.refits:
                expert.update(stream)
        indices = self.rows.find(block)
        found = indices >= 0
        numbers = np.full(len(block), -1)
        numbers[found] = self.rows.numbers[indices[found]]
        self.rows = self.rows.without(indices[found])
        block = replace(block, numbers=numbers)
        self._count(block, -1)
        budget = self._budget()
        if budget is not self._selected_for:
            self._select_experts(budget)
        stream = self.stream(budget)
        for expert in self.experts:
            if expert.is_enabled:
                expert.forget(block, stream)
        self._forget_scores(block)
        for expert in self.experts:
            if expert.is_ready(stream.views):
                expert.refresh_rule(stream)
        self.changes = self.changes.forgotten()
        classes = self.class_codes() if budget.weighs_experts else []
        if classes != self.recent_scores.classes:
            self.recent_scores.set_classes(classes)
        self._publish(stream, self._new_weights(self._has_rule()))

    def _forget_scores(self, block: Block) -> None:
        """Remove the scores and decisions of forgotten rows."""
        for code in np.unique(block.codes).tolist():
            keys = block.keys[block.codes == code]
            self.recent_scores.drop(code, keys)
            if code in self.snapshot.classes[:2]:
                self.correction = self.correction.without(self.snapshot.classes.index(code), keys)
        if self.decision.online_threshold is not None:
            self.decision.online_threshold.log.drop(block.keys)
