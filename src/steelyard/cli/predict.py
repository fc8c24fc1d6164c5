"""``steelyard predict``: rows in, labels and scores out."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.decision import Cost, Decision, cost_option, positive_of, probabilities
from steelyard.cli.files import OUT_FILE
from steelyard.cli.models_io import load_table_model, source_of
from steelyard.cli.options import MODEL_FILE, chunk_option, limit_option, positive_option, query_option
from steelyard.cli.output import emit_text, json_option, json_text, talk

if TYPE_CHECKING:
    from steelyard.tables import TableModel, TableStream

__all__ = ["predict_command"]

Lines = list[dict[str, Any]]


@click.command("predict")
@click.argument("model", type=MODEL_FILE)
@click.argument("source", required=False)
@query_option
@click.option(
    "-o", "--out", type=OUT_FILE, metavar="FILE",
    help="Parquet, JSON lines or CSV, as the name ends (.parquet, .jsonl); standard output by default.",
)  # fmt: skip
@click.option(
    "--into",
    metavar="NEW_TABLE",
    help="Write to a new table of the same database; one that is there is refused.",
)
@click.option(
    "--as-sql",
    "dialect",
    metavar="DIALECT",
    help="Print the model as a SELECT for duckdb, sqlite, postgres, bigquery, snowflake, clickhouse, spark; "
    "SOURCE may name the table.",
)
@click.option("--keep", metavar="COL", multiple=True, help="Pass this column through, such as an id.")
@click.option("--proba", is_flag=True, help="Also the probability of every class.")
@click.option(
    "--threshold", type=float, metavar="X", help="An alarm where the positive class scores above X."
)
@cost_option
@positive_option
@chunk_option
@limit_option
@json_option
def predict_command(
    *,
    model: Path,
    source: str | None,
    query: str | None,
    out: Path | None,
    into: str | None,
    dialect: str | None,
    keep: tuple[str, ...],
    proba: bool,
    threshold: float | None,
    cost: Cost | None,
    positive: str | None,
    chunk: int,
    limit: int | None,
    as_json: bool,
) -> None:
    """Predict the rows of SOURCE: row number, label and one score a class.

    Columns are found by name; the target need not be there. With --json every row is one JSON line.
    Probabilities take the classes as frequent as the model has seen them.
    """
    write = _writer(out, as_json=as_json)
    known = load_table_model(model)
    if dialect is not None:
        _print_sql(known, source, dialect)
        return
    if source is None:
        raise click.UsageError("Missing argument 'SOURCE'.")
    chosen = positive_of(known.learner, positive)
    decision = Decision(chosen, threshold, cost)

    def lines_of(given: Any) -> Iterator[Lines]:
        rows = known.rows(given, chunk=chunk, limit=limit, labelled=False, keep=keep)
        return _begun(_lines(known, rows, decision, keep=keep, proba=proba))

    if into is not None:
        _write_into(source, query, into, lines_of, out)
        return
    lines = lines_of(source_of(source, query))
    if out is None:
        for text in write(lines):
            emit_text(text.decode("utf-8", "backslashreplace"))
        return
    from steelyard.persistence.files import write_atomically

    write_atomically(out, write(lines), source="predict")


def _print_sql(model: TableModel, source: str | None, dialect: str) -> None:
    """The model as a SELECT over the table that SOURCE names."""
    from urllib.parse import parse_qs, urlsplit

    from steelyard.sql import expression
    from steelyard.tables.databases import is_address, open_database

    table, truths = source or "your_table", list[str]()
    if is_address(source):
        table = parse_qs(urlsplit(str(source)).query).get("table", ["your_table"])[0]
        rows = open_database(str(source))
        truths = [name for name, kind in rows.declared.items() if kind == "truth"]
        rows.close()
    emit_text(expression(model, table, dialect, truths=truths) + "\n")


def _write_into(
    source: str, query: str | None, into: str, lines_of: Callable[[Any], Iterator[Lines]], out: Path | None
) -> None:
    from steelyard.sql.writing import write_answers
    from steelyard.tables.databases import is_address

    if out is not None or not is_address(source):
        raise click.UsageError("--into writes to the database of SOURCE, in place of -o.")
    n_rows = write_answers(source, query, into, lines_of)
    talk(f"wrote {n_rows:,} rows into the new table {into}")


def _begun(chunks: Iterator[Lines]) -> Iterator[Lines]:
    """The same, with the first chunk made already: what fails at once costs no file that was there."""
    return chain([next(chunks)], chunks)


def _lines(
    model: TableModel, rows: TableStream, decision: Decision, *, keep: tuple[str, ...], proba: bool
) -> Iterator[Lines]:
    """The answers, chunk by chunk, as lines of a table."""
    from steelyard.streams.answers import ask, rows_taken

    needs_chances = proba or decision.cost is not None
    for part in rows:
        answers = ask(model.learner, part)
        chances = probabilities(model.learner, rows_taken(model.learner, part)) if needs_chances else None
        columns: dict[str, list[Any]] = {
            "row": list(range(part.first_row + 1, part.first_row + len(part) + 1))
        }
        columns |= {name: part.kept[name].tolist() for name in keep}
        columns["label"] = decision.labels(answers, chances)
        columns |= _by_class("score", answers.classes, answers.scores)
        if proba and chances is not None:
            columns |= _by_class("proba", answers.classes, chances)
        yield [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _by_class(what: str, classes: list[Any], values: Any) -> dict[str, list[Any]]:
    return {f"{what}_{label}": values[:, place].tolist() for place, label in enumerate(classes)}


# -- forms of a file ----------------------------------------------------------------------------------


def _writer(out: Path | None, *, as_json: bool) -> Callable[[Iterable[Lines]], Iterator[bytes]]:
    """What turns lines into bytes: the name of the file decides, or --json."""
    suffix = "" if out is None else out.suffix.lower()
    by_name = {".parquet": _parquet, ".jsonl": _json_lines, ".ndjson": _json_lines, ".json": _json_lines}
    write = by_name.get(suffix, _csv)
    if as_json and write is _parquet:
        raise click.UsageError("--json writes JSON lines, which a Parquet file cannot hold.")
    return _json_lines if as_json else write


def _csv(chunks: Iterable[Lines]) -> Iterator[bytes]:
    text = io.StringIO()
    writer = None
    for lines in chunks:
        if writer is None:
            writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
            writer.writeheader()
        writer.writerows(lines)
        yield text.getvalue().encode("utf-8", "backslashreplace")
        text.seek(0)
        text.truncate()


def _json_lines(chunks: Iterable[Lines]) -> Iterator[bytes]:
    for lines in chunks:
        yield "".join(json_text(line) + "\n" for line in lines).encode()


def _parquet(chunks: Iterable[Lines]) -> Iterator[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    sink = _Sink()
    writer = None
    for lines in chunks:
        schema = None if writer is None else writer.schema
        table = pa.Table.from_pylist(lines, schema=schema)
        writer = writer or parquet.ParquetWriter(sink, table.schema)
        writer.write_table(table)
        yield sink.taken()
    if writer is not None:
        writer.close()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A file that gives away what is written to it, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def taken(self) -> bytes:
        """What was written since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)
