"""KBA and ACT as published, set by public parameters, match reference implementations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from steelyard import AlignedSVC
from steelyard.alignment.boundary import boundary_shift, shift_cost
from steelyard.exceptions import ParameterError
from steelyard.kernels import Kernel
from steelyard.persistence import from_bytes, to_bytes
from tests.alignment.reference import imbalanced, printed_scores

PRINTED = {"variant": "printed", "early_stopping": False, "shift": False}


@pytest.fixture
def data(rng):
    return imbalanced(rng, n=120, n_rare=20)


@pytest.mark.parametrize("n_rounds", [1, 2])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_paper_variant_of_kba_matches_reference_implementation(data, rng, kernel, n_rounds):
    X, y = data
    fresh = rng.normal(size=(15, 3))
    model = AlignedSVC(10.0, kernel=kernel, gamma=0.5, max_iter=n_rounds, **PRINTED).fit(X, y)
    assert [one.kept for one in model.rounds_] == [True] * (n_rounds + 1)
    betas = [one.beta for one in model.rounds_[:-1]]
    K = Kernel(kernel, gamma=0.5).block(np.concatenate([X, fresh]))
    scores, supports = printed_scores(K, np.where(y == 1, 1, -1), 10.0, betas)
    # D is the mean of many narrow Gaussians, so kernel values are small and LIBSVM's tolerance is visible.
    np.testing.assert_allclose(model.decision_function(fresh), scores, atol=5e-3)
    # In later rounds kernel values are so small that the tolerance decides which rows are support vectors.
    for own, expected in zip(model.rounds_[:2], supports[:2], strict=True):
        assert own.n_support == pytest.approx(expected, abs=1)
    assert model.shift_ == 0.0


def test_kba_beta_of_each_round_is_half_of_one_plus_eta(data):
    model = AlignedSVC(10.0, gamma=0.5, max_iter=2, **PRINTED).fit(*data)
    assert all(one.beta == (1.0 + one.eta) / 2.0 and 0.0 <= one.eta <= 1.0 for one in model.rounds_)


def test_fit_without_early_stopping_runs_max_iter_rounds(data):
    assert AlignedSVC(gamma=0.5, early_stopping=False, max_iter=4).fit(*data).n_iter_ == 5


@pytest.mark.parametrize(
    "class_costs",
    [
        ("exponential", "logistic"),
        ("hinge", "hinge"),
        ("logistic", "exponential"),
        (lambda margins: 5.0 * np.exp(-2.0 * margins), "logistic"),
        (lambda margins: 1.0 - np.tanh(4.0 * margins), lambda margins: 1.0 - np.tanh(4.0 * margins)),
    ],
)
def test_boundary_shift_minimizes_custom_costs(rng, class_costs):
    scores, signs = rng.uniform(-1.5, 1.5, 200), np.where(rng.random(200) < 0.3, 1.0, -1.0)
    own = shift_cost(boundary_shift(scores, signs, class_costs), scores, signs, class_costs)
    assert (
        own <= min(shift_cost(eta, scores, signs, class_costs) for eta in np.linspace(0.0, 1.0, 501)) + 1e-9
    )


def test_higher_cost_of_misses_increases_boundary_shift(rng):
    scores, signs = rng.uniform(-1.0, 1.0, 200), np.where(rng.random(200) < 0.2, 1.0, -1.0)
    low, high = (
        boundary_shift(scores, signs, (lambda margins, c=c: c * np.exp(-margins), "logistic"))
        for c in (1, 10)
    )
    assert low < high


@pytest.mark.parametrize(("norm", "metric"), [("l1", "cityblock"), ("l2", "sqeuclidean")])
def test_act_conformal_factors_match_formula_for_both_norms(data, norm, metric):
    X, y = data
    variant = {"combine": "sum", "floor": 0.0, "normalize": None}
    model = AlignedSVC(
        10.0, gamma=0.5, alignment="act", norm=norm, variant=variant, early_stopping=False, max_iter=1
    ).fit(X, y)
    plain = AlignedSVC(10.0, gamma=0.5, alignment=None).fit(X, y)
    K = Kernel("rbf", gamma=0.5).block(X)
    support, dual = plain.svc_.support_, plain.svc_.dual_coef_[0]
    sides = {sign: support[np.sign(dual) == sign] for sign in (1.0, -1.0)}
    D = np.zeros(len(X))
    for sign, mine in sides.items():
        opposite = sides[-sign]
        for k in mine:
            apart = np.array([K[k, k] + K[i, i] - 2.0 * K[k, i] for i in opposite])
            near = opposite[apart <= (apart.min() + apart.max()) / 2.0]
            tau = cdist(X[k : k + 1], X[near], metric).mean() * len(opposite) / len(mine)
            D += np.exp(-cdist(X, X[k : k + 1], metric)[:, 0] / tau)
    np.testing.assert_allclose(model.alignment_factor(X), D, rtol=1e-6)


def test_model_with_paper_variants_can_be_saved_and_loaded(data):
    X, y = data
    for parameters in (PRINTED, {"variant": {"floor": 0.1}}, {"alignment": "act", "norm": "l1"}):
        model = AlignedSVC(10.0, gamma=0.5, max_iter=1, **parameters).fit(X, y)
        loaded = from_bytes(to_bytes(model))
        assert loaded.get_params() == model.get_params()
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"variant": "literal"}, "variant must be 'adapted', 'printed' or a dict"),
        ({"variant": {"combine": "median"}}, "'combine' \\('max', 'mean' or 'sum'\\)"),
        ({"variant": {"width": 3}}, "variant must be"),
        ({"class_costs": ("hinge",)}, "class_costs must be a pair"),
        ({"class_costs": ("hinge", "square")}, "class_costs must be a pair"),
        ({"norm": "l3"}, "norm must be 'l2' or 'l1'"),
        ({"early_stopping": 1}, "early_stopping must be True or False"),
    ],
)
def test_aligned_svc_with_invalid_parameters_raises(data, parameters, message):
    with pytest.raises(ParameterError, match=message):
        AlignedSVC(**parameters).fit(*data)


def test_former_parameter_names_warn_and_set_the_new_parameters():
    with pytest.warns(FutureWarning, match="write variant"):
        model = AlignedSVC(reading="printed")
    with pytest.warns(FutureWarning, match="write pairing"):
        model.set_params(pairs="all")
    with pytest.warns(FutureWarning, match="write class_costs"):
        model.set_params(costs=("hinge", "hinge"))
    assert (model.variant, model.pairing, model.class_costs) == ("printed", "all", ("hinge", "hinge"))
