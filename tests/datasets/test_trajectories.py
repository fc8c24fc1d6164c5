"""Synthetic trajectories."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from steelyard.datasets.trajectories import SUSPICIOUS, make_trajectories
from steelyard.exceptions import ParameterError


def test_default_numbers_of_trajectories_match_the_paper():
    X, patterns = make_trajectories(random_state=0)
    counts = Counter(patterns.tolist())
    assert counts == {"circling": 30, "zigzag": 22, "back-and-forth": 40, "go-straight": 200, "parking": 3161}
    assert len(X) == 3453
    assert np.isin(patterns, SUSPICIOUS).sum() == 92


def test_trajectory_lengths_and_positions_are_in_range():
    X, _ = make_trajectories(
        {"circling": 20, "zigzag": 20, "back-and-forth": 20, "parking": 20}, random_state=1
    )
    assert len({len(x) for x in X}) > 10
    everything = np.concatenate(X)
    assert everything.shape[1] == 2
    assert (everything > -40).all()
    assert (everything < 140).all()


def test_same_seed_gives_same_trajectories():
    first, again = (make_trajectories({"parking": 3, "zigzag": 2}, random_state=7)[0] for _ in range(2))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_back_and_forth_trajectories_reverse_direction():
    X, _ = make_trajectories({"back-and-forth": 10}, noise=0.0, random_state=0)
    for x in X:
        assert (np.diff(x[:, 0]) > 0).any()
        assert (np.diff(x[:, 0]) < 0).any()


def test_unknown_pattern_is_refused():
    with pytest.raises(ParameterError, match=r"patterns must be among circling, .*; got 'flying'"):
        make_trajectories({"flying": 1})
