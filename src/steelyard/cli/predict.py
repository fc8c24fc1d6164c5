"""``steelyard predict``: rows in, labels and scores out."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import click

from steelyard.cli.files import OUT_FILE
from steelyard.cli.models_io import load_table_model
from steelyard.cli.options import MODEL_FILE
from steelyard.cli.output import emit_text, json_option, json_text, standard_output
from steelyard.exceptions import FileAccessError

if TYPE_CHECKING:
    from steelyard.tables import TableModel

__all__ = ["predict_command"]


@click.command("predict")
@click.argument("model", type=MODEL_FILE)
@click.argument("source")
@click.option(
    "-o", "--out", type=OUT_FILE, metavar="FILE", help="CSV, or Parquet if it ends so; stdout by default."
)
@click.option("--chunk", type=click.IntRange(1), default=1000, show_default=True, metavar="N")
@json_option
def predict_command(model: Path, source: str, out: Path | None, chunk: int, as_json: bool) -> None:
    """Predict the rows of SOURCE: row number, label and one score a class.

    Columns are found by name; the target need not be there. With --json every row is one JSON line.
    """
    is_parquet = out is not None and out.suffix == ".parquet"
    if is_parquet and as_json:
        raise click.UsageError("--json writes JSON lines, which a Parquet file cannot hold.")
    answers = _begun(_lines(load_table_model(model), source, chunk))
    try:
        if out is not None and is_parquet:
            _write_parquet(answers, out)
            return
        with out.open("w", encoding="utf-8", newline="") if out else _Standard() as file:
            _write_text(answers, file, as_json=as_json)
    except BrokenPipeError:
        raise  # whoever read has read enough
    except OSError as error:
        raise FileAccessError(
            f"{out or 'standard output'} cannot be written: {error.strerror or error}.", who="predict"
        ) from error


def _begun(chunks: Iterator[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """The same, with the first chunk made already: what fails at once costs no file that was there."""
    first = next(chunks)
    return chain([first], chunks)


def _lines(model: TableModel, source: str, chunk: int) -> Iterator[list[dict[str, Any]]]:
    """The answers, chunk by chunk, as lines of a table."""
    for part, answers in model.answers(source, chunk=chunk):
        names = [f"score_{label}" for label in answers.classes]
        labels = answers.labels.tolist()
        yield [
            {"row": part.first_row + row + 1, "label": label, **dict(zip(names, scores, strict=True))}
            for row, (label, scores) in enumerate(zip(labels, answers.scores.tolist(), strict=True))
        ]


def _write_text(chunks: Iterator[list[dict[str, Any]]], file: IO[str] | _Standard, *, as_json: bool) -> None:
    writer = None
    for lines in chunks:
        if as_json:
            file.writelines(json_text(line) + "\n" for line in lines)
            continue
        if writer is None:
            writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
            writer.writeheader()
        writer.writerows(lines)


def _write_parquet(chunks: Iterator[list[dict[str, Any]]], out: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    try:
        for lines in chunks:
            table = pa.Table.from_pylist(lines)
            writer = writer or parquet.ParquetWriter(out, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


class _Standard:
    """Standard output as a file that is left open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        standard_output().flush()

    def write(self, text: str) -> None:
        """Print some lines."""
        emit_text(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Print lines."""
        for line in lines:
            emit_text(line)
