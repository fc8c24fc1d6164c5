"""The positive class, as it is named on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard.evaluation import Race
    from steelyard.streams import Chunk

__all__ = ["WantedPositive"]


class WantedPositive:
    """``--positive``: a text that becomes a label when the first labels show what kind they are.

    A rare class may come late, so only the end of the stream can tell that it never came.

    Parameters
    ----------
    text : str or None
        What was written; None leaves the choice to the race.
    """

    def __init__(self, text: str | None) -> None:
        self._text = text

    def tell(self, race: Race, chunk: Chunk) -> None:
        """Let the race know, before its first rows."""
        if self._text is not None and not race.n_rows:
            race.set_positive(self._label(chunk.y.dtype.kind))

    def refusal(self, race: Race) -> ParameterError | None:
        """What to say, at the end, of a class that no row had."""
        if self._text is None or race.positive in race.labels:
            return None
        return ParameterError(
            f"--positive: there is no class {self._text!r}; there are {', '.join(map(str, race.labels))}."
        )

    def _label(self, kind: str) -> Any:
        try:
            return int(self._text or "") if kind in "iub" else self._text
        except ValueError:
            return self._text  # which no row will have
