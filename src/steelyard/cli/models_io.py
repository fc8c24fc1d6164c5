"""Saved models and tables, as several commands need them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from steelyard.cli.options import ColumnOptions
from steelyard.distributed.files import StatisticsPart
from steelyard.exceptions import DataTypeError, FileFormatError, ParameterError
from steelyard.persistence import load, to_bytes
from steelyard.tables import TableModel, TableStream, open_stream

__all__ = ["check_can_be_saved", "load_table_model", "open_table", "refuse_kind", "summary_of"]


def load_table_model(path: Path) -> TableModel:
    """A model with its columns; another kind of saved object is refused."""
    model = load(path)
    if not isinstance(model, TableModel):
        raise refuse_kind(path, model)
    return model


def refuse_kind(path: Path, found: Any) -> FileFormatError:
    """What to say of a file of ours that is not what this command takes."""
    what, hint = (
        f"a {type(found).__name__} without the columns it was taught from",
        ("models for the command line are written by `steelyard fit` and `steelyard stream --save`"),
    )
    if isinstance(found, StatisticsPart):
        what, hint = "statistics, not a model", "`steelyard merge` makes a model of them"
    return FileFormatError(f"this file holds {what}.", who=str(path), hint=hint)


def check_can_be_saved(learner: Any, name: str) -> None:
    """Refuse a model that no file can hold, before it has learned anything for nothing."""
    try:
        to_bytes(learner)
    except DataTypeError as error:
        raise ParameterError(
            f"--model: {name!r} cannot be saved ({error.message})",
            hint="the models that `steelyard models` lists can; peers can race in `steelyard stream`",
        ) from error


def open_table(source: str, target: str, columns: ColumnOptions) -> TableStream:
    """A labelled table, as the column options say."""
    return open_stream(
        source,
        target,
        time=columns.time,
        features=columns.features or None,
        drop=columns.drop,
        categorical=columns.categorical,
        missing=columns.missing,
        chunk=columns.chunk,
        limit=columns.limit,
        max_classes=columns.max_classes,
    )


def summary_of(model: TableModel) -> dict[str, Any]:
    """Class, labels and counts of a model."""
    learner = getattr(model.learner, "learner_", model.learner)  # what a window holds
    labels = np.asarray(getattr(learner, "classes_", [])).tolist()
    counts = getattr(learner, "class_count_", None)
    classes: Any = labels
    if counts is not None:
        classes = {str(label): float(count) for label, count in zip(labels, np.asarray(counts), strict=True)}
    return {"class": type(model.learner).__name__, "target": model.target, "classes": classes}
