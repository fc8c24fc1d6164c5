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
from functools import partial

from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from steelyard.base import BatchLearner
from steelyard.checks import contract
from steelyard.checks.tools import NotApplicable

__all__ = ["CheckResult", "NotApplicable", "check_learner", "learner_checks"]

Check = Callable[[BatchLearner], None]

_CHECKS: dict[str, Check] = {
    name.removeprefix("check_"): check for name, check in vars(contract).items() if name.startswith("check_")
}


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check: "passed", "failed" or "not applicable", and the reason."""

    name: str
    status: str
    reason: str = ""


def learner_checks(learner: BatchLearner) -> Iterator[tuple[str, Check]]:
    """Yield name and function of every check.

    Each function takes a learner, which it clones. It raises AssertionError if the learner violates the
    contract, or :class:`NotApplicable` with a reason. The checks compare several fits on the same rows, so a
    parameter ``random_state`` needs a number.
    """
    for name, check in _CHECKS.items():
        reason = dict(learner._traits.exempt).get(name)
        yield name, check if reason is None else partial(_skip, reason)


def _skip(reason: str, _: BatchLearner) -> None:
    raise NotApplicable(reason)


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
