"""How claims are judged: each function takes the numbers of the experiments that its claim needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from papers.sections import Numbers

__all__ = [
    "Finding",
    "Kind",
    "abalone",
    "against_svm",
    "bayes",
    "below_half",
    "best_of_three",
    "compensation",
    "equal",
    "farther",
    "highest",
    "kernels_win",
    "more_rows",
    "obviously",
    "over_act",
    "penalties",
    "planes",
    "privacy",
    "rarer",
    "saturates",
    "share",
    "smooth",
    "specific",
    "speed_up",
    "stable",
    "tenth",
    "thirty",
    "times",
    "wins",
]

Kind = Literal["holds", "holds in part", "does not hold", "not measured"]


@dataclass(frozen=True)
class Finding:
    """A verdict and the numbers that it came from."""

    kind: Kind
    numbers: str


# -- helpers --------------------------------------------------------------------------------------


def _kind(good: int, all_of_them: int) -> Kind:
    if not all_of_them:
        return "not measured"
    if good == all_of_them:
        return "holds"
    return "does not hold" if good * 4 < all_of_them else "holds in part"


def _subjects(numbers: Numbers) -> list[str]:
    return list(dict.fromkeys(on for on, _, _ in numbers))


def _ours(numbers: Numbers, on: str, learner: str, measure: str) -> float:
    return numbers[on, learner, measure][0]


# -- DCIL -----------------------------------------------------------------------------------------


def equal(limit: float) -> Callable[[Numbers], Finding]:
    def judge(numbers: Numbers) -> Finding:
        largest = max(ours for ours, _ in numbers.values())
        same = sum(ours <= limit for ours, _ in numbers.values())
        return Finding(_kind(same, len(numbers)), f"largest of {len(numbers)} differences: {largest:.1e}")

    return judge


def planes(numbers: Numbers) -> Finding:
    measure, on = "shift towards the rare class", "6 : 60 points"
    svm, lpsvm, weighted = (_ours(numbers, on, learner, measure) for learner in ("SVM", "LPSVM", "wLPSVM"))
    good = int(lpsvm > svm) + int(abs(weighted) < 0.25 * svm)
    return Finding(_kind(good, 2), f"shift of SVM {svm:.2f}, LPSVM {lpsvm:.2f}, wLPSVM {weighted:.2f}")


def best_of_three(measure: str) -> Callable[[Numbers], Finding]:
    def judge(numbers: Numbers) -> Finding:
        own, good, close = "DCIL-IncLPSVM", 0, 0
        subjects = [on for on in _subjects(numbers) if (on, own, measure) in numbers]
        for on in subjects:
            known = [name for name in ("IncSVM", "IncLPSVM") if (on, name, measure) in numbers]
            rivals = [_ours(numbers, on, name, measure) for name in known]
            mine = _ours(numbers, on, own, measure)
            good += mine >= max(rivals)
            close += mine >= max(rivals) - 0.01 * abs(max(rivals))
        text = f"{measure} is the highest in {good} of {len(subjects)}, within 1 % of it in {close}"
        return Finding(_kind(good, len(subjects)), text)

    return judge


def below_half(numbers: Numbers) -> Finding:
    own = {key: ours for key, (ours, _) in numbers.items() if key[1] == "IncLPSVM" and "extreme" in key[0]}
    found = {on: ours for (on, _, _), ours in own.items()}
    below = {on: value for on, value in found.items() if value < 0.5}
    names = ", ".join(f"{on} {value:.2f}" for on, value in found.items())
    return Finding("does not hold" if not below else _kind(len(below), len(found)), f"final G-mean: {names}")


def stable(numbers: Numbers) -> Finding:
    """Sensitivity from the first to the last ratio of every set."""
    found: dict[str, dict[str, list[float]]] = {}
    for (on, learner, measure), (ours, _) in numbers.items():
        if measure == "sensitivity":
            found.setdefault(on.split(",")[0], {}).setdefault(learner, []).append(ours)
    text, good = [], 0
    for on, values in found.items():
        own = max(values["DCIL-IncLPSVM"]) - min(values["DCIL-IncLPSVM"])
        falls = [values[learner][0] - values[learner][-1] for learner in ("IncSVM", "IncLPSVM")]
        good += own <= 5 and min(falls) > 10
        text.append(
            f"{on}: DCIL-IncLPSVM within {own:.1f} points, "
            f"the others fall by {falls[0]:.0f} and {falls[1]:.0f}"
        )
    return Finding(_kind(good, len(found)), "; ".join(text))


def farther(numbers: Numbers) -> Finding:
    """Final accuracy of both learners with the fewest and with the most people."""
    measure, found = "final accuracy", dict[str, list[tuple[str, float]]]()
    for on in _subjects(numbers):
        own, other = (_ours(numbers, on, name, measure) for name in ("DCIL-IncLPSVM", "IncLPSVM"))
        kind, _, people = on.partition(", ")
        found.setdefault(kind, []).append((people, 100 * (own - other)))
    steps = [step for gains in found.values() for step in pairwise(gain for _, gain in gains)]
    good = sum(more > max(0.0, less) for less, more in steps)
    text = "; ".join(
        f"{kind}: " + ", ".join(f"{gain:+.1f} points at {people}" for people, gain in gains)
        for kind, gains in found.items()
    )
    return Finding(_kind(good, len(steps)), text)


# -- distributed ----------------------------------------------------------------------------------


def speed_up(numbers: Numbers) -> Finding:
    found = {
        on: pair
        for (on, cores, measure), pair in numbers.items()
        if measure == "speed-up" and cores == "2 cores"
    }
    reached = sum(paper is not None and ours >= 0.95 * paper for ours, paper in found.values())
    text = ", ".join(f"{on}: {ours:.2f} (paper {paper:.2f})" for on, (ours, paper) in found.items() if paper)
    return Finding(_kind(reached, len(found)), f"two cores against one, {text}")


def more_rows(numbers: Numbers) -> Finding:
    found = [
        (on, ours)
        for (on, cores, measure), (ours, _) in numbers.items()
        if measure == "speed-up" and cores == "2 cores"
    ]
    grows = sum(more >= less - 0.02 for (_, more), (_, less) in pairwise(found))
    return Finding(_kind(grows, len(found) - 1), ", ".join(f"{on}: {ours:.2f}" for on, ours in found))


def share(numbers: Numbers) -> Finding:
    """Time of the new rows against that of all, which the papers' rows have as 1 : 15."""
    found = {
        f"{way}, {on}": ours
        for (on, way, measure), (ours, _) in numbers.items()
        if measure.startswith("share of the time") and "standardised" not in way
    }
    good = sum(ours <= 0.1 for ours in found.values())
    text = "; ".join(f"{name}: {ours:.2f}" for name, ours in found.items())
    return Finding(_kind(good, len(found)), f"share of the time for 1/15 of the rows, {text}")


