"""track_rows=True: the ledger (the record of learned rows) refuses to forget rows that were not learned."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import ProximalSVC
from steelyard.exceptions import DataError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.proximal.row_ledger import RowLedger
from tests.proximal.data import imbalanced


@pytest.fixture
def fitted(rng):
    X, y = imbalanced(rng, 500, 4, (0.6, 0.4))
    return ProximalSVC(track_rows=True).fit(X, y), X, y


def foreign(X, y):
    return np.concatenate([X[:99], X[:1] + 0.01]), y[:100]


@pytest.mark.parametrize(
    "rows",
    [
        foreign,
        lambda X, y: (X[:50], 1 - y[:50]),
        lambda X, y: (np.round(X[:50], 2), y[:50]),
        lambda X, y: (X[:50], y[:50], np.full(50, 0.5)),
        lambda X, y: (np.concatenate([X[:50], X[:1]]), np.append(y[:50], y[0])),
    ],
    ids=["one foreign row", "wrong labels", "rounded values", "other weights", "one row twice"],
)
def test_forget_unknown_rows_raises_and_keeps_state(fitted, rows):
    model, X, y = fitted
    before, answers = model.digest(), model.decision_function(X)
    with pytest.raises(DataError, match="ledger"):
        model.forget(*rows(X, y))
    with pytest.raises(DataError, match="ledger"):
        model.update(add=(X[400:], y[400:]), forget=rows(X, y))
    assert model.digest() == before
    np.testing.assert_array_equal(model.decision_function(X), answers)


def test_forget_the_same_rows_twice_raises(fitted):
    model, X, y = fitted
    model.forget(X[:20], y[:20])
    after = model.digest()
    with pytest.raises(DataError, match=r"20 of 20 rows .* ledger"):
        model.forget(X[:20], y[:20])
    assert model.digest() == after
    model.partial_fit(X[:20], y[:20]).forget(X[:20], y[:20])
    assert model.digest() == after


def test_ledgers_are_saved_merged_and_subtracted(fitted, rng):
    model, X, y = fitted
    more, labels = imbalanced(rng, 300, 4, (0.5, 0.5))
    other = ProximalSVC(track_rows=True, quantizer=model.quantizer_).fit(more, labels)
    before = model.digest()
    model = from_bytes(to_bytes(model)).merge(other)
    model.forget(more[:10], labels[:10]).forget(X[:10], y[:10])
    with pytest.raises(DataError, match="ledger"):
        model.subtract(other)
    model.partial_fit(more[:10], labels[:10]).partial_fit(X[:10], y[:10]).subtract(other)
    assert model.digest() == before
    with pytest.raises(DataError, match="keeps a ledger"):
        model.merge(ProximalSVC().fit(more, labels))


def test_sparse_and_single_precision_rows_have_equal_hashes(rng):
    X, y = rng.integers(0, 3, size=(400, 6)).astype(float), rng.integers(0, 2, 400)
    model = ProximalSVC(track_rows=True).fit(sp.csr_matrix(X), y)
    model.forget(X[:100].astype(np.float32), y[:100]).forget(X[100:200], y[100:200].astype(float))
    with pytest.raises(DataError, match="ledger"):
        model.forget(np.full((1, 6), 7.0), [0])


def test_decay_and_permute_features_with_a_ledger_raise(fitted):
    model, _, _ = fitted
    with pytest.raises(DataError, match="cannot decay"):
        model.decay(0.5)
    with pytest.raises(DataError, match="cannot be permuted"):
        model.permute_features([1, 0, 2, 3], 4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 12), max_size=30)), max_size=20))
def test_ledger_is_a_multiset(steps):
    ledger, expected = RowLedger(), []
    for add, values in steps:
        hashes = np.array(values, dtype=np.uint64)
        if add:
            ledger, expected = ledger.with_hashes(hashes), expected + values
            continue
        left = list(expected)
        try:
            for value in values:
                left.remove(value)
        except ValueError:
            with pytest.raises(DataError, match="ledger"):
                ledger.without_hashes(hashes, "test")
        else:
            ledger, expected = ledger.without_hashes(hashes, "test"), left
        assert ledger.to_array().tolist() == sorted(expected)
        assert len(ledger) == len(expected)


def test_ledger_takes_at_most_twelve_bytes_per_row(rng):
    ledger = RowLedger()
    for _ in range(200):
        ledger = ledger.with_hashes(rng.integers(0, 2**63, 100).astype(np.uint64))
    assert ledger.nbytes == 8 * len(ledger)
    hashes = ledger.to_array()
    for begin in range(0, 15_000, 100):
        ledger = ledger.without_hashes(hashes[begin : begin + 100], "test")
        assert ledger.nbytes <= 12 * len(ledger)
