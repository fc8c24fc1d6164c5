"""Learners in CapyMOA evaluations."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard import KOIL, AlignedSVC, ProximalSVC, StreamClassifier
from steelyard.exceptions import ParameterError

pytest.importorskip(
    "capymoa", reason="CapyMOA has pins of its own and needs Java: tried in its own environment"
)

from capymoa.evaluation import prequential_evaluation
from capymoa.stream import NumpyStream

from steelyard.compat.capymoa import to_capymoa


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.25).astype(int)
    return rng.normal(size=(400, 3)) + 2.0 * y[:, None], y


@pytest.mark.parametrize(
    "learner", [ProximalSVC(), KOIL(random_state=0), StreamClassifier()], ids=lambda one: type(one).__name__
)
def test_learner_runs_in_capymoa_prequential_evaluation(learner, rows):
    stream = NumpyStream(*rows, target_type="categorical")
    model = to_capymoa(learner, stream.get_schema())
    result = prequential_evaluation(stream, model, window_size=200)
    assert result.cumulative.accuracy() > 80


def test_learner_trained_by_capymoa_matches_learner_trained_on_arrays(rows):
    X, y = rows
    stream = NumpyStream(X, y, target_type="categorical")
    model = to_capymoa(ProximalSVC(), stream.get_schema())
    first = stream.next_instance()
    assert model.predict(first) is None
    assert model.predict_proba(first) is None
    model.train(first)
    while stream.has_more_instances():
        model.train(stream.next_instance())
    batch = ProximalSVC(quantizer=model.learner.quantizer_).fit(X, y)
    assert model.learner.digest() == batch.digest()
    np.testing.assert_array_equal(model.predict_proba(first), batch.predict_proba(X[:1])[0])


def test_learner_without_partial_fit_raises_in_capymoa(rows):
    with pytest.raises(ParameterError, match="needs partial_fit"):
        to_capymoa(AlignedSVC(), None)
