"""The positive class, as it is named on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialEvaluator

__all__ = ["check_positive", "positive_refusal"]

_MOST_NAMED = 20


def check_positive(source: str, target: str, text: str | None, limit: int | None) -> None:
    """Refuse a positive class that no row has before anything is learned, where rows can be read twice.

    Only the column of labels is read, up to the first row that has the label. A pipe can be read once, and a
    database is not asked twice: there :func:`positive_refusal` says it at the end.
    """
    from steelyard.tables.table_stream import has_label

    if text is None or not Path(source).is_file():
        return
    is_there, labels = has_label(source, target, text, limit)
    if not is_there:
        raise _no_class(text, labels)


def positive_refusal(evaluator: PrequentialEvaluator, text: str | None) -> ParameterError | None:
    """What to say, at the end, of a positive class that no row had; a rare one may come late."""
    if text is None or evaluator.positive in evaluator.labels:
        return None
    return _no_class(text, list(evaluator.labels))


def _no_class(text: str, labels: list[Any]) -> ParameterError:
    more = f" and {len(labels) - _MOST_NAMED:,} more" if len(labels) > _MOST_NAMED else ""
    shown = ", ".join(map(str, labels[:_MOST_NAMED]))
    return ParameterError(f"--positive: there is no class {text!r}; there are {shown}{more}.")