def privacy(numbers: Numbers) -> Finding:
    found = {on: ours for (on, _, _), (ours, _) in numbers.items()}
    seen = sum(error < 1e-6 for error in found.values())
    text = ", ".join(f"{on}: {error:.1e}" for on, error in found.items())
    return Finding("does not hold" if seen == len(found) else "holds in part" if seen else "holds", text)


# -- KOIL -----------------------------------------------------------------------------------------


def wins(*rivals: str, of: str = "wins : losses of KOIL against") -> Callable[[Numbers], Finding]:
    def judge(numbers: Numbers) -> Finding:
        text, good = [], 0
        for rival in rivals:
            wins, losses = (_ours(numbers, "all sets", rival, measure) for measure in ("wins", "losses"))
            papers = [numbers["all sets", rival, measure][1] for measure in ("wins", "losses")]
            good += wins > losses
            text.append(f"{rival} {wins:.0f} : {losses:.0f} (paper {papers[0]:.0f} : {papers[1]:.0f})")
        return Finding(_kind(good, len(rivals)), f"{of} {', '.join(text)}")

    return judge


def kernels_win(numbers: Numbers) -> Finding:
    linear = ("Perceptron", "OAM", "OPAUC")
    text, good = [], 0
    subjects = [on for on in _subjects(numbers) if (on, "NORMA", "AUC") in numbers]
    for on in subjects:
        found = {name: ours for (subject, name, _), (ours, _) in numbers.items() if subject == on}
        planes = max(found[name] for name in linear)
        kernels = min(value for name, value in found.items() if name not in linear)
        good += kernels > planes + 0.05
        text.append(f"{on} {kernels:.3f} : {planes:.3f}")
    return Finding(_kind(good, len(subjects)), f"lowest kernel learner : best plane, {', '.join(text)}")


