"""Predictions of a model as they go over the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steelyard._types import FloatArray
from steelyard.streams.predictions import Predictions

__all__ = ["columns_of", "prediction"]


def prediction(answers: Predictions, chances: FloatArray | None, version: int) -> dict[str, Any]:
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


def _scores(answers: Predictions, names: list[str]) -> list[Any]:
    if len(names) == 2:
        scores: list[Any] = answers.scores[:, 1].tolist()
        return scores
    return [dict(zip(names, row, strict=True)) for row in answers.scores.tolist()]


def columns_of(answer: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """The same, one column for each thing: for tables."""
    names = [str(label) for label in answer["classes"]]
    columns: dict[str, Sequence[Any]] = {"id": answer["ids"]} if "ids" in answer else {}
    columns["label"] = answer["labels"]
    if len(names) == 2:
        columns["score"] = answer["scores"]
    else:
        columns.update({f"score {n}": [row[n] for row in answer["scores"]] for n in names})
    if "probabilities" in answer:
        columns.update({f"probability {n}": [row[n] for row in answer["probabilities"]] for n in names})
    return columns
