"""Any history of adding, forgetting, merging, saving and loading equals a fresh fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_iris

from steelyard import ProximalSVC, persistence
from steelyard.proximal import ClassStatistics
from tests.proximal import reference
from tests.proximal.data import assert_same_planes, imbalanced, relative_difference

operations = st.lists(
    st.tuples(st.sampled_from(["add", "forget", "update", "merge", "save"]), st.integers(1, 90)),
    min_size=1,
    max_size=15,
)


@given(operations=operations, seed=st.integers(0, 10**6), class_weight=st.sampled_from(["balanced", None]))
def test_model_after_any_history_equals_textbook_formula_on_current_rows(operations, seed, class_weight):
    rng = np.random.default_rng(seed)
    X, y = imbalanced(rng, 2000, 4, (0.7, 0.2, 0.1))
    model, current, fresh_rows = ProximalSVC(C=2.0, class_weight=class_weight), [], iter(range(2000))

    def take(number):
        return [next(fresh_rows) for _ in range(number)]

    def leave(number):
        leaving = rng.choice(len(current), size=min(number, max(len(current) - 20, 0)), replace=False)
        forgotten = [current[i] for i in leaving]
        for i in sorted(leaving, reverse=True):
            del current[i]
        return forgotten

    first = take(60)
    model.partial_fit(X[first], y[first])
    current += first
    for kind, number in operations:
        if kind == "add":
            rows = take(number)
            model.partial_fit(X[rows], y[rows])
            current += rows
        elif kind == "forget":
            if rows := leave(number):
                model.forget(X[rows], y[rows])
        elif kind == "update":
            forgotten, rows = leave(number), take(number)
            model.update(add=(X[rows], y[rows]), forget=(X[forgotten], y[forgotten]) if forgotten else None)
            current += rows
        elif kind == "merge":
            rows = take(number)
            model.merge(ProximalSVC(C=2.0, class_weight=class_weight).fit(X[rows], y[rows]))
            current += rows
        else:
            model = persistence.from_bytes(persistence.to_bytes(model))
    assert_same_planes(model, *reference.proximal(X[current], y[current], 2.0, class_weight), 1e-9)


@pytest.mark.parametrize("label", [0, 1, 2])
def test_incremental_fit_equals_batch_fit_on_iris_as_in_thesis_table_5_1(label):
    X, y = load_iris(return_X_y=True)
    _assert_incremental_equals_batch(X, (y == label).astype(int))


def test_incremental_fit_equals_batch_fit_on_cancer_data_as_in_thesis_table_5_1():
    _assert_incremental_equals_batch(*load_breast_cancer(return_X_y=True))


def _assert_incremental_equals_batch(X, y):
    """Assert that the planes of a fit row by row and of a batch fit are equal in position and direction."""
    order = np.random.default_rng(0).permutation(len(y))
    model = ProximalSVC()
    for i in order:
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    coef, intercept = reference.proximal(X, y)
    batch, ours = np.append(coef, intercept), np.append(model.coef_, model.intercept_)
    assert np.linalg.norm(batch - ours) < 1e-10 * np.linalg.norm(batch)
    assert np.linalg.norm(batch / np.linalg.norm(batch) - ours / np.linalg.norm(ours)) < 1e-10


@pytest.mark.parametrize("shape", [(303, 13), (569, 30), (3000, 294), (20_000, 54)])
def test_incremental_and_distributed_fits_equal_batch_fit_as_in_paper_table_1(rng, shape):
    """Incremental, distributed, and distributed incremental fits all equal the batch fit."""
    X, y = imbalanced(rng, *shape, (0.85, 0.15))
    if shape == (569, 30):
        X, y = load_breast_cancer(return_X_y=True)
    batch = ProximalSVC().fit(X, y)
    cuts = np.array_split(np.arange(len(y)), 12)
    incremental = ProximalSVC()
    for rows in cuts:
        incremental.partial_fit(X[rows], y[rows])
    sites = [ProximalSVC() for _ in range(4)]
    for number, rows in enumerate(cuts):
        sites[number % 4].partial_fit(X[rows], y[rows])
    distributed = ProximalSVC()
    for site in sites:
        distributed.merge(site)
    deltas = ProximalSVC()
    for site in sites:
        before = ClassStatistics(X.shape[1])
        deltas.merge(site.statistics_ - before)
    for model in (incremental, distributed, deltas):
        assert_same_planes(model, batch.coef_, batch.intercept_)


def test_model_after_a_million_single_row_operations_equals_a_fresh_fit(rng):
    """The test uses the statistics directly, because the checks of the estimator only add time."""
    d, window = 3, 500
    X = rng.normal(size=(500_500, d)) * [1.0, 10.0, 0.1] + [5.0, 0.0, -3.0]
    y = (rng.random(len(X)) < 0.1).astype(int)
    statistics, current, new = ClassStatistics(d), [], 0
    statistics.add(X[:window], y[:window])
    current, new = list(range(window)), window
    add, remove = statistics.add_batch, statistics.remove_batch
    from steelyard.base import Batch

    code = np.zeros(1, dtype=np.int32)
    for _ in range(500_000):
        add(Batch(X[new : new + 1], [int(y[new])], code, None))
        place = new * 7919 % window  # a deterministic, scattered order of removal
        leaving = current[place]
        remove(Batch(X[leaving : leaving + 1], [int(y[leaving])], code, None), "test")
        current[place] = new
        new += 1
    model = ProximalSVC().merge(statistics)
    fresh = ProximalSVC().fit(X[current], y[current])
    assert statistics.n_rows == window
    assert_same_planes(model, fresh.coef_, fresh.intercept_, 1e-9)


def test_class_without_rows_is_removed_and_can_be_learned_again(rng):
    X, y = imbalanced(rng, 400, 4, (0.6, 0.3, 0.1))
    model = ProximalSVC().fit(X, y)
    last = y == 2
    model.forget(X[last], y[last])
    assert model.classes_.tolist() == [0, 1]
    assert_same_planes(model, *reference.proximal(X[~last], y[~last]))
    model.partial_fit(X[last], y[last])
    assert_same_planes(model, *reference.proximal(X, y))


def test_learner_without_rows_can_learn_again(rng):
    X, y = imbalanced(rng, 300, 4)
    model = ProximalSVC().fit(X, y).forget(X, y)
    assert model.classes_.size == 0
    with pytest.raises(ValueError, match="all rows have been forgotten"):
        model.predict(X)
    model.partial_fit(X, y)
    assert_same_planes(model, *reference.proximal(X, y))


def test_weight_of_a_row_can_be_forgotten_in_several_steps(rng):
    X, y = imbalanced(rng, 300, 4)
    model = ProximalSVC().fit(X, y, sample_weight=np.full(300, 3.0))
    model.forget(X, y, sample_weight=np.full(300, 2.0))
    assert_same_planes(model, *reference.proximal(X, y))


def test_merge_gives_the_same_model_in_any_order_and_grouping(rng):
    X, y = imbalanced(rng, 900, 6, (0.8, 0.15, 0.05))
    X[450:] += 1e4  # partitions with different origins
    parts = [ProximalSVC().fit(X[i::9], y[i::9]) for i in range(9)]
    batch = ProximalSVC().fit(X, y)
    left = ProximalSVC()
    for part in parts:
        left.merge(part)
    level = [ProximalSVC().merge(part) for part in reversed(parts)]
    while len(level) > 1:
        level = [a.merge(b) for a, b in zip(level[::2], level[1::2], strict=False)] + level[
            len(level) // 2 * 2 :
        ]
    assert relative_difference(left.coef_, batch.coef_) < 1e-9
    assert relative_difference(level[0].coef_, batch.coef_) < 1e-9