def saturates(numbers: Numbers) -> Finding:
    text, good = [], 0
    subjects = _subjects(numbers)
    for on in subjects:
        small, half, large = (_ours(numbers, on, f"budget {n}", "AUC") for n in (10, 100, 200))
        good += half > small and abs(large - half) <= 0.25 * (half - small)
        text.append(f"{on} {small:.3f}, {half:.3f}, {large:.3f}")
    return Finding(_kind(good, len(subjects)), f"AUC with budgets of 10, 100, 200: {'; '.join(text)}")


def compensation(numbers: Numbers) -> Finding:
    measure, text, good = "AUC at the end", [], 0
    subjects = _subjects(numbers)
    for on in subjects:
        whole = _ours(numbers, on, "infinite", measure)
        gaps = {p: abs(_ours(numbers, on, p, measure) - whole) for p in ("RS++", "FIFO++", "RS", "FIFO")}
        near = max(gaps["RS++"], gaps["FIFO++"])
        good += near <= 0.01 or near < 0.25 * max(gaps["RS"], gaps["FIFO"])
        far = max(gaps["RS"], gaps["FIFO"])
        text.append(f"{on}: {near:.3f} with, {far:.3f} without")
    return Finding(_kind(good, len(subjects)), f"largest distance to unlimited budgets, {'; '.join(text)}")


def tenth(numbers: Numbers) -> Finding:
    subjects, good, text = _subjects(numbers), 0, []
    for on in subjects:
        found = {name: ours for (subject, name, _), (ours, _) in numbers.items() if subject == on}
        best = max(found, key=lambda name: found[name])
        good += found["k 10"] >= found[best] - 0.005
        text.append(f"{on} {best} ({found[best] - found['k 10']:+.3f})")
    return Finding(_kind(good, len(subjects)), f"best k, and what it has over k = 10: {', '.join(text)}")


def smooth(numbers: Numbers) -> Finding:
    gains = []
    for on in _subjects(numbers):
        pairs = [(f"KOIL2 {p}", f"KOIL {p}") for p in ("RS++", "FIFO++")]
        gains += [
            _ours(numbers, on, smooth, "AUC") - _ours(numbers, on, plain, "AUC")
            for smooth, plain in pairs
            if (on, smooth, "AUC") in numbers
        ]
    comparable = sum(gain >= -0.01 for gain in gains)
    return Finding(
        _kind(comparable, len(gains)),
        f"at most 0.01 below the hinge loss in {comparable} of {len(gains)}, mean {np.mean(gains):+.3f}",
    )


def bayes(numbers: Numbers) -> Finding:
    own = {key: ours for key, (ours, _) in numbers.items() if key[1] == "Bayes" and "error" in key[2]}
    errors = {on: ours for (on, _, _), ours in own.items()}
    near = sum(abs(error - 4.5) <= 0.25 for error in errors.values())
    return Finding(_kind(near, len(errors)), ", ".join(f"{on} {error:.1f} %" for on, error in errors.items()))


# -- kernel boundary alignment --------------------------------------------------------------------


def highest(measure: str) -> Callable[[Numbers], Finding]:
    def judge(numbers: Numbers) -> Finding:
        subjects = [on for on in _subjects(numbers) if on != "mean of the sets"]
        text, good = [], 0
        for on in subjects:
            own = _ours(numbers, on, "KBA", measure)
            known = [name for name in ("SVM", "SMOTE", "ACT") if (on, name, measure) in numbers]
            rivals = {name: _ours(numbers, on, name, measure) for name in known}
            best = max(rivals, key=lambda name: rivals[name])
            good += own >= rivals[best]
            text.append(f"{on} {own - rivals[best]:+.1f} over {best}")
        return Finding(_kind(good, len(subjects)), ", ".join(text))

    return judge


def against_svm(measure: str, wanted: Literal["rises", "falls"]) -> Callable[[Numbers], Finding]:
    def judge(numbers: Numbers) -> Finding:
        gains = {
            on: _ours(numbers, on, "KBA as printed", measure) - _ours(numbers, on, "SVM", measure)
            for on in _subjects(numbers)
        }
        signed = [gain if wanted == "rises" else -gain for gain in gains.values()]
        up, down = sum(gain > 0.15 for gain in signed), sum(gain < -0.15 for gain in signed)
        return Finding(
            _kind(up, len(gains)),
            f"one printed round: as claimed in {up} of {len(gains)} cases, the other way in {down}, the same "
            f"within 0.1 in {len(gains) - up - down}",
        )

    return judge


