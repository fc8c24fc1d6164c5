"""Verdict on a claim of a paper, and helper functions for the checks of claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from papers.sections import Numbers

__all__ = ["Finding", "Kind", "at", "kind_of", "listed", "most", "subjects"]

Kind = Literal["holds", "holds in part", "does not hold", "not measured"]


@dataclass(frozen=True)
class Finding:
    """The verdict on a claim, and the numbers that it is based on as text."""

    kind: Kind
    numbers: str


def kind_of(good: int, all_of_them: int) -> Kind:
    """Return the verdict on a claim about all cases, which is true in ``good`` of ``all_of_them`` cases."""
    if not all_of_them:
        return "not measured"
    if good == all_of_them:
        return "holds"
    return "does not hold" if good * 4 < all_of_them else "holds in part"


def most(good: int, all_of_them: int) -> Kind:
    """Return the verdict on a claim about most cases, which is true in ``good`` of ``all_of_them`` cases."""
    return "holds" if 2 * good > all_of_them else kind_of(good, all_of_them)


def subjects(numbers: Numbers) -> list[str]:
    """Return the subjects (datasets or cases) of a table in the order of its rows."""
    return list(dict.fromkeys(on for on, _, _ in numbers))


def at(numbers: Numbers, on: str, learner: str, measure: str) -> float:
    """Return our number for the subject ``on``."""
    return numbers[on, learner, measure].ours


def listed(values: Mapping[str, float], form: str = ".2f") -> str:
    """Return names and values as text, with semicolons if a name contains a comma or a colon."""
    separator, link = ("; ", ": ") if any("," in name or ":" in name for name in values) else (", ", " ")
    return separator.join(f"{name}{link}{value:{form}}" for name, value in values.items())
