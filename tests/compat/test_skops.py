"""Learners in skops files, without a list of trusted types."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from steelyard import KOIL, AlignedSVC, EnclosingClassifier, IncrementalSVC, ProximalSVC, StreamClassifier
from steelyard.exceptions import FileFormatError

skops = pytest.importorskip("skops.io", reason="skops is an extra")
import steelyard.compat.skops  # noqa: E402, F401  the import itself is tested

LEARNERS = [
    ProximalSVC(),
    IncrementalSVC(),
    KOIL(random_state=0),
    EnclosingClassifier(),
    StreamClassifier(random_state=0),
]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.25).astype(int)
    return rng.normal(size=(400, 3)) + y[:, None], y


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda one: type(one).__name__)
def test_learner_continues_learning_after_skops_roundtrip(learner, data):
    X, y = data
    model = sklearn.clone(learner).partial_fit(X[:300], y[:300])
    packed = skops.dumps(model)
    assert skops.get_untrusted_types(data=packed) == []
    back = skops.loads(packed)
    for each in (model, back):
        each.partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(back.decision_function(X), model.decision_function(X))


def test_skops_roundtrip_of_pipeline_keeps_predictions(data):
    X, y = data
    for learner in (ProximalSVC(), AlignedSVC()):
        steps = make_pipeline(StandardScaler(), learner).fit(X, y)
        back = skops.loads(skops.dumps(steps))
        np.testing.assert_array_equal(back.decision_function(X), steps.decision_function(X))


def test_skops_roundtrip_of_unfitted_learner_keeps_parameters():
    back = skops.loads(skops.dumps(ProximalSVC(C=3.0)))
    assert back.get_params() == ProximalSVC(C=3.0).get_params()


def test_damaged_skops_archive_raises(data):
    packed = skops.dumps(ProximalSVC().fit(*data))
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith(".steelyard"):
                middle = len(content) // 2
                content = content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
            target.writestr(name, content)
    with pytest.raises(FileFormatError):
        skops.loads(out.getvalue())
