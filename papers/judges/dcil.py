"""Checks of the claims of the DCIL-IncLPSVM thesis."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from papers.judges.finding import Finding, at, kind_of, listed, subjects
from papers.sections import Numbers

__all__ = [
    "above_svm",
    "alike",
    "balanced_planes",
    "below_half",
    "best_of_three",
    "cheaper",
    "equal",
    "farther",
    "fewer_are_easier",
    "given_up",
    "helped_by_imbalance",
    "keeps_growing",
    "leaning",
    "mean_lead",
    "planes",
    "stable",
    "svm_ahead_in_balance",
    "three_measures",
]

_OWN, _SVM, _PLAIN = "DCIL-IncLPSVM", "IncSVM", "IncLPSVM"


def equal(limit: float) -> Callable[[Numbers], Finding]:
    """Check the claim that two ways of learning give the same plane: differences are at most ``limit``."""

    def judge(numbers: Numbers) -> Finding:
        largest = max(figure.ours for figure in numbers.values())
        same = sum(figure.ours <= limit for figure in numbers.values())
        told = f"{largest:.1e}" if largest else "0"
        return Finding(kind_of(same, len(numbers)), f"largest of {len(numbers)} differences: {told}")

    return judge


# -- figures 2.1 to 2.3 ---------------------------------------------------------------------------

_SHIFT = "shift towards the rare class"


def planes(numbers: Numbers) -> Finding:
    """Check the claim that imbalance shifts LPSVM farther than SVM, and that class weights undo the shift."""
    svm, lpsvm, weighted = (
        at(numbers, "6 : 60 points", learner, _SHIFT) for learner in ("SVM", "LPSVM", "wLPSVM")
    )
    good = int(lpsvm > svm) + int(abs(weighted) < 0.25 * svm)
    return Finding(kind_of(good, 2), f"shift of SVM {svm:.2f}, LPSVM {lpsvm:.2f}, wLPSVM {weighted:.2f}")


def balanced_planes(numbers: Numbers) -> Finding:
    """Check the claim that the planes of SVM and LPSVM are near the ideal plane if classes are balanced."""
    found = {name: at(numbers, "30 : 30 points", name, _SHIFT) for name in ("SVM", "LPSVM")}
    near = sum(abs(shift) < 0.05 for shift in found.values())
    return Finding(kind_of(near, len(found)), f"shift of {listed(found, '+.3f')}")


# -- table 5.3 ------------------------------------------------------------------------------------


def best_of_three(measure: str) -> Callable[[Numbers], Finding]:
    """Check the claim that DCIL-IncLPSVM has the highest ``measure`` of three learners."""

    def judge(numbers: Numbers) -> Finding:
        good, close = 0, 0
        known = [on for on in subjects(numbers) if (on, _OWN, measure) in numbers]
        for on in known:
            rival = max(
                at(numbers, on, name, measure) for name in (_SVM, _PLAIN) if (on, name, measure) in numbers
            )
            own = at(numbers, on, _OWN, measure)
            good += own >= rival
            close += own >= rival - 0.01 * abs(rival)
        text = (
            f"{measure} is the highest in {good} of {len(known)} cases, within 1 % of the highest in {close}"
        )
        return Finding(kind_of(good, len(known)), text)

    return judge


def stable(numbers: Numbers) -> Finding:
    """Check the claim that the sensitivity of DCIL-IncLPSVM is stable as imbalance rises.

    The sensitivities of SVM and LPSVM are claimed to drop from the first to the last ratio of a dataset.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for (on, learner, measure), figure in numbers.items():
        if measure == "sensitivity":
            found.setdefault(on.split(",")[0], {}).setdefault(learner, []).append(figure.ours)
    text, good = [], 0
    for on, values in found.items():
        own = max(values[_OWN]) - min(values[_OWN])
        falls = [values[learner][0] - values[learner][-1] for learner in (_SVM, _PLAIN)]
        good += own <= 5 and min(falls) > 10
        text.append(
            f"{on}: {_OWN} changes by at most {own:.1f} points, the others fall by {falls[0]:.0f} and "
            f"{falls[1]:.0f}"
        )
    return Finding(kind_of(good, len(found)), "; ".join(text))


