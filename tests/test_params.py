"""Constraints of parameters accept valid values and raise ParameterError for all others."""

from __future__ import annotations

from dataclasses import KW_ONLY

import numpy as np
import pytest

from steelyard import KOIL, EnclosingClassifier, IncrementalSVC, ProximalSVC, RandomFeatures
from steelyard.exceptions import ParameterError
from steelyard.params import (
    Finite,
    Fraction,
    Integer,
    NonNegative,
    Positive,
    RandomSeed,
    Switch,
    check_params,
    parameter,
    parametrized,
)


@pytest.mark.parametrize("constraint", [Finite(), Positive(), NonNegative(), Fraction()], ids=repr)
@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), True, "1", None, 1j], ids=repr)
def test_constraints_reject_non_finite_numbers(constraint, value):
    assert not constraint.accepts(value)


@pytest.mark.parametrize(("seed", "accepted"), [(0, True), (2**32 - 1, True), (2**32, False), (-1, False)])
def test_random_seed_accepts_seeds_of_scikit_learn(seed, accepted):
    assert RandomSeed().accepts(seed) == accepted


@pytest.mark.parametrize(
    "learner",
    [
        ProximalSVC(C=10**400),
        IncrementalSVC(cache_size=10**400),
        EnclosingClassifier(coef0=10**400),
        KOIL(random_state=2**40),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_too_large_parameter_raises_parameter_error(learner):
    with pytest.raises(ParameterError, match="must be"):
        learner.fit([[0.0], [1.0]], [0, 1])


def test_random_features_accept_gamma_as_array():
    X = np.arange(12.0).reshape(4, 3)
    as_array, as_list = (
        RandomFeatures(8, gamma=gamma, random_state=0).fit_transform(X)
        for gamma in (np.array([1, 2]), [1, 2])
    )
    np.testing.assert_array_equal(as_array, as_list)


@parametrized()
class Example:
    rate: float = parameter(0.1, Positive())
    _: KW_ONLY
    steps: int = parameter(5, Integer())


@parametrized()
class FasterExample(Example):
    rate: float = 0.5
    shuffle: bool = parameter(False, Switch())


def test_parametrized_class_collects_constraints_in_order_of_parameters():
    assert list(Example._constraints) == ["rate", "steps"]
    assert (Example(0.2, steps=3).rate, Example().steps) == (0.2, 5)


def test_subclass_with_new_default_keeps_constraint_of_parameter():
    assert list(FasterExample._constraints) == ["rate", "steps", "shuffle"]
    assert FasterExample().rate == 0.5
    with pytest.raises(
        ParameterError, match=r"^FasterExample: rate must be a positive, finite number; got 0"
    ):
        check_params(FasterExample(0), FasterExample._constraints)
