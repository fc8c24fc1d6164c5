"""scikit-learn's own tests of SVC, run on IncrementalSVC through an adapter.

The adapter accepts the parameters that only SVC has. Tests that cannot apply are listed with a reason.
Tests that scikit-learn adds later are run by default.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import sklearn.svm

from steelyard import IncrementalSVC

suite = pytest.importorskip(
    "sklearn.svm.tests.test_svm", reason="scikit-learn was installed without its tests"
)


class SVC(IncrementalSVC):
    """IncrementalSVC that accepts all parameters of SVC and ignores those of the solver."""

    def __init__(
        self, *, C=1.0, kernel="rbf", degree=3, gamma="scale", coef0=0.0, shrinking=True, tol=1e-3,
        cache_size=200, class_weight=None, verbose=False, max_iter=-1, decision_function_shape="ovr",
        break_ties=False, random_state=None,
    ):  # fmt: skip
        super().__init__(
            C, kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, class_weight=class_weight,
            tol=tol, cache_size=cache_size,
        )  # fmt: skip
        self.shrinking, self.verbose, self.max_iter = shrinking, verbose, max_iter
        self.decision_function_shape, self.break_ties = decision_function_shape, break_ties
        self.random_state = random_state

    @property
    def _gamma(self) -> float:
        return float(self._state.kernel.gamma)


class Module:
    """Proxy of the module sklearn.svm with another SVC."""

    SVC = SVC

    def __getattr__(self, name: str) -> Any:
        return getattr(sklearn.svm, name)


PAIRS = "classes are learned one-vs-rest, not one-vs-one"
INSIDE = "the test reads internal state of LIBSVM"
PROBABILITY = "there is no predict_proba; CalibratedClassifierCV calibrates on left-out rows"
NEGATIVE = "negative weights raise an error instead of removing the row"
MATRIX = "samples of PrecomputedKernel(K) are row indices; separate tests compare it with SVC"
CANNOT_APPLY = {
    "test_tweak_params": "dual_coef_ is a copy, so changing it has no effect",
    "test_decision_function": PAIRS,
    "test_decision_function_shape": PAIRS,
    "test_ovr_decision_function": "one-vs-rest by pairwise votes has other scores",
    "test_svc_ovr_tie_breaking": PAIRS,
    "test_svc_invalid_break_ties_param": PAIRS,
    "test_svc_raises_error_internal_representation": INSIDE,
    "test_n_iter_libsvm": INSIDE,
    "test_libsvm_convergence_warnings": "there is no max_iter: a solution is found or an error is raised",
    "test_probability": PROBABILITY,
    "test_hasattr_predict_proba": PROBABILITY,
    "test_probability_raises_futurewarning": PROBABILITY,
    "test_svc_nusvc_probA_probB_deprecated": PROBABILITY,
    "test_negative_sample_weights_mask_all_samples": NEGATIVE,
    "test_negative_weights_svc_leave_just_one_label": NEGATIVE,
    "test_negative_weights_svc_leave_two_labels": NEGATIVE,
    "test_negative_weight_equal_coeffs": NEGATIVE,
    "test_precomputed": MATRIX,
    "test_sparse_precomputed": MATRIX,
    "test_bad_input": "sparse rows may follow dense ones",
    "test_svc_nonfinite_params": "the message for values that are too large differs",
    "test_custom_kernel_not_array_input": "strings need a sequence kernel, not a plain function",
    "test_svm_with_infinite_C": "C must be finite",
}


def _cases() -> list[Any]:
    """Return the tests of SVC, with the first values of their parameters."""
    found = []
    for name, function in vars(suite).items():
        source = inspect.getsource(function) if name.startswith("test_") else ""
        if "svm.SVC" in source:
            # Before scikit-learn 1.9, unrelated tests use probabilities too.
            reason = CANNOT_APPLY.get(name, PROBABILITY if "probability=True" in source else None)
            marks = [] if reason is None else [pytest.mark.skip(reason=reason)]
            found += [pytest.param(name, values, id=name, marks=marks) for values in [_values(function)]]
    return found


def _values(function: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for mark in getattr(function, "pytestmark", []):
        if mark.name == "parametrize":
            names = mark.args[0] if not isinstance(mark.args[0], str) else mark.args[0].split(",")
            first = mark.args[1][0]
            first = first.values if hasattr(first, "values") and hasattr(first, "marks") else first
            values |= zip(map(str.strip, names), first if len(names) > 1 else [first], strict=True)
    if "global_random_seed" in inspect.signature(function).parameters:
        values["global_random_seed"] = 0
    return values


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "values"), _cases())
def test_incremental_svc_passes_test_of_scikit_learn_svc(name, values, monkeypatch):
    monkeypatch.setattr(suite, "svm", Module())
    monkeypatch.setattr(suite, "SVC", SVC, raising=False)
    getattr(suite, name)(**{key: SVC if value is sklearn.svm.SVC else value for key, value in values.items()})