def three_measures(numbers: Numbers) -> Finding:
    """Check the claim that DCIL-IncLPSVM is the best on imbalanced breast Wisconsin.

    The measures are F-measure, G-mean and RS, of which RS should be near 1.
    """
    known = [on for on in subjects(numbers) if on.startswith("breast") and not on.endswith(" 1 : 1")]
    good = dict.fromkeys(("F-measure", "G-mean", "RS"), 0)
    for on in known:
        for measure in good:
            worth = {name: at(numbers, on, name, measure) for name in (_OWN, _SVM, _PLAIN)}
            if measure == "RS":
                worth = {name: -abs(value - 1.0) for name, value in worth.items()}
            good[measure] += worth[_OWN] >= max(worth.values())
    text = ", ".join(f"{measure} in {count} of {len(known)}" for measure, count in good.items())
    return Finding(kind_of(sum(good.values()), len(good) * len(known)), f"the best by {text}")


def leaning(numbers: Numbers) -> Finding:
    """Check the claim that a plane can favour one class although both classes have equally many rows."""
    found = {
        on.split(",")[0]: at(numbers, on, _PLAIN, "sensitivity") - at(numbers, on, _PLAIN, "specificity")
        for on in subjects(numbers)
        if on.endswith(" 1 : 1")
    }
    good = sum(abs(lean) > 5.0 for lean in found.values())
    text = f"sensitivity minus specificity of {_PLAIN} at 1 : 1: {listed(found, '+.1f')}"
    return Finding(kind_of(good, len(found)), text)


def given_up(numbers: Numbers) -> Finding:
    """Check the claim that SVM and LPSVM never predict the rare class at high ratios."""
    named = ("car, 20 : 1", "abalone, 40 : 1", "abalone, 200 : 1")
    found = {
        f"{name} on {on}": at(numbers, on, name, "sensitivity") for on in named for name in (_SVM, _PLAIN)
    }
    good = sum(value == 0.0 for value in found.values())
    return Finding(kind_of(good, len(found)), f"sensitivity of {listed(found, '.1f')}")


# -- figures 5.1 and 5.2 --------------------------------------------------------------------------


def below_half(numbers: Numbers) -> Finding:
    """Check the claim that the G-mean of IncLPSVM falls below 0.5 at extreme class sizes."""
    found = {
        on: figure.ours for (on, name, _), figure in numbers.items() if name == _PLAIN and "extreme" in on
    }
    below = sum(value < 0.5 for value in found.values())
    return Finding(kind_of(below, len(found)), f"final G-mean: {listed(found)}")


def above_svm(numbers: Numbers) -> Finding:
    """Check the claim that DCIL-IncLPSVM stays above IncSVM and above 0.8 at extreme class sizes."""
    known = [on for on in subjects(numbers) if "extreme" in on]
    text, good = [], 0
    for on in known:
        own, svm = (at(numbers, on, name, "final G-mean") for name in (_OWN, _SVM))
        good += own > max(svm, 0.8)
        text.append(f"{on}: {own:.2f} against {svm:.2f}")
    return Finding(kind_of(good, len(known)), f"final G-mean: {'; '.join(text)}")


def alike(measure: str, within: float, where: str = "") -> Callable[[Numbers], Finding]:
    """Check the claim that all three learners are alike: ``measure`` differs by at most ``within``."""

    def judge(numbers: Numbers) -> Finding:
        found = {}
        for on in subjects(numbers):
            if where in on:
                own = [at(numbers, on, name, measure) for name in (_OWN, _SVM, _PLAIN)]
                found[on] = max(own) - min(own)
        good = sum(apart <= within for apart in found.values())
        return Finding(kind_of(good, len(found)), f"{measure}, highest minus lowest: {listed(found, '.3f')}")

    return judge


def keeps_growing(numbers: Numbers) -> Finding:
    """Check the claim that the G-mean of DCIL-IncLPSVM keeps growing from stage to stage.

    The G-mean of the other learners is claimed to fall while imbalance rises.
    """
    measure, good, asked, text = "sum of all falls", 0, 0, []
    for on in subjects(numbers):
        falls = {name: at(numbers, on, name, measure) for name in (_OWN, _SVM, _PLAIN)}
        good, asked = good + (falls[_OWN] <= 0.01), asked + 1
        if "consistent decrease" not in on:  # imbalance rises there at some stages
            good += (falls[_SVM] > 0.01) + (falls[_PLAIN] > 0.01)
            asked += 2
        text.append(f"{on} {falls[_OWN]:.3f}, {falls[_SVM]:.3f}, {falls[_PLAIN]:.3f}")
    return Finding(
        kind_of(good, asked), f"sum of the decreases of {_OWN}, {_SVM} and {_PLAIN}: {'; '.join(text)}"
    )


