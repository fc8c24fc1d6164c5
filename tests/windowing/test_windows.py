"""Windows and fading equal a fresh fit on what they hold; drift windows find the better memory."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import ProximalSVC
from steelyard.exceptions import DataError, NotFittedError, ParameterError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.streams import Drift, Gaussians
from steelyard.windowing import AdaptiveWindows, ExponentialDecay, SlidingWindow


def _rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(int)
    return rng.normal(size=(n, 3)) + y[:, None], y


def _close(model, fresh):
    np.testing.assert_allclose(model.coef_, fresh.coef_, rtol=1e-7, atol=1e-10)
    assert model.classes_.tolist() == fresh.classes_.tolist()


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=12), window=st.integers(20, 120))
def test_a_sliding_window_equals_a_fresh_fit_on_its_rows(sizes, window):
    X, y = _rows(sum(sizes))
    model = SlidingWindow(ProximalSVC(), size=window)
    for end in np.cumsum(sizes):
        begin = end - sizes[list(np.cumsum(sizes)).index(end)]
        model.partial_fit(X[begin:end], y[begin:end])
        kept = slice(max(0, end - window), end)
        _close(model.learner_, ProximalSVC().fit(X[kept], y[kept]))
    assert model.n_rows_ == min(window, sum(sizes))


def test_a_window_of_time_lets_go_of_rows_that_are_too_old():
    X, y = _rows()
    time = np.arange(600) * 3600.0
    for size in (timedelta(hours=100), "100h"):
        model = SlidingWindow(ProximalSVC(), size=size)
        for begin in range(0, 600, 70):
            model.partial_fit(X[begin : begin + 70], y[begin : begin + 70], time=time[begin : begin + 70])
        _close(model.learner_, ProximalSVC().fit(X[-100:], y[-100:]))


def test_a_window_of_time_refuses_rows_without_times_and_times_that_go_back():
    X, y = _rows(20)
    model = SlidingWindow(ProximalSVC(), size="1d")
    with pytest.raises(DataError, match="needs the times of the rows"):
        model.partial_fit(X, y)
    with pytest.raises(DataError, match="must not go back"):
        model.partial_fit(X, y, time=np.arange(20)[::-1])


def test_a_call_that_raises_leaves_the_window_as_it_was():
    X, y = _rows(100)
    model = SlidingWindow(ProximalSVC(), size=50).partial_fit(X, y)
    before = model.learner_.coef_.copy()
    X[3, 1] = np.nan
    with pytest.raises(DataError):
        model.partial_fit(X[:10], y[:10])
    np.testing.assert_array_equal(model.learner_.coef_, before)
    assert model.n_rows_ == 50


def test_a_class_that_leaves_the_window_is_no_class_any_more():
    X, y = _rows(200)
    y[:50], y[50:] = 2, y[50:]
    model = SlidingWindow(ProximalSVC(), size=100)
    for begin in range(0, 200, 25):
        model.partial_fit(X[begin : begin + 25], y[begin : begin + 25])
    assert model.classes_.tolist() == [0, 1]


def test_rows_may_become_wider_while_older_ones_are_in_the_window():
    X, y = _rows(100)
    wide = np.column_stack([X, np.r_[np.zeros(50), np.ones(50)]])
    model = SlidingWindow(ProximalSVC(), size=70).partial_fit(X[:50], y[:50]).grow(4)
    model.partial_fit(wide[50:], y[50:])
    _close(model.learner_, ProximalSVC().fit(wide[30:], y[30:]))


@pytest.mark.parametrize("cuts", [[600], [100, 500], [1] * 5 + [595]])
def test_fading_equals_a_fresh_fit_with_its_weights(cuts):
    X, y = _rows()
    model, begin = ExponentialDecay(ProximalSVC(), half_life=80), 0
    for n in cuts:
        model.partial_fit(X[begin : begin + n], y[begin : begin + n])
        begin += n
    weights = 0.5 ** (np.arange(599, -1, -1) / 80)
    _close(model.learner_, ProximalSVC().fit(X, y, sample_weight=weights))


def test_fading_forgets_a_class_that_stopped_coming_long_ago():
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
def test_saved_windows_go_on_where_they_were(wrapper):
    from sklearn.base import clone

    X, y = _rows()
    model = clone(wrapper).partial_fit(X[:300], y[:300])
    again = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(
        again.partial_fit(X[300:], y[300:]).decision_function(X),
        model.partial_fit(X[300:], y[300:]).decision_function(X),
    )


def test_windows_before_any_rows_say_so():
    for model in (
        SlidingWindow(ProximalSVC()),
        ExponentialDecay(ProximalSVC()),
        AdaptiveWindows(ProximalSVC()),
    ):
        with pytest.raises(NotFittedError):
            model.predict(np.zeros((1, 2)))


@pytest.mark.parametrize("size", [0, -5, "soon", 2.5, "30y"])
def test_a_size_that_makes_no_window_is_refused(size):
    with pytest.raises(ParameterError, match="size must be"):
        SlidingWindow(ProximalSVC(), size=size).partial_fit(*_rows(10))


def test_a_learner_that_cannot_forget_is_refused():
    from sklearn.linear_model import SGDClassifier

    with pytest.raises(ParameterError, match=r"must have forget\(\)"):
        SlidingWindow(SGDClassifier()).partial_fit(*_rows(10))


def test_every_drift_window_equals_a_fresh_fit_on_its_rows():
    X, y = _rows(2000)
    y[:300] = 2  # a class that leaves the shorter windows
    model = AdaptiveWindows(ProximalSVC(), (200, 1000, None), block=50, shrink=False)
    for begin in range(0, 2000, 130):
        model.partial_fit(X[begin : begin + 130], y[begin : begin + 130])
    for learner, length in zip(model._totals, (200, 1000, 2000), strict=True):
        _close(learner, ProximalSVC().fit(X[-length:], y[-length:]))


def test_drift_windows_do_not_depend_on_chunk_borders():
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
def test_drift_windows_recover_after_a_sudden_drift_and_say_when_it_was(rule):
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


def test_lengths_out_of_order_are_refused():
    with pytest.raises(ParameterError, match="from short to long"):
        AdaptiveWindows(ProximalSVC(), (500, 100)).partial_fit(*_rows(10))


class _Forgetful(ProximalSVC):
    """Refuses every third update, as a learner does whose sums were rounded."""

    n_asked = 0

    def update(self, add=None, forget=None):
        type(self).n_asked += 1
        if type(self).n_asked % 3 == 0:
            raise DataError("these rows were never learned.", source="_Forgetful.update")
        return super().update(add=add, forget=forget)


def test_a_window_survives_a_learner_that_refuses_the_rows_it_learned():
    X, y = _rows(400)
    model = SlidingWindow(_Forgetful(), size=60)
    for begin in range(0, 400, 20):
        model.partial_fit(X[begin : begin + 20], y[begin : begin + 20])
    _close(model.learner_, ProximalSVC().fit(X[-60:], y[-60:]))
    assert model.n_rebuilt_ > 0
    assert model.n_rows_ == 60


def test_bad_new_rows_are_refused_and_the_window_stays_as_it_was():
    X, y = _rows(100)
    model = SlidingWindow(ProximalSVC(), size=60).partial_fit(X[:60], y[:60])
    before = to_bytes(model)
    with pytest.raises(DataError):
        model.partial_fit(np.full((5, 3), np.nan), y[:5])
    assert to_bytes(model) == before
    assert model.n_rebuilt_ == 0


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_long_window_over_rare_features_never_fails():
    """Features that come and go leave rounding behind, so that what leaves may not seem to have come."""
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
def test_one_row_is_answered_and_refused_as_many_are(wrapper):
    rng = np.random.default_rng(0)
    y = np.array(["no", "yes"])[rng.integers(0, 2, 200)]
    X = rng.normal(size=(200, 3)) + (y == "yes")[:, None]
    with pytest.raises(NotFittedError):
        wrapper.predict(X[:1])
    wrapper.fit(X, y)
    ones, many = [wrapper.predict(row[None]) for row in X], wrapper.predict(X)
    assert {one.dtype for one in ones} == {many.dtype}
    assert np.concatenate(ones).tolist() == many.tolist()
    for bad in (np.full((1, 3), np.nan), np.zeros((1, 2)), np.zeros(3)):
        with pytest.raises(ValueError) as refused:
            wrapper.predict(bad)
        with pytest.raises(ValueError) as refused_too:
            wrapper._labels(bad)
        assert str(refused.value) == str(refused_too.value)
