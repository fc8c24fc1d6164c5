"""Reading planes between rows changes the internal representation of the sums, but not their values."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import ProximalSVC, RandomFeatures
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics


def rows_of(seed: int, n_rows: int, d: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n_rows) < 0.1).astype(int)
    X = rng.normal(size=(n_rows, d)) + 0.5 * y[:, None]
    if kind == "counts":
        X = np.round(4.0 * X)
    elif kind == "far":
        X = X + 1e7
    elif kind == "extreme":
        X = X * 10.0 ** np.linspace(-70.0, 60.0, d)
    return X, y


@pytest.mark.parametrize("kind", ["plain", "counts", "far", "extreme"])
@pytest.mark.parametrize("d", [1, 6, 140])
def test_planes_are_bit_identical_if_predict_is_called_between_rows(kind, d):
    X, y = rows_of(d, 420, d, kind)
    read, unread = (ProximalSVC().partial_fit(X[:280], y[:280]) for _ in range(2))
    for i in range(280, 420):
        read.predict(X[i : i + 1])
        for model in (read, unread):
            model.partial_fit(X[i : i + 1], y[i : i + 1])
    fresh = ProximalSVC(quantizer=unread.quantizer_).fit(X, y)
    for other in (unread, fresh):
        assert read.coef_.tobytes() == other.coef_.tobytes()
        assert read.intercept_.tobytes() == other.intercept_.tobytes()
        assert read.digest() == other.digest()


def test_reading_planes_does_not_change_the_message():
    X, y = rows_of(0, 400, 5, "plain")
    statistics = ClassStatistics(5)
    statistics.add(X[:300], y[:300])
    for i in range(300, 400):
        statistics.add(X[i : i + 1], y[i : i + 1])
        before = statistics.to_bytes()
        statistics.view()
        assert statistics.to_bytes() == before


def test_forget_of_unknown_row_raises_after_alternating_predict_and_partial_fit():
    X, y = rows_of(1, 330, 4, "plain")
    model = ProximalSVC().partial_fit(X[:300], y[:300])
    for i in range(300, 330):
        model.predict(X[:1])
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    digest, rare = model.digest(), np.flatnonzero(y == 1)[-1:]
    with pytest.raises(DataError, match="never"):
        model.forget(X[rare] + 0.5, y[rare])
    assert model.digest() == digest
    model.predict(X[:1])
    model.forget(X[rare], y[rare])
    kept = np.delete(np.arange(330), rare)
    fresh = ProximalSVC(quantizer=model.quantizer_).fit(X[kept], y[kept])
    assert model.coef_.tobytes() == fresh.coef_.tobytes()


def test_copied_statistics_do_not_change_when_original_adds_rows():
    X, y = rows_of(2, 400, 4, "plain")
    model = ClassStatistics(4)
    model.add(X[:300], y[:300])
    model.view()
    copied = model.copy()
    digest = copied.digest()
    for i in range(300, 400):
        model.add(X[i : i + 1], y[i : i + 1])
        model.view()
        assert copied.digest() == digest
    copied.add(X[300:], y[300:])
    assert copied.digest() == model.digest()


@pytest.mark.parametrize("feature_map", [None, RandomFeatures(30, random_state=0)], ids=["plain", "mapped"])
def test_cached_total_equals_the_sum_of_the_folds(feature_map):
    X, y = rows_of(3, 1400, 4, "plain")
    read, unread = (ProximalSVC(C="auto", feature_map=feature_map) for _ in range(2))
    for begin in range(0, 1400, 50):
        part = slice(begin, begin + 50)
        if begin:
            read.predict(X[part])
        for model in (read, unread):
            model.partial_fit(X[part], y[part])
        folds = read._state._subset(range(5))
        assert read.statistics_.digest() == folds.digest()
    assert read.digest() == unread.digest()
    for model in (read, unread):
        model.reselect_C()
    assert read.coef_.tobytes() == unread.coef_.tobytes()
