"""The positive class, as it is named on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard.evaluation import Race

__all__ = ["positive_refusal"]


def positive_refusal(race: Race, text: str | None) -> ParameterError | None:
    """What to say, at the end, of a positive class that no row had; a rare one may come late."""
    if text is None or race.positive in race.labels:
        return None
    return ParameterError(
        f"--positive: there is no class {text!r}; there are {', '.join(map(str, race.labels))}."
    )
