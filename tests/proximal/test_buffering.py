"""The first rows of a stream are buffered until the feature map is fitted."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score

from steelyard import ProximalSVC, RandomFeatures, persistence
from steelyard.exceptions import DataError
from steelyard.proximal import Quantizer
from tests.proximal.data import imbalanced


def learner(**parameters):
    return ProximalSVC(feature_map=RandomFeatures(40), **parameters)


def streamed(model, X, y, step):
    for begin in range(0, len(X), step):
        model.partial_fit(X[begin : begin + step], y[begin : begin + step])
    return model


def same(one, other, X):
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    assert one.digest() == other.digest()


def test_columns_that_are_constant_in_the_first_rows_are_used():
    """In network logs, for example, some services and flags do not occur in the first hundred rows."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 30))
    X[:150, 5:] = 0.0
    y = (X[:, 10] * X[:, 11] > 0.8).astype(int)
    model = streamed(learner(C=100.0), X[:2000], y[:2000], 100)
    assert np.count_nonzero(model._state.feature_map.map_.scale) == 30
    fitted_early = ProximalSVC(C=100.0, feature_map=RandomFeatures(40).fit(X[:100]))
    early = streamed(fitted_early, X[:2000], y[:2000], 100)
    assert np.count_nonzero(early._state.feature_map.map_.scale) == 5
    scores = [roc_auc_score(y[2000:], m.decision_function(X[2000:])) for m in (model, early)]
    assert scores[0] > scores[1] + 0.02


@pytest.mark.parametrize("C", [1.0, "auto"])
@pytest.mark.parametrize("n_rows", [9, 700, 1000, 1700])
def test_batch_sizes_do_not_change_the_buffered_state(rng, C, n_rows):
    X, y = imbalanced(rng, n_rows, 5)
    expected = streamed(learner(C=C), X, y, n_rows)
    for step in (90, 256) if n_rows > 9 else (1, 5):
        same(streamed(learner(C=C), X, y, step), expected, X)


def test_feature_map_is_fitted_to_the_first_thousand_rows(rng):
    X, y = imbalanced(rng, 1500, 5)
    model = streamed(learner(), X, y, 170)
    assert model._state.feature_map.same_map(RandomFeatures(40).fit(X[:1000]))
    assert model._state.buffer is None
    same(model, ProximalSVC(feature_map=RandomFeatures(40).fit(X[:1000])).fit(X, y), X)


def test_fit_fits_the_feature_map_to_all_given_rows(rng):
    X, y = imbalanced(rng, 300, 5)
    model = learner().fit(X, y)
    assert model._state.buffer is None
    assert model._state.feature_map.same_map(RandomFeatures(40).fit(X))


def test_predictions_do_not_change_the_buffered_state(rng):
    X, y = imbalanced(rng, 1300, 4)
    predicting = learner()
    for begin in range(0, 1300, 130):
        predicting.partial_fit(X[begin : begin + 130], y[begin : begin + 130])
        assert predicting.predict(X[:20]).shape == (20,)
    same(predicting, streamed(learner(), X, y, 1300), X)


def test_forget_buffered_rows_equals_fit_without_these_rows(rng):
    X, y = imbalanced(rng, 600, 4)
    model = streamed(learner(), X, y, 100).forget(X[100:250], y[100:250])
    kept = np.r_[0:100, 250:600]
    same(model, streamed(learner(), X[kept], y[kept], 50), X)
    more_X, more_y = imbalanced(rng, 900, 4)
    model.partial_fit(more_X, more_y)
    fresh = streamed(learner(), np.concatenate([X[kept], more_X]), np.concatenate([y[kept], more_y]), 200)
    same(model, fresh, X)


def test_forget_unknown_buffered_rows_raises(rng):
    X, y = imbalanced(rng, 200, 4)
    model = streamed(learner(), X, y, 50)
    before = model.decision_function(X)
    with pytest.raises(DataError, match="never learned; nothing was changed"):
        model.forget(X[:3] + 1.0, y[:3])
    np.testing.assert_array_equal(model.decision_function(X), before)


