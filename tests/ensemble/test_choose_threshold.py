"""Thresholds from recent scores against an exhaustive search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steelyard.thresholds import ThresholdChoice, choose_threshold

scores = st.integers(1, 12).flatmap(
    lambda n: arrays(np.float64, n, elements=st.integers(-4, 4).map(lambda v: v / 2.0))
)


def _quality(cut, positive, negative, threshold, share):
    hits, alarms = (positive > cut).mean(), (negative > cut).mean()
    tp, fn = share * hits, share * (1.0 - hits)
    fp, tn = (1.0 - share) * alarms, (1.0 - share) * (1.0 - alarms)
    if threshold == "f1":
        return 2.0 * tp / (2.0 * tp + fp + fn)
    if threshold == "kappa":
        chance = (tp + fp) * (tp + fn) + (fn + tn) * (fp + tn)
        return (tp + tn - chance) / (1.0 - chance)
    if threshold == "gmean":
        return hits * (1.0 - alarms)
    if "alarms" in threshold:
        raised = share * hits + (1.0 - share) * alarms
        return raised if raised <= threshold["alarms"] + 1e-12 else -1.0
    return -threshold["miss"] * share * (1.0 - hits) - threshold["alarm"] * (1.0 - share) * alarms


@pytest.mark.parametrize("threshold", ["gmean", "f1", "kappa", {"miss": 20.0, "alarm": 1.0}, {"alarms": 0.2}])
@settings(max_examples=60, deadline=None)
@given(positive=scores, negative=scores, share=st.sampled_from([0.01, 0.3, 0.9]))
def test_chosen_threshold_is_optimal_on_given_scores(threshold, positive, negative, share):
    chosen = choose_threshold(positive, negative, threshold, share)
    every = np.concatenate([positive, negative, [-1e9, 1e9], positive - 1e-9, negative - 1e-9])
    best = max(_quality(cut, positive, negative, threshold, share) for cut in every)
    assert _quality(chosen, positive, negative, threshold, share) == pytest.approx(best, abs=1e-12)


def test_threshold_of_separated_classes_is_midway_between_them():
    assert choose_threshold(np.array([3.0, 4.0]), np.array([0.0, 1.0]), "gmean", 0.5) == 2.0


@pytest.mark.parametrize(
    "wrong", ["zero", {"miss": 0.0, "alarm": 1.0}, {"miss": 1.0}, {"alarms": 1.0}, {"alarms": -0.1}, 3, None]
)
def test_invalid_threshold_goals_raise(wrong):
    assert not ThresholdChoice().accepts(wrong)


@pytest.mark.parametrize(
    "right", ["gmean", "f1", "kappa", {"miss": 20, "alarm": 1}, {"alarms": 0.01}, {"alarms": 0}]
)
def test_valid_threshold_goals_are_accepted(right):
    assert ThresholdChoice().accepts(right)
