"""StreamClassifier: one line, nothing to choose."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._concurrency import FrozenState, lock_of
from steelyard._labels import all_forgotten_error, restored_labels
from steelyard._types import FloatArray
from steelyard._validation import check_started, validate_rows
from steelyard.base import (
    Label,
    Traits,
    snapshot_read,
    sorted_classes,
    transactional,
)
from steelyard.ensemble.chances import chances
from steelyard.ensemble.cuts import ThresholdChoice
from steelyard.ensemble.evidence import Evidence
from steelyard.ensemble.experts import EXPERTS, Expert
from steelyard.ensemble.explain import Explanation, explain_panel
from steelyard.ensemble.learning import LearningCommittee
from steelyard.ensemble.multiclass import ManyJudgement
from steelyard.ensemble.panel import Judgement, Panel
from steelyard.ensemble.recent import Recent
from steelyard.ensemble.rules import Rows, Views
from steelyard.ensemble.waiting import Waiting
from steelyard.ensemble.watch import Watch
from steelyard.exceptions import SteelyardError
from steelyard.params import AnyOf, Constraint, Integer, OneOf, Positive, prior_factors
from steelyard.persistence import storable
from steelyard.proximal import ProximalSVC
from steelyard.windowing.sliding import window_size

__all__ = ["StreamClassifier"]


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
class StreamClassifier(LearningCommittee):
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
        clock, so that the same rows give the same answers anywhere; "auto" is 120 for the first 20,000 rows
        and 64 for those after them. Planes are solved, trees are grown and evidence is looked at when
        enough rows have come to pay for it. The kernel machine is the dear
        expert: of two classes, below 120 it is offered a part of the rows of each block, evenly spaced ones
        of frequent classes first, and below 60 none; of more classes sooner. "auto" offers it a quarter of
        blocks larger than 250 rows, and a tenth of all rows after the first 20,000, where
        all but the shortest memory learn 400 rows together. All experts score all
        rows, and :meth:`explain` tells what is spared. Experts learn side by side on the cores there are
        (environment variable STEELYARD_NUM_THREADS), which changes no bit of what comes out.
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
    steelyard.AdaptiveThresholdClassifier : The cut alone, around any classifier.

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

    @transactional
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

    # -- answering ----------------------------------------------------------------------------------

    @property
    @snapshot_read
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that have rows now."""
        self._need("classes_")
        return self._classes_of(self._panel)

    def _classes_of(self, panel: Panel) -> NDArray[Any]:
        return sorted_classes([self._labels[number] for number in panel.classes])

    @property
    @snapshot_read
    def linear_(self) -> ProximalSVC:
        """A copy of the expert with planes over all rows that are remembered."""
        self._need("linear_")
        expert = self._experts[0].twin(self._recent)
        expert.follow(self._recent, self._low, self._n_seen, self._work())  # it may have waited for more rows
        if expert.learner is None:
            raise AttributeError("StreamClassifier has no linear_ while its linear expert has no rows.")
        learner: ProximalSVC = copy.deepcopy(expert.learner)
        return learner

    @property
    @snapshot_read
    def class_count_(self) -> NDArray[np.int64]:
        """Rows of each class in the longest memory."""
        self._need("class_count_")
        waiting = np.bincount(self._waiting.codes(), minlength=len(self._labels)).astype(np.int64)
        return (self._counts + waiting)[self._panel.classes]

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        """Normal scores above or below the cut; zeros while there is only one class."""
        panel, scores = self._answer(X, method)
        return scores, self._classes_of(panel)

    @snapshot_read
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
        X = validate_rows(self, X, method)
        panel = self._panel
        if not panel.classes:
            raise all_forgotten_error(f"{type(self).__name__}.{method}")
        return panel, panel.decide(panel.raw_scores(self._dense(X, method))[1])

    @snapshot_read
    def explain(self) -> Explanation:
        """Which expert carries the answer now, what it remembers, where the cut is, and what was spared.

        Returns
        -------
        Explanation
            It prints as text, shows as a table in a notebook, and draws itself with ``plot()``.
        """
        check_started(self, "explain")
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
                state["_experts"] = [FrozenState(expert) for expert in self._sound_experts()]
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
        self._fold = self._fold_of(self.n_features_in_)
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
            panel = panel.following(block.codes.tolist())
        self._panel = panel
