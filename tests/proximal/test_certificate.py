"""Certificates of forgetting and their verification."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import ProximalSVC, RandomFeatures
from steelyard.exceptions import DataError, FileFormatError
from steelyard.proximal import Certificate
from tests.proximal.data import imbalanced


@pytest.fixture
def rows(rng):
    return imbalanced(rng, 700, 4, (0.7, 0.3))


@pytest.mark.parametrize("options", [{}, {"C": "auto"}, {"feature_map": RandomFeatures(20)}])
def test_certificate_is_valid_for_the_remaining_rows_only(rows, options):
    X, y = rows
    model = ProximalSVC(**options).fit(X, y)
    before = model.digest()
    certificate = model.certify_forget(X[:100], y[:100])
    assert (certificate.digest_before, certificate.digest_after) == (before, model.digest())
    assert certificate.rows == 100
    assert dict(certificate.left) == dict(zip(*np.unique(y[100:], return_counts=True), strict=True))
    again = Certificate.from_json(certificate.to_json())
    assert again == certificate
    feature_map = model.feature_map_
    assert again.holds_for(X[:99:-1], y[:99:-1], feature_map=feature_map)
    assert not again.holds_for(X[101:], y[101:], feature_map=feature_map)
    assert not again.holds_for(X, y, feature_map=feature_map)
    forgotten = ProximalSVC(quantizer=model.quantizer_, feature_map=feature_map).fit(X[:100], y[:100])
    assert forgotten.digest() == certificate.digest_rows


def test_certify_forget_of_unknown_rows_raises_and_changes_nothing(rows):
    X, y = rows
    model = ProximalSVC().fit(X, y)
    before = model.digest()
    with pytest.raises(DataError, match="only"):
        model.certify_forget(np.concatenate([X, X]), np.concatenate([y, y]))
    assert model.digest() == before


def test_certificate_with_another_feature_map_raises(rows):
    X, y = rows
    certificate = ProximalSVC(feature_map=RandomFeatures(20)).fit(X, y).certify_forget(X[:9], y[:9])
    with pytest.raises(DataError, match="feature map"):
        certificate.holds_for(X[9:], y[9:])


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "steelyard certificate of forgetting"}'])
def test_from_json_of_an_invalid_certificate_raises_file_format_error(text):
    with pytest.raises(FileFormatError):
        Certificate.from_json(text)
