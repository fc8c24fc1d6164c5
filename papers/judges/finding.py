"""Verdicts with their numbers, and shared functions of the judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from papers.sections import Numbers

__all__ = ["Finding", "Kind", "at", "kind_of", "listed", "most", "subjects"]

Kind = Literal["holds", "holds in part", "does not hold", "not measured"]


@dataclass(frozen=True)
class Finding:
    """A verdict and its numbers."""

    kind: Kind
    numbers: str


def kind_of(good: int, all_of_them: int) -> Kind:
    """Return the verdict of a claim about all cases."""
    if not all_of_them:
        return "not measured"
    if good == all_of_them:
        return "holds"
    return "does not hold" if good * 4 < all_of_them else "holds in part"


def most(good: int, all_of_them: int) -> Kind:
    """Return the verdict of a claim about most cases."""
    return "holds" if 2 * good > all_of_them else kind_of(good, all_of_them)


def subjects(numbers: Numbers) -> list[str]:
    """Return the subjects in the order of the table."""
    return list(dict.fromkeys(on for on, _, _ in numbers))


def at(numbers: Numbers, on: str, learner: str, measure: str) -> float:
    """Return our number."""
    return numbers[on, learner, measure].ours


def listed(values: Mapping[str, float], form: str = ".2f") -> str:
    """Return names and values as text, with semicolons if a name contains a comma or a colon."""
    separator, link = ("; ", ": ") if any("," in name or ":" in name for name in values) else (", ", " ")
    return separator.join(f"{name}{link}{value:{form}}" for name, value in values.items())
