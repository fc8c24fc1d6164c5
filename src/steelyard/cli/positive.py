"""Positive class of a command: the value of ``--positive``, or a default if there are two classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.cli.model_files import inner_learner
from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialEvaluator

_MAX_LISTED_LABELS = 20


def positive_of(learner: Any, text: str | None) -> Any:
    """Return the positive class, or None if it is not given and there are more than two classes."""
    inner = inner_learner(learner)
    labels = list(inner.classes_)
    if text is not None:
        for label in labels:
            if str(label) == text:
                return label
        raise _unknown_label(text, labels)
    if getattr(inner, "positive_", None) is not None:
        return inner.positive_
    from steelyard._labels import positive_class

    counts = list(getattr(inner, "class_count_", [1] * len(labels)))
    return positive_class(dict(zip(labels, map(float, counts), strict=True)))


def check_positive(source: str, target: str, text: str | None, limit: int | None) -> None:
    """Raise an error if no row of a file has the positive class.

    Only the label column is read, up to the first row with the label. Pipes and databases are not read by
    this function, because they would be read twice. For them :func:`positive_error` reports a missing class
    at the end of the run.
    """
    from steelyard.tables.table_stream import has_label

    if text is None or not Path(source).is_file():
        return
    found, labels = has_label(source, target, text, limit)
    if not found:
        raise _unknown_label(text, labels)


def positive_error(evaluator: PrequentialEvaluator, text: str | None) -> ParameterError | None:
    """Return an error if no row of a finished run had the positive class."""
    if text is None or evaluator.positive in evaluator.labels:
        return None
    return _unknown_label(text, list(evaluator.labels))


def _unknown_label(text: str, labels: list[Any]) -> ParameterError:
    n_more = len(labels) - _MAX_LISTED_LABELS
    shown = ", ".join(map(str, labels[:_MAX_LISTED_LABELS])) + (f" and {n_more:,} more" if n_more > 0 else "")
    return ParameterError(f"--positive: there is no class {text!r}; the classes are {shown}.")
