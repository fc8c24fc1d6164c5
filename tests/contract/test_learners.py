"""Contract checks of every public learner: those of scikit-learn and those of steelyard.checks."""

from __future__ import annotations

import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

import steelyard
from steelyard import (
    KOIL,
    AdaptiveThresholdClassifier,
    AlignedSVC,
    EnclosingClassifier,
    IncrementalSVC,
    KeyedClassifier,
    MultiKernelKOIL,
    ProximalSVC,
    RandomFeatures,
    StreamClassifier,
    online,
    windowing,
)
from steelyard.base import BatchLearner
from steelyard.checks import NotApplicable, learner_checks
from steelyard.online import AROW, NORMA, OAM, OPAUC, RBP, Forgetron, OnlinePerceptron, Projectron
from steelyard.online.base import OnlineLearner
from steelyard.windowing import AdaptiveWindows, ExponentialDecay, Refit, SlidingWindow
from tests.explanation import test_learners as explained
from tests.safety import subjects

LEARNERS = [
    StreamClassifier(),
    IncrementalSVC(),
    IncrementalSVC(10.0, gamma=0.3, class_weight="balanced"),
    IncrementalSVC(kernel="linear"),
    IncrementalSVC(gamma=0.3, threshold="gmean"),
    AlignedSVC(),
    AlignedSVC(alignment="act", class_weight="balanced"),
    ProximalSVC(),
    ProximalSVC(class_weight=None, standardize=False),
    ProximalSVC(objective="auc", threshold="gmean"),
    ProximalSVC(C="auto"),
    ProximalSVC(feature_map=RandomFeatures(30, kind="rbf", gamma=0.2)),
    KeyedClassifier(),
    KeyedClassifier(borrow=10.0),
    EnclosingClassifier(),
    EnclosingClassifier(shape="sphere", outliers=0.05),
    EnclosingClassifier(shape="sphere", kernel="rbf"),
    EnclosingClassifier(ridge="auto"),
    KOIL(random_state=0),
    KOIL(loss="smooth", policy="fifo++", threshold="zero", budget=5),
    MultiKernelKOIL(random_state=0),
    OnlinePerceptron(),
    OAM(random_state=0),
    OPAUC(),
    AROW(),
    NORMA(),
    RBP(random_state=0),
    Forgetron(),
    Projectron(),
    Projectron(margin=True),
]
WRAPPERS = [
    SlidingWindow(ProximalSVC()),
    SlidingWindow(IncrementalSVC(gamma=0.3)),
    ExponentialDecay(ProximalSVC()),
    AdaptiveWindows(ProximalSVC()),
    AdaptiveWindows(ProximalSVC(), lengths=(20, None), block=10, rule="blend"),
    AdaptiveThresholdClassifier(ProximalSVC()),
]


def _expected_failures(learner):
    reason = "predict() weights both classes alike, predict_proba() assumes the observed class shares"
    if isinstance(learner, StreamClassifier):
        return {
            "check_classifiers_train": reason,
            "check_dataframe_column_names_consistency": "columns are matched by name, in any order",
        }
    is_best_window = isinstance(learner, AdaptiveWindows) and learner.rule == "best"
    if is_best_window or isinstance(learner, AdaptiveThresholdClassifier):
        return {"check_classifiers_train": reason}
    return _expected_failures_of_weights(learner)


