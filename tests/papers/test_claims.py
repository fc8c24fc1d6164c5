"""Claims of the proximal SVM papers, checked on bundled data."""

from __future__ import annotations

import numpy as np
import pytest

from papers import Context, find, run
from papers.dcil.common import generated_people
from papers.dcil.membership import _arrivals
from papers.own.koil import _components_for, _koil_bytes
from steelyard.datasets import load
from steelyard.exceptions import DatasetUnavailable


def shipped(name):
    if name not in {"iris", "wdbc"}:
        raise DatasetUnavailable(f"datasets.load: {name!r} is not shipped with scikit-learn.")
    return load(name)


def rows_of(name, **context):
    return run(find(name), Context(load_set=shipped, **context)).result.rows


def test_fit_in_ten_chunks_equals_single_fit():
    rows = rows_of("dcil-table-5.1", quick=True)
    assert len(rows) == 6
    assert all(row.mean < 1e-12 for row in rows)


def test_fit_on_two_distributed_halves_equals_single_fit():
    rows = rows_of("distributed-table-1", quick=True)
    ways = ["Inc", "Dist", "DistInc", "Retire"]
    assert [row.learner for row in rows] == [*ways, *(f"{way}, standardised" for way in ways)]
    assert {row.mean for row in rows} == {0.0}, "with a common quantizer nothing is rounded"
    assert [row.paper for row in rows] == [0.0, 0.0, 0.0, None, None, None, None, None]


def test_imbalance_shifts_lpsvm_plane_more_than_wlpsvm_plane():
    shift = {
        (row.subject, row.learner): row.mean
        for row in rows_of("dcil-figures-2.1-2.3", quick=True)
        if row.measure.startswith("shift")
    }
    imbalanced = {learner: value for (subject, learner), value in shift.items() if subject.startswith("6 ")}
    assert imbalanced["LPSVM"] > imbalanced["SVM"] > 0.1 > abs(imbalanced["wLPSVM"])


@pytest.mark.parametrize("scheme", ["consistent decrease", "random variation", "increase then decrease"])
def test_stream_schemes_deliver_all_rows_of_both_classes_in_order(scheme):
    ours, others = _arrivals(scheme, 540, 544, np.random.default_rng(0))
    for until, total in ((ours, 540), (others, 544)):
        assert (np.diff(until) >= 0).all()
        assert until[0] >= 1
        assert until[-1] == total


def test_generated_faces_reserve_one_image_in_five_for_testing():
    people = generated_people(20, np.random.default_rng(0), noise=1.0)
    learned, tested = people.split(np.arange(20), np.random.default_rng(1))
    assert np.bincount(people.person[learned]).tolist() == [4] * 20
    assert np.bincount(people.person[tested]).tolist() == [1] * 20


@pytest.mark.parametrize("n_features", [2, 60])
def test_saved_random_feature_learner_is_not_larger_than_saved_koil(n_features):
    from papers.own.candidates import automatic
    from steelyard.persistence import to_bytes

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, n_features)), np.arange(600) % 5 == 0
    k = _components_for(_koil_bytes(n_features), n_features)
    size = len(to_bytes(automatic(k, 0).fit(X, y)))
    assert 0.45 * _koil_bytes(n_features) < size <= _koil_bytes(n_features)
