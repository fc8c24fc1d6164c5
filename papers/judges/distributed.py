"""Checks of the claims of the paper on distributed incremental wLPSVM."""

from __future__ import annotations

from itertools import pairwise

from papers.judges.finding import Finding, at, kind_of, listed, subjects
from papers.sections import Numbers

__all__ = [
    "grows_and_falls",
    "less_than_linear",
    "more_rows",
    "parallel",
    "privacy",
    "robust",
    "share",
    "size_up",
    "speed_up",
]


def _of_cores(numbers: Numbers, measure: str) -> dict[tuple[str, int], float]:
    """Return a measure by subject and number of cores, for learners with the penalty of equation (21)."""
    return {
        (on, int(who.split(" ")[0])): figure.ours
        for (on, who, what), figure in numbers.items()
        if what == measure and "standardised" not in who
    }


def speed_up(numbers: Numbers) -> Finding:
    """Check the claim that a second core gives the published speed-up."""
    found = {
        on: figure
        for (on, cores, measure), figure in numbers.items()
        if measure == "speed-up" and cores == "2 cores"
    }
    reached = sum(one.paper is not None and one.ours >= 0.95 * one.paper for one in found.values())
    text = ", ".join(
        f"{on}: {one.ours:.2f} (paper {one.paper:.2f})" for on, one in found.items() if one.paper
    )
    return Finding(kind_of(reached, len(found)), f"speed-up of two cores, {text}")


def less_than_linear(numbers: Numbers) -> Finding:
    """Check the claim that n cores are less than n times as fast as one."""
    found = _of_cores(numbers, "speed-up")
    good = sum(times < cores for (_, cores), times in found.items())
    text = "; ".join(f"{cores} cores, {on}: {times:.2f}" for (on, cores), times in found.items())
    return Finding(kind_of(good, len(found)), text)


def more_rows(numbers: Numbers) -> Finding:
    """Check the claim that the speed-up of two cores is better with more rows."""
    found = [(on, times) for (on, cores), times in _of_cores(numbers, "speed-up").items() if cores == 2]
    grows = sum(more >= less - 0.02 for (_, more), (_, less) in pairwise(found))
    return Finding(kind_of(grows, len(found) - 1), ", ".join(f"{on}: {times:.2f}" for on, times in found))


def size_up(numbers: Numbers) -> Finding:
    """Check the claim that m times the rows take less than m times as long, for m = 4."""
    found = _of_cores(numbers, "size-up")
    good = sum(times < 4.0 for times in found.values())
    text = ", ".join(f"{times:.2f} with {cores}" for (_, cores), times in found.items())
    return Finding(kind_of(good, len(found)), f"factor of the time for four times the rows, by cores: {text}")


def share(numbers: Numbers) -> Finding:
    """Check the claim that incremental learning takes only the time for the new rows.

    The new rows are 1/15 of all rows, and at most a tenth of the time of batch learning is accepted.
    """
    found = {
        f"{way}, {on}": figure.ours
        for (on, way, measure), figure in numbers.items()
        if measure.startswith("share of the time") and "standardised" not in way
    }
    good = sum(ours <= 0.1 for ours in found.values())
    text = "; ".join(f"{name}: {ours:.2f}" for name, ours in found.items())
    return Finding(kind_of(good, len(found)), f"share of the time for 1/15 of the rows, {text}")


def _courses(numbers: Numbers, way: str) -> list[list[float]]:
    """Return sequences of seconds of the learning mode ``way``. A sequence starts where all rows are new."""
    courses: list[list[float]] = []
    for on in subjects(numbers):
        new, _, total = on.removesuffix(" in all").partition(" new, ")
        if new == total:
            courses.append([])
        courses[-1].append(at(numbers, on, way, "seconds"))
    return courses


def grows_and_falls(numbers: Numbers) -> Finding:
    """Check the claim that batch learning takes longer at every step and incremental learning less long.

    Batch learning learns all rows again, and the number of new rows decreases from step to step.
    """
    ways = {"batch": _courses(numbers, "batch"), "incremental": _courses(numbers, "incremental")}
    good = sum(later > now for course in ways["batch"] for now, later in pairwise(course))
    good += sum(later < now for course in ways["incremental"] for now, later in pairwise(course))
    steps = sum(len(course) - 1 for courses in ways.values() for course in courses)
    text = "; ".join(
        f"{way} {', '.join(f'{seconds:.3f}' for seconds in course)} s"
        for way, courses in ways.items()
        for course in courses
    )
    return Finding(kind_of(good, steps), text)


def parallel(numbers: Numbers) -> Finding:
    """Check the claim that several cores clearly reduce the time, to at most 0.8 times that of one core."""
    found = {
        on: at(numbers, on, "parallel", "seconds") / at(numbers, on, "batch", "seconds")
        for on in subjects(numbers)
    }
    good = sum(part <= 0.8 for part in found.values())
    return Finding(kind_of(good, len(found)), f"time as a share of that of one core: {listed(found)}")


def privacy(numbers: Numbers) -> Finding:
    """Check the claim that messages preserve privacy: their rows cannot be reconstructed."""
    found = {on: figure.ours for (on, _, _), figure in numbers.items()}
    seen = sum(error < 1e-6 for error in found.values())
    text = ", ".join(f"{on}: {error:.1e}" for on, error in found.items())
    return Finding("does not hold" if seen == len(found) else "holds in part" if seen else "holds", text)


def robust(numbers: Numbers) -> Finding:
    """Check the claim that wLPSVM is robust to imbalance: its G-mean is at least that of LPSVM."""
    text, good = [], 0
    for on in subjects(numbers):
        plain, weighted = (at(numbers, on, name, "G-mean") for name in ("LPSVM (linear ESVM)", "wLPSVM"))
        good += weighted >= plain
        text.append(f"{on} {plain:.3f} to {weighted:.3f}")
    return Finding(kind_of(good, len(text)), f"G-mean of LPSVM to that of wLPSVM: {', '.join(text)}")