def _expected_failures_of_weights(learner):
    if isinstance(learner, KeyedClassifier):
        return {
            "check_classifiers_train": "the first column is the key, and its values are no feature",
            "check_sample_weight_equivalence_on_dense_data": "the first rows determine the rounding",
        }
    if getattr(learner, "objective", None) == "auc":
        reason = "the objective weights both classes of a pair equally, so class weights have no effect"
        return {"check_class_weight_classifiers": reason}
    if isinstance(learner, OnlineLearner):
        reason = "rows are learned one at a time in their order, and this check shuffles the repeated rows"
        return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}
    if isinstance(learner, IncrementalSVC) and learner.threshold == "gmean":
        repeated = (
            "a row is scored without its own term, but a repeated row is scored with the term of the other"
        )
        return {
            "check_class_weight_classifiers": "the G-mean threshold compensates class weights",
            "check_sample_weight_equivalence_on_dense_data": repeated,
            "check_sample_weight_equivalence_on_sparse_data": repeated,
        }
    if isinstance(learner, AlignedSVC):
        repeated = "of a repeated row one copy may be held out, which is impossible for a row of weight 2"
        return {
            "check_class_weight_classifiers": "the shift of the threshold compensates class weights",
            "check_sample_weight_equivalence_on_dense_data": repeated,
            "check_sample_weight_equivalence_on_sparse_data": repeated,
        }
    return {}


# Learners with tests of their own: Refit fits estimators of other packages, and KeyedClassifier has a key.
_OWN_TESTS = {"contract": {Refit}, "safety": {Refit}, "explanation": {Refit, KeyedClassifier}}


@pytest.mark.parametrize("area", _OWN_TESTS)
def test_every_public_learner_is_in_the_list_of_each_area(area):
    exported = [getattr(module, name) for module in (steelyard, online, windowing) for name in module.__all__]
    learners = {x for x in exported if isinstance(x, type) and issubclass(x, BatchLearner)}
    lists = {
        "contract": ("tests/contract/test_learners.py", [*LEARNERS, *WRAPPERS]),
        "safety": ("tests/safety/subjects.py", subjects.LEARNERS.values()),
        "explanation": ("tests/explanation/test_learners.py", explained.LEARNERS.values()),
    }
    file, listed = lists[area]
    missing = learners - _OWN_TESTS[area] - {type(learner) for learner in listed}
    assert not missing, f"add to the list in {file}: {sorted(cls.__name__ for cls in missing)}"


def test_wrappers_that_store_rows_are_tested_with_an_estimator_that_is_changed_in_place():
    wrappers = {getattr(windowing, name) for name in windowing.__all__} - _OWN_TESTS["safety"]
    storing = {cls for cls in wrappers if hasattr(cls, "n_rows_")}
    assert SlidingWindow in storing
    listed = subjects.LEARNERS.values()
    tested = {type(x) for x in listed if isinstance(getattr(x, "estimator", None), IncrementalSVC)}
    names = sorted(cls.__name__ for cls in storing - tested)
    assert not names, f"add to LEARNERS in tests/safety/subjects.py, with IncrementalSVC: {names}"


def test_every_window_wrapper_states_after_how_many_rows_its_memory_stops_growing():
    wrappers = [getattr(windowing, name) for name in windowing.__all__]
    names = [x.__name__ for x in wrappers if x._full_after_rows is None and "_traits" not in vars(x)]
    assert not names, f"define _full_after_rows, otherwise the check of the memory is skipped: {names}"


@parametrize_with_checks(
    [*LEARNERS, *WRAPPERS, AdaptiveThresholdClassifier(GaussianNB())],
    expected_failed_checks=_expected_failures,
)
def test_learner_passes_scikit_learn_check(estimator, check):
    check(estimator)


def _cases():
    small_windows = [
        SlidingWindow(ProximalSVC(), size=150),
        SlidingWindow(IncrementalSVC(gamma=0.3), size=150),
        ExponentialDecay(ProximalSVC(), half_life=100),
        AdaptiveThresholdClassifier(IncrementalSVC(gamma=0.3)),
    ]
    for learner in [*LEARNERS, *WRAPPERS, *small_windows]:
        for name, check in learner_checks(learner):
            yield pytest.param(learner, check, id=f"{learner!r}-{name}")


@pytest.mark.parametrize(("learner", "check"), list(_cases()))
def test_learner_passes_contract_check(learner, check):
    try:
        check(learner)
    except NotApplicable as reason:
        pytest.skip(f"does not apply: {reason}")
