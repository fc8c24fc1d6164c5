"""Code shared by all engines: sums of partitions, and feature maps used by all workers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from steelyard import ProximalSVC, RandomFeatures
from steelyard._threads import num_threads, one_thread
from steelyard.distributed.partitions import Pass, learn_partition, merge_parts
from steelyard.exceptions import DataError
from steelyard.proximal import FoldedStatistics
from tests.distributed.data import assert_same_model
from tests.proximal.data import imbalanced


def run(models, method, partitions):
    """Run a pass without an engine. Messages are serialized, as they are between machines."""
    work = Pass(models, method)
    work.fit_maps(lambda: partitions[0][0][:2000])
    kinds = pickle.loads(pickle.dumps(work.configs))
    parts = [learn_partition(kinds, X, y, None, f"partition {k}") for k, (X, y) in enumerate(partitions)]
    work.finish(merge_parts([[sent(part) for part in list_] for list_ in parts]))
    return models


def sent(message):
    return None if message is None else FoldedStatistics.from_bytes(message.to_bytes())


def cut(X, y, borders):
    return list(zip(np.split(X, borders), np.split(y, borders), strict=True))


@pytest.mark.parametrize("kind", ["rbf", "laplacian", "relu", "sigmoid"])
@pytest.mark.parametrize("C", [1.0, "auto"])
def test_fit_with_seeded_feature_map_equals_local_fit(rng, kind, C):
    X, y = imbalanced(rng, 500, 4)
    feature_map = RandomFeatures(40, kind=kind, gamma=[0.05, 0.5])
    model = run(ProximalSVC(C=C, feature_map=feature_map), "fit", cut(X, y, [0, 7, 300]))
    fresh = ProximalSVC(C=C, feature_map=feature_map).fit(X, y)
    assert model.C_ == fresh.C_
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), rtol=0, atol=1e-10)


def test_data_dependent_feature_map_is_fitted_on_first_rows(rng):
    X, y = imbalanced(rng, 500, 4)
    model = run(ProximalSVC(feature_map=RandomFeatures(40)), "fit", cut(X, y, [150, 300]))
    settled = RandomFeatures(40).fit(X[:150])
    fresh = ProximalSVC(feature_map=settled).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), rtol=0, atol=1e-9)


def test_already_fitted_feature_map_is_used_unchanged(rng):
    X, y = imbalanced(rng, 300, 4)
    settled = RandomFeatures(30).fit(X[200:])
    model = run(ProximalSVC(feature_map=settled), "fit", cut(X, y, [100]))
    fresh = ProximalSVC(feature_map=settled).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), rtol=0, atol=1e-9)


def test_partial_fit_keeps_feature_map(rng):
    X, y = imbalanced(rng, 300, 4)
    model = ProximalSVC(feature_map=RandomFeatures(30)).fit(X[:100], y[:100])
    fresh = ProximalSVC(feature_map=RandomFeatures(30)).fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    run(model, "partial_fit", cut(X[100:], y[100:], [50]))
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), rtol=0, atol=1e-9)


def test_messages_do_not_contain_feature_map(rng):
    X, y = imbalanced(rng, 300, 4)
    work = Pass(ProximalSVC(feature_map=RandomFeatures(50).fit(X)), "fit")
    (part,) = learn_partition(work.configs, X, y, None, "partition 0")
    assert len(part.to_bytes()) < 2 * 8 * 51 * 52 // 2 + 8000  # two triangular matrices and no feature map


def test_invalid_row_while_fitting_feature_map_raises_with_location(rng):
    X, y = imbalanced(rng, 100, 4)
    X[5, 2] = np.nan
    with pytest.raises(DataError, match="partition 0: X has NaN in row 5, column 2"):
        run(ProximalSVC(feature_map=RandomFeatures(30)), "fit", cut(X, y, [50]))


def test_models_with_different_solver_parameters_share_statistics(rng):
    feature_map = RandomFeatures(30, gamma=0.1)
    models = [
        ProximalSVC(),
        ProximalSVC(C=5.0, threshold="gmean"),
        ProximalSVC(C="auto"),
        ProximalSVC(class_weight=None, C="auto"),
        ProximalSVC(feature_map=feature_map),
        ProximalSVC(C=2.0, feature_map=RandomFeatures(30, gamma=0.1)),
        ProximalSVC(feature_map=RandomFeatures(30, gamma=0.2)),
    ]
    assert len(Pass(models, "fit").configs) == 4


def test_fit_of_several_models_is_atomic(rng):
    X, y = imbalanced(rng)
    first, second = ProximalSVC().fit(X, y), ProximalSVC().fit(X[:50], y[:50])
    with pytest.raises(DataError, match=r"forget: .* are learned"):
        run([first, second], "forget", cut(X, y, [100]))
    assert_same_model(first, ProximalSVC().fit(X, y), 1e-14)


def test_partitions_of_different_widths_raise(rng):
    X, y = imbalanced(rng)
    with pytest.raises(DataError, match="partition 1: X has 4 features, but ProximalSVC is expecting 5"):
        run(ProximalSVC(), "fit", [(X, y), (X[:, :4], y)])


def test_empty_partition_sends_nothing_and_keeps_state(rng):
    X, y = imbalanced(rng)
    work = Pass(ProximalSVC(), "fit")
    (empty,) = learn_partition(work.configs, X[:0], y[:0], None, "partition 0")
    (part,) = learn_partition(work.configs, X, y, None, "partition 1")
    assert empty is None
    for order in ([[empty], [part]], [[part], [empty]]):
        (total,) = merge_parts(order)
        assert total.to_bytes() == part.to_bytes()


def test_empty_partition_sends_nothing_to_fitted_model(rng):
    X, y = imbalanced(rng)
    model = ProximalSVC(C="auto", track_rows=True).fit(X[:60], y[:60])
    assert learn_partition(Pass(model, "partial_fit").configs, X[:0], y[:0], None, "partition 0") == [None]
    run(model, "partial_fit", [(X[:0], y[:0]), (X[60:], y[60:])])
    assert model.digest() == ProximalSVC(quantizer=model.quantizer_).fit(X, y).digest()


def test_one_thread_limit_applies_only_inside_context():
    outside = num_threads()
    with one_thread():
        assert num_threads() == 1
    assert num_threads() == outside


@pytest.mark.parametrize("n_rows", [10, 100, 1000])
def test_message_size_is_at_most_one_triangular_matrix_per_class(rng, n_rows):
    X, y = imbalanced(rng, n_rows, 54, (0.6, 0.3, 0.1))
    (part,) = learn_partition(Pass(ProximalSVC(), "fit").configs, X, y, None, "partition 0")
    assert len(part.to_bytes()) < 3 * 13 * 55 * 56 // 2 + 4000  # 13 bytes per number
