"""Checks of the claims of the paper on MHE-CIL."""

from __future__ import annotations

from collections.abc import Callable

from papers.judges.finding import Finding, at, kind_of, subjects
from papers.sections import Numbers

__all__ = ["obviously", "own_body", "reason", "times"]

_MEASURES = ("precision", "recall", "F1")


def obviously(suffix: str) -> Callable[[Numbers], Finding]:
    """Check the claim that MHE is obviously higher than HS and HE, that is, by more than a point."""

    def judge(numbers: Numbers) -> Finding:
        known = [on for on in subjects(numbers) if (on, f"MHE{suffix}", "F1") in numbers]
        text, good = [], 0
        for measure in _MEASURES:
            gains = []
            for on in known:
                own, *rivals = (at(numbers, on, f"{name}{suffix}", measure) for name in ("MHE", "HS", "HE"))
                gains.append(own - max(rivals))
            good += sum(gain > 1.0 for gain in gains)
            text.append(f"{measure} {', '.join(f'{gain:+.1f}' for gain in gains)}")
        return Finding(
            kind_of(good, len(_MEASURES) * len(known)),
            f"gain over the better of HS and HE, after each of {len(known)} stages: {'; '.join(text)}",
        )

    return judge


def reason(learner: str, rival: str) -> Callable[[Numbers], Finding]:
    """Check the claim that the feature which ``learner`` has and ``rival`` lacks is a reason for the lead.

    The F1 of ``learner`` must be higher by more than a point.
    """

    def judge(numbers: Numbers) -> Finding:
        text, good, asked = [], 0, 0
        for suffix, named in (("", "chosen by validation"), (", plain", "plain")):
            gains = [
                at(numbers, on, f"{learner}{suffix}", "F1") - at(numbers, on, f"{rival}{suffix}", "F1")
                for on in subjects(numbers)
            ]
            good, asked = good + sum(gain > 1.0 for gain in gains), asked + len(gains)
            text.append(f"{named} {', '.join(f'{gain:+.1f}' for gain in gains)}")
        return Finding(kind_of(good, asked), f"gain in F1 of {learner} over {rival}: {'; '.join(text)}")

    return judge


def times(rival: str, limit: float, column: str) -> Callable[[Numbers], Finding]:
    """Check the claim that MHE is as fast as ``rival`` or faster: at most ``limit`` times its time.

    Repeated runs differ by about 10 %, so "faster" needs a ratio of at most 0.9 and "as fast" allows 1.1.
    """

    def judge(numbers: Numbers) -> Finding:
        ratios = [at(numbers, on, "MHE", column) / at(numbers, on, rival, column) for on in subjects(numbers)]
        good = sum(ratio <= limit for ratio in ratios)
        text = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        return Finding(kind_of(good, len(ratios)), f"time of MHE / time of {rival}: {text}")

    return judge


def own_body(numbers: Numbers) -> Finding:
    """Check the claim that a new class costs only the training of its own ellipsoid."""
    first, *further = (at(numbers, on, "MHE", "training ms") for on in subjects(numbers))
    good = sum(one < 0.5 * first for one in further)
    text = ", ".join(f"{one:.2f}" for one in further)
    return Finding(kind_of(good, len(further)), f"two topics {first:.2f} ms, each further topic {text} ms")
