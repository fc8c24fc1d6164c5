"""What experts answer with: rules that never change, so that any thread may use them while others learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from steelyard import _native
from steelyard._types import FloatArray
from steelyard.ensemble.views import RankView
from steelyard.features import RandomFeatures
from steelyard.svm.expansion import KernelExpansion

__all__ = ["KernelRule", "LabelRule", "LinearRule", "MappedRule", "Rows", "Rule", "Views", "distinct_codes"]


@dataclass(frozen=True)
class Views:
    """The views that are settled; None before there were enough rows."""

    ranks: RankView | None = None
    map: RandomFeatures | None = None

    def has(self, view: str) -> bool:
        """Whether rows can be seen so already."""
        return view in {"rows", "labels"} or getattr(self, view) is not None

    def mapped(self, ranks: FloatArray) -> FloatArray:
        """Ranks through the random map."""
        return self.settled_map.map_from_inside(ranks)

    @property
    def settled_map(self) -> RandomFeatures:
        """The random map of who has one."""
        assert self.map is not None
        return self.map

    def row_experts(self, n_experts: int, n_features: int) -> _native.RowExperts:
        """Experts who will score single rows together, seen so; none has joined yet."""
        ranks = None if self.ranks is None else (self.ranks.knots, self.ranks.values, self.ranks.slopes)
        inside = None if self.map is None else self.map.native_inside()
        return _native.RowExperts(n_experts, n_features, ranks, inside)

    def get_state(self) -> dict[str, Any]:
        """What was settled."""
        return {} if self.ranks is None else {"ranks": self.ranks.get_state(), "map": self.map}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Views:
        """What ``get_state`` describes."""
        if not state:
            return cls()
        return cls(RankView.from_state(state["ranks"]), state["map"])


class Rows:
    """Rows and how the views show them, each computed once, when it is first asked for."""

    def __init__(self, X: FloatArray, views: Views, ranks: FloatArray | None = None) -> None:
        self.X = X
        self.views = views
        self._seen: dict[str, FloatArray] = {} if ranks is None else {"ranks": ranks}

    def __len__(self) -> int:
        return len(self.X)

    def of_its_own(self) -> Rows:
        """The same with a copy of the rows: the caller's array may change."""
        rows = Rows(self.X.copy(), self.views)
        rows._seen = self._seen
        return rows

    def seen(self, view: str) -> FloatArray:
        """The rows as they are ("rows"), by "ranks" (no columns without a scale), or "inside" the map."""
        if view == "rows":
            return self.X
        if view not in self._seen:
            views = self.views
            if view == "ranks":
                no_scale = np.zeros((len(self.X), 0))
                self._seen[view] = no_scale if views.ranks is None else views.ranks.apply(self.X)
            else:
                self._seen[view] = views.settled_map.inside(self.seen("ranks"))
        return self._seen[view]


class Rule(Protocol):
    """A decision function over the classes that an expert knows."""

    @property
    def classes(self) -> list[int]:
        """Numbers of these classes."""

    def scores(self, rows: Rows) -> FloatArray:
        """One column a class, or a single one for two classes."""

    def join(self, experts: _native.RowExperts, number: int) -> bool:
        """Become one of those that score single rows together; False if that cannot be."""


@dataclass(frozen=True)
class LinearRule:
    """Planes over a view."""

    classes: list[int]
    view: str
    coef: FloatArray
    intercept: FloatArray

    def scores(self, rows: Rows) -> FloatArray:
        """Scores of rows."""
        return _on_planes(rows.seen(self.view), self.coef, self.intercept)

    def join(self, experts: _native.RowExperts, number: int) -> bool:
        """Score single rows together with others."""
        if self.view != "rows":
            return False
        experts.add_plane(number, False, self.coef[0], float(self.intercept[0]))
        return True

    def get_state(self) -> dict[str, Any]:
        """Everything but the view, which is the expert's."""
        return {"classes": self.classes, "coef": self.coef, "intercept": self.intercept}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], view: str) -> LinearRule:
        """What ``get_state`` describes; ValueError if it makes no sense."""
        coef, intercept = (np.array(state[name], np.float64, order="C") for name in ("coef", "intercept"))
        rule = cls(distinct_codes(state["classes"]), view, coef, intercept)
        n_planes = len(rule.classes) if len(rule.classes) > 2 else 1
        if rule.coef.ndim != 2 or len(rule.coef) != n_planes or rule.intercept.shape != (n_planes,):
            raise ValueError("a rule must have one plane a class, or one for two")
        return rule


