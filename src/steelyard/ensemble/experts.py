"""The experts: exact learners that differ in what they remember and in how they see a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard._concurrency import FrozenState, shallow_copy
from steelyard._types import IntArray
from steelyard.ensemble.recent import Block, Recent
from steelyard.ensemble.rules import KernelRule, LabelRule, LinearRule, MappedRule, Rule, Views
from steelyard.ensemble.trees import BoostedTrees, TreeRule
from steelyard.ensemble.work import Work
from steelyard.exceptions import DataError
from steelyard.kernels import Kernel
from steelyard.proximal import ProximalSVC
from steelyard.svm import IncrementalSVC
from steelyard.svm.expansion import KernelExpansion

__all__ = ["EXPERTS", "Expert", "Trade"]

_LABEL_HALF_LIFE = 20.0  # rows, of the expert that only looks at labels
_LABEL_WEIGHTS = np.exp2(-np.arange(2000) / _LABEL_HALF_LIFE)  # of the newest label, the one before, ...


@dataclass(frozen=True)
class Trade:
    """What kind of expert it is.

    Attributes
    ----------
    name, words : str
        Its short name, and what it does in a few words.
    view : str
        How it sees rows; "labels" for the one that does not look at them.
    window : int or None
        Rows that it remembers; None: all.
    of_class : int
        Rows of every class that it remembers beyond the window.
    every : int
        Rows that it waits for before it learns them together.
    prior : float
        How much it is heard before any evidence, and beside others of the same record.
    dear : bool
        Whether it is spared rows when they come fast.
    make : callable
        Makes its learner for rows of so many columns.
    regrown : bool
        Whether it learns all of its rows anew when it learns, and how often is a matter of the cost.
    """

    name: str
    words: str
    view: str
    window: int | None
    of_class: int
    every: int
    prior: float
    dear: bool
    make: Callable[[int], Any]
    regrown: bool = False

    @property
    def is_heavy(self) -> bool:
        """Whether to learn takes it long enough to do so beside others."""
        return self.dear or self.regrown or self.view == "map"


def _planes(_n_columns: int) -> Any:
    return ProximalSVC()


def _mapped_planes(_n_columns: int) -> Any:
    return ProximalSVC(standardize=False)


def _kernel_machine(n_columns: int) -> Any:
    return IncrementalSVC(kernel="laplacian", gamma=1.0 / n_columns, class_weight="balanced", tol=1e-3)


def _trees(_n_columns: int) -> Any:
    return BoostedTrees()


def _nothing(_n_columns: int) -> Any:
    return None


# New ones come last: files of earlier versions have those before.
EXPERTS = (
    Trade("linear", "planes over all rows", "rows", None, 0, 50, 1.0, False, _planes),
    Trade("recent", "planes over the last 200 rows", "rows", 200, 0, 10, 1.0, False, _planes),
    Trade(
        "mapped",
        "planes over 300 random features, all rows",
        "map",
        None,
        0,
        100,
        1.0,
        False,
        _mapped_planes,
    ),
    Trade(
        "kernel",
        "a kernel machine over the last 1,000 rows and the last 200 of each class",
        "ranks",
        1000,
        200,
        100,
        6.0,
        True,
        _kernel_machine,
    ),
    Trade("labels", "how labels follow labels", "labels", 200, 0, 1, 0.3, False, _nothing),
    Trade(
        "trees",
        "boosted trees over the last 5,000 rows and the last 100 of each class",
        "rows",
        5000,
        100,
        1000,
        3.0,
        False,
        _trees,
        regrown=True,
    ),
)


class Expert:
    """One expert at work: its learner, and which rows it has learned.

    One that remembers all rows has learned those with running numbers from ``low`` to ``high``, the latter
    excluded, save those that were forgotten; one with a window has learned the rows numbered ``held``. It
    answers with a rule, which follows what was learned at once or, where planes are dear to solve, later.
    """

    def __init__(self, trade: Trade, views: Views) -> None:
        self.trade = trade
        self.views = views
        self.low = self.high = 0
        self.held: IntArray = np.zeros(0, dtype=np.int64)
        self.learner: Any = None
        self._version: Any = None  # of the learner when it had learned these rows and no others
        self.n_rebuilt = 0
        self.rule: Rule | None = None
        self.answers_upto = 0  # rows seen when the rule was made
        self.is_left_out = False

    @property
    def n_rows(self) -> int:
        """Rows that it remembers."""
        if self.trade.window is not None:
            return len(self.held)
        return 0 if self.learner is None else self.high - self.low

    def twin(self, recent: Recent) -> Expert:
        """The same expert, which may learn on without the other noticing, but for :attr:`_version`.

        ``recent`` holds the rows that it has learned.
        """
        twin = shallow_copy(self)
        if twin._version != _version(twin.learner):
            # A call that did not come to its end has changed the learner in place. Which rows are its own is
            # known, and a kernel machine is a function of its rows.
            twin._become(twin._made(recent.at(twin.held)))
        return twin

    def _become(self, learner: Any) -> None:
        """Go on with this learner, as it is now."""
        self.learner, self._version = learner, _version(learner)

    @property
    def is_ready(self) -> bool:
        """Whether it takes part: its view is settled, and it is not left out."""
        return not self.is_left_out and self.views.has(self.trade.view)

    def anew(self, views: Views) -> Expert:
        """One of the same trade that has learned nothing yet."""
        expert = Expert(self.trade, views)
        expert.is_left_out = self.is_left_out
        return expert

    def leave(self) -> None:
        """Take part no more; whoever remembers all rows cannot come back."""
        self.is_left_out, self.rule = True, None
        self.held = self.held[:0]
        self._become(None)

    def is_due(self, low: int, n_before: int, n_seen: int, work: Work) -> bool:
        """Whether enough rows have come since it last learned, with those after the first ``n_before``.

        ``low`` is the oldest row that is remembered.
        """
        waiting = n_seen - self.high
        if self.trade.regrown and 10 * int(self.held.searchsorted(low)) > len(self.held):
            return waiting > 0  # a tenth of its rows has left
        patient = self.trade.is_heavy or self.trade.window is None
        if patient and n_seen // work.rhythm == n_before // work.rhythm:
            return False
        if not self.trade.regrown:
            return waiting >= min(self.trade.every, 1 + n_seen // 20)
        assert self.trade.window is not None
        often = work.regrows_every(min(n_seen, self.trade.window), self.n_features)
        return waiting >= min(often, 1 + n_seen // 4)

    def follow(self, recent: Recent, low: int, high: int, work: Work, forgotten: Block | None = None) -> None:
        """Remember what is its own of the rows from ``low`` to ``high``, without those forgotten."""
        trade, held = self.trade, self.held
        if trade.regrown and forgotten is not None:
            self._regrow(held[~np.isin(held, forgotten.numbers)], recent)
            return
        if trade.window is None:
            new = recent.between(max(self.high, low), high)
            leaving = recent.between(self.low, min(low, self.high)) if low > self.low else None
            self._change(new, _joined(leaving, forgotten), lambda: recent.between(low, high))
        else:
            window = trade.window if trade.of_class else work.window(trade.window)
            of_class = work.of_class(trade.of_class) if trade.of_class else 0
            held = recent.last(window, of_class, low, offered=trade.dear)
            if trade.regrown:
                self._regrow(held, recent)
            elif trade.view != "labels":  # that one keeps nothing but which rows are its own
                came, went = _differences(held, self.held)
                if forgotten is not None:
                    forgotten = forgotten.part(np.isin(forgotten.numbers, self.held))
                    went = np.setdiff1d(went, forgotten.numbers)
                leaving = recent.at(went) if len(went) else None
                self._change(recent.at(came), _joined(leaving, forgotten), lambda: recent.at(held))
        self.low, self.high, self.held = low, high, held

    def _regrow(self, held: IntArray, recent: Recent) -> None:
        """Learn these rows and no others, if they are others than before."""
        if not np.array_equal(held, self.held):
            self.held = held
            self._become(self._made(recent.at(held)) if len(held) else None)

    def _change(self, new: Block, leaving: Block | None, staying: Callable[[], Block]) -> None:
        gone = 0 if leaving is None else len(leaving)
        if not (len(new) or gone):
            return
        if self.learner is None:
            if len(new):
                self._become(self._made(new))
            return
        if self.trade.window is not None and gone and not len(staying()):
            self._become(None)
            return
        added = self._rows(new) if len(new) else None
        retired = self._rows(leaving) if leaving is not None and gone else None
        try:
            # Planes replace their sums, so those of the other expert stay. A kernel machine is too large to
            # be copied for every call: it is changed in place, and the other expert sees it by its version.
            self._become(shallow_copy(self.learner).update(add=added, forget=retired))
        except DataError:
            if self.trade.window is None or not gone:
                raise
            # The rows are known to have been learned: sums that rounding has worn out are made anew.
            self._become(self._made(staying()))
            self.n_rebuilt += 1

    def _made(self, block: Block) -> Any:
        X, y, *weights = self._rows(block)
        learner = self.trade.make(X.shape[1])
        return learner.fit(X, y, sample_weight=weights[0] if weights else None)

    def _rows(self, block: Block) -> tuple[Any, ...]:
        X = block.X if self.trade.view == "rows" else block.ranks
        # Learners from files of version 0.2 map the ranks themselves.
        if self.trade.view == "map" and getattr(self.learner, "feature_map", None) is None:
            X = self.views.mapped(X)
        X = np.ascontiguousarray(X)
        return (X, block.codes) if (block.weights == 1.0).all() else (X, block.codes, block.weights)

    def answer_anew(self, recent: Recent) -> None:
        """Let the rule follow what was learned; there is none while fewer than two classes are known."""
        self.rule = self._label_rule(recent) if self.trade.view == "labels" else self._learned_rule()
        self.answers_upto = self.high

    @property
    def n_features(self) -> int:
        """Columns of rows as they are, that trees were grown from; 1 before there are any."""
        return self.learner.n_features if isinstance(self.learner, BoostedTrees) else 1

    @property
    def n_columns(self) -> int:
        """Columns of its planes; 0 if it has none to solve."""
        learner = self.learner
        return learner.n_features_in_ if isinstance(learner, ProximalSVC) else 0

    def _learned_rule(self) -> Rule | None:
        learner, view = self.learner, self.trade.view
        classes = [] if learner is None else learner.classes_.tolist()
        if len(classes) < 2:
            return None
        if isinstance(learner, BoostedTrees):
            return TreeRule(classes, learner.forest, learner.n_features)
        if isinstance(learner, IncrementalSVC):
            kernel = Kernel(learner.kernel, gamma=learner.gamma)
            vectors, coef = learner.support_vectors_, learner.dual_coef_
            return KernelRule(classes, view, KernelExpansion(kernel, vectors, coef, learner.intercept_))
        coef, intercept = np.ascontiguousarray(learner.coef_), np.ascontiguousarray(learner.intercept_)
        return self._planes(LinearRule(classes, view, coef, intercept))

    def _planes(self, rule: LinearRule) -> LinearRule:
        return MappedRule.over(self.views, rule) if rule.view == "map" else rule

    def _label_rule(self, recent: Recent) -> Rule | None:
        codes = recent.codes(self.held)[::-1]
        if not len(codes):
            return None
        counts = np.bincount(codes, _LABEL_WEIGHTS[: len(codes)])
        classes = np.flatnonzero(counts)
        return LabelRule(classes.tolist(), counts[classes].astype(np.float64), float(_LABEL_WEIGHTS[1]))

    # -- files and copies ---------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        learner = None if self.learner is None else FrozenState(self.learner)
        return {**self.__dict__, "learner": learner, "_version": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._become(self.learner)

    def get_state(self) -> dict[str, Any]:
        """What it has learned."""
        numbers = {"low": self.low, "high": self.high, "rebuilt": self.n_rebuilt}
        rule = self.rule.get_state() if isinstance(self.rule, LinearRule) else None
        answers = {"rule": rule, "answers_upto": self.answers_upto, "left_out": self.is_left_out}
        learner = None if self.trade.regrown else self.learner  # trees follow from the rows
        return {**numbers, **answers, "held": self.held, "learner": learner}

    def set_state(self, state: Mapping[str, Any], recent: Recent) -> None:
        """Become what ``get_state`` described; ``recent`` holds the rows that it has learned."""
        self.low, self.high, self.n_rebuilt = (int(state[name]) for name in ("low", "high", "rebuilt"))
        self.held = np.asarray(state["held"], dtype=np.int64)
        rises = self.held.ndim == 1 and (np.diff(self.held) > 0).all()
        if not 0 <= self.low <= self.high or not rises or not recent.has(self.held):
            raise ValueError("an expert remembers a stretch of rows that cannot be")
        regrown = self.trade.regrown and len(self.held) > 0
        self._become(self._made(recent.at(self.held)) if regrown else state["learner"])
        self.is_left_out = bool(state.get("left_out", False))
        if self.is_ready:
            self.answer_anew(recent)
        if state.get("rule") is not None:  # it may be older than what was learned
            self.rule = self._planes(LinearRule.from_state(state["rule"], self.trade.view))
            self.answers_upto = int(state["answers_upto"])


def _version(learner: Any) -> Any:
    """Tells apart what has been changed in place; planes never are."""
    return learner._in_place_version() if isinstance(learner, IncrementalSVC) else None


def _joined(block: Block | None, other: Block | None) -> Block | None:
    if block is None or other is None:
        return other if block is None else block
    return block.joined(other)


def _differences(now: IntArray, before: IntArray) -> tuple[IntArray, IntArray]:
    """What is in one rising list only: in the first, and in the second."""
    if len(now) and len(before) and now[0] >= before[0]:
        # Windows move on: most often some of the oldest left, and those that came are newer than all.
        begin, end = int(before.searchsorted(now[0])), int(now.searchsorted(before[-1], side="right"))
        if np.array_equal(now[:end], before[begin:]):
            return now[end:], before[:begin]
    came = np.setdiff1d(now, before, assume_unique=True)
    return came, np.setdiff1d(before, now, assume_unique=True)
