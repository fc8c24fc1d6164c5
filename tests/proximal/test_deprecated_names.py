"""Deprecated names of ProximalSVC and its parts warn and work."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import steelyard.proximal
from steelyard import ProximalSVC, RandomFeatures
from steelyard.proximal import Certificate, ClassStatistics, Quantizer
from tests.proximal.data import imbalanced


@pytest.fixture
def rows(rng):
    return imbalanced(rng, 300, 4)


@pytest.mark.parametrize(
    ("old", "new", "arguments"),
    [
        ("fade", "decay", (0.5,)),
        ("refresh", "reselect_C", ()),
        ("rearranged", "permute_features", ([1, 0, 3, 2], 4)),
        ("message", "statistics", ()),
    ],
)
def test_deprecated_method_warns_and_returns_result_of_new_method(rows, old, new, arguments):
    one, other = ProximalSVC().fit(*rows), ProximalSVC().fit(*rows)
    with pytest.warns(FutureWarning, match=rf"{old}\(\) is deprecated .* write {new}\(\)"):
        result = getattr(one, old)(*arguments)
    assert result.digest() == getattr(other, new)(*arguments).digest()


def test_deprecated_unmerge_warns_and_subtracts(rows):
    X, y = rows
    model, other = ProximalSVC().fit(X, y), ProximalSVC().fit(X[:100], y[:100])
    with pytest.warns(FutureWarning, match="write subtract"):
        model.unmerge(other)
    assert model.digest() == ProximalSVC().fit(X, y).subtract(other).digest()


def test_deprecated_parameters_and_attributes_warn_and_work(rows):
    quantizer = ProximalSVC().fit(*rows).quantizer_
    with pytest.warns(FutureWarning, match="write quantizer"):
        model = ProximalSVC(grid=quantizer)
    with pytest.warns(FutureWarning, match="write track_rows"):
        model.set_params(ledger=True)
    assert model.quantizer is quantizer
    assert model.track_rows
    with pytest.warns(FutureWarning, match="write quantizer_"):
        assert model.fit(*rows).grid_ == quantizer


def test_deprecated_retire_argument_of_update_warns_and_forgets(rows):
    X, y = rows
    one, other = ProximalSVC().fit(X, y), ProximalSVC().fit(X, y)
    with pytest.warns(FutureWarning, match="write forget"):
        one.update(retire=(X[:9], y[:9]))
    assert one.digest() == other.update(forget=(X[:9], y[:9])).digest()


def test_deprecated_certificate_argument_warns_and_returns_a_certificate(rows):
    X, y = rows
    one, other = ProximalSVC().fit(X, y), ProximalSVC().fit(X, y)
    with pytest.warns(FutureWarning, match="write certify_forget"):
        certificate = one.forget(X[:9], y[:9], certificate=True)
    assert isinstance(certificate, Certificate)
    assert other.forget(X[:9], y[:9]) is other
    assert certificate.digest_after == other.digest()


def test_deprecated_names_of_quantizer_and_statistics_warn_and_work(rows):
    with pytest.warns(FutureWarning, match="write steelyard.proximal.Quantizer"):
        assert steelyard.proximal.Grid is Quantizer
    with pytest.warns(FutureWarning, match="write step"):
        quantizer = Quantizer.uniform(4, quantum=0.25)
    with pytest.warns(FutureWarning, match="write steps"):
        np.testing.assert_array_equal(quantizer.quanta, np.full(4, 0.25))
    statistics = ClassStatistics(4)
    statistics.add(*(part[:9] for part in rows))
    with pytest.warns(FutureWarning, match="write freeze_quantizer"):
        statistics.settle()
    with pytest.warns(FutureWarning, match="write is_frozen"):
        assert statistics.is_settled


def test_deprecated_names_of_random_features_warn_and_work(rows):
    features = RandomFeatures(20, gamma=0.5)
    with pytest.warns(FutureWarning, match="write fitted_on"):
        fitted = features.settled(rows[0])
    with pytest.warns(FutureWarning, match="write fitted_for"):
        assert features.settled_for(4).same_map(fitted)
    with pytest.warns(FutureWarning, match="write is_fitted"):
        assert fitted.is_settled
    with pytest.warns(FutureWarning, match="write step"):
        assert fitted.quantum == fitted.step


def test_n_folds_survives_clone_and_is_validated(rows):
    model = clone(ProximalSVC(C="auto", n_folds=3))
    assert model.fit(*rows).statistics().n_folds == 3
    with pytest.raises(ValueError, match="n_folds must be"):
        ProximalSVC(n_folds=1).fit(*rows)
