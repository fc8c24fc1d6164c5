"""Contract checks for learners.

Authors of a learner call :func:`check_learner` on it; the tests of this package run the same checks on every
learner of the package. A check that does not apply reports the reason.

Examples
--------
>>> from steelyard import ProximalSVC
>>> from steelyard.checks import check_learner
>>> results = check_learner(ProximalSVC(), sklearn=False)
>>> {result.status for result in results} <= {"passed", "not applicable"}
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from steelyard.base import BatchLearner, Learner
from steelyard.checks.copies import (
    check_clone_is_unfitted,
    check_copies_are_independent,
    check_interrupted_calls_are_atomic,
    check_loaded_learner_continues_identically,
    check_predictions_see_one_state,
    check_unfitted_learner_can_be_saved,
)
from steelyard.checks.forgetting import (
    check_errors_change_nothing,
    check_forget_equals_never_learned,
    check_forget_unknown_rows_raises,
    check_forgotten_class_is_removed,
    check_merge_equals_learning_together,
)
from steelyard.checks.learning import (
    check_chunk_borders_do_not_matter,
    check_data_frames,
    check_fit_equals_partial_fit,
    check_inputs_unchanged,
    check_labels_of_any_type,
    check_long_run_of_one_class,
    check_memory_stays_bounded,
    check_new_label_becomes_class,
    check_number_of_threads_does_not_matter,
    check_order_does_not_matter,
)
from steelyard.checks.tools import NotApplicable

__all__ = ["CheckResult", "NotApplicable", "check_learner", "learner_checks"]

Check = Callable[[BatchLearner], None]

_CHECKS: tuple[Check, ...] = (
    check_inputs_unchanged,
    check_chunk_borders_do_not_matter,
    check_fit_equals_partial_fit,
    check_order_does_not_matter,
    check_new_label_becomes_class,
    check_long_run_of_one_class,
    check_labels_of_any_type,
    check_loaded_learner_continues_identically,
    check_copies_are_independent,
    check_predictions_see_one_state,
    check_interrupted_calls_are_atomic,
    check_unfitted_learner_can_be_saved,
    check_forget_equals_never_learned,
    check_forgotten_class_is_removed,
    check_merge_equals_learning_together,
    check_errors_change_nothing,
    check_forget_unknown_rows_raises,
    check_clone_is_unfitted,
    check_memory_stays_bounded,
    check_number_of_threads_does_not_matter,
    check_data_frames,
)

# Checks that do not apply to a learner that needs all rows at once.
_STREAM_CHECKS = frozenset(
    {
        check_chunk_borders_do_not_matter,
        check_fit_equals_partial_fit,
        check_new_label_becomes_class,
        check_long_run_of_one_class,
        check_memory_stays_bounded,
    }
)


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check: "passed", "failed" or "not applicable", and the reason."""

    name: str
    status: str
    reason: str = ""


def learner_checks(learner: BatchLearner) -> Iterator[tuple[str, Check]]:
    """Yield the name and the function of every check.

    Each function takes a learner, which it clones. It raises AssertionError if the learner violates the
    contract, or :class:`NotApplicable` with a reason.
    """
    for check in _CHECKS:
        name = check.__name__.removeprefix("check_")
        reason = dict(learner._traits.exempt).get(name)
        if check in _STREAM_CHECKS and not isinstance(learner, Learner):
            reason = "this learner does not stream"
        yield name, check if reason is None else _exempted(reason)


def _exempted(reason: str) -> Check:
    def skip(_: BatchLearner) -> None:
        raise NotApplicable(reason)

    return skip


def check_learner(learner: BatchLearner, *, sklearn: bool = True) -> list[CheckResult]:
    """Run all checks on a learner.

    Parameters
    ----------
    learner : BatchLearner
        The learner to check; it is cloned and not changed.
    sklearn : bool, default=True
        Whether to run scikit-learn's estimator checks as well.

    Returns
    -------
    list of CheckResult

    Raises
    ------
    AssertionError
        If a check failed; the message lists all failed checks.
    """
    results = []
    for name, check in learner_checks(learner):
        try:
            check(learner)
        except NotApplicable as reason:
            results.append(CheckResult(name, "not applicable", str(reason)))
        except AssertionError as failure:
            results.append(CheckResult(name, "failed", str(failure)))
        else:
            results.append(CheckResult(name, "passed"))
    if sklearn:
        outcomes = check_estimator(clone(learner), on_fail=None, on_skip=None)
        results += [
            CheckResult(
                f"sklearn:{outcome['check_name']}",
                {"passed": "passed", "failed": "failed"}.get(outcome["status"], "not applicable"),
                str(outcome["exception"] or ""),
            )
            for outcome in outcomes
        ]
    failed = [f"{result.name}: {result.reason}" for result in results if result.status == "failed"]
    if failed:
        raise AssertionError(f"{type(learner).__name__} violates the contract:\n" + "\n".join(failed))
    return results
