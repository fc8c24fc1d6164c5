"""Checks of forgetting, merging and failing calls."""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.base import clone

from steelyard.base import BatchLearner, ForgettingMixin, Learner, MergingMixin
from steelyard.checks.tools import (
    assert_raises_and_keeps_state,
    assert_same_scores,
    example_stream,
    require,
)
from steelyard.persistence import from_bytes, to_bytes


def check_forget_equals_never_learned(learner: BatchLearner) -> None:
    """After forgetting rows, the model equals one that never learned them."""
    require(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    stream = example_stream(10)
    expected = clone(learner).partial_fit(*stream.rows(0, 120))
    model = clone(learner).partial_fit(*stream.rows(0, 120)).partial_fit(*stream.rows(120))
    model.forget(*stream.rows(120))
    assert_same_scores(model, expected, stream.X, up_to_rounding=True, what="learned and forgotten")
    updated = clone(learner).partial_fit(*stream.rows(0, 120))
    updated.update(add=stream.rows(120), forget=stream.rows(0, 60))
    expected = clone(learner).partial_fit(*stream.rows(0, 120)).partial_fit(*stream.rows(120))
    expected.forget(*stream.rows(0, 60))
    assert_same_scores(updated, expected, stream.X, up_to_rounding=True, what="update")


def check_forgotten_class_is_removed(learner: BatchLearner) -> None:
    """A class is removed when all its rows are forgotten."""
    require(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    stream = example_stream(11, n_classes=3)
    last = stream.y == 2
    model = (
        clone(learner)
        .partial_fit(stream.X[~last], stream.y[~last])
        .partial_fit(stream.X[last], stream.y[last])
    )
    model.forget(stream.X[last], stream.y[last])
    assert list(model.classes_) == [0, 1]
    expected = clone(learner).partial_fit(stream.X[~last], stream.y[~last])
    assert_same_scores(model, expected, stream.X, up_to_rounding=True, what="class forgotten")


def check_merge_equals_learning_together(learner: BatchLearner) -> None:
    """Merging in any order equals learning all rows, and merge() does not change its argument."""
    require(isinstance(learner, MergingMixin), "this learner does not merge")
    stream = example_stream(12, n_classes=3)
    together, parts = clone(learner).fit(stream.X, stream.y), []
    for label in range(3):  # every learner that merges can merge disjoint classes
        of_class = stream.y == label
        parts.append(clone(learner).partial_fit(stream.X[of_class], stream.y[of_class]))
    for order in ([0, 1, 2], [2, 0, 1]):
        before = [to_bytes(part) for part in parts]
        merged = from_bytes(before[order[0]])
        for index in order[1:]:
            merged.merge(parts[index])
        assert_same_scores(merged, together, stream.X, up_to_rounding=True, what=f"merged in order {order}")
        assert [to_bytes(part) for part in parts] == before, "merging changed the other learner"


def check_errors_change_nothing(learner: BatchLearner) -> None:
    """A call that raises an error leaves the learner bitwise unchanged."""
    stream = example_stream(13)
    model = clone(learner).fit(stream.X, stream.y)
    learning = [getattr(model, name) for name in ("fit", "partial_fit") if hasattr(model, name)]
    bad = stream.X.copy()
    is_nan_allowed = model.__sklearn_tags__().input_tags.allow_nan
    bad[-1, -1] = np.inf if is_nan_allowed else np.nan
    infinite = stream.X.copy()
    infinite[7, 2] = np.inf
    wide = np.column_stack([stream.X, stream.X[:, 0]])
    cases = ((bad, "NaN or infinity in the last row"), (infinite, "infinity"), (stream.X[:5], "too few rows"))
    for X, what in cases:
        for call in learning:
            assert_raises_and_keeps_state(model, partial(call, X, stream.y), f"{call.__name__} with {what}")
    if isinstance(model, Learner):
        assert_raises_and_keeps_state(
            model, lambda: model.partial_fit(wide, stream.y), "partial_fit of wrong width"
        )
    assert_raises_and_keeps_state(model, lambda: model.predict(wide), "predict of wrong width")
    assert_raises_and_keeps_state(model, lambda: model.predict(bad), "predict with NaN or infinity")
    fresh = clone(learner)
    first = fresh.partial_fit if isinstance(fresh, Learner) else fresh.fit
    assert_raises_and_keeps_state(fresh, lambda: first(bad, stream.y), "first call with NaN or infinity")
    assert not hasattr(fresh, "n_features_in_"), "a failed first call leaves n_features_in_ behind"


def check_forget_unknown_rows_raises(learner: BatchLearner) -> None:
    """Forgetting rows that were never learned raises an error and changes nothing."""
    require(isinstance(learner, ForgettingMixin), "this learner does not forget rows")
    assert isinstance(learner, ForgettingMixin)
    stream = example_stream(14)
    model = clone(learner).partial_fit(stream.X, stream.y)
    far = np.full((1, 4), 1e3)
    assert_raises_and_keeps_state(
        model, lambda: model.forget(far, np.array([0])), "a row far from all learned rows"
    )
    assert_raises_and_keeps_state(
        model, lambda: model.forget(stream.X[:1], np.array([5])), "a class never seen"
    )
    rare = stream.X[stream.y == 1]
    twice = np.concatenate([rare, rare[:1]])
    assert_raises_and_keeps_state(
        model, lambda: model.forget(twice, np.ones(len(twice), dtype=int)), "more rows than learned"
    )
    assert_raises_and_keeps_state(
        model,
        lambda: model.update(add=(stream.X, stream.y), forget=(far, np.array([0]))),
        "update with an unknown row",
    )