# -- figures 5.3 to 5.6 ---------------------------------------------------------------------------


def _leads(numbers: Numbers, measure: str) -> dict[str, list[tuple[str, float]]]:
    """Return the lead of DCIL-IncLPSVM over IncLPSVM in points, by data and number of people."""
    found: dict[str, list[tuple[str, float]]] = {}
    for on in subjects(numbers):
        kind, _, people = on.partition(", ")
        lead = 100 * (at(numbers, on, _OWN, measure) - at(numbers, on, _PLAIN, measure))
        found.setdefault(kind, []).append((people, lead))
    return found


def farther(numbers: Numbers) -> Finding:
    """Check the claim that DCIL-IncLPSVM is farther ahead in final accuracy with more people."""
    found = _leads(numbers, "final accuracy")
    steps = [step for gains in found.values() for step in pairwise(gain for _, gain in gains)]
    good = sum(more > max(0.0, less) for less, more in steps)
    text = "; ".join(
        f"{kind}: " + ", ".join(f"{gain:+.1f} points at {people}" for people, gain in gains)
        for kind, gains in found.items()
    )
    return Finding(kind_of(good, len(steps)), text)


def mean_lead(numbers: Numbers) -> Finding:
    """Check the claim that DCIL-IncLPSVM leads by less in mean accuracy than in final accuracy."""
    final, mean = (
        {kind: leads[-1] for kind, leads in _leads(numbers, measure).items()}
        for measure in ("final accuracy", "mean accuracy")
    )
    good = sum(mean[kind][1] < final[kind][1] for kind in final)
    text = "; ".join(
        f"{kind}, {people}: final {lead:+.1f} points, mean {mean[kind][1]:+.1f}"
        for kind, (people, lead) in final.items()
    )
    return Finding(kind_of(good, len(final)), text)


def fewer_are_easier(numbers: Numbers) -> Finding:
    """Check the claim that the final accuracy of each learner falls with the number of people."""
    found: dict[tuple[str, str], list[float]] = {}
    for (on, learner, measure), figure in numbers.items():
        if measure == "final accuracy":
            found.setdefault((on.partition(", ")[0], learner), []).append(figure.ours)
    steps = [step for values in found.values() for step in pairwise(values)]
    good = sum(more < fewer for fewer, more in steps)
    text = "; ".join(
        f"{kind}, {learner} {', '.join(f'{value:.3f}' for value in values)}"
        for (kind, learner), values in found.items()
    )
    return Finding(kind_of(good, len(steps)), text)


def helped_by_imbalance(numbers: Numbers) -> Finding:
    """Check the claim that some imbalance can help: SVM on abalone is better at 5 : 1 than at 1 : 1."""
    balanced, imbalanced = (at(numbers, f"abalone, {ratio} : 1", _SVM, "G-mean") for ratio in (1, 5))
    return Finding(
        "holds" if imbalanced > balanced else "does not hold",
        f"G-mean of {_SVM} on abalone: 1 : 1 {balanced:.1f}, 5 : 1 {imbalanced:.1f}",
    )


def svm_ahead_in_balance(numbers: Numbers) -> Finding:
    """Check the claim that SVM is slightly ahead on balanced breast Wisconsin."""
    on = "breast Wisconsin, 1 : 1"
    leads = {
        measure: at(numbers, on, _SVM, measure)
        - max(at(numbers, on, rival, measure) for rival in (_PLAIN, _OWN))
        for measure in ("sensitivity", "F-measure", "G-mean")
    }
    return Finding(
        kind_of(sum(lead > 0 for lead in leads.values()), len(leads)),
        f"lead of {_SVM} in points: {listed(leads, '+.1f')}",
    )


# -- times ----------------------------------------------------------------------------------------


def cheaper(own: str, rival: str, measure: str) -> Callable[[Numbers], Finding]:
    """Check the claim that the learner ``own`` is cheaper to train than ``rival``.

    Repeated runs differ by 10 %, so "cheaper" means at most 0.9 times the training time.
    """

    def judge(numbers: Numbers) -> Finding:
        ratios = {
            on: at(numbers, on, own, measure) / at(numbers, on, rival, measure)
            for on in subjects(numbers)
            if (on, own, measure) in numbers
        }
        good = sum(ratio <= 0.9 for ratio in ratios.values())
        return Finding(kind_of(good, len(ratios)), f"{own} / {rival}: {listed(ratios, '.3f')}")

    return judge