def distinct_codes(classes: Any) -> list[int]:
    """Numbers of classes as a file has them; ValueError if they cannot be."""
    codes = list(classes)
    if not all(isinstance(code, int) for code in codes) or len(set(codes)) < len(codes):
        raise ValueError("the classes of a rule must be different numbers")
    return codes


def _on_planes(rows: FloatArray, coef: FloatArray, intercept: FloatArray) -> FloatArray:
    scores = np.empty((len(rows), len(intercept)))
    _native.linear_scores(rows, coef, intercept, scores, 1)
    return scores


@dataclass(frozen=True)
class MappedRule(LinearRule):
    """Planes over the random map, asked inside it: rows need not be mapped to be scored."""

    inside: FloatArray

    @classmethod
    def over(cls, views: Views, rule: LinearRule) -> MappedRule:
        """The same planes."""
        inside = views.settled_map.carried_inside(rule.coef)
        return cls(rule.classes, rule.view, rule.coef, rule.intercept, inside)

    def scores(self, rows: Rows) -> FloatArray:
        """Scores of rows."""
        return _on_planes(rows.seen("inside"), self.inside, self.intercept)

    def join(self, experts: _native.RowExperts, number: int) -> bool:
        """Score single rows together with others."""
        experts.add_plane(number, True, self.inside[0], float(self.intercept[0]))
        return True


@dataclass(frozen=True)
class KernelRule:
    """A kernel expansion over a view."""

    classes: list[int]
    view: str
    expansion: KernelExpansion

    def scores(self, rows: Rows) -> FloatArray:
        """Scores of rows."""
        return self.expansion.scores(rows.seen(self.view))

    def join(self, experts: _native.RowExperts, number: int) -> bool:
        """Score single rows together with others."""
        plane = self.expansion.native_plane()
        if plane is None or self.view != "ranks":
            return False
        experts.add_machine(number, *plane)
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        # What the expansion has packed for speed is no part of what is copied.
        e = self.expansion
        bare = KernelExpansion(e.kernel, e.vectors, e.coef, e.intercept)
        return KernelRule, (self.classes, self.view, bare)


@dataclass(frozen=True)
class LabelRule:
    """How frequent each class was among the last labels; the same for all rows."""

    classes: list[int]
    counts: FloatArray  # of labels, each half as much after some rows
    fading: float  # of a count with every row

    def scores(self, rows: Rows) -> FloatArray:
        """Scores of rows."""
        shares = self.counts / self.counts.sum()
        shares = shares[1:] if len(self.classes) == 2 else shares
        return np.repeat(shares[None], len(rows), axis=0)

    def share_of_second(self) -> float:
        """The score of any row where there are two classes."""
        first, second = self.counts.tolist()
        return float(second / (first + second))

    def join(self, experts: _native.RowExperts, number: int) -> bool:  # noqa: ARG002
        """It changes with every row, and is asked by itself."""
        return False

    def after(self, codes: list[int]) -> LabelRule:
        """What it is after some more labels, the newest last."""
        classes, counts = self.classes, self.counts
        for code in codes:
            counts = counts * self.fading
            if code not in classes:
                place = int(np.searchsorted(classes, code))
                classes = [*classes[:place], code, *classes[place:]]
                counts = np.insert(counts, place, 0.0)
            counts[classes.index(code)] += 1.0
        return LabelRule(classes, counts, self.fading)
