"""The learner contract as a runnable suite.

Whoever writes a learner of their own calls :func:`check_learner` on it; the package runs the same checks
over every learner that it has. A check that does not apply says so, with a reason.

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
    check_answers_belong_to_one_state,
    check_copies_go_their_own_way,
    check_interrupted_calls_change_all_or_nothing,
    check_save_load_go_on,
    check_sklearn_clone_forgets,
    check_unfitted_save_load,
)
from steelyard.checks.learning import (
    check_chunk_borders_do_not_matter,
    check_fit_equals_partial_fit,
    check_inputs_unchanged,
    check_labels_of_any_type,
    check_late_class,
    check_long_run_of_one_class,
    check_memory_stays_bounded,
    check_order_does_not_matter,
    check_same_on_any_number_of_threads,
    check_tables,
)
from steelyard.checks.tools import NotApplicable
from steelyard.checks.unlearning import (
    check_errors_change_nothing,
    check_forget_equals_never_learned,
    check_forgotten_class_disappears,
    check_merge_equals_learning_together,
    check_refuses_to_forget_strangers,
)

__all__ = ["CheckResult", "NotApplicable", "check_learner", "learner_checks"]

Check = Callable[[BatchLearner], None]

_CHECKS: tuple[Check, ...] = (
    check_inputs_unchanged,
    check_chunk_borders_do_not_matter,
    check_fit_equals_partial_fit,
    check_order_does_not_matter,
    check_late_class,
    check_long_run_of_one_class,
    check_labels_of_any_type,
    check_save_load_go_on,
    check_copies_go_their_own_way,
    check_answers_belong_to_one_state,
    check_interrupted_calls_change_all_or_nothing,
    check_unfitted_save_load,
    check_forget_equals_never_learned,
    check_forgotten_class_disappears,
    check_merge_equals_learning_together,
    check_errors_change_nothing,
    check_refuses_to_forget_strangers,
    check_sklearn_clone_forgets,
    check_memory_stays_bounded,
    check_same_on_any_number_of_threads,
    check_tables,
)

# What has no meaning for a learner that needs all rows at once.
_OF_STREAMS = frozenset(
    {
        check_chunk_borders_do_not_matter,
        check_fit_equals_partial_fit,
        check_late_class,
        check_long_run_of_one_class,
        check_memory_stays_bounded,
    }
)


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check: "passed", "failed" or "not applicable", and why."""

    name: str
    status: str
    reason: str = ""


def learner_checks(learner: BatchLearner) -> Iterator[tuple[str, Check]]:
    """Names and functions of all checks of the contract.

    Each function takes a learner, which it clones, and raises AssertionError when the contract is broken
    or :class:`NotApplicable` with a reason.
    """
    for check in _CHECKS:
        name = check.__name__.removeprefix("check_")
        reason = dict(learner._traits.exempt).get(name)
        if check in _OF_STREAMS and not isinstance(learner, Learner):
            reason = "this learner does not stream"
        yield name, check if reason is None else _exempted(reason)


def _exempted(reason: str) -> Check:
    def say(_: BatchLearner) -> None:
        raise NotApplicable(reason)

    return say


def check_learner(learner: BatchLearner, *, sklearn: bool = True) -> list[CheckResult]:
    """Run the contract on a learner.

    Parameters
    ----------
    learner : BatchLearner
        The learner to check; it is cloned and stays as it is.
    sklearn : bool, default=True
        Whether to run scikit-learn's own estimator checks as well.

    Returns
    -------
    list of CheckResult

    Raises
    ------
    AssertionError
        If any check failed; the message lists them all.
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
        raise AssertionError(f"{type(learner).__name__} breaks the contract:\n" + "\n".join(failed))
    return results
