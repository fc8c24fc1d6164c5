"""Decision thresholds: the three functions agree on normal scores and match a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erfcx, log_ndtr

from steelyard.thresholds import gmean_threshold, normal_gmean_threshold, smooth_gmean_threshold


def test_all_thresholds_are_midway_between_separated_classes():
    negative, positive = np.array([-1.2, -1.0, -0.8]), np.array([2.8, 3.0, 3.2])
    assert gmean_threshold(negative, positive) == pytest.approx(1.0)
    assert smooth_gmean_threshold(negative, positive) == pytest.approx(1.0, abs=0.1)
    moments = [np.array([[side.mean(), side.var()]]) for side in (negative, positive)]
    assert normal_gmean_threshold(*moments)[0] == pytest.approx(1.0)


def test_all_threshold_methods_agree_on_many_normal_scores(rng):
    negative, positive = rng.normal(size=4000), rng.normal(size=400) * 0.5 + 1.5
    moments = [np.array([[side.mean(), side.var()]]) for side in (negative, positive)]
    thresholds = [gmean_threshold(negative, positive), smooth_gmean_threshold(negative, positive)]
    np.testing.assert_allclose(thresholds, normal_gmean_threshold(*moments)[0], atol=0.12)


def test_threshold_is_closer_to_class_with_smaller_variance():
    """The variance of the other class is so large that its scores do not matter."""
    for spread in (1e-3, 1e-9, 0.0):
        threshold = normal_gmean_threshold(np.array([[0.0, 1e12]]), np.array([[1.0, spread**2]]))[0]
        # The threshold is 1 minus a few standard deviations of at least a millionth of the gap of the means.
        assert 1.0 - 12.0 * max(spread, 1e-6) < threshold < 1.0 - 2.0 * max(spread, 1e-6)


def threshold_by_bisection(negative, positive):
    """Return the reference threshold: the root of the derivative of the log product of the recalls."""
    (m_neg, v_neg), (m_pos, v_pos) = negative, positive
    least = 1e-6 * (m_pos - m_neg)
    s_neg, s_pos = max(v_neg**0.5, least), max(v_pos**0.5, least)

    def log_hazard(x):  # log of phi / Phi
        if x < 0.0:
            return np.log(np.sqrt(2.0 / np.pi) / erfcx(-x / np.sqrt(2.0)))
        return -0.5 * x * x - np.log(np.sqrt(2.0 * np.pi)) - log_ndtr(x)

    reach = 10.0 * max(s_neg, s_pos)
    low, high = m_neg - reach, m_pos + reach
    for _ in range(200):
        middle = 0.5 * (low + high)
        rising = log_hazard((middle - m_neg) / s_neg) - np.log(s_neg)
        falling = log_hazard((m_pos - middle) / s_pos) - np.log(s_pos)
        low, high = (middle, high) if rising > falling else (low, middle)
    return 0.5 * (low + high), min(s_neg, s_pos)


@given(
    st.floats(-1e3, 1e3), st.floats(1e-6, 1e6), st.floats(-12.0, 12.0), st.floats(-12.0, 12.0),
)  # fmt: skip
def test_normal_threshold_maximizes_product_of_recalls(mean, gap, log_neg, log_pos):
    """Standard deviations are e**-12 to e**12 times the gap of the means. Newton's method would diverge."""
    moments = [(mean, (gap * np.exp(log_neg)) ** 2), (mean + gap, (gap * np.exp(log_pos)) ** 2)]
    threshold = normal_gmean_threshold(*(np.array([side]) for side in moments))[0]
    expected, spread = threshold_by_bisection(*moments)
    assert threshold == pytest.approx(expected, rel=1e-12, abs=1e-9 * spread)


def test_threshold_between_distant_classes_is_proportional_to_deviations():
    """Both recalls round to 1, so the threshold has the same distance, in deviations, from both means."""
    for spread in (0.01, 1e-9, 0.0):
        threshold = normal_gmean_threshold(np.array([[0.0, spread**2]]), np.array([[1.0, spread**2]]))[0]
        assert threshold == pytest.approx(0.5)
    assert normal_gmean_threshold(np.array([[0.0, 1e-4]]), np.array([[4.0, 9e-4]]))[0] == pytest.approx(
        1.0, abs=1e-3
    )
    assert normal_gmean_threshold(np.array([[1.0, 4.0]]), np.array([[0.0, 1.0]]))[0] == 0.5
