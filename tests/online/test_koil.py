"""Compare KOIL with a reference implementation of its algorithm, and check further properties."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from steelyard import KOIL, _native, persistence
from steelyard.exceptions import DataError, MemoryLimitError, ParameterError
from steelyard.kernels import Kernel
from tests.online import reference
from tests.online.streams import make_stream

ETA, C = 0.013, 3.3  # arbitrary numbers, so that losses are never exactly zero

KERNELS = {
    "rbf": ({"kernel": "rbf", "gamma": 0.7}, lambda X: reference.rbf(X, 0.7)),
    "polynomial": (
        {"kernel": "polynomial", "gamma": 0.3, "degree": 2, "coef0": 0.5},
        lambda X: reference.polynomial(X, 2, 0.3, 0.5),
    ),
    "linear": ({"kernel": "linear"}, reference.products),
}


@pytest.fixture
def stream():
    return make_stream(1000)


def _pickled(model):
    return pickle.loads(pickle.dumps(model))


def _saved(model):
    return persistence.from_bytes(persistence.to_bytes(model))


def reference_model(K, y, seed=0, select_first="violators", **parameters):
    nearest_first = select_first == "nearest"
    model = reference.Koil(K, C=C, eta=ETA, seed=seed, nearest_first=nearest_first, **parameters)
    for t, sign in enumerate(y.tolist()):
        model.learn(t, sign)
    return model


def assert_same_function(model, expected, K, X):
    scores = K @ expected.weights()
    np.testing.assert_allclose(
        model.decision_function(X), scores, rtol=1e-9, atol=1e-9 * np.abs(scores).max()
    )


def check_against_reference(X, y, kernel, **parameters):
    numbers, matrix = KERNELS[kernel]
    model = KOIL(C, learning_rate=ETA, threshold="zero", random_state=3, **numbers, **parameters).partial_fit(
        X, y
    )
    K = matrix(X)
    assert_same_function(model, reference_model(K, y, model._seed, **parameters), K, X)


@pytest.mark.parametrize("policy", ["fifo++", "reservoir", "reservoir++"])
@pytest.mark.parametrize("budget", [(5, 40), (40, 5), (1, 17)])
@pytest.mark.parametrize("first", [1, -1])
def test_pair_of_budgets_matches_reference_implementation_per_class(stream, policy, budget, first):
    X, y = stream
    begin = int(np.argmax(y == first))  # the rows from here on begin with class `first`
    X, y = X[begin : begin + 600], y[begin : begin + 600]
    check_against_reference(X, y, "rbf", policy=policy, budget=budget, n_neighbors=3)
    model = KOIL(budget=budget, policy=policy, random_state=0).fit(X, y)
    sides = [int((side * model.dual_coef_[0] > 0).sum()) for side in (1, -1)]
    assert all(count <= limit for count, limit in zip(sides, budget, strict=True))
    loaded = persistence.from_bytes(persistence.to_bytes(model)).partial_fit(X, y)
    np.testing.assert_array_equal(loaded.decision_function(X), model.partial_fit(X, y).decision_function(X))


@pytest.mark.parametrize("rate_decay", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("loss", ["hinge", "smooth"])
def test_decaying_learning_rate_matches_reference_implementation(stream, rate_decay, loss):
    X, y = stream
    check_against_reference(
        X[:500], y[:500], "rbf", policy="fifo++", loss=loss, budget=20, n_neighbors=3, rate_decay=rate_decay
    )


def test_pair_of_budgets_without_two_classes_raises(stream):
    X, y = stream
    with pytest.raises(ParameterError, match=r"needs two classes in the first rows; got 1"):
        KOIL(budget=(3, 4)).partial_fit(X[:1], y[:1])
    with pytest.raises(ParameterError, match="budget must be"):
        KOIL(budget=(3, 0)).partial_fit(X, y)
    model = KOIL(budget=(3, 4), random_state=0).partial_fit(X[:400], y[:400])
    with pytest.raises(DataError, match="pair of budgets needs two classes; got 3"):
        model.partial_fit(X[:3], [-1, 1, 7])
    model.partial_fit(X, y)


@pytest.mark.parametrize("settings", [("nearest", False), ("violators", True), ("nearest", True)])
@pytest.mark.parametrize("policy", ["unbounded", "fifo", "fifo++", "reservoir", "reservoir++"])
@pytest.mark.parametrize(
    ("share", "apart", "loss"), [(0.1, 0.3, "hinge"), (0.1, 1.2, "smooth"), (0.5, 1.0, "hinge")]
)
def test_nearest_first_and_store_all_match_reference_implementation(settings, policy, share, apart, loss):
    """Check equation (3.9) and algorithm 3 of the thesis, also with a rare class (scores computed lazily)."""
    parameters = dict(zip(("select_first", "store_all"), settings, strict=True))
    parameters |= {"loss": loss, "policy": policy, "budget": 20, "n_neighbors": 4}
    check_against_reference(*rare_class(share, apart), "rbf", **parameters)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("loss", ["hinge", "smooth"])
@pytest.mark.parametrize("policy", ["fifo", "fifo++", "reservoir", "reservoir++"])
def test_bounded_policies_match_reference_implementation(stream, kernel, loss, policy):
    check_against_reference(*stream, kernel, loss=loss, policy=policy, budget=12, n_neighbors=3)


@pytest.mark.parametrize("policy", ["fifo", "fifo++", "reservoir", "reservoir++"])
@pytest.mark.parametrize(("budget", "n_neighbors"), [(1, 1), (2, 7), (37, 200), (90, 3), (90, 16), (90, 40)])
def test_any_budget_and_n_neighbors_match_reference_implementation(stream, policy, budget, n_neighbors):
    X, y = stream
    check_against_reference(
        X[:600], y[:600], "rbf", loss="smooth", policy=policy, budget=budget, n_neighbors=n_neighbors
    )


def test_long_stream_with_score_refresh_matches_reference_implementation():
    X, y = make_stream(5000, d=2)
    check_against_reference(X, y, "rbf", loss="hinge", policy="fifo++", budget=20, n_neighbors=5)


def rare_class(share, apart, n=900, d=3):
    """Return a stream with a rare class. The smaller ``apart`` is, the more the classes overlap."""
    rng = np.random.default_rng(int(100 * share + apart))
    y = np.where(rng.random(n) < share, 1, -1)
    return rng.normal(size=(n, d)) + apart * (y[:, None] > 0), y


@pytest.mark.parametrize("level", _native.simd_levels())
@pytest.mark.parametrize("policy", ["fifo", "fifo++", "reservoir++"])
@pytest.mark.parametrize(("share", "apart"), [(0.02, 0.3), (0.1, 0.3), (0.1, 1.2), (0.1, 3.0), (0.95, 0.5)])
def test_rare_class_matches_reference_implementation(level, policy, share, apart):
    before = _native.simd_level()
    try:
        _native.use_simd_level(level)
        X, y = rare_class(share, apart)
        for loss, k in (("hinge", 10), ("smooth", 4)):
            check_against_reference(X, y, "rbf", loss=loss, policy=policy, budget=40, n_neighbors=k)
    finally:
        _native.use_simd_level(before)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("apart", [0.3, 3.0])
def test_learning_with_rare_class_is_bit_identical_after_save_and_load(dtype, apart):
    X, y = rare_class(0.1, apart, n=2000)
    X, whole = X.astype(dtype), KOIL(budget=50, random_state=0)
    parts = KOIL(budget=50, random_state=0)
    for begin in range(0, len(X), 37):
        whole.partial_fit(X[begin : begin + 37], y[begin : begin + 37])
        parts.partial_fit(X[begin : begin + 37], y[begin : begin + 37])
        parts = _saved(parts) if begin % 2 else _pickled(parts)
    np.testing.assert_array_equal(whole.decision_function(X), parts.decision_function(X))
    assert whole._ensemble.cache_error() < (1e-10 if dtype == np.float64 else 1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("loss", ["hinge", "smooth"])
def test_unbounded_policy_matches_reference_implementation(kernel, loss):
    X, y = make_stream(500)
    check_against_reference(X, y, kernel, loss=loss, policy="unbounded", budget=100, n_neighbors=5)


@given(
    signs=st.lists(st.sampled_from([-1, 1]), min_size=1, max_size=60),
    places=st.integers(1, 6),
    budget=st.integers(1, 5),
    k=st.integers(1, 4),
    rule=st.tuples(
        st.sampled_from(["fifo", "fifo++", "reservoir", "reservoir++", "unbounded"]),
        st.sampled_from(["hinge", "smooth"]),
    ),
)
@settings(deadline=None, max_examples=60)
def test_random_short_streams_match_reference_implementation(signs, places, budget, k, rule):
    policy, loss = rule
    y = np.array(signs)
    # There are many exact ties, because coordinates are multiples of 0.375 and equal distances are bitwise
    # equal.
    X = (np.arange(len(y)) % places).astype(float)[:, None] * 0.375
    model = KOIL(
        C,
        budget=budget,
        n_neighbors=k,
        learning_rate=ETA,
        loss=loss,
        policy=policy,
        threshold="zero",
        random_state=1,
    ).fit(X, y)
    K = reference.rbf(X, 1.0)
    expected = reference_model(K, y, model._seed, budget=budget, n_neighbors=k, loss=loss, policy=policy)
    scores = K @ expected.weights()
    direction = 1.0 if len(set(signs)) == 2 or signs[0] == 1 else -1.0  # with one class, scores are positive
    np.testing.assert_allclose(model.decision_function(X), direction * scores, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("level", _native.simd_levels())
def test_every_simd_level_matches_reference_implementation(stream, level):
    X, y = stream
    K = reference.rbf(X, 0.7)
    expected = reference_model(K, y, budget=29, n_neighbors=7, policy="fifo++")
    before = _native.simd_level()
    try:
        _native.use_simd_level(level)
        model = KOIL(
            C, budget=29, n_neighbors=7, learning_rate=ETA, policy="fifo++", gamma=0.7, threshold="zero"
        ).fit(X, y)
        assert_same_function(model, expected, K, X)
    finally:
        _native.use_simd_level(before)


def test_buffers_too_large_for_a_kernel_matrix_match_reference_implementation():
    rng = np.random.default_rng(0)
    y = np.full(2150, -1)
    y[2100::5] = 1
    X = rng.normal(size=(2150, 1)) + 0.5 * y[:, None]
    model = KOIL(
        C, budget=5000, n_neighbors=5, learning_rate=ETA, policy="fifo++", gamma=0.7, threshold="zero"
    ).fit(X, y)
    K = reference.rbf(X, 0.7)
    assert_same_function(model, reference_model(K, y, budget=5000, n_neighbors=5), K, X)
    assert model._ensemble.cache_error() < 1e-10


def in_runs(rows_per_run, n=700):
    """Return a stream whose classes alternate in runs of the given lengths."""
    rng = np.random.default_rng(7)
    signs = np.concatenate([np.full(length, (-1) ** i) for i, length in enumerate(rows_per_run)])
    y = np.resize(signs, n)
    return rng.normal(size=(n, 3)) / np.sqrt(3.0) + 0.3 * y[:, None], y


@pytest.mark.parametrize("level", _native.simd_levels())
@pytest.mark.parametrize("budget", [5, 8, 13, 24])
@pytest.mark.parametrize("runs", [(1, 1), (11, 2), (40, 30)])
def test_stream_with_runs_of_one_class_matches_reference_implementation(level, budget, runs):
    # During a run of one class, its scores are stale and kernel columns are written in groups.
    X, y = in_runs(runs)
    before = _native.simd_level()
    try:
        _native.use_simd_level(level)
        check_against_reference(X, y, "rbf", loss="smooth", policy="fifo++", budget=budget, n_neighbors=3)
    finally:
        _native.use_simd_level(before)


@pytest.mark.parametrize("level", _native.simd_levels())
@pytest.mark.parametrize("gamma", [1e9, 700.0, 1e-20])
@pytest.mark.parametrize("n_neighbors", [3, 40])
def test_constant_kernel_matches_reference_implementation(level, gamma, n_neighbors):
    # Kernel values are all zeros, denormal, or all ones. Among ties, the first vectors are selected.
    rng = np.random.default_rng(2)
    y = np.where(rng.random(400) < 0.5, 1, -1)
    X = 1.0 + 0.01 * rng.normal(size=(400, 2))
    X[::2] += 1.0 / np.sqrt(2.0)
    before = _native.simd_level()
    try:
        _native.use_simd_level(level)
        model = KOIL(
            C, budget=90, n_neighbors=n_neighbors, learning_rate=ETA, policy="fifo", gamma=gamma,
            threshold="zero",
        ).fit(X, y)  # fmt: skip
    finally:
        _native.use_simd_level(before)
    K = reference.rbf(X, gamma)
    assert_same_function(
        model, reference_model(K, y, budget=90, n_neighbors=n_neighbors, policy="fifo"), K, X
    )


def test_updates_that_underflow_to_zero_leave_model_unchanged(stream):
    X, y = stream
    model = KOIL(5e-324, budget=3, loss="smooth", policy="fifo++").fit(X, y)
    assert not model.dual_coef_.any()


@pytest.mark.parametrize("policy", ["fifo++", "reservoir++", "unbounded"])
def test_model_with_stale_cached_scores_continues_equally_after_save_and_load(policy):
    X, y = in_runs((23, 5), 300)
    straight = KOIL(C, budget=13, policy=policy, random_state=0).fit(X, y)
    saved = KOIL(C, budget=13, policy=policy, random_state=0)
    for begin in range(0, 300, 19):
        saved.partial_fit(X[begin : begin + 19], y[begin : begin + 19])
        saved._set_machines_state(saved._machines_state())
        assert saved._ensemble.cache_error() < 1e-12
    np.testing.assert_array_equal(saved.decision_function(X), straight.decision_function(X))


def test_state_of_version_0_1_without_stale_score_counters_loads(stream):
    X, y = stream
    model = KOIL(C, budget=13, policy="fifo++", threshold="zero").fit(X, y)
    state = model._machines_state()
    (machine,) = state["machines"]
    rows = [state["vectors"][side["ids"]] for side in machine["sides"]]
    scores = [model._target_scores(part)[0] / machine["scale"] for part in rows]
    del machine["behind"]
    for side, up_to_date in zip(machine["sides"], scores, strict=True):
        del side["counted"]
        side["scores"] = up_to_date
    model._set_machines_state(state)
    assert model._ensemble.cache_error() < 1e-12


def test_swapped_labels_flip_the_sign_of_scores(stream):
    X, y = stream
    model, flipped = (KOIL(gamma=0.7, random_state=0).fit(X, t) for t in (y, -y))
    np.testing.assert_array_equal(flipped.decision_function(X), -model.decision_function(X))


def test_reservoirs_are_uniform_samples():
    # Steps are so small that every pair violates the margin, so all samples are candidates for the buffers.
    n, budget, repetitions = 60, 10, 3000
    X = np.arange(n + 1, dtype=float)[:, None]
    signs = np.r_[-1, np.ones(n)].astype(np.int8)[None]
    included = np.zeros(n + 1)
    for seed in range(repetitions):
        machine = _native.KoilEnsemble64(1, [_native.KernelSpec("rbf", 1e-3)], (budget, budget), seed)
        machine.add_target()
        machine.learn(
            X, signs, 1e-6, 0.01, 5, smooth=False, decay=True, policy="reservoir++", weight_rate=0.0
        )
        vectors = machine.vectors[:, 0].astype(int)
        included[vectors[vectors > 0]] += 1
    share = budget / n
    deviations = (included[1:] - repetitions * share) / np.sqrt(repetitions * share * (1 - share))
    assert included.sum() == repetitions * budget
    assert np.abs(deviations).max() < 4.5
    # Inclusions in one repetition are slightly negatively correlated, so the sum of squares is near n (1 -
    # 1/n).
    assert 0.5 * n < np.sum(deviations**2) < 1.7 * n


def test_cached_scores_stay_accurate_over_two_million_samples():
    rng = np.random.default_rng(0)
    model = KOIL(8.0, budget=8, n_neighbors=3, learning_rate=0.05, gamma=2.0, policy="fifo++")
    n = 500_000
    for _ in range(4):
        y = (rng.random(n) < 0.2).astype(int)
        model.partial_fit(rng.normal(size=(n, 2)) + 0.5 * y[:, None], y)
    scores = np.abs(model.decision_function(model.support_vectors_)).max()
    assert model._ensemble.n_seen == 4 * n
    assert model._ensemble.cache_error() < 1e-12 * scores


@pytest.mark.parametrize("learning_rate", [0.9, 1e-6])
def test_extreme_learning_rates_give_finite_scores(stream, learning_rate):
    X, y = stream
    model = KOIL(learning_rate=learning_rate, random_state=0).fit(X, y)
    assert np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize("policy", ["reservoir++", "fifo++", "reservoir", "fifo", "unbounded"])
@pytest.mark.parametrize("loss", ["hinge", "smooth"])
def test_float32_learner_matches_float64_learner_up_to_rounding(stream, policy, loss):
    X, y = stream
    narrow = X[:600].astype(np.float32)
    single, double = (
        KOIL(C=0.5, gamma=0.3, budget=40, policy=policy, loss=loss, random_state=0).fit(Z, y[:600])
        for Z in (narrow, narrow.astype(float))
    )
    assert isinstance(single._ensemble, _native.KoilEnsemble32)
    assert single.support_vectors_.dtype == np.float32
    np.testing.assert_array_equal(single.support_vectors_, double.support_vectors_)
    expected = double.decision_function(narrow.astype(float))
    tolerance = 1e-4 * np.abs(expected).max()
    np.testing.assert_allclose(single.decision_function(narrow), expected, atol=tolerance)
    np.testing.assert_allclose(single.decision_function(narrow.astype(float)), expected, atol=tolerance)


def test_float32_and_float64_learners_have_similar_auc_on_long_stream():
    X, y = make_stream(6000)
    rows = X.astype(np.float32)
    single, double = (
        KOIL(random_state=0).fit(Z[:4000], y[:4000]).decision_function(Z[4000:]) for Z in (rows, X)
    )
    aucs = [roc_auc_score(y[4000:] > 0, scores) for scores in (single, double)]
    assert abs(aucs[0] - aucs[1]) < 0.005


@pytest.mark.parametrize("copied", [_pickled, _saved])
def test_copied_float32_learner_continues_bitwise_equal(stream, copied):
    X, y = stream
    rows = X.astype(np.float32)
    model = KOIL(random_state=0).partial_fit(rows[:500], y[:500])
    other = copied(model)
    assert isinstance(other._ensemble, _native.KoilEnsemble32)
    for one in (model, other):
        one.partial_fit(rows[500:], y[500:])
    np.testing.assert_array_equal(other.dual_coef_, model.dual_coef_)
    np.testing.assert_array_equal(other.decision_function(rows), model.decision_function(rows))


def test_float64_rows_convert_float32_learner_to_float64(stream):
    X, y = stream
    first = X[:300].astype(np.float32)
    mixed = KOIL(gamma=0.3, random_state=0).partial_fit(first, y[:300]).partial_fit(X[300:400], y[300:400])
    assert isinstance(mixed._ensemble, _native.KoilEnsemble64)
    double = KOIL(gamma=0.3, random_state=0).fit(np.concatenate([first.astype(float), X[300:400]]), y[:400])
    expected = double.decision_function(X)
    np.testing.assert_allclose(
        mixed.decision_function(X), expected, rtol=0.0, atol=1e-4 * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"kernel": "linear"},
        {"kernel": "polynomial"},
        {"gamma": 1e35},
        {"C": 1e5},
        {"loss": "smooth", "C": 50.0},
    ],
)
def test_parameters_that_could_overflow_float32_use_float64(stream, parameters):
    X, y = stream
    rows = X.astype(np.float32)
    single, double = (KOIL(random_state=0, **parameters).fit(Z, y) for Z in (rows, rows.astype(float)))
    assert isinstance(single._ensemble, _native.KoilEnsemble64)
    np.testing.assert_array_equal(single.decision_function(rows), double.decision_function(rows))


def test_large_C_converts_float32_learner_to_float64(stream):
    X, y = stream
    rows = X.astype(np.float32)
    model = KOIL(random_state=0).partial_fit(rows[:500], y[:500])
    model.set_params(C=1e5).partial_fit(rows[500:], y[500:])
    assert isinstance(model._ensemble, _native.KoilEnsemble64)
    assert np.isfinite(model.decision_function(rows)).all()


def test_largest_float32_rows_give_finite_scores(stream):
    X, y = stream
    rows = (X / np.abs(X).max() * np.finfo(np.float32).max).astype(np.float32)
    model = KOIL(random_state=0, learning_rate=0.999999).fit(rows, y)
    assert np.isfinite(model.decision_function(rows)).all()
    assert np.isfinite(model.dual_coef_).all()


def test_decision_function_matches_dual_coef_and_support_vectors(stream):
    X, y = stream
    model = KOIL(gamma=0.7, random_state=0).fit(X, y)
    sums = (
        Kernel("rbf", gamma=0.7).block(X, model.support_vectors_) @ model.dual_coef_[0] + model.intercept_[0]
    )
    np.testing.assert_allclose(model.decision_function(X), sums, rtol=1e-9, atol=1e-12)


def test_multiclass_matches_one_vs_rest_learners_from_first_row():
    rng = np.random.default_rng(0)
    labels = np.array(["d", "b", "a", "c"])
    codes = rng.integers(0, 4, size=600)
    codes[:100] %= 2
    codes[0], codes[1], codes[100], codes[150] = 0, 1, 2, 3
    codes[101:150] %= 3
    X = rng.normal(size=(600, 3)) + codes[:, None]
    shared = {"policy": "fifo++", "budget": 20, "threshold": "zero"}
    model = KOIL(**shared).fit(X, labels[codes])
    scores = model.decision_function(X)
    for code, first in enumerate([0, 0, 100, 150]):
        alone = KOIL(**shared).fit(X[first:], (codes[first:] == code).astype(int))
        column = list(model.classes_).index(labels[code])
        np.testing.assert_allclose(scores[:, column], alone.decision_function(X), rtol=1e-9, atol=1e-12)
    vectors, weights = model.support_vectors_, model.dual_coef_
    np.testing.assert_allclose(Kernel().block(X, vectors) @ weights.T, scores, rtol=1e-9, atol=1e-12)


def test_support_vectors_shared_by_classes_are_stored_once():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, size=400)
    X = rng.normal(size=(400, 3)) + y[:, None]
    model = KOIL(policy="fifo++", budget=20).fit(X, y)
    vectors = model.support_vectors_
    assert len(np.unique(vectors, axis=0)) == len(vectors)
    assert len(vectors) < 5 * 2 * 20


def test_number_of_support_vectors_stays_within_budget(stream):
    X, y = stream
    for policy in ("fifo", "fifo++", "reservoir", "reservoir++"):
        assert len(KOIL(budget=9, policy=policy).fit(X, y).support_vectors_) <= 18
    assert len(KOIL(policy="unbounded").fit(X, y).support_vectors_) > 200


def test_gmean_threshold_maximizes_gmean_on_support_vectors(stream):
    X, y = stream
    model = KOIL(budget=30, gamma=0.7, policy="fifo++").fit(X, y)
    vectors = model.support_vectors_
    weights = model.dual_coef_[0]
    scores = Kernel(gamma=0.7).block(vectors) @ weights
    positive = {tuple(row) for row in X[y == 1]}
    truth = np.array([tuple(row) in positive for row in vectors])

    def gmean(threshold):
        return np.sqrt(np.mean(scores[truth] > threshold) * np.mean(scores[~truth] <= threshold))

    assert gmean(-model.intercept_[0]) == max(map(gmean, scores - 1e-12))


def test_integer_sample_weight_equals_repetition():
    X, y = make_stream(200)
    weights = np.random.default_rng(0).integers(0, 3, size=200)
    weighted = KOIL(policy="fifo++").fit(X, y, sample_weight=weights)
    repeated = KOIL(policy="fifo++").fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_array_equal(weighted.decision_function(X), repeated.decision_function(X))


def test_fractional_sample_weight_raises():
    X, y = make_stream(50)
    with pytest.raises(DataError, match="must contain integers"):
        KOIL().fit(X, y, sample_weight=np.full(50, 0.5))


@pytest.mark.parametrize("weight", [1e18, 1e300])
def test_sample_weight_that_needs_too_much_memory_raises(weight):
    X, y = np.eye(2), [0, 1]
    with pytest.raises(MemoryLimitError, match="KOIL: rows repeated by their sample_weight"):
        KOIL().fit(X, y, sample_weight=[1.0, weight])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": -1.0}, "C must be a positive, finite number; got -1.0"),
        ({"learning_rate": 1.0}, "learning_rate must be a number between 0 and 1"),
        ({"policy": "lifo"}, "policy must be"),
        ({"budget": 0}, "budget must be a whole number from 1 to"),
        ({"gamma": 0.0}, "gamma must be"),
        ({"kernel": "precomputed"}, "kernel must be"),
    ],
)
def test_invalid_parameters_raise(parameters, message):
    X, y = make_stream(50)
    with pytest.raises(ParameterError, match=message):
        KOIL(**parameters).fit(X, y)


def test_rows_that_would_overflow_raise_and_keep_state():
    X, y = make_stream(50)
    model = KOIL(kernel="polynomial").fit(X, y)
    before = model.decision_function(X)
    with pytest.raises(DataError, match="could overflow"):
        model.partial_fit(X * 1e60, y)
    np.testing.assert_array_equal(model.decision_function(X), before)


def test_gamma_median_is_computed_from_first_rows(stream):
    X, y = stream
    model = KOIL(gamma="median", random_state=0).partial_fit(X[:500], y[:500]).partial_fit(X[500:], y[500:])
    gamma = Kernel(gamma="median").resolve(X[:500]).gamma
    same = KOIL(gamma=gamma, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), same.decision_function(X))
