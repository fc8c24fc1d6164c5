"""EnclosingClassifier: decision rule, adding and removing classes, unknown rows."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

from steelyard import EnclosingClassifier, persistence
from steelyard.enclosing import bodies
from steelyard.exceptions import DataError, DataTypeError, MemoryLimitError, NotFittedError, ParameterError
from tests.enclosing.reference import four_steps

MODELS = [
    EnclosingClassifier(),
    EnclosingClassifier(shape="sphere", outliers=0.1),
    EnclosingClassifier(ridge="auto"),
    EnclosingClassifier(shape="sphere", kernel="rbf"),
    EnclosingClassifier(kernel="polynomial", degree=2, coef0=1.0, outliers=0.05),
]
models = pytest.mark.parametrize("model", MODELS, ids=repr)


@pytest.fixture
def blobs(rng):
    """Return four overlapping classes of different size and shape."""
    y = np.repeat([0, 1, 2, 3], [80, 40, 60, 15])
    X = rng.normal(size=(len(y), 3)) * [1.0, 2.0, 0.5] + rng.normal(size=(4, 3))[y] * 3
    return X, y


# -- decision rule ----------------------------------------------------------------------------------


@models
def test_predict_matches_the_four_steps_of_the_mhe_paper(model, blobs, rng):
    X, y = blobs
    model = clone(model).fit(X, y)
    fresh = rng.normal(size=(400, 3)) * 4
    radii = model.radius_
    distances = model.distance_ratio(fresh) * radii
    expected = [model.classes_[four_steps(row, radii)] for row in distances]
    np.testing.assert_array_equal(model.predict(fresh), expected)
    inside = (distances <= radii).sum(axis=1)
    assert {0, 1} <= set(inside.tolist())  # every step of the rule occurs
    assert inside.max() > 1


def test_class_of_smallest_ratio_matches_the_four_steps_of_the_mhe_paper(rng):
    for _ in range(500):
        distances, radii = rng.gamma(2.0, size=(2, rng.integers(1, 6)))
        assert four_steps(distances, radii) == np.argmin(distances / radii)


@models
def test_decision_function_is_derived_from_distance_ratios(model, blobs):
    X, y = blobs
    model = clone(model).fit(X, y)
    ratio = model.distance_ratio(X)
    np.testing.assert_array_equal(model.decision_function(X), -ratio)
    np.testing.assert_array_equal(model.novelty_score(X), ratio.min(axis=1) - 1.0)
    two = clone(model).fit(X[y < 2], y[y < 2])
    np.testing.assert_array_equal(two.decision_function(X), ratio[:, 0] - ratio[:, 1])
    one = clone(model).fit(X[y == 0], y[y == 0])
    np.testing.assert_array_equal(one.decision_function(X), -ratio[:, 0])


@pytest.mark.parametrize("shape", ["sphere", "ellipsoid"])
def test_outliers_zero_encloses_every_training_row(shape, blobs):
    X, y = blobs
    model = EnclosingClassifier(shape=shape).fit(X, y)
    own = model.distance_ratio(X)[np.arange(len(y)), y]
    assert own.max() <= 1 + 1e-6
    assert "?" not in model.predict(X, unknown="?")


@models
def test_center_radius_and_support_vectors_are_consistent(model, blobs):
    X, y = blobs
    model = clone(model).fit(X, y)
    assert model.radius_.shape == (4,)
    assert (model.radius_ > 0).all()
    for place, label in enumerate(model.classes_):
        on_or_beyond = model.distance_ratio(model.support_vectors_[label])[:, place]
        assert on_or_beyond.min() > 1 - 1e-4
        if model.kernel == "linear":
            assert model.distance_ratio(model.center_[label][None, :])[0, place] == pytest.approx(
                0.0, abs=1e-6
            )
    if model.kernel != "linear":
        with pytest.raises(AttributeError, match="space of the kernel"):
            model.center_


@pytest.mark.parametrize("shape", ["sphere", "ellipsoid"])
def test_outliers_parameter_is_fraction_of_training_rows_outside_their_body(shape):
    shares = []
    for seed in range(20):
        X = np.random.default_rng(seed).normal(size=(400, 3))
        model = EnclosingClassifier(shape=shape, outliers=0.05).fit(X, np.zeros(400))
        shares.append((model.distance_ratio(X) > 1 + 1e-6).mean())
    assert np.mean(shares) == pytest.approx(0.05, abs=0.01)


def test_C_and_equivalent_outliers_give_same_model(blobs):
    X, y = blobs
    named = EnclosingClassifier(outliers=0.1).fit(X[y == 0], y[y == 0])
    bounded = EnclosingClassifier(C=1 / (0.1 * 80)).fit(X[y == 0], y[y == 0])
    np.testing.assert_allclose(bounded.distance_ratio(X), named.distance_ratio(X), rtol=1e-6)
    huge = EnclosingClassifier(C=10).fit(
        X, y
    )  # the paper's C = 10 is never active, because the weights sum to 1
    np.testing.assert_array_equal(huge.distance_ratio(X), EnclosingClassifier().fit(X, y).distance_ratio(X))


# -- unknown rows -----------------------------------------------------------------------------------


def test_rows_outside_all_bodies_are_predicted_as_unknown(blobs):
    X, y = blobs
    model = EnclosingClassifier().fit(X, y)
    far = np.full((1, 3), 1e3)
    assert model.predict(far, unknown=-1).tolist() == [-1]
    assert model.predict(far)[0] in model.classes_
    assert model.novelty_score(far)[0] > 1
    answers = model.predict(X, unknown=-1)
    np.testing.assert_array_equal(answers == -1, model.novelty_score(X) > 1e-6)


@pytest.mark.parametrize(
    ("labels", "unknown", "dtype"),
    [
        (np.array([1, 2]), -1, np.dtype(np.int64)),
        (np.array([1, 2]), 0.5, np.dtype(np.float64)),
        (np.array(["a", "b"]), "unknown", np.dtype("<U7")),
        (np.array([1, 2]), "unknown", np.dtype(object)),
    ],
)
def test_unknown_label_may_have_any_type(labels, unknown, dtype):
    X = np.array([[0.0], [0.1], [5.0], [5.1]])
    answers = EnclosingClassifier().fit(X, labels[[0, 0, 1, 1]]).predict([[0.05], [99.0]], unknown=unknown)
    assert answers.dtype == dtype
    assert answers.tolist() == [labels[0], unknown]


def test_novelty_score_ranks_unseen_digits_above_known_digits():
    X, y = load_digits(return_X_y=True)
    known, train = y < 7, np.arange(len(y)) % 2 == 0
    model = EnclosingClassifier(ridge=1.0, outliers=0.05).fit(X[known & train], y[known & train])
    assert roc_auc_score(~known[~train], model.novelty_score(X[~train])) > 0.93


# -- adding and removing classes --------------------------------------------------------------------


@models
def test_new_class_leaves_other_classes_bitwise_unchanged(model, blobs):
    X, y = blobs
    model = clone(model).partial_fit(X[y < 3], y[y < 3])
    before = model.distance_ratio(X)
    model.partial_fit(X[y == 3], y[y == 3])
    np.testing.assert_array_equal(model.distance_ratio(X)[:, :3], before)


@models
def test_model_is_bitwise_independent_of_row_order(model, blobs, rng):
    X, y = blobs
    expected = clone(model).fit(X, y).distance_ratio(X)
    by_class = clone(model)
    for label in (2, 0, 3, 1):
        by_class.partial_fit(X[y == label], y[y == label])
    order = rng.permutation(len(y))
    shuffled = clone(model).fit(X[order], y[order])
    row_by_row = clone(model)
    for i in order:
        row_by_row.partial_fit(X[i : i + 1], y[i : i + 1])
    for other in (by_class, shuffled, row_by_row):
        np.testing.assert_array_equal(other.distance_ratio(X), expected)


@models
def test_new_rows_change_only_the_body_of_their_class(model, blobs):
    X, y = blobs
    first = np.arange(len(y)) % 2 == 0
    model = clone(model).fit(X[first | (y != 1)], y[first | (y != 1)])
    before = model.distance_ratio(X)
    model.partial_fit(X[~first & (y == 1)], y[~first & (y == 1)])
    after = model.distance_ratio(X)
    np.testing.assert_array_equal(after[:, [0, 2, 3]], before[:, [0, 2, 3]])
    np.testing.assert_array_equal(after, clone(model).fit(X, y).distance_ratio(X))


@models
def test_forget_class_equals_fit_without_that_class(model, blobs):
    X, y = blobs
    forgot = clone(model).fit(X, y).forget_class(1)
    never = clone(model).fit(X[y != 1], y[y != 1])
    assert forgot.classes_.tolist() == [0, 2, 3]
    np.testing.assert_array_equal(forgot.distance_ratio(X), never.distance_ratio(X))
    assert persistence.to_bytes(forgot) == persistence.to_bytes(never)


def test_forget_all_classes_raises_on_predict_and_allows_learning(blobs):
    X, y = blobs
    model = EnclosingClassifier().fit(X[y == 0], y[y == 0]).forget_class(0)
    with pytest.raises(NotFittedError, match="all classes have been forgotten"):
        model.predict(X)
    again = persistence.from_bytes(persistence.to_bytes(model))
    for learner in (model, again):
        learner.partial_fit(X[y == 2], y[y == 2])
        assert (learner.predict(X) == 2).all()


def test_forget_unknown_class_raises_and_keeps_state(blobs):
    model = EnclosingClassifier().fit(*blobs)
    before = persistence.to_bytes(model)
    with pytest.raises(DataError, match="unknown class 9"):
        model.forget_class(9)
    assert persistence.to_bytes(model) == before


@models
def test_merge_equals_joint_learning(model, blobs):
    X, y = blobs
    low = clone(model).fit(X[y < 2], y[y < 2])
    high = clone(model).fit(X[y >= 2], y[y >= 2])
    low.merge(high)
    np.testing.assert_array_equal(low.distance_ratio(X), clone(model).fit(X, y).distance_ratio(X))
    low.partial_fit(X[y == 3] + 1.0, y[y == 3])  # the two learners are independent from here on
    np.testing.assert_array_equal(
        high.distance_ratio(X), clone(model).fit(X[y >= 2], y[y >= 2]).distance_ratio(X)
    )


def test_merge_with_empty_learner_keeps_classes(blobs):
    X, y = blobs
    full = EnclosingClassifier().fit(X, y)
    empty = EnclosingClassifier().merge(full)
    np.testing.assert_array_equal(empty.distance_ratio(X), full.distance_ratio(X))
    full.merge(EnclosingClassifier())
    assert full.classes_.tolist() == [0, 1, 2, 3]


def test_invalid_merge_raises_and_keeps_state(blobs):
    X, y = blobs
    model = EnclosingClassifier().fit(X, y)
    before = persistence.to_bytes(model)
    refusals = [
        (EnclosingClassifier().fit(X, y), DataError, "different classes"),
        (EnclosingClassifier().fit(X[:, :2], y + 10), DataError, "same features"),
        (EnclosingClassifier().fit(X, y.astype(str)), DataTypeError, "cannot be compared"),
        ("something else", DataTypeError, "another EnclosingClassifier"),
    ]
    for other, error, words in refusals:
        with pytest.raises(error, match=words):
            model.merge(other)
        assert persistence.to_bytes(model) == before


# -- weights, parameters, edge cases ----------------------------------------------------------------


@models
def test_integer_weight_equals_repetition_bitwise(model, blobs, rng):
    X, y = blobs
    weights = rng.integers(0, 4, size=len(y))
    weighted = clone(model).fit(X, y, sample_weight=weights)
    repeated = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_array_equal(weighted.distance_ratio(X), repeated.distance_ratio(X))
    np.testing.assert_array_equal(weighted.class_count_, repeated.class_count_)


def test_set_params_takes_effect_without_refit(blobs):
    X, y = blobs
    model = EnclosingClassifier().fit(X, y)
    model.predict(X)
    model.set_params(shape="sphere", kernel="rbf", gamma=0.5)
    expected = EnclosingClassifier(shape="sphere", kernel="rbf", gamma=0.5).fit(X, y)
    np.testing.assert_array_equal(model.distance_ratio(X), expected.distance_ratio(X))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"shape": "cube"}, "shape must be 'ellipsoid' or 'sphere'"),
        ({"kernel": "sigmoid"}, "kernel must be"),
        ({"gamma": -1.0}, "gamma must be"),
        ({"C": 0.0}, "C must be"),
        ({"outliers": 1.5}, "outliers must be"),
        ({"ridge": -0.1}, "ridge must be a finite number of at least 0 or 'auto'"),
        ({"coef0": np.nan}, "coef0 must be a finite number"),
        ({"C": 0.5, "outliers": 0.1}, "C and outliers are alternatives"),
    ],
)
def test_invalid_parameters_raise(parameters, words, blobs):
    with pytest.raises(ParameterError, match=words):
        EnclosingClassifier(**parameters).fit(*blobs)


def test_class_with_a_single_row_is_predicted_at_and_near_that_row():
    points = EnclosingClassifier().fit([[0.0, 0.0], [4.0, 0.0]], ["a", "b"])
    assert points.predict([[1.0, 0.0], [3.0, 0.0]]).tolist() == ["a", "b"]
    assert points.predict([[0.0, 0.0], [3.9, 0.0]], unknown="?").tolist() == ["a", "?"]
    assert np.isfinite(points.decision_function([[1e50, 0.0]])).all()
    points.partial_fit([[0.0, 9.0], [0.0, 10.0], [1.0, 9.0]], ["c", "c", "c"])
    assert points.predict([[0.5, 0.5], [4.0, 0.0]]).tolist() == ["c", "b"]  # c has a positive radius


def test_class_of_repeated_rows_has_radius_zero():
    model = EnclosingClassifier().fit(np.full((7, 3), 0.1), np.zeros(7))
    assert model.radius_.tolist() == [0.0]
    assert model.distance_ratio(np.full((1, 3), 0.1)).tolist() == [[0.0]]


def test_rows_of_class_with_fewer_rows_than_features_are_inside_its_body(rng):
    X = rng.normal(size=(8, 50))
    for ridge in (0.01, "auto"):
        model = EnclosingClassifier(ridge=ridge).fit(X, np.zeros(8))
        assert model.novelty_score(X).max() < 1e-6
        assert model.novelty_score(rng.normal(size=(20, 50)) + 3.0).min() > 0.0


def test_fit_of_values_that_would_overflow_raises(blobs):
    X, y = blobs
    model = EnclosingClassifier().fit(X, y)
    with pytest.raises(DataError, match="squares overflow"):
        model.partial_fit(np.full((1, 3), 1e200), [0])
    with pytest.raises(DataError, match="squares overflow"):
        model.predict(np.full((1, 3), 1e200))


def test_kernel_ellipsoid_beyond_memory_raises_before_allocation(monkeypatch, blobs):
    monkeypatch.setattr("steelyard._memory.available_bytes", lambda: 1000)
    monkeypatch.setattr("steelyard._memory._MIN_CHECKED_BYTES", 0)
    model = EnclosingClassifier(kernel="rbf").fit(*blobs)
    with pytest.raises(MemoryLimitError, match="kernel ellipsoid around a class of 80 distinct rows"):
        model.predict(blobs[0])


def test_solver_at_max_steps_warns(monkeypatch, rng):
    monkeypatch.setattr(bodies, "MAX_STEPS", 2)
    model = EnclosingClassifier(shape="sphere").fit(rng.normal(size=(300, 5)), np.zeros(300))
    with pytest.warns(ConvergenceWarning, match="the solver stopped"):
        model.radius_


def test_float32_rows_match_float64_rows(blobs):
    X, y = blobs
    single = X.astype(np.float32)
    left = EnclosingClassifier().fit(single, y).distance_ratio(single)
    right = EnclosingClassifier().fit(single.astype(np.float64), y).distance_ratio(single.astype(np.float64))
    np.testing.assert_array_equal(left, right)


@models
def test_loading_damaged_state_raises(model, blobs):
    model = clone(model).fit(*blobs)
    damages = [
        lambda s: s["classes"].pop(),
        lambda s: s["labels"].reverse(),
        lambda s: s["classes"][0].update(alpha=s["classes"][0]["alpha"][:-1]),
        lambda s: s["classes"][0].update(alpha=-s["classes"][0]["alpha"]),
        lambda s: s["classes"][0].update(weights=s["classes"][0]["weights"] * np.nan),
        lambda s: s["classes"][0].update(radius=-1.0),
        lambda s: s["classes"][0].update(X=s["classes"][0]["X"][::-1]),
        lambda s: s["classes"][0].update(X=s["classes"][0]["X"][:, :2]),
        lambda s: s["classes"][0].update(X=s["classes"][0]["X"].astype(np.float32)),
    ]
    for damage in damages:
        state = model._get_state()
        damage(state)
        with pytest.raises((ValueError, KeyError, TypeError)):
            clone(model)._set_state(state)


def test_loading_does_not_run_the_solver(monkeypatch, blobs):
    X, y = blobs
    model = EnclosingClassifier(kernel="rbf").fit(X, y)
    expected, stored = model.distance_ratio(X), persistence.to_bytes(model)
    monkeypatch.setattr("steelyard.enclosing.bodies.BodySettings.ball", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(persistence.from_bytes(stored).distance_ratio(X), expected)


@pytest.mark.parametrize("shape", ["sphere", "ellipsoid"])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", "poly"])
def test_copy_of_used_model_gives_same_scores(shape, kernel):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    model = EnclosingClassifier(shape=shape, kernel=kernel).fit(X, y)
    answers = model.decision_function(X)  # this call caches the bodies
    for same_history in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(same_history.decision_function(X), answers)


# -- pseudo-inverse and membership of the paper ----------------------------------------------------


@pytest.mark.parametrize("n_rows", [4, 40])
@pytest.mark.parametrize("kernel", ["linear", "polynomial"])
def test_ellipsoid_with_ridge_zero_uses_pseudo_inverse(rng, n_rows, kernel):
    """Compare distances with equation (7), using the pseudo-inverse in the explicit feature space.

    With few rows, most directions have no variance.
    """
    X, fresh = rng.normal(size=(n_rows, 6)), rng.normal(size=(20, 6))
    degree = 1 if kernel == "linear" else 2
    model = EnclosingClassifier(ridge=0, kernel=kernel, degree=degree, gamma=1.0).fit(X, np.zeros(n_rows))
    stored = model._classes[0.0].rows.X  # the same rows in sorted order

    def explicit(rows):  # (x'z)^2 is the inner product of all pairwise products
        return rows if kernel == "linear" else np.einsum("ni,nj->nij", rows, rows).reshape(len(rows), -1)

    phi, phi_fresh = explicit(stored), explicit(fresh)
    inverse = np.linalg.pinv(np.cov(phi.T, bias=True), rcond=1e-10, hermitian=True)
    body = model._bodies("predict")[0]
    apart = phi_fresh - body.ball.alpha @ phi
    expected = np.sqrt(np.einsum("ni,ij,nj->n", apart, inverse, apart)) / model.radius_[0]
    np.testing.assert_allclose(model.distance_ratio(fresh)[:, 0], expected, rtol=1e-6)


def test_direction_without_variance_is_ignored_with_ridge_zero(rng):
    X = rng.normal(size=(30, 2)) * [1.0, 0.0]
    model = EnclosingClassifier(ridge=0).fit(X, np.zeros(30))
    near, far = model.distance_ratio([[0.3, 0.0], [0.3, 50.0]])[:, 0]
    assert near == pytest.approx(far)


def test_equal_rows_with_ridge_zero_have_radius_zero():
    model = EnclosingClassifier(ridge=0).fit([[1.0, 2.0]] * 4, ["a"] * 4)
    assert model.predict([[1.0, 2.0], [5.0, 5.0]], unknown="?").tolist() == ["a", "?"]


@models
def test_membership_matches_equations_9_and_11(model, blobs, rng):
    X, y = blobs
    model = clone(model).fit(X, y)
    fresh = rng.normal(size=(300, 3)) * 4
    distances, radii = model.distance_ratio(fresh) * model.radius_, model.radius_
    for row, r in zip(distances, model.membership(fresh), strict=True):
        if (row > radii).all():
            np.testing.assert_allclose(r, radii / row)  # (9)
        else:
            np.testing.assert_allclose(r, 1.0 - row / radii, atol=1e-12)  # (11)
        assert int(np.argmax(r)) == four_steps(row, radii)
