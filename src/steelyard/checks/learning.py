"""Checks of learning: chunk borders, order of rows, classes, label types, memory and data frames."""

from __future__ import annotations

import os
import warnings

import numpy as np
from sklearn.base import clone

from steelyard.base import BatchLearner, ForgettingMixin, Learner
from steelyard.checks.tools import (
    NotApplicable,
    Stream,
    assert_raises_and_keeps_state,
    assert_same_scores,
    example_stream,
    fitted_in_chunks,
    may_round_differently,
    partial_fit_if_possible,
    require,
    require_stream,
)
from steelyard.persistence import to_bytes


def check_inputs_unchanged(learner: BatchLearner) -> None:
    """Learning and prediction do not change the input arrays."""
    stream = example_stream()
    X, y = stream.X.copy(), stream.y.copy()
    X.setflags(write=False)
    y.setflags(write=False)
    model = clone(learner).fit(X, y)
    partial_fit_if_possible(model, X[:10], y[:10])
    model.predict(X)
    if isinstance(model, ForgettingMixin):
        model.forget(X[:10], y[:10])
    assert np.array_equal(X, stream.X)
    assert np.array_equal(y, stream.y)


def check_chunk_borders_do_not_matter(learner: BatchLearner) -> None:
    """The same rows in the same order give the same model for all chunk sizes."""
    require_stream(learner)
    stream = example_stream(1)
    in_one_chunk = fitted_in_chunks(learner, stream, [])
    for cuts in ([120], [1, 2, 3, 100], list(range(1, 240, 7))):
        in_chunks = fitted_in_chunks(learner, stream, cuts)
        assert_same_scores(
            in_chunks,
            in_one_chunk,
            stream.X,
            up_to_rounding=may_round_differently(learner),
            what=f"chunks that end at {cuts[:4]}",
        )


def check_fit_equals_partial_fit(learner: BatchLearner) -> None:
    """fit() discards the earlier state and then learns as one call of partial_fit() does."""
    require_stream(learner)
    stream = example_stream(2)
    expected = clone(learner).partial_fit(stream.X, stream.y)
    refitted = clone(learner).fit(*example_stream(3, n_classes=3).rows(0)).fit(stream.X, stream.y)
    assert_same_scores(refitted, expected, stream.X, up_to_rounding=False, what="fit after another fit")


def check_order_does_not_matter(learner: BatchLearner) -> None:
    """An exact learner gives the same model for any order of the rows."""
    require(learner._traits.exact, "this learner processes rows in their order")
    stream = example_stream(4)
    order = np.random.default_rng(0).permutation(len(stream.y))
    shuffled = Stream(stream.X[order], stream.y[order])
    # Each learner gets all rows in one call, because the first call may fit a kernel width or a feature map.
    assert_same_scores(
        clone(learner).fit(*shuffled.rows(0)),
        clone(learner).fit(*stream.rows(0)),
        stream.X,
        up_to_rounding=True,
        what="shuffled",
    )


def check_new_label_becomes_class(learner: BatchLearner) -> None:
    """A new label becomes a new class."""
    require_stream(learner)
    stream = example_stream(5)
    rng = np.random.default_rng(0)
    model = clone(learner).partial_fit(stream.X, stream.y)
    assert list(model.classes_) == [0, 1]
    model.partial_fit(rng.normal(size=(30, 4)) + 8.0, np.full(30, 7))
    assert list(model.classes_) == [0, 1, 7], f"classes_ is {model.classes_!r} after label 7"
    scores = model.decision_function(stream.X)
    assert scores.shape == (len(stream.y), 3)
    assert 7 in model.predict(rng.normal(size=(20, 4)) + 8.0), "no row of the new class is predicted"


def check_long_run_of_one_class(learner: BatchLearner) -> None:
    """After many rows of one class and then rows of another, both classes are known and scores are finite."""
    require_stream(learner)
    rng = np.random.default_rng(6)
    model = clone(learner)
    for _ in range(10):
        model.partial_fit(rng.normal(size=(50, 4)), np.zeros(50, dtype=int))
    assert (model.predict(rng.normal(size=(5, 4))) == 0).all()
    model.partial_fit(rng.normal(size=(20, 4)) + 4.0, np.ones(20, dtype=int))
    assert list(model.classes_) == [0, 1]
    assert np.isfinite(model.decision_function(rng.normal(size=(5, 4)))).all()


def check_labels_of_any_type(learner: BatchLearner) -> None:
    """Labels may be strings, booleans, floats and integers; predictions have the type of the labels."""
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
            f"labels {names!r} change the predictions"
        )


def check_memory_stays_bounded(learner: BatchLearner) -> None:
    """The size of the saved state does not grow with the number of rows."""
    require_stream(learner)
    require(learner._traits.bounded_memory, "the memory of this learner grows with the number of rows")
    rng = np.random.default_rng(16)
    model = clone(learner)
    sizes = []
    for rows in (1000, 1000, 3000):
        y = (rng.random(rows) < 0.3).astype(int)
        model.partial_fit(rng.normal(size=(rows, 4)) + y[:, None], y)
        sizes.append(len(to_bytes(model)))
    assert sizes[2] <= 1.5 * sizes[0], f"the state grew from {sizes[0]} to {sizes[2]} bytes"


def check_number_of_threads_does_not_matter(learner: BatchLearner) -> None:
    """One and two threads give bitwise equal scores."""
    stream = example_stream(17, n_rows=600)
    scores, before = [], os.environ.get("STEELYARD_NUM_THREADS")
    try:
        for threads in ("1", "2"):
            os.environ["STEELYARD_NUM_THREADS"] = threads
            scores.append(clone(learner).fit(stream.X, stream.y).decision_function(stream.X))
    finally:
        if before is None:
            del os.environ["STEELYARD_NUM_THREADS"]
        else:
            os.environ["STEELYARD_NUM_THREADS"] = before
    assert np.array_equal(*scores), "one and two threads give different scores"


def check_data_frames(learner: BatchLearner) -> None:
    """Data frames are accepted; their column names are stored and compared."""
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
    assert_raises_and_keeps_state(model, lambda: model.predict(swapped), "columns in another order")
    if isinstance(model, Learner):
        assert_raises_and_keeps_state(
            model, lambda: model.partial_fit(swapped, stream.y), "columns in another order"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns that X has no feature names
        partial_fit_if_possible(model, stream.X, stream.y)
