"""Each step of the paper matches a reference implementation with explicit feature vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from steelyard.alignment.boundary import (
    Variant,
    View,
    boundary_shift,
    input_distances,
    make_boundary_bumps,
    make_support_bumps,
    match_pairs,
    shift_cost,
)
from steelyard.alignment.machine import best_shift, clearly_lower, deal_splits, ranking_losses
from tests.alignment import reference

RARE, OTHER = np.arange(6), np.arange(6, 25)


@pytest.fixture
def phi(rng):
    return rng.normal(size=(40, 5))


def view_of(phi, rng):
    """Return a view with random factors whose current kernel has the feature vectors ``phi``."""
    factor = rng.uniform(0.5, 2.0, len(phi))
    hidden = phi / factor[:, None]
    return View(hidden @ hidden.T, np.sum(hidden**2, axis=1), factor, factor)


def test_boundary_shift_minimizes_cost_function_of_the_paper(rng):
    for _ in range(8):
        scores, signs = rng.normal(size=60) * 0.8, np.where(rng.random(60) < 0.3, 1.0, -1.0)
        costs = [reference.cost(eta, scores, signs) for eta in np.linspace(0, 1, 401)]
        shift = boundary_shift(scores, signs)
        assert reference.cost(shift, scores, signs) <= min(costs) + 1e-9
        assert shift_cost(shift, scores, signs) == pytest.approx(reference.cost(shift, scores, signs))


def test_boundary_shift_is_zero_without_missed_rare_rows():
    assert boundary_shift(np.array([0.5, 0.3, -2.0]), np.array([1.0, -1.0, -1.0])) == 0.0


def test_boundary_shift_is_one_if_only_rare_rows_are_missed():
    assert boundary_shift(np.array([-0.5, -0.3]), np.array([1.0, -1.0])) == 1.0


def test_rows_outside_the_margin_do_not_affect_boundary_shift():
    assert boundary_shift(np.array([-1.5, -0.3]), np.array([1.0, -1.0])) == 0.0


def test_matched_pairs_are_nearest_rows_in_feature_space(phi, rng):
    first, second = match_pairs(view_of(phi, rng), RARE, OTHER, "nearest")
    assert list(zip(first, second, strict=True)) == reference.nearest_pairs(phi, RARE, OTHER)


def test_boundary_pairs_beyond_the_limit_are_sampled_evenly(phi, rng):
    view = view_of(phi, rng)
    assert len(match_pairs(view, RARE, OTHER, "all")[0]) == 6 * 19
    first, second = match_pairs(view, np.arange(100), np.arange(100, 200), "all")
    assert len(first) == 2000
    assert len({*first}) == 100
    assert len({*second}) > 30


@pytest.mark.parametrize("margin", [np.inf, 1.5, 1e-6])
@pytest.mark.parametrize("beta", [0.5, 0.8, 1.0])
def test_conformal_factor_matches_explicit_boundary_points(phi, rng, margin, beta):
    view = view_of(phi, rng)
    pairs = match_pairs(view, RARE, OTHER, "nearest")
    bumps = make_boundary_bumps(view, pairs, beta, margin, Variant(neighbours="margin", floor=0.2))
    boundary = reference.points(phi, list(zip(*pairs, strict=True)), beta)
    tau2 = reference.widths(boundary, margin)
    np.testing.assert_allclose(bumps.squared_widths, tau2, rtol=1e-9)
    np.testing.assert_allclose(bumps.factor(view), reference.factor(phi, boundary, tau2, 0.2), rtol=1e-9)


@pytest.mark.parametrize(("neighbours", "most"), [("all", None), ("nearest", 5)])
def test_widths_of_boundary_gaussians_are_mean_distances_to_all_or_nearest_points(phi, rng, neighbours, most):
    view = view_of(phi, rng)
    pairs = match_pairs(view, RARE, OTHER, "nearest")
    bumps = make_boundary_bumps(view, pairs, 0.7, 0.1, Variant(neighbours=neighbours))
    boundary = reference.points(phi, list(zip(*pairs, strict=True)), 0.7)
    np.testing.assert_allclose(bumps.squared_widths, reference.widths(boundary, most=most), rtol=1e-9)


def test_conformal_factors_of_same_rows_are_equal_in_training_and_prediction(phi, rng):
    view = view_of(phi, rng)
    bumps = make_boundary_bumps(view, match_pairs(view, RARE, OTHER, "nearest"), 0.7, 1.0, Variant())
    as_new_rows = View(view.kernel, view.diagonal, view.row_factor.copy(), view.reference_factor)
    np.testing.assert_allclose(bumps.factor(view), bumps.factor(as_new_rows), rtol=1e-12)


def test_width_at_single_boundary_point_is_distance_to_its_opposite_vector(phi, rng):
    view = view_of(phi, rng)
    bumps = make_boundary_bumps(view, (RARE[:1], OTHER[:1]), 0.5, 1.0, Variant())
    np.testing.assert_allclose(bumps.squared_widths, [np.sum((phi[0] - phi[6]) ** 2)], rtol=1e-9)


def test_pairs_of_equal_rows_give_finite_conformal_factors(rng):
    same = np.ones((4, 2))
    view = View(same @ same.T, np.full(4, 2.0), np.ones(4), np.ones(4))
    bumps = make_boundary_bumps(view, (np.array([0, 1]), np.array([2, 3])), 0.5, 1.0, Variant())
    assert np.isfinite(bumps.factor(view)).all()


@pytest.mark.parametrize("combine", ["max", "mean", "sum"])
def test_conformal_factor_is_positive_and_largest_near_boundary(phi, rng, combine):
    view = view_of(phi, rng)
    pairs = match_pairs(view, RARE, OTHER, "nearest")
    bumps = make_boundary_bumps(view, pairs, 0.5, np.inf, Variant(combine=combine))
    on_boundary = reference.points(phi, list(zip(*pairs, strict=True)), 0.5)
    far = 50.0 * np.ones((1, 5))
    phi_x = np.concatenate([on_boundary, far])
    asked = View(
        phi_x @ (phi / view.row_factor[:, None]).T,
        np.sum(phi_x**2, axis=1),
        np.ones(len(phi_x)),
        view.reference_factor,
    )
    D = bumps.factor(asked)
    assert (D > 0).all()
    assert D[-1] == D.min()


def test_act_conformal_factors_match_formula(phi, rng):
    view = View(phi @ phi.T, np.sum(phi**2, axis=1), np.ones(40), np.ones(40), input_distances(phi, phi))
    bumps = make_support_bumps(view, RARE, OTHER, Variant(floor=0.0))
    expected = []
    for mine, opposite in ((RARE, OTHER), (OTHER, RARE)):
        for i in mine:
            squared = np.sum(
                (phi[opposite] - phi[i]) ** 2, axis=1
            )  # with a linear kernel, input space and feature space are the same
            near = squared[squared <= (squared.min() + squared.max()) / 2]
            expected.append(near.mean() * len(opposite) / len(mine))
    np.testing.assert_allclose(bumps.squared_widths, expected, rtol=1e-9)
    D = [max(np.exp(-np.sum((x - phi[c]) ** 2) / w) for c, w in enumerate(expected)) for x in phi]
    np.testing.assert_allclose(bumps.factor(view), D, rtol=1e-9)


@given(st.integers(2, 60), st.integers(2, 300), st.floats(0.05, 0.5), st.integers(0, 3))
def test_validation_splits_are_disjoint_and_contain_both_classes(n_rare, n_other, fraction, seed):
    signs = np.repeat([1.0, -1.0], [min(n_rare, n_other), max(n_rare, n_other)])
    rows = np.arange(len(signs))
    splits = deal_splits(signs, rows, fraction, np.random.default_rng(seed) if seed else None)
    held_out = np.concatenate([out for _, out in splits])
    assert len(np.unique(held_out)) == len(held_out)
    assert (signs[held_out] > 0).sum() >= min(60, (signs > 0).sum())
    for train, out in splits:
        np.testing.assert_array_equal(np.union1d(train, out), rows)
        assert set(signs[train]) == set(signs[out]) == {-1.0, 1.0}


def test_class_with_one_row_gives_no_validation_split():
    assert deal_splits(np.array([1.0, -1.0, -1.0]), np.arange(3), 0.2, None) == []


def test_mean_ranking_loss_is_one_minus_auc(rng):
    scores, signs = rng.integers(0, 9, 80).astype(float), np.where(rng.random(80) < 0.2, 1.0, -1.0)
    assert ranking_losses(scores, signs).mean() == pytest.approx(1.0 - roc_auc_score(signs, scores))


def test_clearly_lower_is_true_only_for_decrease_above_tol_and_standard_error():
    before = np.array([0.4, 0.3, 0.2, 0.3])
    assert clearly_lower(before - 0.1, before, 0.05)
    assert not clearly_lower(before - 0.1, before, 0.15)
    assert not clearly_lower(before, before, 0.0)
    assert not clearly_lower(before - [0.4, -0.3, 0.0, 0.0], before, 0.0)


def two_classes(rng, n_rare, n_other, apart=1.5):
    scores = np.concatenate([rng.normal(size=n_rare) + apart, rng.normal(size=n_other)])
    return scores, np.repeat([1.0, -1.0], [n_rare, n_other])


@pytest.mark.parametrize(("n_rare", "n_other"), [(2, 30), (7, 40), (40, 60)])
@pytest.mark.parametrize("apart", [0.0, 1.5, 8.0])
def test_best_shift_maximizes_smoothed_g_mean(rng, n_rare, n_other, apart):
    scores, signs = two_classes(rng, n_rare, n_other, apart)
    thresholds = np.linspace(scores.min(), scores.max(), 201)
    most = max(reference.smooth_product(threshold, scores, signs) for threshold in thresholds)
    own = reference.smooth_product(-best_shift(scores, signs), scores, signs)
    assert own >= most - 1e-5


def test_best_shift_of_many_rows_equals_grid_search(rng):
    scores, signs = two_classes(rng, 300, 2000)
    own = reference.smooth_product(-best_shift(scores, signs), scores, signs)
    assert own >= max(reference.smooth_product(t, scores, signs) for t in np.linspace(-1, 2, 61)) - 1e-4


def test_best_shift_has_lower_variance_than_maximum_of_empirical_g_mean(rng):
    def best_empirical(scores, signs):
        thresholds = np.sort(scores)
        return -max(
            thresholds, key=lambda t: np.mean(scores[signs > 0] > t) * np.mean(scores[signs < 0] <= t)
        )

    samples = [two_classes(rng, 12, 100, apart=2.0) for _ in range(60)]  # the best threshold is 1
    smooth, rough = (np.array([rule(*one) for one in samples]) for rule in (best_shift, best_empirical))
    assert smooth.std() < 0.6 * rough.std()
    assert np.mean((smooth + 1.0) ** 2) < 0.5 * np.mean((rough + 1.0) ** 2)


@given(st.integers(0, 99), st.integers(1, 9), st.integers(1, 30), st.booleans())
def test_best_shift_is_equivariant_to_translation_and_reflection(seed, n_rare, n_other, ties):
    scores, signs = two_classes(np.random.default_rng(seed), n_rare, n_other)
    scores = scores.round() if ties else scores
    shift = best_shift(scores, signs)
    assert scores.min() <= -shift <= scores.max() or shift == 0.0
    assert best_shift(4.0 * scores, signs) == pytest.approx(4.0 * shift, abs=1e-6)
    assert best_shift(scores + 2.0, signs) == pytest.approx(shift - 2.0, abs=1e-6) or np.ptp(scores) == 0.0
    assert best_shift(-scores, -signs) == pytest.approx(-shift, abs=1e-6)


def test_best_shift_of_separated_scores_is_in_the_gap():
    scores, signs = np.array([-1.0, -0.8, 0.8, 1.0]), np.array([-1.0, -1.0, 1.0, 1.0])
    assert best_shift(scores, signs) == pytest.approx(0.0, abs=1e-9)


def test_best_shift_of_two_scores_is_their_midpoint():
    shift = best_shift(np.array([-1.0, -1.0, 3.0]), np.array([-1.0, -1.0, 1.0]))
    assert shift == pytest.approx(-1.0, abs=1e-9)


def test_best_shift_separates_a_single_rare_row(rng):
    scores, signs = two_classes(rng, 1, 50)
    assert scores[0] + best_shift(scores, signs) > 0


def test_best_shift_of_equal_scores_is_zero():
    assert best_shift(np.zeros(4), np.array([1.0, 1.0, -1.0, -1.0])) == 0.0
