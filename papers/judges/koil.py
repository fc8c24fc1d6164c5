"""Checks of the claims of the KOIL thesis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from papers.judges.finding import Finding, at, kind_of, listed, most, subjects
from papers.sections import Numbers

__all__ = [
    "at_least_seven",
    "bayes",
    "compensation",
    "converges",
    "declines",
    "fewer_vectors",
    "fluctuates",
    "guesses",
    "kernels_mostly",
    "kernels_win",
    "limited",
    "over_plain",
    "plane_is_enough",
    "saturates",
    "sensitive",
    "smooth",
    "tenth",
    "too_few",
    "wins",
]

_LINEAR = ("Perceptron", "OAM", "OPAUC")
_PAIRS = (("RS++", "RS"), ("FIFO++", "FIFO"))


# -- tables 3.2 and 3.3 ---------------------------------------------------------------------------


def wins(*rivals: str, of: str = "wins : losses of KOIL against") -> Callable[[Numbers], Finding]:
    """Check the claim that KOIL beats each of ``rivals``: more significant wins than losses over datasets."""

    def judge(numbers: Numbers) -> Finding:
        text, good = [], 0
        for rival in rivals:
            won, lost = (numbers["all sets", rival, measure] for measure in ("wins", "losses"))
            good += won.ours > lost.ours
            text.append(
                f"{rival} {won.ours:.0f} : {lost.ours:.0f} (paper {won.paper:.0f} : {lost.paper:.0f})"
            )
        return Finding(kind_of(good, len(rivals)), f"{of} {', '.join(text)}")

    return judge


def _areas(numbers: Numbers) -> dict[str, dict[str, float]]:
    """Return the AUC by dataset and learner."""
    found: dict[str, dict[str, float]] = {}
    for (on, learner, measure), figure in numbers.items():
        if measure == "AUC":
            found.setdefault(on, {})[learner] = figure.ours
    return found


def kernels_win(numbers: Numbers) -> Finding:
    """Check the claim that all kernel learners beat all linear learners on the generated datasets."""
    text, good, areas = [], 0, _areas(numbers)
    for on, found in areas.items():
        plane = max(found[name] for name in _LINEAR)
        kernel = min(value for name, value in found.items() if name not in _LINEAR)
        good += kernel > plane + 0.05
        text.append(f"{on} {kernel:.3f} : {plane:.3f}")
    return Finding(
        kind_of(good, len(areas)), f"AUC of the worst kernel learner : best linear learner, {', '.join(text)}"
    )


def kernels_mostly(numbers: Numbers) -> Finding:
    """Check the claim that kernel learners have a higher AUC than linear ones on most datasets."""
    leads = {}
    for on, found in _areas(numbers).items():
        planes = [found[name] for name in _LINEAR]
        leads[on] = float(np.mean([found[name] for name in found if name not in _LINEAR]) - np.mean(planes))
    good = sum(lead > 0 for lead in leads.values())
    text = f"mean AUC of kernel learners minus that of linear learners: {listed(leads, '+.3f')}"
    return Finding(most(good, len(leads)), text)


_PLANES = {
    "OAM": ("australian", "heart", "diabetes", "german", "shuttle"),
    "OPAUC": ("australian", "german"),
}


def plane_is_enough(numbers: Numbers) -> Finding:
    """Check the claim that a linear learner is enough on five datasets: its AUC is within 0.01 of KOIL."""
    areas, text, good, asked = _areas(numbers), [], 0, 0
    for plane, sets in _PLANES.items():
        for on in sets:
            gap = areas[on][plane] - max(areas[on][f"KOIL {policy}"] for policy in ("RS++", "FIFO++"))
            good, asked = good + (gap >= -0.01), asked + 1
            text.append(f"{plane} on {on} {gap:+.3f}")
    return Finding(kind_of(good, asked), f"AUC minus that of the better KOIL: {', '.join(text)}")


def converges(numbers: Numbers) -> Finding:
    """Check the claim that kernel weights converge: they move by less than 0.05 in the tenth epoch."""
    moves = {
        f"{learner} on {on}": (figure.ours, at(numbers, on, learner, "weights moved, 10th epoch"))
        for (on, learner, measure), figure in numbers.items()
        if measure == "weights moved, 2nd epoch"
    }
    good = sum(last < 0.05 for _, last in moves.values())
    text = ", ".join(f"{name} {first:.2f} to {last:.2f}" for name, (first, last) in moves.items())
    return Finding(kind_of(good, len(moves)), f"weights moved in the 2nd and in the 10th epoch: {text}")


def guesses(numbers: Numbers) -> Finding:
    """Check the claim that Perceptron and OAM rank Syn1 worse than a random guess."""
    found = {name: at(numbers, "Syn1", name, "AUC") for name in ("Perceptron", "OAM")}
    good = sum(value < 0.5 for value in found.values())
    return Finding(kind_of(good, len(found)), f"AUC on Syn1: {listed(found, '.3f')}")


def fewer_vectors(numbers: Numbers) -> Finding:
    """Check the claim that KOIL, with fewer vectors, beats NORMA on the generated datasets."""
    text, good, areas = [], 0, _areas(numbers)
    for on, found in areas.items():
        own = [found["KOIL RS++"], found["KOIL FIFO++"]]
        good += sum(value > found["NORMA"] for value in own)
        text.append(f"{on} {own[0]:.3f} and {own[1]:.3f} : {found['NORMA']:.3f}")
    return Finding(kind_of(good, 2 * len(areas)), f"AUC of KOIL RS++ and FIFO++ : NORMA, {', '.join(text)}")


def smooth(numbers: Numbers) -> Finding:
    """Check the claim that the smooth loss is comparable to the hinge loss, or better."""
    gains = [
        found[f"KOIL2 {policy}"] - found[f"KOIL {policy}"]
        for found in _areas(numbers).values()
        for policy in ("RS++", "FIFO++")
    ]
    comparable = sum(gain >= -0.01 for gain in gains)
    return Finding(
        kind_of(comparable, len(gains)),
        f"at most 0.01 below the hinge loss in {comparable} of {len(gains)} cases, mean difference "
        f"{np.mean(gains):+.3f}",
    )


def bayes(numbers: Numbers) -> Finding:
    """Check the claim that the Bayes error of the generated datasets is about 4.5 %."""
    errors = {
        on: figure.ours
        for (on, name, measure), figure in numbers.items()
        if name == "Bayes" and "error" in measure
    }
    near = sum(abs(error - 4.5) <= 0.25 for error in errors.values())
    return Finding(
        kind_of(near, len(errors)), ", ".join(f"{on} {error:.1f} %" for on, error in errors.items())
    )


# -- figures 3.1 to 3.3 ---------------------------------------------------------------------------


def compensation(numbers: Numbers) -> Finding:
    """Check the claim that KOIL with compensation approaches the AUC of unlimited budgets."""
    measure, text, good = "AUC at the end", [], 0
    known = subjects(numbers)
    for on in known:
        whole = at(numbers, on, "infinite", measure)
        near, far = (
            max(abs(at(numbers, on, pair[place], measure) - whole) for pair in _PAIRS) for place in (0, 1)
        )
        good += near <= 0.01 or near < 0.25 * far
        text.append(f"{on} {near:.3f} and {far:.3f}")
    return Finding(
        kind_of(good, len(known)),
        f"largest difference in AUC to unlimited budgets, with and without compensation: {'; '.join(text)}",
    )


def over_plain(numbers: Numbers) -> Finding:
    """Check the claim that compensation is clearly better than none."""
    gains = {
        f"{policy}, {on}": at(numbers, on, policy, "AUC at the end")
        - at(numbers, on, plain, "AUC at the end")
        for policy, plain in _PAIRS
        for on in subjects(numbers)
    }
    good = sum(gain > 0.01 for gain in gains.values())
    return Finding(kind_of(good, len(gains)), f"gain in AUC by compensation: {listed(gains, '+.3f')}")


def fluctuates(numbers: Numbers) -> Finding:
    """Check the claim that without compensation the AUC fluctuates more between runs."""
    text, good = [], 0
    for policy, plain in _PAIRS:
        for on in subjects(numbers):
            own, other = (numbers[on, name, "AUC at the end"].spread for name in (policy, plain))
            good += other > own
            text.append(f"{on} {own:.3f} ({policy}), {other:.3f} ({plain})")
    return Finding(kind_of(good, len(text)), f"standard deviation over the runs: {'; '.join(text)}")


def saturates(numbers: Numbers) -> Finding:
    """Check the claim that the AUC grows with the budget and then saturates."""
    text, good = [], 0
    known = subjects(numbers)
    for on in known:
        small, half, large = (at(numbers, on, f"budget {n}", "AUC") for n in (10, 100, 200))
        good += half > small and abs(large - half) <= 0.25 * (half - small)
        text.append(f"{on} {small:.3f}, {half:.3f}, {large:.3f}")
    return Finding(kind_of(good, len(known)), f"AUC with budgets of 10, 100, 200: {'; '.join(text)}")


def tenth(numbers: Numbers) -> Finding:
    """Check the claim that a tenth of the budget is about the best number of neighbours k."""
    good, text, areas = 0, [], _areas(numbers)
    for on, found in areas.items():
        best = max(found, key=found.__getitem__)
        good += found["k 10"] >= found[best] - 0.005
        text.append(f"{on} {best} ({found[best] - found['k 10']:+.3f})")
    return Finding(kind_of(good, len(areas)), f"best k, and its gain in AUC over k = 10: {', '.join(text)}")


def too_few(numbers: Numbers) -> Finding:
    """Check the claim that one neighbour (k = 1) is too few."""
    gaps = {on: found["k 10"] - found["k 1"] for on, found in _areas(numbers).items()}
    good = sum(gap > 0.005 for gap in gaps.values())
    return Finding(kind_of(good, len(gaps)), f"AUC of k = 10 minus that of k = 1: {listed(gaps, '+.3f')}")


def declines(numbers: Numbers) -> Finding:
    """Check the claim that the AUC falls as k grows beyond a tenth of the budget."""
    falls = {on: found["k 10"] - found["k 100"] for on, found in _areas(numbers).items()}
    good = sum(fall > 0.005 for fall in falls.values())
    return Finding(kind_of(good, len(falls)), f"AUC of k = 10 minus that of k = 100: {listed(falls, '+.3f')}")


def sensitive(numbers: Numbers) -> Finding:
    """Check the claim that svmguide2 and german are less sensitive to k than other datasets."""
    spans = {on: max(found.values()) - min(found.values()) for on, found in _areas(numbers).items()}
    named = {on: spans.pop(on) for on in ("svmguide2", "german")}
    usual = float(np.median(list(spans.values())))
    good = sum(span < usual for span in named.values())
    text = f"highest minus lowest AUC: {listed(named, '.3f')}; median of the others {usual:.3f}"
    return Finding(kind_of(good, len(named)), text)


# -- table 4.1 ------------------------------------------------------------------------------------


def at_least_seven(numbers: Numbers) -> Finding:
    """Check the claim that several kernels with the smooth loss beat one on at least 7 datasets."""
    found = {name: at(numbers, "all sets", name, "wins") for name in ("MKL2 RS++", "MKL2 FIFO++")}
    good = sum(count >= 7 for count in found.values())
    return Finding(kind_of(good, len(found)), f"wins of {listed(found, '.0f')}")


def limited(several: Numbers, single: Numbers) -> Finding:
    """Check the claim that several kernels cannot beat the tuned kernel on sonar and ionosphere."""
    leads = {}
    for on in ("sonar", "ionosphere"):
        for kind in ("RS++", "FIFO++"):
            for square in ("", "2"):
                name = f"MKL{square} {kind}"
                leads[f"{name} on {on}"] = at(several, on, name, "AUC") - at(
                    single, on, f"KOIL{square} {kind}", "AUC"
                )
    good = sum(lead <= 0.0 for lead in leads.values())
    return Finding(kind_of(good, len(leads)), f"AUC minus that of one kernel: {listed(leads, '+.3f')}")
