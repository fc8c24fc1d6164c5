"""Tests of the protocol of the KOIL tables."""

from __future__ import annotations

import numpy as np
import pytest

from papers import Context
from papers.koil import mixture
from papers.koil.contenders import CONTENDERS, MANY_KERNELS, Contender
from papers.koil.options import PlainKOIL
from papers.koil.protocol import benchmarks, choose, parameters
from papers.koil.published import PAPER_MANY_KERNELS, PAPER_ONE_KERNEL, PAPER_OTHERS
from papers.koil.tables import REAL, SYNTHETIC, better
from steelyard import KOIL
from steelyard.metrics import roc_auc_score
from tests.papers.generated import generated, generated_splits


class Scorer:
    """Learner that scores rows along the difference of the class means, times ``sign``."""

    def __init__(self, *, budget, seed, sign):
        self.sign = sign

    def fit(self, X, y):
        positive = X[y == 1].mean(axis=0)
        self.direction = positive - X[y == 0].mean(axis=0)
        return self

    def decision_function(self, X):
        return self.sign * X @ self.direction


@pytest.fixture
def glass():
    context = Context(load_set=generated, load_runs=generated_splits)
    return benchmarks(context, ["glass"])[0]


def test_search_selects_parameters_with_best_inner_auc(glass):
    choice = choose(glass, Contender("scorer", Scorer, {"sign": (-1.0, 1.0)}))
    assert choice.params == {"sign": 1.0}
    assert choice.area > 0.5


@pytest.mark.parametrize("run", [0, 7])
def test_search_does_not_use_test_rows(glass, run):
    seen = set()

    class Spy(Scorer):
        def fit(self, X, y):
            seen.update(map(tuple, X))
            return super().fit(X, y)

        def decision_function(self, X):
            seen.update(map(tuple, X))
            return super().decision_function(X)

    choose(glass, Contender("spy", Spy, {"sign": (-1.0, 1.0)}), run=run)
    split = glass.splits[run]
    assert seen == set(map(tuple, glass.X[split.train]))


def test_search_on_large_datasets_uses_every_second_value():
    contender = Contender("any", Scorer, {"a": (1.0, 2.0, 3.0), "b": (1.0, 2.0)})
    assert contender.candidates(2) == [{"a": 1.0, "b": 1.0}, {"a": 3.0, "b": 1.0}]


def test_stored_parameters_exist_for_every_dataset_and_learner():
    context = Context(quick=True, load_set=generated, load_runs=generated_splits)
    one = [c for c in CONTENDERS.values() if c not in MANY_KERNELS]
    assert len(parameters(context, benchmarks(context, SYNTHETIC), one)) == 4 * 12
    everyone = list(CONTENDERS.values())
    assert len(parameters(context, benchmarks(context, REAL), everyone)) == 14 * len(everyone)


def test_published_tables_are_complete():
    assert set(PAPER_ONE_KERNEL) == set(PAPER_OTHERS) == {*SYNTHETIC, *REAL}
    assert set(PAPER_MANY_KERNELS) == set(REAL)


def test_paired_test_detects_difference_between_overlapping_runs():
    rng = np.random.default_rng(0)
    theirs = rng.normal(0.9, 0.05, size=20)
    ours = theirs + rng.normal(0.01, 0.005, size=20)
    assert better(ours, theirs) == 1
    assert better(theirs, ours) == -1
    assert better(theirs, rng.permutation(theirs)) == 0
    assert better(theirs, theirs) == 0


def test_bayes_error_and_auc_match_sampled_rows():
    rng = np.random.default_rng(0)
    frequent = mixture.CENTRES[rng.integers(4, size=200_000)] + 0.1 * rng.normal(size=(200_000, 2))
    rare = 0.5 + 0.1 * rng.normal(size=(50_000, 2))
    X, y = np.concatenate([frequent, rare]), np.repeat([0, 1], [200_000, 50_000])
    scores = np.subtract(*map(np.log, mixture.densities(X)))
    assert mixture.bayes_auc() == pytest.approx(roc_auc_score(y, scores), abs=0.002)
    wrong = np.mean((scores > np.log(4.0)) != (y == 1))
    assert mixture.bayes_error(4.0) == pytest.approx(wrong, abs=0.002)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_koil_baseline_without_removals_matches_koil(gamma, rng):
    y = (rng.random(150) < 0.3).astype(int)
    X = rng.normal(size=(150, 2)) + y[:, None]
    plain = PlainKOIL(150, 0, 3.0, gamma).fit(X, y)
    learner = KOIL(3.0, budget=150, n_neighbors=15, gamma=gamma, threshold="zero").fit(X, y)
    np.testing.assert_allclose(
        plain.decision_function(X), learner.decision_function(X), rtol=1e-9, atol=1e-12
    )


def test_nearest_first_updates_fewer_vectors_than_violators_first(rng):
    y = (rng.random(200) < 0.3).astype(int)
    X = rng.normal(size=(200, 2)) + y[:, None]
    weights = [
        np.abs(PlainKOIL(60, 0, 3.0, 1.0, nearest_first=first).fit(X, y).weights).sum()
        for first in (True, False)
    ]
    assert weights[0] < weights[1]


def test_algorithm_3_stores_zero_weight_samples_unlike_program_of_the_authors(rng):
    """Check lines 3 and 4 of algorithm 3: every sample is stored in a buffer that is not full."""
    y = (rng.random(200) < 0.3).astype(int)
    X = rng.normal(size=(200, 2)) + 4.0 * y[:, None]  # most samples have no violators and weight 0
    printed, programmed = (
        PlainKOIL(200, 0, 30.0, 1.0, keep_all=keep_all).fit(X, y) for keep_all in (True, False)
    )
    kept = [np.array(one.members[1] + one.members[-1]) for one in (printed, programmed)]
    assert len(kept[0]) == 200
    assert (printed.weights[kept[0]] == 0.0).any()
    assert len(kept[1]) < 200
    assert (programmed.weights[kept[1]] != 0.0).all()
