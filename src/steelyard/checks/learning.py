"""Checks of learning: rows, classes and labels as they may come, in whatever pieces and order."""

from __future__ import annotations

import os
import warnings

import numpy as np
from sklearn.base import clone

from steelyard.base import BatchLearner, ForgettingMixin, Learner
from steelyard.checks.tools import (
    NotApplicable,
    Stream,
    example_stream,
    fed,
    learn_more,
    need,
    raises_and_keeps,
    same_answers,
    written,
)

__all__ = [
    "check_chunk_borders_do_not_matter",
    "check_fit_equals_partial_fit",
    "check_inputs_unchanged",
    "check_labels_of_any_type",
    "check_late_class",
    "check_long_run_of_one_class",
    "check_memory_stays_bounded",
    "check_order_does_not_matter",
    "check_same_on_any_number_of_threads",
    "check_tables",
]


def check_inputs_unchanged(learner: BatchLearner) -> None:
    """Rows, labels and weights that are passed stay as they were."""
    stream = example_stream()
    X, y = stream.X.copy(), stream.y.copy()
    X.setflags(write=False)
    y.setflags(write=False)
    model = clone(learner).fit(X, y)
    learn_more(model, X[:10], y[:10])
    model.predict(X)
    if isinstance(model, ForgettingMixin):
        model.forget(X[:10], y[:10])
    assert np.array_equal(X, stream.X)
    assert np.array_equal(y, stream.y)


def check_chunk_borders_do_not_matter(learner: BatchLearner) -> None:
    """The same rows in the same order give the same model however they are cut."""
    stream = example_stream(1)
    whole = fed(learner, stream, [])
    for cuts in ([120], [1, 2, 3, 100], list(range(1, 240, 7))):
        cut = fed(learner, stream, cuts)
        same_answers(cut, whole, stream.X, exact=learner._traits.exact, what=f"cut at {cuts[:4]}")


def check_fit_equals_partial_fit(learner: BatchLearner) -> None:
    """fit() forgets what was before and then learns like one partial_fit()."""
    stream = example_stream(2)
    once = clone(learner).partial_fit(stream.X, stream.y)
    again = clone(learner).fit(*example_stream(3, n_classes=3).rows(0)).fit(stream.X, stream.y)
    same_answers(again, once, stream.X, exact=False, what="fit after another fit")


def check_order_does_not_matter(learner: BatchLearner) -> None:
    """Exact learners give the same model for any order of the rows."""
    need(learner._traits.exact, "this learner takes rows in their order, by design")
    stream = example_stream(4)
    order = np.random.default_rng(0).permutation(len(stream.y))
    shuffled = Stream(stream.X[order], stream.y[order])
    # The first call may settle things (a kernel width, a feature map), so both see all rows in it.
    same_answers(
        clone(learner).fit(*shuffled.rows(0)),
        clone(learner).fit(*stream.rows(0)),
        stream.X,
        exact=True,
        what="shuffled",
    )


def check_late_class(learner: BatchLearner) -> None:
    """A label never seen before simply becomes a class."""
    stream = example_stream(5)
    rng = np.random.default_rng(0)
    model = clone(learner).partial_fit(stream.X, stream.y)
    assert list(model.classes_) == [0, 1]
    model.partial_fit(rng.normal(size=(30, 4)) + 8.0, np.full(30, 7))
    assert list(model.classes_) == [0, 1, 7], f"classes_ is {model.classes_!r} after label 7 came"
    scores = model.decision_function(stream.X)
    assert scores.shape == (len(stream.y), 3)
    assert 7 in model.predict(rng.normal(size=(20, 4)) + 8.0), "rows of the late class are never recognised"


def check_long_run_of_one_class(learner: BatchLearner) -> None:
    """Many rows of one class first, then the other: no crash, and both classes are known."""
    rng = np.random.default_rng(6)
    model = clone(learner)
    for _ in range(10):
        model.partial_fit(rng.normal(size=(50, 4)), np.zeros(50, dtype=int))
    assert (model.predict(rng.normal(size=(5, 4))) == 0).all()
    model.partial_fit(rng.normal(size=(20, 4)) + 4.0, np.ones(20, dtype=int))
    assert list(model.classes_) == [0, 1]
    assert np.isfinite(model.decision_function(rng.normal(size=(5, 4)))).all()


def check_labels_of_any_type(learner: BatchLearner) -> None:
    """Strings, booleans, floats and integers all serve as labels and come back as they are."""
    stream = example_stream(7)
    reference = clone(learner).fit(stream.X, stream.y).predict(stream.X)
    for names in (
        np.array(["ok", "rare"]),
        np.array([False, True]),
        np.array([-1.0, 1.0]),
        np.array([10, 200]),
    ):
        model = clone(learner).fit(stream.X, names[stream.y])
        assert np.array_equal(model.classes_, names)
        assert np.array_equal(model.predict(stream.X), names[reference]), (
            f"labels {names!r} change the answers"
        )


def check_memory_stays_bounded(learner: BatchLearner) -> None:
    """The saved state stops growing however many rows come."""
    need(learner._traits.bounded_memory, "this learner keeps rows, so its memory grows with them")
    rng = np.random.default_rng(16)
    model = clone(learner)
    sizes = []
    for rows in (1000, 1000, 3000):
        y = (rng.random(rows) < 0.3).astype(int)
        model.partial_fit(rng.normal(size=(rows, 4)) + y[:, None], y)
        sizes.append(len(written(model)))
    assert sizes[2] <= 1.5 * sizes[0], f"the state grew from {sizes[0]} to {sizes[2]} bytes"


def check_same_on_any_number_of_threads(learner: BatchLearner) -> None:
    """Same seed and data give the same bits on one thread and on two."""
    stream = example_stream(17, n_rows=600)
    answers, before = [], os.environ.get("STEELYARD_NUM_THREADS")
    try:
        for threads in ("1", "2"):
            os.environ["STEELYARD_NUM_THREADS"] = threads
            answers.append(clone(learner).fit(stream.X, stream.y).decision_function(stream.X))
    finally:
        if before is None:
            del os.environ["STEELYARD_NUM_THREADS"]
        else:
            os.environ["STEELYARD_NUM_THREADS"] = before
    assert np.array_equal(*answers), "one and two threads give different answers"


def check_tables(learner: BatchLearner) -> None:
    """Data frames are taken with their names, which are remembered and checked."""
    try:
        import pandas as pd
    except ImportError:
        raise NotApplicable("pandas is not installed") from None
    stream = example_stream(18)
    frame = pd.DataFrame(stream.X, columns=list("abcd"))
    model = clone(learner).fit(frame, stream.y)
    plain = clone(learner).fit(stream.X, stream.y)
    assert list(model.feature_names_in_) == list("abcd")
    assert np.array_equal(model.decision_function(frame), plain.decision_function(stream.X))
    swapped = frame[list("bacd")]
    raises_and_keeps(model, lambda: model.predict(swapped), "columns in another order")
    if isinstance(model, Learner):
        raises_and_keeps(model, lambda: model.partial_fit(swapped, stream.y), "columns in another order")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns that the names are missing here
        learn_more(model, stream.X, stream.y)
