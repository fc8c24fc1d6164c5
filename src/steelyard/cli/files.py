"""Files of commands: paths, saved models and tables.

Paths are validated before the work starts; files are written atomically.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import print_message
from steelyard.exceptions import DataTypeError, FileAccessError, FileFormatError, ParameterError

if TYPE_CHECKING:
    from steelyard.cli.options import ColumnOptions
    from steelyard.tables import TableModel, TableStream


class _OutFile(click.Path):
    """Path of an output file. Missing folders are created. A path that cannot be written is a usage error."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.exists() and not path.is_file():
            return path  # devices and pipes need no check
        folder = path.parent
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            self.fail(f"'{path}' cannot be written: '{folder}' is not a folder.", param, ctx)
        if not os.access(folder, os.W_OK | os.X_OK):
            self.fail(f"'{path}' cannot be written: the folder '{folder}' is not writable.", param, ctx)
        return path


IN_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUT_FILE = _OutFile()
ANY_FILE = click.Path(dir_okay=False, path_type=Path)  # file that need not exist


def read_file(path: Path) -> bytes:
    """Return the bytes of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileAccessError(f"cannot be read: {error.strerror or error}.", source=str(path)) from error


def save_model(model: Any, path: Path) -> None:
    """Save a model atomically; missing folders are created."""
    from steelyard.persistence.files import write_atomically
    from steelyard.persistence.objects import to_parts

    write_atomically(path, to_parts(model), source="save")


@contextmanager
def rollback_on_error(path: Path, text: str) -> Iterator[None]:
    """Write a text file; restore its previous content if the body of the ``with`` statement fails."""
    from steelyard.persistence.files import write_atomically

    before = path.read_bytes() if path.is_file() else None
    write_atomically(path, [text.encode()], source="save")
    try:
        yield
    except BaseException:  # includes KeyboardInterrupt
        if before is not None:
            write_atomically(path, [before], source="save")
        elif path.is_file():
            path.unlink()
        raise


# -- saved models and tables ---------------------------------------------------------------------------


def open_source(source: str, query: str | None) -> Any:
    """Return the source of a command: a path, a database address, an open query or an open topic."""
    from steelyard.brokers.interface import SCHEMES as TOPICS
    from steelyard.brokers.interface import is_address as is_topic
    from steelyard.brokers.interface import without_credentials
    from steelyard.tables.databases import open_database
    from steelyard.tables.source import SCHEMES as DATABASES
    from steelyard.tables.source import is_address

    if is_topic(source) and query is None:
        return _open_topic(source)
    if query is None:
        if "://" in source and not is_address(source):
            known = ", ".join(f"{name}://" for name in (*TOPICS, *DATABASES))
            raise ParameterError(
                f"{without_credentials(source)!r} is neither a file nor the address of a topic or database.",
                hint=f"addresses begin with {known}",
            )
        return source
    if not is_address(source):
        raise click.UsageError(
            "--query needs a database: SOURCE must be an address such as duckdb:///shop.db."
        )
    return open_database(source, query)


def _open_topic(address: str) -> Any:
    from steelyard.brokers import Address

    topic = Address.parse(address)
    try:
        from steelyard.brokers.payloads import TopicTable
    except ImportError as error:
        raise ParameterError(
            f"reading a topic needs the package {error.name!r}, which is not installed.",
            hint=f'pip install "steelyard[service,{topic.scheme}]"',
        ) from error
    return TopicTable(topic)


def load_table_model(path: Path, *, accepts_statistics: bool = False) -> TableModel:
    """Load a model with table columns, or with ``accepts_statistics`` the model of a statistics file."""
    from steelyard.distributed.files import StatisticsPart
    from steelyard.persistence import load
    from steelyard.tables import TableModel

    found = load(path)
    model = found.model if accepts_statistics and isinstance(found, StatisticsPart) else found
    if not isinstance(model, TableModel):
        raise wrong_kind_error(path, found)
    return model


def wrong_kind_error(path: Path, found: Any) -> FileFormatError:
    """Return the error for a saved object that a command cannot use."""
    from steelyard.distributed.files import StatisticsPart

    if isinstance(found, StatisticsPart):
        what, hint = "statistics, not a model", "`steelyard merge` makes a model from statistics"
    else:
        what = f"a {type(found).__name__} without table columns"
        hint = "models for the command line are written by `steelyard fit` and `steelyard stream --save`"
    return FileFormatError(f"this file holds {what}.", source=str(path), hint=hint)


def check_can_be_saved(learner: Any, name: str) -> None:
    """Raise an error, before the model learns, if the model cannot be saved."""
    from steelyard.persistence import to_bytes

    try:
        to_bytes(learner)
    except DataTypeError as error:
        raise ParameterError(
            f"--model: {name!r} cannot be saved ({error.summary})",
            hint="use a model of `steelyard models`; models of other packages can only be tested, with "
            "`steelyard stream`",
        ) from error


def open_table(
    source: Any,
    target: str | None,
    columns: ColumnOptions,
    *,
    on_bad_row: str = "stop",
    unlabelled: str = "refuse",
    encoder: Any = None,
    id_column: str | None = None,
    kept: Sequence[str] = (),
) -> TableStream:
    """Open a table with the given column options, or with the columns of ``encoder`` if it is given.

    ``id_column`` is not used as a feature, but its values are kept for joining labels. The values of the
    columns ``kept`` are kept too, and these columns may be features.
    """
    from steelyard.tables import open_stream

    ids = [] if id_column is None else [id_column]
    options = {**asdict(columns), "drop": (*columns.drop, *ids)}
    stream = open_stream(
        source, target, encoder=encoder, on_bad_row=on_bad_row, unlabelled=unlabelled, **options
    )
    stream.keep([*ids, *kept])
    # A lambda with a reference to the stream would be a reference cycle and keep the file open.
    name = stream.name
    stream.on_notice = lambda message: print_message(f"note: {name}: {message}")
    return stream


def inner_learner(learner: Any) -> Any:
    """Return the learner inside a window wrapper, or the learner itself."""
    return getattr(learner, "estimator_", learner)


def class_counts(learner: Any) -> Any:
    """Return the number of rows of each class, or only the labels if the learner does not count rows."""
    inner = inner_learner(learner)
    labels = [str(label) for label in getattr(inner, "classes_", [])]
    counts = getattr(inner, "class_count_", None)
    return labels if counts is None else dict(zip(labels, map(float, counts), strict=True))


def summary_of(model: TableModel) -> dict[str, Any]:
    """Return the class, target and class counts of a model."""
    return {
        "class": type(model.estimator).__name__,
        "target": model.target,
        "classes": class_counts(model.estimator),
    }
