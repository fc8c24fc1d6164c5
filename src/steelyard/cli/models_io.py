"""Saved models and tables, as several commands need them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import tell
from steelyard.exceptions import DataTypeError, FileFormatError, ParameterError

if TYPE_CHECKING:
    from steelyard.cli.options import ColumnOptions
    from steelyard.tables import TableModel, TableStream

__all__ = ["check_can_be_saved", "load_table_model", "open_table", "refuse_kind", "source_of", "summary_of"]


def source_of(source: str, query: str | None) -> Any:
    """The source of a command: a file, the address of a table, or a database and a query."""
    from steelyard.tables.databases import is_address, open_database

    if query is None:
        return source
    if not is_address(source):
        raise click.UsageError(
            "--query asks a database: SOURCE must be an address such as duckdb:///shop.db."
        )
    return open_database(source, query)


def load_table_model(path: Path) -> TableModel:
    """A model with its columns; another kind of saved object is refused."""
    from steelyard.persistence import load
    from steelyard.tables import TableModel

    model = load(path)
    if not isinstance(model, TableModel):
        raise refuse_kind(path, model)
    return model


def refuse_kind(path: Path, found: Any) -> FileFormatError:
    """What to say of a file of ours that is not what this command takes."""
    from steelyard.distributed.files import StatisticsPart

    what, hint = (
        f"a {type(found).__name__} without the columns it was taught from",
        ("models for the command line are written by `steelyard fit` and `steelyard stream --save`"),
    )
    if isinstance(found, StatisticsPart):
        what, hint = "statistics, not a model", "`steelyard merge` makes a model of them"
    return FileFormatError(f"this file holds {what}.", source=str(path), hint=hint)


def check_can_be_saved(learner: Any, name: str) -> None:
    """Refuse a model that no file can hold, before it has learned anything for nothing."""
    from steelyard.persistence import to_bytes

    try:
        to_bytes(learner)
    except DataTypeError as error:
        raise ParameterError(
            f"--model: {name!r} cannot be saved ({error.summary})",
            hint="the models that `steelyard models` lists can; peers can race in `steelyard stream`",
        ) from error


def open_table(
    source: Any, target: str, columns: ColumnOptions, *, on_bad_row: str = "stop", encoder: Any = None
) -> TableStream:
    """A labelled table, as the column options say; with an encoder, its columns are those that it knows."""
    from steelyard.tables import open_stream

    stream = open_stream(
        source,
        target,
        time=columns.time,
        features=columns.features or None,
        drop=columns.drop,
        categorical=columns.categorical,
        missing=columns.missing,
        encoder=encoder,
        chunk=columns.chunk,
        limit=columns.limit,
        max_classes=columns.max_classes,
        on_bad_row=on_bad_row,
    )
    name = stream.name  # and not the stream itself, which would keep itself and its file alive
    stream.on_notice = lambda message: tell(f"note: {name}: {message}")
    return stream


def summary_of(model: TableModel) -> dict[str, Any]:
    """Class, labels and counts of a model."""
    learner = getattr(model.learner, "estimator_", model.learner)  # what a window holds
    labels = list(getattr(learner, "classes_", []))
    counts = getattr(learner, "class_count_", None)
    classes: Any = [str(label) for label in labels]
    if counts is not None:
        classes = {str(label): float(count) for label, count in zip(labels, counts, strict=True)}
    return {"class": type(model.learner).__name__, "target": model.target, "classes": classes}
