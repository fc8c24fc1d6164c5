"""Synthetic streams: rows do not depend on chunks; share, drift, noise and classes are as requested."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.exceptions import ParameterError
from steelyard.streams import SEA, Drift, Gaussians, ImbalanceSchedule, KOILMixture, RotatingHyperplane

MAKERS = [Gaussians, KOILMixture, RotatingHyperplane, SEA]
DRIFTS = (Drift(1500), Drift(2500, width=800))


def _all(stream):
    chunks = list(stream)
    return np.vstack([chunk.X for chunk in chunks]), np.concatenate([chunk.y for chunk in chunks])


@pytest.mark.parametrize("maker", MAKERS)
def test_rows_do_not_depend_on_chunk_size(maker):
    X, y = _all(maker(4000, drifts=DRIFTS, noise=0.1, chunk=4000, seed=3))
    for chunk in (1, 7, 1024, 1500):
        if chunk == 1:
            stream = maker(4000, drifts=DRIFTS, noise=0.1, seed=3)
            parts = stream.rows(1023, 1026)
            np.testing.assert_array_equal(parts[0], X[1023:1026])
            continue
        parts = _all(maker(4000, drifts=DRIFTS, noise=0.1, chunk=chunk, seed=3))
        np.testing.assert_array_equal(parts[0], X)
        np.testing.assert_array_equal(parts[1], y)


@pytest.mark.parametrize("maker", MAKERS)
def test_different_seeds_give_different_rows(maker):
    assert not np.array_equal(_all(maker(100, seed=0))[0], _all(maker(100, seed=1))[0])


@pytest.mark.parametrize("maker", MAKERS)
def test_class_share_follows_the_schedule(maker):
    stream = maker(40_000, schedule=ImbalanceSchedule.step({0: 0.3, 20_000: 0.02}), chunk=20_000)
    shares = [chunk.y.mean() for chunk in stream]
    assert shares == pytest.approx([0.3, 0.02], abs=0.01)


def test_schedules_return_expected_shares():
    rows = np.arange(900)
    shares = {
        "decrease": ImbalanceSchedule.consistent_decrease(0.1, over=900).share(rows),
        "bump": ImbalanceSchedule.increase_then_decrease(0.1, over=900).share(rows),
        "random": ImbalanceSchedule.random_variation(0.1, 0.9, over=900, seed=1).share(rows),
        "sine": ImbalanceSchedule.sine(0.1, 0.5, period=900).share(rows),
    }
    assert (np.diff(shares["decrease"]) >= 0).all()
    assert shares["decrease"][[0, -1]].tolist() == [0.1, 0.5]
    assert shares["bump"][[0, 450, -1]].tolist() == pytest.approx([0.5, 0.1, 0.5])
    assert len(set(shares["random"])) == 9
    assert 0.1 <= shares["random"].min() < shares["random"].max() <= 0.9
    assert (shares["sine"].min(), shares["sine"].max()) == pytest.approx((0.1, 0.5), abs=1e-4)


def test_class_share_above_one_raises():
    with pytest.raises(ParameterError, match=r"a share must be between 0 and 1; got 1\.5"):
        ImbalanceSchedule.constant(1.5)


def test_labels_of_hyperplane_and_sea_follow_their_definition():
    plane = RotatingHyperplane(2000, n_features=4, turn=0.5, drifts=[Drift(1000)])
    X, y = _all(plane)
    rows = np.arange(2000)
    normals = plane.normals((rows >= 1000).astype(int), rows)
    np.testing.assert_array_equal(np.einsum("ij,ij->i", X - 0.5, normals) > 0, y == 1)
    X, y = _all(SEA(2000, drifts=[Drift(1000)]))
    level = np.where(rows >= 1000, 9.0, 8.0)
    np.testing.assert_array_equal(X[:, 0] + X[:, 1] <= level, y == 1)


def test_koil_mixture_has_rare_class_between_four_clusters():
    X, y = _all(KOILMixture(20_000, schedule=ImbalanceSchedule.constant(0.5)))
    rare = X[y == 1]
    assert rare.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.01)
    assert rare.std(axis=0) == pytest.approx([0.1, 0.1], abs=0.01)
    distance = np.linalg.norm(X[y == 0] - 0.5, axis=1)
    assert np.median(distance) == pytest.approx(1 / 3, abs=0.03)


def test_drift_moves_the_means_abruptly_or_gradually():
    stream = Gaussians(30_000, n_features=5, distance=10.0, drifts=[Drift(10_000), Drift(20_000, width=5000)])
    X, y = _all(stream)
    rows = np.arange(30_000)

    def nearest(a, b):
        part = (y == 0) & (rows >= a) & (rows < b)
        distances = np.linalg.norm(X[part][:, None] - stream.means[:, 0], axis=2)
        return np.bincount(distances.argmin(axis=1), minlength=3) / part.sum()

    assert nearest(9_000, 10_000)[0] > 0.99
    assert nearest(10_000, 11_000)[1] > 0.99
    assert nearest(22_000, 23_000) == pytest.approx([0, 0.5, 0.5], abs=0.06)


def test_noise_flips_the_given_share_of_labels():
    clean, noisy = (_all(Gaussians(20_000, noise=noise, seed=5))[1] for noise in (0.0, 0.2))
    assert (clean != noisy).mean() == pytest.approx(0.2, abs=0.01)


def test_each_class_occurs_only_in_its_given_range_of_rows():
    stream = Gaussians(9000, n_classes=4, presence={2: (3000, 6000), 3: (6000, 9000)}, chunk=3000)
    assert [sorted(set(chunk.y.tolist())) for chunk in stream] == [[0, 1], [0, 1, 2], [0, 1, 3]]