@pytest.mark.parametrize(
    "copied",
    [
        lambda model: persistence.from_bytes(persistence.to_bytes(model)),
        lambda model: pickle.loads(pickle.dumps(model)),
    ],
    ids=["saved", "pickled"],
)
def test_loaded_learner_with_buffered_rows_continues_buffering(rng, copied):
    X, y = imbalanced(rng, 1400, 4)
    model = copied(streamed(learner(), X[:600], y[:600], 100))
    same(model, streamed(learner(), X[:600], y[:600], 600), X)
    same(streamed(model, X[600:], y[600:], 100), streamed(learner(), X, y, 1400), X)


@pytest.mark.parametrize(("n_here", "n_there"), [(300, 400), (300, 1200), (1200, 300), (700, 800)])
def test_learners_with_buffered_rows_are_merged(rng, n_here, n_there):
    X, y = imbalanced(rng, n_here + n_there, 4)
    here = streamed(learner(), X[:n_here], y[:n_here], 100)
    there = streamed(learner(), X[n_here:], y[n_here:], 100)
    merged = pickle.loads(pickle.dumps(here)).merge(there)
    assert merged.statistics_.n_rows == len(X)
    fitted_map = merged._state.feature_map
    if merged._state.buffer is None:
        same(merged, ProximalSVC(feature_map=fitted_map).fit(X, y), X)
    else:
        same(merged, streamed(learner(), X, y, 100), X)


def test_merge_of_buffering_learners_with_different_maps_raises(rng):
    X, y = imbalanced(rng, 200, 4)
    here = streamed(learner(), X, y, 100)
    there = ProximalSVC(feature_map=RandomFeatures(41)).partial_fit(X, y)
    with pytest.raises(DataError, match="different feature maps"):
        here.merge(there)


def test_subtract_after_merge_restores_the_digest(rng):
    X, y = imbalanced(rng, 500, 4)
    here = streamed(learner(), X[:300], y[:300], 100)
    there = streamed(learner(), X[300:], y[300:], 100)
    expected = pickle.loads(pickle.dumps(here))
    same(here.merge(there).subtract(there), expected, X)


def test_sliding_window_shorter_than_the_buffer_fits_its_feature_map(rng):
    X, y = imbalanced(rng, 4400, 3)
    model = learner().partial_fit(X[:400], y[:400])
    for begin in range(400, 4400, 400):
        old = slice(begin - 400, begin)
        model.update(add=(X[begin : begin + 400], y[begin : begin + 400]), forget=(X[old], y[old]))
    assert model._state.buffer is None
    assert model.statistics_.n_rows == 400


def test_sparse_rows_weights_and_decay_are_buffered(rng):
    X, y = imbalanced(rng, 400, 4)
    weights = rng.integers(1, 4, size=400).astype(float)
    dense, sparse = learner(), learner()
    for begin in range(0, 400, 100):
        part = slice(begin, begin + 100)
        dense.partial_fit(X[part], y[part], sample_weight=weights[part])
        sparse.partial_fit(sp.csr_array(X[part]), y[part], sample_weight=weights[part])
    same(dense, sparse, X)
    assert dense.class_count_.sum() == weights.sum()
    faded = dense.decay(0.5)
    assert faded.class_count_.sum() == 0.5 * weights.sum()
    assert faded.partial_fit(X, y).class_count_.sum() == 0.5 * weights.sum() + 400.0


def test_merging_buffered_rows_into_learner_with_quantizer_adds_them_once(rng):
    X, y = rng.normal(size=(300, 3)), np.arange(300) % 2
    buffering = ProximalSVC(feature_map=RandomFeatures(20)).partial_fit(X, y)
    quantizer = Quantizer.uniform(20, buffering.feature_map_.step)
    merged = ProximalSVC(feature_map=RandomFeatures(20), quantizer=quantizer).merge(buffering)
    assert merged.class_count_.sum() == 300.0