def penalties(trajectories: Numbers, tables: Numbers) -> Finding:
    found = _gain(trajectories, "all suspicious", "BP", "sensitivity")
    gain = _gain(tables, "mean of the sets", "BP", "G-mean")
    good = int(found < 10) + int(gain < 5)
    text = f"{found:+.1f} points of sensitivity on trajectories, {gain:+.1f} of G-mean on six UCI sets"
    return Finding(_kind(good, 2), text)


def _gain(numbers: Numbers, on: str, learner: str, measure: str) -> float:
    return _ours(numbers, on, learner, measure) - _ours(numbers, on, "SVM", measure)


def thirty(numbers: Numbers) -> Finding:
    gain = _gain(numbers, "all suspicious", "KBA", "sensitivity")
    return Finding("holds" if gain >= 25 else "does not hold", f"{gain:+.1f} points on made-up trajectories")


def specific(numbers: Numbers) -> Finding:
    found = {name: _ours(numbers, "harmless", name, "specificity") for name in ("SVM", "BP", "KBA")}
    high = sum(value >= 95 for value in found.values())
    return Finding(_kind(high, len(found)), ", ".join(f"{name} {value:.1f}" for name, value in found.items()))


def rarer(numbers: Numbers) -> Finding:
    found = [(on, pair) for (on, _, measure), pair in numbers.items() if measure == "points over SVM"]
    grows = sum(more > less for (_, (less, _)), (_, (more, _)) in pairwise(found))
    good = grows + sum(ours > 0 for _, (ours, _) in found)
    text = ", ".join(
        f"{on} {ours:+.1f} (paper {paper:+.1f})" for on, (ours, paper) in found if paper is not None
    )
    return Finding(_kind(good, 2 * len(found) - 1), f"points over SVM: {text}")


def over_act(numbers: Numbers) -> Finding:
    gains = {
        on: _ours(numbers, on, "KBA", "AUC") - _ours(numbers, on, "ACT", "AUC") for on in ("yeast", "abalone")
    }
    good = sum(gain > 0.15 for gain in gains.values())
    text = ", ".join(f"{on} {gain:+.1f}" for on, gain in gains.items())
    return Finding(_kind(good, len(gains)), f"AUC of KBA over ACT: {text}")


def abalone(numbers: Numbers) -> Finding:
    text, good, tried = [], 0, 0
    for on in _subjects(numbers):
        key = (on, "AUC", "KBA as printed, C = 1,000")
        if key in numbers:
            svm, kba = _ours(numbers, on, "AUC", "SVM, C = 1,000"), numbers[key][0]
            tried, good = tried + 1, good + (kba >= 87.4 - 2.0)
            text.append(f"{on} {svm:.1f} to {kba:.1f}")
    return Finding(_kind(good, tried), f"SVM to one printed round: {'; '.join(text)}")


# -- MHE ------------------------------------------------------------------------------------------


def obviously(suffix: str) -> Callable[[Numbers], Finding]:
    def judge(numbers: Numbers) -> Finding:
        subjects = [on for on in _subjects(numbers) if (on, f"MHE{suffix}", "F1") in numbers]
        text, good = [], 0
        for on in subjects:
            own, *rivals = (_ours(numbers, on, f"{name}{suffix}", "F1") for name in ("MHE", "HS", "HE"))
            good += own > max(rivals) + 1.0
            text.append(f"{on} {own - max(rivals):+.1f}")
        return Finding(_kind(good, len(subjects)), f"F1 over the better of the two: {', '.join(text)}")

    return judge


def times(rival: str, most: float, column: str) -> Callable[[Numbers], Finding]:
    def judge(numbers: Numbers) -> Finding:
        subjects = _subjects(numbers)
        ratios = [_ours(numbers, on, "MHE", column) / _ours(numbers, on, rival, column) for on in subjects]
        good = sum(ratio <= most for ratio in ratios)
        text = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        return Finding(_kind(good, len(ratios)), f"MHE / {rival}: {text}")

    return judge
