"""A certificate of forgetting: what it claims, and that others can repeat the proof."""

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
def test_the_rows_that_remain_prove_a_certificate_and_no_others_do(rows, options):
    X, y = rows
    model = ProximalSVC(**options).fit(X, y)
    before = model.digest()
    paper = model.forget(X[:100], y[:100], certificate=True)
    assert (paper.digest_before, paper.digest_after) == (before, model.digest())
    assert paper.rows == 100
    assert dict(paper.left) == dict(zip(*np.unique(y[100:], return_counts=True), strict=True))
    again = Certificate.from_json(paper.to_json())
    assert again == paper
    feature_map = model.feature_map_
    assert again.holds_for(X[:99:-1], y[:99:-1], feature_map=feature_map)
    assert not again.holds_for(X[101:], y[101:], feature_map=feature_map)
    assert not again.holds_for(X, y, feature_map=feature_map)
    gone = ProximalSVC(quantizer=model.quantizer_, feature_map=feature_map).fit(X[:100], y[:100])
    assert gone.digest() == paper.digest_rows


def test_a_refused_forgetting_gives_no_certificate_and_changes_nothing(rows):
    X, y = rows
    model = ProximalSVC().fit(X, y)
    before = model.digest()
    with pytest.raises(DataError, match="only"):
        model.forget(np.concatenate([X, X]), np.concatenate([y, y]), certificate=True)
    assert model.digest() == before


def test_a_certificate_asks_for_the_map_that_it_names(rows):
    X, y = rows
    paper = ProximalSVC(feature_map=RandomFeatures(20)).fit(X, y).forget(X[:9], y[:9], certificate=True)
    with pytest.raises(DataError, match="feature map"):
        paper.holds_for(X[9:], y[9:])


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "steelyard certificate of forgetting"}'])
def test_what_is_no_certificate_is_refused_with_a_sentence(text):
    with pytest.raises(FileFormatError):
        Certificate.from_json(text)
