"""StreamClassifier: one line, nothing to choose."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from steelyard import _native
from steelyard._labels import none_left, restored_labels
from steelyard._turns import Told, lock_of, twin_of
from steelyard._types import FloatArray, IntArray
from steelyard.base import (
    Batch,
    ForgettingMixin,
    Label,
    Traits,
    all_or_nothing,
    of_one_moment,
    sorted_classes,
)
from steelyard.committee.chances import chances
from steelyard.committee.cuts import ThresholdChoice
from steelyard.committee.evidence import Evidence, align
from steelyard.committee.experts import EXPERTS, Expert
from steelyard.committee.explain import Explanation, explain_panel
from steelyard.committee.many import ManyJudgement
from steelyard.committee.panel import Judgement, Panel, judge_evidence
from steelyard.committee.recent import Block, Recent
from steelyard.committee.rules import LabelRule, Rows, Views
from steelyard.committee.views import FoldedView, RankView, row_keys
from steelyard.committee.waiting import Waiting
from steelyard.committee.watch import Watch
from steelyard.committee.work import Work
from steelyard.exceptions import DataError, SteelyardError
from steelyard.features import RandomFeatures
from steelyard.memory.windows import window_size
from steelyard.params import AnyOf, Constraint, Integer, OneOf, Positive, prior_factors
from steelyard.persistence import storable
from steelyard.proximal import ProximalSVC

__all__ = ["StreamClassifier"]

_SETTLING = (100, 1000)  # rows at which views are settled: for the time being, and for good
_KEPT = 5000  # rows that are kept: the longest window, and some that may come back to it
_KEPT_OF_CLASSES = 1000  # rows that are kept besides, of all classes together, as many of each
_SLACK = 0.5  # rows beyond these, as a share of them, before they are cut off
_BLOCK = 1000  # rows that are scored and then learned together, at most
_FIRST_BLOCK = 50
_WIDE = 256  # columns; wider rows are folded into so many
_TOGETHER = 5  # rows that come one by one and are learned together
_REFRESH = 50  # rows after which weights and cut are looked at again
_ALONE = Block.of_ones(1)  # a row that comes alone
_PRIORS = np.array([trade.prior for trade in EXPERTS])


class _MemoryChoice:
    """What ``memory=`` accepts."""

    description = '"auto", a whole number of rows, a timedelta, or text such as "30d" (units s, m, h, d, w)'

    def accepts(self, value: object) -> bool:
        if isinstance(value, str) and value == "auto":
            return True
        try:
            window_size(value)  # type: ignore[arg-type]  # whatever it is, it says whether it can be read
        except SteelyardError:
            return False
        return True


@storable("StreamClassifier")
class StreamClassifier(ForgettingMixin):
    r"""A classifier for streams that needs no choices: a committee of exact experts.

    Its experts differ in what they remember (all rows, the last 5,000 or 1,000 and some of every class, the
    last 200, labels alone) and in how they see a row (as it is, by planes or by boosted trees; by ranks
    through a kernel or a random map). Whoever has
    predicted recent rows well is heard, and scores are cut where recent rows say that both classes are found
    best.

    Parameters
    ----------
    threshold : "gmean" or dict, default="gmean"
        What the cut aims at: the largest geometric mean of the hit rates; least cost for prices such as
        ``{"miss": 20, "alarm": 1}``; or as many hits as possible with a budget of alarms such as
        ``{"alarms": 0.01}`` (share of all rows). An alarm is an answer for the second class of
        ``classes_``, a miss a row of that class without one; with more than two classes prices and budgets
        cut every class against the rest, and "gmean" means the largest mean of the classes' hit rates.
    memory : "auto", int, timedelta or str, default="auto"
        How far back anything is remembered: "auto" lets each expert remember what is its own, the longest
        all rows; a number of rows; or a length of time such as "30d", for which ``partial_fit`` needs
        ``time``.
    budget : "auto" or float, default="auto"
        Microseconds that a row may cost, roughly, by what the work takes on a common machine, never by the
        clock, so that the same rows give the same answers anywhere; "auto" is 120. Planes are solved and
        evidence is looked at when enough rows have come to pay for it. The kernel machine is the dear
        expert: of two classes, below 120 it is offered a part of the rows of each block, evenly spaced ones
        of frequent classes first, and below 60 none; of more classes sooner. "auto" offers it a quarter of
        blocks larger than 250 rows. All experts score all rows, and :meth:`explain` tells what is spared.
    random_state : int, default=0
        The seed of the random map.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes that have rows now.
    class_count_ : ndarray of shape (n_classes,)
        Rows of each class in the longest memory.
    linear_ : ProximalSVC
        A copy of the expert with planes over all rows that are remembered, which tells what features do. Its
        labels are the numbers of the labels here, in the order in which they came.
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when all names are strings.

    See Also
    --------
    steelyard.MovingCut : The cut alone, around any classifier.

    Notes
    -----
    Evidence comes from rows as they are learned: :meth:`partial_fit` first lets the experts score the rows
    as they stand, and only then learn them. So the size of the chunks is how late labels come, and the same
    rows in other chunks give other weights. Chunks of more than 1,000 rows are taken in blocks of 1,000,
    and the first rows of all in blocks that begin with 50.

    Of every class the last scores of each expert are kept, about 1,000 rows of all classes together and at
    least 100 of each. A score is ranked among them, both sides of a plane counted alike, and mapped by the
    inverse normal; experts are weighted by :math:`\exp(30\,\mathrm{AUC})` over the same rows, times a
    prior (6 for the kernel machine, 3 for trees, 0.3 for labels, 1 for others); and the cut
    is the best for what the committee, as it is now, makes of them. Until there are five such rows of
    both sides, the planes over all rows answer alone. More than two classes are compared: an expert's
    scores are divided by their spread, its weight is :math:`\exp(20\,r)` with :math:`r` the mean over
    classes of its hit rates, and of every class at least 20 rows are looked at.

    :meth:`forget` takes rows out of every expert that remembers them, exactly, and drops what they were
    scored from the evidence. What other rows were scored stays, as it was answered then; rows that had
    left a window do not come back; and the scale of ranks and the random map, settled by the
    first 1,000 rows, stay.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import StreamClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(3000) < 0.05).astype(int)
    >>> X = rng.normal(size=(3000, 4)) * np.where(y, 0.5, 2.0)[:, None]
    >>> model = StreamClassifier()
    >>> for begin in range(0, 2000, 100):
    ...     _ = model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    >>> hits = model.predict(X[2000:]) == y[2000:]
    >>> bool(min(hits[y[2000:] == 0].mean(), hits[y[2000:] == 1].mean()) > 0.8)
    True
    """

    takes_time = True

    _constraints: ClassVar[dict[str, Constraint]] = {
        "threshold": ThresholdChoice(),
        "memory": _MemoryChoice(),
        "budget": AnyOf(OneOf("auto"), Positive()),
        "random_state": Integer(0),
    }
    _traits = Traits(
        exact=False,
        bounded_memory=True,
        exempt={
            "chunk_borders_do_not_matter": (
                "a chunk is scored before it is learned, and weights and cut rest on these scores; so the "
                "size of the chunks is how late labels come"
            ),
        },
    )
    _accepts_sparse = True
    _finds_nonfinite = True  # in _dense

    def __init__(
        self,
        *,
        threshold: str | dict[str, float] = "gmean",
        memory: str | int | timedelta = "auto",
        budget: str | float = "auto",
        random_state: int = 0,
    ) -> None:
        self.threshold = threshold
        self.memory = memory
        self.budget = budget
        self.random_state = random_state

    # -- learning -----------------------------------------------------------------------------------

    @all_or_nothing
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        time: ArrayLike | None = None,
    ) -> Self:
        """Score these rows, keep how well that went, then learn them.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Their labels; a label never seen before simply becomes a class.
        classes : array-like, optional
            Labels that may occur, as in scikit-learn. It is never needed.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts in what is learned; 1 when not given.
        time : array-like of shape (n_samples,), optional
            When the rows happened, in seconds and in order; needed for a memory of time.

        Returns
        -------
        self
        """
        self._times = time  # of this call alone
        super().partial_fit(X, y, classes, sample_weight)
        del self._times
        return self

    def _start(self, batch: Batch) -> None:
        width = batch.X.shape[1]
        self._fold = FoldedView(width, _WIDE, self.random_state) if width > _WIDE else None
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

    def _learn(self, batch: Batch) -> None:
        self._apply(batch, None, "partial_fit")

    def _apply(self, add: Batch | None, retire: Batch | None, method: str) -> None:
        try:
            added = None if add is None else self._block(add, method)
            if retire is None and added is not None and self._let_wait(added):
                if len(self._waiting) < _TOGETHER:
                    return
                added = None
            self._evidence = self._evidence.copy()
            self._experts = self._sound_experts()
            self._take_waiting()
            retired = None if retire is None else self._block(retire, "forget")
            if retired is not None:
                self._try_out(added, retired)
            if added is not None:
                self._take_in(added)
            if retired is not None:
                self._take_out(retired)
        except SteelyardError as error:
            raise error.told_by(f"{type(self).__name__}.{method}") from None

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
        self._panel = self._following_labels(panel, block.codes.tolist())
        return True

    def _following_labels(self, panel: Panel, codes: list[int]) -> Panel:
        rules = [rule.after(codes) if isinstance(rule, LabelRule) else rule for rule in panel.rules]
        return Panel(panel.classes, rules, panel.judgement, panel.views)

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
            X = self._check_finite(X, method)
        if self._fold is not None:
            return self._fold.apply(X)
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
        new_class = classes != panel.classes
        for expert in self._experts:
            if new_class or expert.is_due(self._low, self._n_seen, work):
                self._follow(expert, work)
        self._trim(work)
        self._evidence.know(classes if work.judges else [])
        self._gather(block, scores)
        self._publish(work, classes)

    def _work(self) -> Work:
        """How work is measured out now."""
        n_classes, known = int(np.count_nonzero(self._counts)), self.__dict__.get("_measured_out")
        if known is None or not known.is_for(self.budget, n_classes):
            known = self._measured_out = Work(self.budget, n_classes)
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
            if len(self._recent) <= (1.0 + _SLACK) * (_KEPT + _KEPT_OF_CLASSES):
                return  # a stream of single rows pays for every look
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

    def _publish(self, work: Work, classes: list[int], *, force: bool = False) -> None:
        """Make what was learned answer from now on."""
        new_class = classes != self._panel.classes
        for expert in self._experts:
            if expert.is_ready and (force or self._is_due(expert, work, new_class=new_class)):
                expert.answer_anew(self._recent)
        judged = self._panel.judged_for(classes)
        waited, often = self._n_seen - self._judged_at, 10.0 if new_class else 1.0
        seldom = min(max(_REFRESH, work.judges_every), 1 + self._n_seen * work.n_planes // 20)
        if force or (new_class and len(classes) <= 3) or waited >= seldom / often:
            self._judged_at = self._n_seen
            judged = judge_evidence(self._evidence, self.threshold, _PRIORS)
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
        self._evidence.know(classes if work.judges else [])
        self._publish(work, classes, force=True)

    def _try_out(self, add: Block | None, retire: Block) -> None:
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
            twin_of(linear.learner).update(add=added, retire=(retire.X, retire.codes, retire.weights))
        elif self._span() is not None:
            held = self._recent if add is None else self._recent.added(add.numbered(self._n_seen))
            places = held.find(retire.X, retire.codes, retire.weights)
            if (places < 0).any() or (held.block.numbers[places] < self._low).any():
                raise DataError("some of the rows to be forgotten are not remembered; nothing was changed.")

    # -- answering ----------------------------------------------------------------------------------

    @property
    @of_one_moment
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that have rows now."""
        self._need("classes_")
        return self._classes_of(self._panel)

    def _classes_of(self, panel: Panel) -> NDArray[Any]:
        return sorted_classes([self._labels[number] for number in panel.classes])

    @property
    @of_one_moment
    def linear_(self) -> ProximalSVC:
        """A copy of the expert with planes over all rows that are remembered."""
        self._need("linear_")
        learner: ProximalSVC | None = self._experts[0].learner
        if learner is None:
            raise AttributeError("StreamClassifier has no linear_ while its linear expert has no rows.")
        return copy.deepcopy(learner)

    @property
    @of_one_moment
    def class_count_(self) -> NDArray[np.int64]:
        """Rows of each class in the longest memory."""
        self._need("class_count_")
        waiting = np.bincount(self._waiting.codes(), minlength=len(self._labels)).astype(np.int64)
        return (self._counts + waiting)[self._panel.classes]

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        """Normal scores above or below the cut; zeros while there is only one class."""
        panel, scores = self._answer(X, method)
        return scores, self._classes_of(panel)

    @of_one_moment
    def predict_proba(self, X: ArrayLike, *, prior: str | Mapping[Label, float] = "balanced") -> FloatArray:
        """Probabilities of the classes, by how often scores such as these were right lately.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows.
        prior : {"balanced", "observed"} or mapping of label to float, default="balanced"
            How frequent the classes are taken to be: equally, so that the likeliest class is the one that
            ``threshold="gmean"`` answers; as among recent rows; or in these proportions.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        panel, scores = self._answer(X, "predict_proba")
        labels = [self._labels[number] for number in panel.classes]
        factors = prior_factors(prior, labels, self._shares, f"{type(self).__name__}.predict_proba")
        if len(labels) == 1:
            return np.ones((len(scores), 1))
        out = chances(panel, self._evidence, scores, moved=self.threshold != "gmean")
        if factors is None:
            return out
        out = out * factors
        result: FloatArray = out / out.sum(axis=1, keepdims=True)
        return result

    def _shares(self) -> FloatArray:
        """Shares of the classes among recent rows, or, if they are too many for that, among all."""
        if self._evidence.classes == self._panel.classes:
            return self._evidence.shares()
        counts = self._counts[self._panel.classes].astype(np.float64)
        return counts / max(counts.sum(), 1.0)

    def _answer(self, X: Any, method: str) -> tuple[Panel, FloatArray]:
        X = self._check_rows(X, method)
        panel = self._panel
        if not panel.classes:
            raise none_left(f"{type(self).__name__}.{method}")
        return panel, panel.decide(panel.raw_scores(self._dense(X, method))[1])

    @of_one_moment
    def explain(self) -> Explanation:
        """Which expert carries the answer now, what it remembers, where the cut is, and what was spared.

        Returns
        -------
        Explanation
            It prints as text, shows as a table in a notebook, and draws itself with ``plot()``.
        """
        self._check_started("explain")
        classes = self._panel.classes
        return explain_panel(
            self._panel,
            self._experts,
            [self._labels[number] for number in classes],
            self._shares(),
            threshold=self.threshold,
            n_rows=self._n_seen + len(self._waiting),
            spared=self._work().spared(),
            drifts=self._watch.drifts,
        )

    # -- files and copies ---------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        with lock_of(self):
            state = super().__getstate__()
            if self._is_started():
                state["_experts"] = [Told(expert) for expert in self._sound_experts()]
            return state

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        return {
            **self._features(),
            "labels": list(self._labels),
            "class_numbers": np.flatnonzero(self._counts).tolist(),
            "class_counts": self._counts[self._counts > 0].tolist(),
            "seen": self._n_seen,
            "low": self._low,
            "judged_at": self._judged_at,
            "settled_at": self._settled_at,
            "recent": self._recent.get_state(),
            "waiting": self._waiting.get_state(),
            "watch": self._watch.get_state(),
            "evidence": self._evidence.get_state(),
            "views": self._views.get_state(),
            "experts": [expert.get_state() for expert in self._sound_experts()],
            "judgement": None if self._panel.judgement is None else self._panel.judgement.get_state(),
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        self._set_features(state)
        width = self.n_features_in_
        self._fold = FoldedView(width, _WIDE, self.random_state) if width > _WIDE else None
        self._labels = restored_labels(state["labels"])
        self._numbers = {label: number for number, label in enumerate(self._labels)}
        self._counts = np.zeros(len(self._labels), dtype=np.int64)
        self._counts[state["class_numbers"]] = state["class_counts"]
        self._n_seen, self._low, self._judged_at, self._settled_at = (
            int(state[name]) for name in ("seen", "low", "judged_at", "settled_at")
        )
        self._recent = Recent.from_state(state["recent"])
        if not 0 <= self._low <= self._n_seen or not self._recent.is_within(0, self._n_seen):
            raise ValueError("rows are remembered that have not been seen yet")
        self._evidence = Evidence.from_state(state["evidence"], len(EXPERTS))
        self._views = Views.from_state(state["views"])
        rows = Rows(self._recent.block.X, self._views)
        self._recent = self._recent.seen_as(rows.seen("ranks"))
        self._experts = [Expert(trade, self._views) for trade in EXPERTS]
        if len(state["experts"]) > len(EXPERTS):
            raise ValueError("there are more experts than this version knows")
        for expert, learned in zip(self._experts, state["experts"], strict=False):  # of older files fewer
            expert.set_state(learned, self._recent)
            if expert.high > self._n_seen:
                raise ValueError("an expert remembers rows that have not been seen yet")
        classes = self._class_numbers()
        # Files of version 0.2 have a list, one a plane; of many classes the next rows are judged anew.
        judged = state["judgement"] if "judgement" in state else [*state["judgements"], None][0]
        kind: Any = Judgement if len(classes) < 3 else ManyJudgement
        if judged is not None:
            judged = (
                kind.from_state(judged, len(EXPERTS)) if "judgement" in state or kind is Judgement else None
            )
        panel = Panel(classes, [expert.rule for expert in self._experts], judged, self._views)
        self._watch = Watch.from_state(state.get("watch", {}))
        self._waiting = Waiting.from_state(state.get("waiting", {}), len(EXPERTS))
        if len(self._waiting):
            block, scores = self._waiting.together()
            ranks = Rows(block.X, self._views).seen("ranks")
            self._waiting = Waiting().joined_by(block.seen_as(ranks), scores)
            panel = self._following_labels(panel, block.codes.tolist())
        self._panel = panel
