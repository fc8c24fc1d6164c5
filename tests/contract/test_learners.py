"""The contract over every public learner: scikit-learn's own checks, then ours."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from steelyard import ProximalSVC
from steelyard.checks import NotApplicable, learner_checks

LEARNERS = [
    ProximalSVC(),
    ProximalSVC(class_weight=None, standardize=False),
    ProximalSVC(objective="auc", threshold="gmean"),
    ProximalSVC(C="auto"),
]


@parametrize_with_checks(LEARNERS)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def _cases():
    for learner in LEARNERS:
        for name, check in learner_checks(learner):
            yield pytest.param(learner, check, id=f"{learner!r}-{name}")


@pytest.mark.parametrize(("learner", "check"), _cases())
def test_learner_contract(learner, check):
    try:
        check(learner)
    except NotApplicable as reason:
        pytest.skip(f"does not apply: {reason}")
