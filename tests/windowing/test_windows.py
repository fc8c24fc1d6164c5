"""Window wrappers equal a fit on the rows and weights that they represent; adaptive windows detect drift."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import IncrementalSVC, ProximalSVC
from steelyard.exceptions import DataError, NotFittedError, ParameterError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.streams import Drift, Gaussians
from steelyard.windowing import AdaptiveWindows, ExponentialDecay, SlidingWindow
from tests.safety.interruption import interrupt_at


def _rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(int)
    return rng.normal(size=(n, 3)) + y[:, None], y


def _close(model, fresh):
    np.testing.assert_allclose(model.coef_, fresh.coef_, rtol=1e-7, atol=1e-10)
    assert model.classes_.tolist() == fresh.classes_.tolist()


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=12), window=st.integers(20, 120))
def test_sliding_window_equals_fit_on_its_rows(sizes, window):
    X, y = _rows(sum(sizes))
    model = SlidingWindow(ProximalSVC(), size=window)
    for end in np.cumsum(sizes):
        begin = end - sizes[list(np.cumsum(sizes)).index(end)]
        model.partial_fit(X[begin:end], y[begin:end])
        in_window = slice(max(0, end - window), end)
        _close(model.estimator_, ProximalSVC().fit(X[in_window], y[in_window]))
    assert model.n_rows_ == min(window, sum(sizes))


def test_time_window_forgets_rows_older_than_its_size():
    X, y = _rows()
    time = np.arange(600) * 3600.0
    for size in (timedelta(hours=100), "100h"):
        model = SlidingWindow(ProximalSVC(), size=size)
        for begin in range(0, 600, 70):
            model.partial_fit(X[begin : begin + 70], y[begin : begin + 70], time=time[begin : begin + 70])
        _close(model.estimator_, ProximalSVC().fit(X[-100:], y[-100:]))


def test_time_window_without_times_or_with_decreasing_times_raises():
    X, y = _rows(20)
    model = SlidingWindow(ProximalSVC(), size="1d")
    with pytest.raises(DataError, match="needs the times of the rows"):
        model.partial_fit(X, y)
    with pytest.raises(
        DataError, match="must not decrease; row 1 is 2 seconds earlier than the row before it"
    ):
        model.partial_fit(X, y, time=2 * np.arange(20)[::-1])


def test_partial_fit_with_nan_raises_and_keeps_window():
    X, y = _rows(100)
    model = SlidingWindow(ProximalSVC(), size=50).partial_fit(X, y)
    before = model.estimator_.coef_.copy()
    X[3, 1] = np.nan
    with pytest.raises(DataError):
        model.partial_fit(X[:10], y[:10])
    np.testing.assert_array_equal(model.estimator_.coef_, before)
    assert model.n_rows_ == 50


def test_class_without_rows_in_window_is_removed():
    X, y = _rows(200)
    y[:50], y[50:] = 2, y[50:]
    model = SlidingWindow(ProximalSVC(), size=100)
    for begin in range(0, 200, 25):
        model.partial_fit(X[begin : begin + 25], y[begin : begin + 25])
    assert model.classes_.tolist() == [0, 1]


def test_grow_pads_older_rows_of_window_with_zeros():
    X, y = _rows(100)
    wide = np.column_stack([X, np.r_[np.zeros(50), np.ones(50)]])
    model = SlidingWindow(ProximalSVC(), size=70).partial_fit(X[:50], y[:50]).grow(4)
    model.partial_fit(wide[50:], y[50:])
    _close(model.estimator_, ProximalSVC().fit(wide[30:], y[30:]))


@pytest.mark.parametrize("cuts", [[600], [100, 500], [1] * 5 + [595]])
def test_decay_equals_fit_with_exponential_weights(cuts):
    X, y = _rows()
    model, begin = ExponentialDecay(ProximalSVC(), half_life=80), 0
    for n in cuts:
        model.partial_fit(X[begin : begin + n], y[begin : begin + n])
        begin += n
    weights = 0.5 ** (np.arange(599, -1, -1) / 80)
    _close(model.estimator_, ProximalSVC().fit(X, y, sample_weight=weights))


def test_decay_removes_class_without_recent_rows():
    X, y = _rows(2000)
    y[:10] = 2
    model = ExponentialDecay(ProximalSVC(), half_life=20)
    for begin in range(0, 2000, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    assert model.classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    "wrapper",
    [
        SlidingWindow(ProximalSVC(), 100),
        ExponentialDecay(ProximalSVC(), 50),
        AdaptiveWindows(ProximalSVC(), (100, None), block=40),
        AdaptiveWindows(ProximalSVC(), (100, None), block=400),
    ],
)
def test_loaded_window_continues_like_original(wrapper):
    from sklearn.base import clone

    X, y = _rows()
    model = clone(wrapper).partial_fit(X[:300], y[:300])
    again = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(
        again.partial_fit(X[300:], y[300:]).decision_function(X),
        model.partial_fit(X[300:], y[300:]).decision_function(X),
    )


def test_hook_of_a_window_policy_works_on_a_copy_and_gets_the_wrapper_that_other_threads_see():
    X, y = _rows(40)
    calls = []

    class Policy(ExponentialDecay):
        def _slide(self, X, y, time, *, published):
            is_first = not self._is_started()
            super()._slide(X, y, time, published=published)
            calls.append((published, self is published, is_first, "estimator_" in published.__dict__))

    model = Policy(ProximalSVC(), half_life=20)
    model.partial_fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])
    assert calls == [(model, False, True, False), (model, False, False, True)]


def test_predict_before_fit_raises_not_fitted():
    for model in (
        SlidingWindow(ProximalSVC()),
        ExponentialDecay(ProximalSVC()),
        AdaptiveWindows(ProximalSVC()),
    ):
        with pytest.raises(NotFittedError):
            model.predict(np.zeros((1, 2)))


@pytest.mark.parametrize("size", [0, -5, "soon", 2.5, "30y"])
def test_invalid_window_size_raises(size):
    with pytest.raises(ParameterError, match="size must be"):
        SlidingWindow(ProximalSVC(), size=size).partial_fit(*_rows(10))


def test_estimator_without_forget_raises():
    from sklearn.linear_model import SGDClassifier

    with pytest.raises(ParameterError, match=r"must have forget\(\)"):
        SlidingWindow(SGDClassifier()).partial_fit(*_rows(10))


def test_adaptive_windows_equal_fits_on_their_rows():
    X, y = _rows(2000)
    y[:300] = 2  # this class leaves the shorter windows
    model = AdaptiveWindows(ProximalSVC(), (200, 1000, None), block=50, shrink=False)
    for begin in range(0, 2000, 130):
        model.partial_fit(X[begin : begin + 130], y[begin : begin + 130])
    for learner, length in zip((w.total for w in model._windows), (200, 1000, 2000), strict=True):
        _close(learner, ProximalSVC().fit(X[-length:], y[-length:]))


def test_adaptive_windows_are_bitwise_equal_for_all_chunk_sizes():
    X, y = _rows(1500)
    models = []
    for chunk in (50, 333, 1500):
        model = AdaptiveWindows(ProximalSVC(), (200, 1000, None), block=50)
        for begin in range(0, 1500, chunk):
            model.partial_fit(X[begin : begin + chunk], y[begin : begin + chunk])
        models.append(model)
    assert len({model.best_ for model in models}) == 1
    for model in models[1:]:
        np.testing.assert_array_equal(model.decision_function(X), models[0].decision_function(X))


@pytest.mark.parametrize("rule", ["best", "blend"])
def test_adaptive_windows_detect_sudden_drift_and_recover(rule):
    stream = Gaussians(20_000, drifts=[Drift(10_000)], distance=2.5, chunk=500, seed=4)
    model, plain = AdaptiveWindows(ProximalSVC(), (500, 2000, None), rule=rule), ProximalSVC()
    hits = {id(model): [], id(plain): []}
    for chunk in stream:
        for learner in (model, plain):
            if chunk.first_row:
                hits[id(learner)].append((learner.predict(chunk.X) == chunk.y)[chunk.y == 1].mean())
            learner.partial_fit(chunk.X, chunk.y)
    late = {name: np.mean(values[24:]) for name, values in hits.items()}
    assert late[id(model)] > late[id(plain)] + 0.1
    assert any(10_000 < row <= 12_500 for row in model.drifts_)
    assert not any(row <= 10_000 for row in model.drifts_)


def test_unsorted_window_lengths_raise():
    with pytest.raises(ParameterError, match="increasing numbers of rows"):
        AdaptiveWindows(ProximalSVC(), (500, 100)).partial_fit(*_rows(10))


class _RefusingLearner(ProximalSVC):
    """Learner that refuses every third update, like one whose sums were rounded."""

    n_updates = 0

    def update(self, add=None, forget=None):
        type(self).n_updates += 1
        if type(self).n_updates % 3 == 0:
            raise DataError("these rows were never learned.", source="_RefusingLearner.update")
        return super().update(add=add, forget=forget)


def test_window_refits_estimator_whose_forget_raises():
    X, y = _rows(400)
    model = SlidingWindow(_RefusingLearner(), size=60)
    for begin in range(0, 400, 20):
        model.partial_fit(X[begin : begin + 20], y[begin : begin + 20])
    _close(model.estimator_, ProximalSVC().fit(X[-60:], y[-60:]))
    assert model.n_rebuilt_ > 0
    assert model.n_rows_ == 60


def test_invalid_rows_raise_without_refit_and_keep_window():
    X, y = _rows(100)
    model = SlidingWindow(ProximalSVC(), size=60).partial_fit(X[:60], y[:60])
    before = to_bytes(model)
    with pytest.raises(DataError):
        model.partial_fit(np.full((5, 3), np.nan), y[:5])
    assert to_bytes(model) == before
    assert model.n_rebuilt_ == 0


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_window_over_rare_features_equals_fit_despite_rounding():
    """Rounding of features that are rarely nonzero may make the estimator refuse to forget learned rows."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 7000, size=(4000, 5)), rng.random((4000, 30)) < 0.02]).astype(float)
    y = (np.arange(4000) // 97 % 5 == 0).astype(int)
    model = SlidingWindow(ProximalSVC(), size=100)
    for begin in range(0, 4000, 10):
        model.partial_fit(X[begin : begin + 10], y[begin : begin + 10])
    fresh = ProximalSVC().fit(X[-100:], y[-100:])
    np.testing.assert_allclose(
        model.decision_function(X[-200:]), fresh.decision_function(X[-200:]), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(
    "wrapper",
    [
        SlidingWindow(ProximalSVC(), size=60),
        ExponentialDecay(ProximalSVC(), half_life=50),
        AdaptiveWindows(ProximalSVC()),
        AdaptiveWindows(ProximalSVC(), rule="blend"),
    ],
    ids=str,
)
def test_single_row_predict_equals_batch_predict_and_raises_same_errors(wrapper):
    rng = np.random.default_rng(0)
    y = np.array(["no", "yes"])[rng.integers(0, 2, 200)]
    X = rng.normal(size=(200, 3)) + (y == "yes")[:, None]
    with pytest.raises(NotFittedError):
        wrapper.predict(X[:1])
    wrapper.fit(X, y)
    single, batch = [wrapper.predict(row[None]) for row in X], wrapper.predict(X)
    assert {label.dtype for label in single} == {batch.dtype}
    assert np.concatenate(single).tolist() == batch.tolist()
    for bad in (np.full((1, 3), np.nan), np.zeros((1, 2)), np.zeros(3)):
        with pytest.raises(ValueError) as single_error:
            wrapper.predict(bad)
        with pytest.raises(ValueError) as batch_error:
            wrapper._predict(bad)
        assert str(single_error.value) == str(batch_error.value)


def _assert_equals_fit_on_window(window, X):
    """Assert that the estimator has learned exactly the rows that the window keeps."""
    rows = window._rows
    expected = IncrementalSVC(gamma=0.4).fit(rows.X, rows.y)
    assert window.estimator_.class_count_.tolist() == expected.class_count_.tolist()
    np.testing.assert_allclose(
        window.decision_function(X), expected.decision_function(X), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copy_of_interrupted_window_keeps_rows_and_estimator_consistent(make_copy):
    X, y = _rows(200)
    original = SlidingWindow(IncrementalSVC(gamma=0.4), size=70).partial_fit(X[:50], y[:50])
    n_rows_found = set()
    for moment in range(10_000):
        window = copy.deepcopy(original)
        if not interrupt_at(moment, lambda: window.partial_fit(X[50:60], y[50:60])):  # noqa: B023
            break
        if window.n_rows_ in n_rows_found and moment % 7:
            continue
        n_rows_found.add(window.n_rows_)
        copied = make_copy(window)
        for begin in (60, 70):
            copied.partial_fit(X[begin : begin + 10], y[begin : begin + 10])
        _assert_equals_fit_on_window(copied, X)
    assert n_rows_found == {50, 60}  # both the state before and the state after the call occurred


def test_pickled_state_is_not_changed_by_later_updates():
    """An update by another thread during pickling must not combine old rows with a newer estimator."""
    X, y = _rows(200)
    window = SlidingWindow(IncrementalSVC(gamma=0.4), size=70).partial_fit(X[:50], y[:50])
    make, arguments, state, *_ = window.__reduce_ex__(4)
    window.partial_fit(X[50:60], y[50:60])
    copied = make(*arguments)
    copied.__setstate__(pickle.loads(pickle.dumps(state)))
    assert copied.n_rows_ == 50
    _assert_equals_fit_on_window(copied, X)


@pytest.mark.parametrize("wrapper", [SlidingWindow, ExponentialDecay, AdaptiveWindows])
def test_deprecated_parameter_learner_warns(wrapper):
    with pytest.warns(FutureWarning, match="write estimator"):
        model = wrapper(learner=ProximalSVC())
    assert isinstance(model.estimator, ProximalSVC)
    model.fit(*_rows(50))
    with pytest.warns(FutureWarning, match="write estimator_"):
        assert model.learner_ is model.estimator_


def test_rows_that_left_the_window_are_freed_from_memory():
    X, y = _rows(5000)
    window = SlidingWindow(ProximalSVC(), size=20).partial_fit(X, y)
    kept = window._rows.X if window._rows.X.base is None else window._rows.X.base
    assert kept.nbytes <= 2 * 20 * 3 * 8
