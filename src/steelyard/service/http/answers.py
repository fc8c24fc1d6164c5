"""Answers of a model as they go over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steelyard._types import FloatArray
from steelyard.streams.answers import Answers

__all__ = ["columns_of", "prediction"]


def prediction(answers: Answers, chances: FloatArray | None, version: int) -> dict[str, Any]:
    """Labels, scores and probabilities of rows.

    With two classes a score is a number, positive for the second class; with more, one for each class.
    """
    names = [str(label) for label in answers.classes]
    answer: dict[str, Any] = {
        "labels": answers.labels.tolist(),
        "scores": _scores(answers, names),
        "classes": list(answers.classes),
        "version": version,
    }
    if chances is not None:
        answer["probabilities"] = [dict(zip(names, row, strict=True)) for row in chances.tolist()]
    return answer


def _scores(answers: Answers, names: list[str]) -> list[Any]:
    if len(names) == 2:
        scores: list[Any] = answers.scores[:, 1].tolist()
        return scores
    return [dict(zip(names, row, strict=True)) for row in answers.scores.tolist()]


def columns_of(
    answers: Answers, chances: FloatArray | None, ids: Sequence[str] | None
) -> dict[str, Sequence[Any]]:
    """The same, one column for each thing: for tables."""
    names = [str(label) for label in answers.classes]
    columns: dict[str, Sequence[Any]] = {} if ids is None else {"id": list(ids)}
    columns["label"] = answers.labels.tolist()
    if len(names) == 2:
        columns["score"] = answers.scores[:, 1].tolist()
    else:
        columns.update({f"score {n}": answers.scores[:, i].tolist() for i, n in enumerate(names)})
    if chances is not None:
        columns.update({f"probability {n}": chances[:, i].tolist() for i, n in enumerate(names)})
    return columns
