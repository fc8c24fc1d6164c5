"""Tests of learner variants that reproduce the published numbers of the thesis."""

from __future__ import annotations

import numpy as np
import pytest

from papers import Context
from papers.koil.shuttle import SYMMETRIC, UNIT, _files
from papers.koil.toolbox import AveragedKernel, AveragedOAM, PlainPerceptron, _alike
from papers.result import Row
from steelyard.kernels import Kernel
from steelyard.online import OAM, RBP, Projectron
from tests.papers.generated import generated, generated_splits

GAMMA = 2.0


@pytest.fixture(params=[0, 1], ids=["common class first", "rare class first"])
def rows(request):
    rng = np.random.default_rng(3)
    y = (rng.random(300) < 0.3).astype(np.int64)
    y[0] = request.param
    return rng.random((300, 3)) + 0.2 * y[:, None], y


def test_perceptron_without_averaging_updates_on_mistakes_only(rows):
    X, y = rows
    weights = np.zeros(3)
    for x, sign in zip(X, 2 * y - 1, strict=True):
        if sign * (weights @ x) <= 0.0:
            weights += sign * x
    np.testing.assert_allclose(PlainPerceptron().fit(X, y).weights, weights, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "acts_below"),
    [
        (lambda n: RBP(n, gamma=GAMMA, random_state=0), 0.0),
        (lambda _: Projectron(0.3, gamma=GAMMA), 0.0),
        (lambda _: Projectron(0.3, margin=True, gamma=GAMMA), 1.0),
    ],
    ids=["kernel perceptron", "Projectron", "Projectron++"],
)
def test_averaged_scores_are_mean_over_all_steps(rows, make, acts_below):
    X, y = rows
    learner, total = make(len(y)), np.zeros(len(y))
    for i in range(len(y)):
        learner.partial_fit(X[i : i + 1], y[i : i + 1])
        towards_one = -1.0 if learner.classes_.max() == 0 else 1.0
        total += towards_one * learner.decision_function(X)
    averaged = AveragedKernel(make, acts_below, GAMMA).fit(X, y)
    np.testing.assert_allclose(averaged.decision_function(X), total / len(y), rtol=1e-6, atol=1e-9)


def test_averaged_oam_sums_weights_of_every_tenth_row(rows):
    X, y = rows
    learner, total = OAM(0.1, budget=8, random_state=0), np.zeros(3)
    for start in range(0, len(y), 10):
        learner.partial_fit(X[start : start + 10], y[start : start + 10], classes=[0, 1])
        total += learner.coef_[0]
    np.testing.assert_array_equal(AveragedOAM(8, 0, 0.1).fit(X, y).weights, total)


def test_result_equals_published_digits_only_if_mean_and_deviation_are_equal():
    same = Row("a", "x", "P", 0.8104, 0.0649, 20, paper=0.810, paper_std=0.065, tolerance=0.01)
    other = Row("b", "x", "P", 0.8104, 0.0660, 20, paper=0.810, paper_std=0.065, tolerance=0.01)
    assert "P: 1 of 2 (means within 0.01: 2)." in _alike([same, other])


def test_shuttle_scaled_to_unit_or_symmetric_range_gives_equal_kernel_values():
    context = Context(load_set=generated, load_runs=generated_splits)
    unit, symmetric = _files(context, [(UNIT, 2), (SYMMETRIC, 2)]).values()
    np.testing.assert_array_equal(unit.y, symmetric.y)
    kernels = [Kernel("rbf", gamma=4.0).block(unit.X[:9]), Kernel("rbf", gamma=1.0).block(symmetric.X[:9])]
    np.testing.assert_allclose(*kernels, rtol=1e-9)
