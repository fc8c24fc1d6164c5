"""Checks of forgetting, merging and refusing."""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.base import clone

from steelyard import persistence
from steelyard.base import BatchLearner, ForgettingMixin, Learner, MergingMixin
from steelyard.checks.tools import (
    example_stream,
    need,
    raises_and_keeps,
    same_answers,
    written,
)

__all__ = [
    "check_errors_change_nothing",
    "check_forget_equals_never_learned",
    "check_forgotten_class_disappears",
    "check_merge_equals_learning_together",
    "check_refuses_to_forget_strangers",
]


def check_forget_equals_never_learned(learner: BatchLearner) -> None:
    """Rows that were learned and forgotten leave nothing behind."""
    need(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    stream = example_stream(10)
    kept = clone(learner).partial_fit(*stream.rows(0, 120))
    model = clone(learner).partial_fit(*stream.rows(0, 120)).partial_fit(*stream.rows(120))
    model.forget(*stream.rows(120))
    same_answers(model, kept, stream.X, exact=True, what="learned and forgotten")
    both = clone(learner).partial_fit(*stream.rows(0, 120))
    both.update(add=stream.rows(120), forget=stream.rows(0, 60))
    expected = clone(learner).partial_fit(*stream.rows(0, 120)).partial_fit(*stream.rows(120))
    expected.forget(*stream.rows(0, 60))
    same_answers(both, expected, stream.X, exact=True, what="update")


def check_forgotten_class_disappears(learner: BatchLearner) -> None:
    """A class all of whose rows are forgotten is no class any more."""
    need(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    stream = example_stream(11, n_classes=3)
    last = stream.y == 2
    model = (
        clone(learner)
        .partial_fit(stream.X[~last], stream.y[~last])
        .partial_fit(stream.X[last], stream.y[last])
    )
    model.forget(stream.X[last], stream.y[last])
    assert list(model.classes_) == [0, 1]
    kept = clone(learner).partial_fit(stream.X[~last], stream.y[~last])
    same_answers(model, kept, stream.X, exact=True, what="class forgotten")


def check_merge_equals_learning_together(learner: BatchLearner) -> None:
    """Merging learners equals learning all rows in one, in any order, and leaves the other as it was."""
    need(isinstance(learner, MergingMixin), "this learner does not merge")
    stream = example_stream(12, n_classes=3)
    together, parts = clone(learner).fit(stream.X, stream.y), []
    for label in range(3):  # disjoint classes: what every merging learner can merge
        mine = stream.y == label
        parts.append(clone(learner).partial_fit(stream.X[mine], stream.y[mine]))
    for order in ([0, 1, 2], [2, 0, 1]):
        before = [written(part) for part in parts]
        merged = persistence.from_bytes(before[order[0]])
        for index in order[1:]:
            merged.merge(parts[index])
        same_answers(merged, together, stream.X, exact=True, what=f"merged in order {order}")
        assert [written(part) for part in parts] == before, "merging changed the other learner"


def check_errors_change_nothing(learner: BatchLearner) -> None:
    """A call that raises leaves the learner bit-identical."""
    stream = example_stream(13)
    model = clone(learner).fit(stream.X, stream.y)
    learning = [getattr(model, name) for name in ("fit", "partial_fit") if hasattr(model, name)]
    bad = stream.X.copy()
    bad[-1, -1] = np.nan
    infinite = stream.X.copy()
    infinite[7, 2] = np.inf
    wide = np.column_stack([stream.X, stream.X[:, 0]])
    for X, what in ((bad, "NaN in the last row"), (infinite, "infinity"), (stream.X[:5], "too few rows")):
        for call in learning:
            raises_and_keeps(model, partial(call, X, stream.y), f"{call.__name__} with {what}")
    if isinstance(model, Learner):
        raises_and_keeps(model, lambda: model.partial_fit(wide, stream.y), "partial_fit of wrong width")
    raises_and_keeps(model, lambda: model.predict(wide), "predict of wrong width")
    raises_and_keeps(model, lambda: model.predict(bad), "predict with NaN")
    fresh = clone(learner)
    first = fresh.partial_fit if isinstance(fresh, Learner) else fresh.fit
    raises_and_keeps(fresh, lambda: first(bad, stream.y), "first call with NaN")
    assert not hasattr(fresh, "n_features_in_"), "a failed first call leaves n_features_in_ behind"


def check_refuses_to_forget_strangers(learner: BatchLearner) -> None:
    """Rows that were never learned cannot be forgotten, where that can be known; nothing changes."""
    need(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    assert isinstance(learner, ForgettingMixin)
    stream = example_stream(14)
    model = clone(learner).partial_fit(stream.X, stream.y)
    far = np.full((1, 4), 1e3)
    raises_and_keeps(model, lambda: model.forget(far, np.array([0])), "a row far from all")
    raises_and_keeps(model, lambda: model.forget(stream.X[:1], np.array([5])), "a class never seen")
    rare = stream.X[stream.y == 1]
    twice = np.concatenate([rare, rare[:1]])
    raises_and_keeps(
        model, lambda: model.forget(twice, np.ones(len(twice), dtype=int)), "more rows than learned"
    )
    raises_and_keeps(
        model,
        lambda: model.update(add=(stream.X, stream.y), forget=(far, np.array([0]))),
        "update with a stranger",
    )
