"""What StreamClassifier keeps of the rows, and all that changes it: learning, waiting, forgetting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from steelyard import _native
from steelyard._concurrency import shallow_copy
from steelyard._threads import one_thread
from steelyard._types import FloatArray, IntArray
from steelyard._validation import check_finite
from steelyard.base import Batch, ForgettingMixin, Label
from steelyard.ensemble.evidence import Evidence, align
from steelyard.ensemble.experts import EXPERTS, Expert
from steelyard.ensemble.multiclass import ManyJudgement
from steelyard.ensemble.panel import Judgement, Panel, judge_evidence
from steelyard.ensemble.recent import Block, Recent
from steelyard.ensemble.rules import Rows, Views
from steelyard.ensemble.side_by_side import side_by_side
from steelyard.ensemble.views import FoldedView, RankView, row_keys
from steelyard.ensemble.waiting import Waiting
from steelyard.ensemble.watch import Watch
from steelyard.ensemble.work import Work
from steelyard.exceptions import DataError, SteelyardError
from steelyard.features import RandomFeatures
from steelyard.windowing.sliding import window_size

__all__ = ["LearningCommittee"]

_SETTLING = (100, 1000)  # rows at which views are settled: for the time being, and for good
_KEPT = 5000  # rows that are kept: the longest window, and some that may come back to it
_KEPT_OF_CLASSES = 1000  # rows that are kept besides, of all classes together, as many of each
_SLACK = 0.5  # rows beyond these, as a share of them, before they are cut off
_BLOCK = 1000  # rows that are scored and then learned together, at most
_FIRST_BLOCK = 50
_WIDE = 256  # columns; wider rows are folded into so many
_TOGETHER = 10  # rows that come one by one and are learned together
_MANY = 50  # rows in a block from which experts learn side by side: a thread must pay
_DRIFTING = 1000  # rows for which evidence is kept short after answers became worse
_SELDOM = 3000  # rows between two such moments from which the later one is taken for a drift
_LONG = 20_000  # rows after which a stream is long, and less is done for a row
_LONG_AFTER_DRIFT = 2500  # rows for which that is not so after answers became worse
_REFRESH = 50  # rows after which weights and cut are looked at again
_ALONE = Block.of_ones(1)  # a row that comes alone
_PRIORS = np.array([trade.prior for trade in EXPERTS])


class LearningCommittee(ForgettingMixin):
    """Experts that learn, the rows that they remember, and the evidence of how well they answered.

    What is answered follows from the panel that it publishes, and is no affair of this class.
    """

    threshold: str | dict[str, float]
    memory: str | int | timedelta
    budget: str | float
    random_state: int

    def _start(self, batch: Batch) -> None:
        width = batch.X.shape[1]
        self._fold = self._fold_of(width)
        self._labels: list[Label] = []  # by class number, in the order in which they came
        self._numbers: dict[Label, int] = {}  # the same the other way round
        self._counts: IntArray = np.zeros(0, dtype=np.int64)  # rows of each class in the longest memory
        self._n_seen = 0
        self._low = 0  # number of the oldest row in the longest memory
        self._judged_at = self._settled_at = 0  # rows seen at the last look at the evidence, and at settling
        self._recent = Recent.empty(min(width, _WIDE))
        self._evidence = Evidence(len(EXPERTS))
        self._views = Views()
        self._experts = [Expert(trade, self._views) for trade in EXPERTS]
        self._panel = Panel([], [None] * len(EXPERTS), None, self._views)
        self._waiting = Waiting()
        self._watch = Watch()

    def _fold_of(self, width: int) -> FoldedView | None:
        """How rows of so many columns are made narrower, if they must be."""
        return FoldedView(width, _WIDE, self.random_state) if width > _WIDE else None

    def _learn(self, batch: Batch) -> None:
        self._apply(batch, None, "partial_fit")

    def _apply(self, add: Batch | None, forget: Batch | None, method: str) -> None:
        try:
            added = None if add is None else self._block(add, method)
            if forget is None and added is not None and self._let_wait(added):
                if len(self._waiting) < _TOGETHER:
                    return
                added = None
            self._evidence = self._evidence.copy()
            self._experts = self._sound_experts()
            self._take_waiting()
            retired = None if forget is None else self._block(forget, "forget")
            if retired is not None:
                self._try_out(added, retired)
            if added is not None:
                self._take_in(added)
            if retired is not None:
                self._take_out(retired)
        except SteelyardError as error:
            raise error.with_source(f"{type(self).__name__}.{method}") from None

    def _let_wait(self, block: Block) -> bool:
        """Keep a few rows until there are more; only their labels are followed at once."""
        panel = self._panel
        if not (
            len(self._waiting) + len(block) <= min(_TOGETHER, self._n_seen // 20)
            and len(block) < _TOGETHER
            and len(panel.classes) > 1
            and self.memory == "auto"
            and self._counts.size == len(self._labels)
            and self._counts[block.codes].all()
        ):
            return False
        rows, scores = panel.raw_scores(block.X)
        block = block.seen_as(rows.seen("ranks"))
        self._waiting = self._waiting.joined_by(block, scores)
        self._panel = panel.following(block.codes.tolist())
        return True

    def _take_waiting(self) -> None:
        """Learn the rows that wait."""
        if len(self._waiting):
            block, scores = self._waiting.together()
            self._waiting = Waiting()
            self._take_scored(block, scores)

    def _sound_experts(self) -> list[Expert]:
        """Twins of the experts, each with a learner of the rows that are its own."""
        return [expert.twin(self._recent) for expert in self._experts]

    def _block(self, batch: Batch, method: str) -> Block:
        """The rows of a batch as experts take them; classes never seen before get numbers."""
        numbers = self._numbers
        missing = [label for label in batch.labels if label not in numbers]
        if missing:
            if method == "forget":
                raise DataError(f"no rows of class {missing[0]!r} were ever learned; nothing was changed.")
            self._labels = [*self._labels, *missing]
            numbers = self._numbers = {label: number for number, label in enumerate(self._labels)}
        if len(batch.codes) == 1 and batch.weights is None and self.memory == "auto":
            # A stream of single rows pays for every call.
            code = np.array([numbers[batch.labels[0]]], dtype=np.int64)
            return _ALONE.at(self._dense(batch.X, method), code)
        codes = np.array([numbers[label] for label in batch.labels], dtype=np.int64)[batch.codes]
        weights = np.ones(len(codes)) if batch.weights is None else batch.weights
        times = self._checked_times(len(codes), method)
        X, unnumbered = self._dense(batch.X, method), np.zeros(len(codes), dtype=np.int64)
        no_ranks = np.zeros((len(codes), 0))
        block = Block(X, no_ranks, codes, weights, times, unnumbered, np.ones(len(codes), dtype=bool))
        return block if (weights > 0.0).all() else block.part(weights > 0.0)

    def _dense(self, X: Any, method: str) -> FloatArray:
        """Finite rows as experts take them."""
        if type(X) is not np.ndarray or X.dtype != np.float64 or not _native.all_finite(X):
            X = check_finite(self, X, method)
        if self._fold is not None:
            return self._fold.apply(X)
        if type(X) is np.ndarray and X.dtype == np.float64 and X.flags.c_contiguous:
            return X
        return np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)

    def _checked_times(self, n_rows: int, method: str) -> FloatArray:
        given = self.__dict__.get("_times")
        if method in {"forget", "fit"} or not isinstance(self._span(), timedelta):
            return np.zeros(n_rows)
        if given is None:
            raise DataError(
                "a memory of time needs the times of the rows; got none.",
                hint="pass time= to partial_fit(), or give the memory as a number of rows",
            )
        times = np.asarray(given, dtype=np.float64)
        if times.shape != (n_rows,) or not np.isfinite(times).all():
            raise DataError(f"expected one finite time for each of {n_rows} rows; got {times.shape}.")
        if (np.diff(np.concatenate([self._recent.block.times[-1:], times])) < 0).any():
            raise DataError("the times of the rows must not go back; nothing was changed.")
        return times

    def _span(self) -> int | timedelta | None:
        """How far back anything is remembered; None: all rows."""
        return None if self.memory == "auto" else window_size(self.memory)

    def _take_in(self, block: Block) -> None:
        begin = 0
        while begin < len(block):
            size = min(_BLOCK, max(_FIRST_BLOCK, self._n_seen))
            self._take_block(block.part(slice(begin, begin + size)))
            begin += size

    def _take_block(self, block: Block) -> None:
        panel = self._panel
        rows, scores = Rows(block.X, self._views), None
        if len(panel.classes) > 1:
            rows, scores = panel.raw_scores(block.X)
        self._take_scored(block.seen_as(rows.seen("ranks")), scores)

    def _take_scored(self, block: Block, scores: FloatArray | None) -> None:
        panel, first = self._panel, self._n_seen
        self._n_seen += len(block)
        if scores is not None:
            hit = panel.answers(scores) == block.codes
            self._watch = self._watch.after(block.codes, hit, len(self._labels), self._n_seen)
        block = block.numbered(first)
        self._count(block, 1)
        recent = self._recent.added(block.thinned(self._work().n_offered(first, len(block))))
        low = self._lowest(recent)
        if low > self._low:
            self._count(recent.between(self._low, low), -1)
        self._recent, self._low = recent, low
        work, classes = self._work(), self._class_numbers()
        self._staff(work)
        self._settle(work)
        self._evidence.know(classes if work.judges else [])
        self._gather(block, scores)
        judged = [panel.judged_for(classes)]

        def look() -> None:
            judged[0] = judge_evidence(self._evidence, self.threshold, _PRIORS)

        looks = self._looks_at_evidence(work, classes)
        self._let_learn(work, len(block), [look] if looks else [], new_class=classes != panel.classes)
        self._trim(work)
        self._publish(classes, judged[0])

    def _let_learn(
        self, work: Work, n_rows: int, besides: list[Callable[[], None]], *, new_class: bool
    ) -> None:
        """Let every expert learn that has waited long enough, and then answer with what it has learned.

        ``besides`` is what else is to be done, which changes nothing that experts look at.
        """

        def learn(expert: Expert) -> None:
            if expert in due:
                self._follow(expert, work)
            if expert.is_ready and self._is_due(expert, work, new_class=new_class):
                expert.answer_anew(self._recent)

        due = [
            expert
            for expert in self._experts
            if new_class or expert.is_due(self._low, self._n_seen - n_rows, self._n_seen, work)
        ]
        heavy = [expert for expert in due if expert.trade.is_heavy]
        # The kernel machine is changed in place, so it comes first; then trees, which take longest.
        heavy.sort(key=lambda expert: (not expert.trade.dear, not expert.trade.regrown))

        def learn_lightly() -> None:
            with one_thread():
                for expert in self._experts:
                    if expert not in heavy:
                        learn(expert)

        tasks: list[Callable[[], None]] = [
            *(partial(learn, expert) for expert in heavy),
            *besides,
            learn_lightly,
        ]
        side_by_side(tasks, worth_it=bool(heavy) and n_rows >= _MANY)

    def _work(self) -> Work:
        """How work is measured out now."""
        n_classes, known = int(np.count_nonzero(self._counts)), self.__dict__.get("_measured_out")
        is_long = self._n_seen >= _LONG and not self._is_after_drift(_LONG_AFTER_DRIFT)
        if known is None or not known.is_for(self.budget, n_classes, is_long):
            known = self._measured_out = Work(self.budget, n_classes, is_long)
        return known

    def _staff(self, work: Work) -> None:
        """Leave out experts that are too dear for so many classes, or let them come back."""
        if work is self.__dict__.get("_staffed_for"):
            return
        self._staffed_for = work
        for expert in self._experts:
            wanted = work.wants(expert.trade.name)
            if not wanted and not expert.is_left_out:
                expert.leave()
            elif wanted and expert.is_left_out and expert.trade.window is not None:
                expert.is_left_out = False

    def _trim(self, work: Work) -> None:
        """Let go of rows that nobody will ask for again."""
        if self._span() is None:
            if len(self._recent) <= (1.0 + _SLACK) * (_KEPT + 2 * _KEPT_OF_CLASSES):
                return  # to look costs more than a row; dear experts hold some rows besides
            of_class = _KEPT_OF_CLASSES // max(work.n_classes, 2)
            numbers, slack = self._recent.last(_KEPT, of_class, 0), _SLACK
        else:
            low = min([self._low, *(e.low for e in self._experts if e.is_ready and e.trade.window is None)])
            numbers, slack = self._recent.last(len(self._recent), 0, low), 0.0
        held = [expert.held for expert in self._experts]
        self._recent = self._recent.trimmed(np.unique(np.concatenate([numbers, *held])), slack)

    def _lowest(self, recent: Recent) -> int:
        """Number of the oldest row that the longest memory holds."""
        span = self._span()
        if span is None:
            return 0
        if isinstance(span, int):
            return max(self._low, self._n_seen - span)
        held = recent.block
        begin = int(np.searchsorted(held.times, held.times[-1] - span.total_seconds(), side="right"))
        return max(self._low, int(held.numbers[begin]))

    def _follow(self, expert: Expert, work: Work, forgotten: Block | None = None) -> None:
        if expert.is_ready:
            expert.follow(self._recent, self._low, self._n_seen, work, forgotten)

    def _count(self, block: Block, sign: int) -> None:
        counts = sign * np.bincount(block.codes, minlength=len(self._labels))
        counts[: len(self._counts)] += self._counts
        self._counts = counts

    def _class_numbers(self) -> list[int]:
        """Numbers of the classes that have rows, in the order of their labels."""
        numbers: list[int] = np.flatnonzero(self._counts).tolist()
        return numbers if len(numbers) < 2 else sorted(numbers, key=self._labels.__getitem__)

    def _settle(self, work: Work) -> None:
        """Settle the views when there are enough rows for the first time, and again when there are many."""
        if not any(self._settled_at < n <= self._n_seen for n in _SETTLING):
            return
        X = self._recent.block.X
        scale = RankView.settled(X)
        ranks = scale.apply(X)
        settled = RandomFeatures(work.n_mapped, random_state=self.random_state).fit(ranks)
        self._views, self._settled_at = Views(scale, settled), self._n_seen
        self._recent = self._recent.seen_as(ranks)
        # All rows that any of them had learned are still here, and are learned anew through the new views.
        self._experts = [
            expert if expert.trade.view in {"rows", "labels"} else expert.anew(self._views)
            for expert in self._experts
        ]

    def _gather(self, block: Block, scores: FloatArray | None) -> None:
        """Keep what the rows were scored, now that their labels are known."""
        classes = self._evidence.classes
        if not classes:
            return
        if scores is not None:
            scores = align(scores, self._panel.classes, classes)
        places = np.full(len(self._labels), -1)
        places[classes] = np.arange(len(classes))
        self._evidence.push(places[block.codes], scores, row_keys(block.X))
        # Where answers become worse all the time, short evidence would be no better.
        drifts = self._watch.drifts
        if self._is_after_drift(_DRIFTING) and (len(drifts) < 2 or drifts[-1] - drifts[-2] >= _SELDOM):
            self._evidence.shorten()

    def _is_after_drift(self, n_rows: int) -> bool:
        """Whether answers became worse within so many rows."""
        drifts = self._watch.drifts
        return bool(drifts) and self._n_seen - drifts[-1] < n_rows

    def _looks_at_evidence(self, work: Work, classes: list[int]) -> bool:
        """Whether weights and cut are to be looked at again; if so, that is noted."""
        new_class = classes != self._panel.classes
        waited, often = self._n_seen - self._judged_at, 10.0 if new_class else 1.0
        seldom = min(max(_REFRESH, work.rhythm, work.judges_every), 1 + self._n_seen * work.n_planes // 20)
        looks = (new_class and len(classes) <= 3) or waited >= seldom / often
        if looks:
            self._judged_at = self._n_seen
        return looks

    def _publish(self, classes: list[int], judged: Judgement | ManyJudgement | None) -> None:
        """Make what was learned answer from now on."""
        self._panel = Panel(classes, [expert.rule for expert in self._experts], judged, self._views)

    def _is_due(self, expert: Expert, work: Work, *, new_class: bool) -> bool:
        """Whether an expert should answer with what it has learned since it last did."""
        if expert.rule is None or not expert.n_columns:
            return expert.high > expert.answers_upto
        wait = min(work.solves_every(expert.n_columns), 1 + expert.answers_upto * work.n_planes // 20)
        return expert.high - expert.answers_upto >= max(1.0, wait / 10.0 if new_class else wait)

    # -- forgetting ---------------------------------------------------------------------------------

    def _take_out(self, block: Block) -> None:
        work = self._work()
        for expert in self._experts:  # then all that learn row by row have learned what is to be forgotten
            if not expert.trade.regrown:
                self._follow(expert, work)
        places = self._recent.find(block.X, block.codes, block.weights)
        found = places >= 0
        numbers = np.full(len(block), -1)
        numbers[found] = self._recent.block.numbers[places[found]]
        self._recent = self._recent.without(places[found])
        block = replace(block, numbers=numbers, ranks=Rows(block.X, self._views).seen("ranks"))
        for expert in self._experts:
            self._follow(expert, work, block)
        self._count(block, -1)
        for code in np.unique(block.codes).tolist():
            self._evidence.drop(code, row_keys(block.X[block.codes == code]))
        work, classes = self._work(), self._class_numbers()
        self._staff(work)
        for expert in self._experts:
            if expert.is_ready:
                expert.answer_anew(self._recent)
        self._evidence.know(classes if work.judges else [])
        self._judged_at = self._n_seen
        self._publish(classes, judge_evidence(self._evidence, self.threshold, _PRIORS))

    def _try_out(self, add: Block | None, forget: Block) -> None:
        """Refuse rows that were never learned before a kernel machine changes: one expert knows."""
        linear = self._experts[0]
        if linear.learner is None and add is None:
            raise DataError("there are no rows left to forget; nothing was changed.")
        if add is not None:
            add = add.seen_as(Rows(add.X, self._views).seen("ranks"))
        waiting = self._recent.between(linear.high, self._n_seen)
        new = waiting if add is None else waiting.joined(add)
        if self._span() is None and linear.learner is not None:
            added = (new.X, new.codes, new.weights) if len(new) else None
            shallow_copy(linear.learner).update(add=added, forget=(forget.X, forget.codes, forget.weights))
        elif self._span() is not None:
            held = self._recent if add is None else self._recent.added(add.numbered(self._n_seen))
            places = held.find(forget.X, forget.codes, forget.weights)
            if (places < 0).any() or (held.block.numbers[places] < self._low).any():
                raise DataError("some of the rows to be forgotten are not remembered; nothing was changed.")
