"""``steelyard predict``: predict the labels and scores of the rows of a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import options as opt
from steelyard.cli.decision import Cost, Decision, cost_option, positive_of, probabilities, threshold_option
from steelyard.cli.files import IN_FILE, load_table_model, open_source
from steelyard.cli.options import ColumnOptions
from steelyard.cli.output import emit_text, json_text, print_status

if TYPE_CHECKING:
    from steelyard.tables import TableModel, TableStream

Lines = list[dict[str, Any]]
_Explain = Callable[[Any, list[Any]], dict[str, list[Any]]]  # chunk and labels -> columns of the output


@opt.command("predict")
def predict_command(
    model: Path = opt.argument(type=IN_FILE),
    source: str | None = opt.argument(required=False),
    query: str | None = opt.query,
    out: Path | None = opt.out(
        "Output file: Parquet (.parquet), JSON lines (.jsonl) or CSV, by its suffix. Default: standard "
        "output."
    ),
    into: str | None = opt.option(
        "Write to a new table of the same database; it must not exist yet.", "NEW_TABLE"
    ),
    dialect: str | None = opt.option(
        "Print the model as a SELECT for duckdb, sqlite, postgres, bigquery, snowflake, clickhouse, spark; "
        "SOURCE may name the table.",
        "DIALECT",
        names="--as-sql",
    ),
    keep: tuple[str, ...] = opt.option(
        "Copy this column to the output, such as an id.", "COL", multiple=True
    ),
    proba: bool = opt.flag("Also write the probability of every class."),
    prior: str | None = opt.option(
        "Class frequencies that the probabilities of --proba and --cost assume: those of the learned rows "
        "(observed, the default) or equal ones (balanced).",
        type=click.Choice(["observed", "balanced"]),
    ),
    n_explained: int | None = opt.option(
        "Also write the N columns with the largest contributions to the score; default 3. With --json: all "
        "contributions, the nearest stored rows, and changes that would alter the prediction.",
        "[N]",
        type=click.IntRange(min=1),
        is_flag=False,
        flag_value=3,
        names="--explain",
    ),
    threshold: Any = threshold_option,
    cost: Cost | None = cost_option,
    positive: str | None = opt.positive,
    chunk: int = ColumnOptions.chunk,
    limit: int | None = ColumnOptions.limit,
    as_json: bool = opt.as_json,
) -> None:
    """Predict the rows of SOURCE: row number, label and one score per class.

    Columns are matched by name; the label column is not needed. With --json every row is one JSON line.
    """
    if prior is not None and not proba and cost is None:
        raise click.UsageError("--prior changes probabilities; give --proba or --cost too.")
    write = _writer(out, as_json=as_json)
    loaded = load_table_model(model)
    if dialect is not None:
        _print_sql(loaded, source, dialect)
        return
    if source is None:
        raise click.UsageError("Missing argument 'SOURCE'.")
    decision = Decision(positive_of(loaded.estimator, positive), threshold, cost)
    is_json = write is _json_lines
    explain = None if n_explained is None else _explainer(loaded, n_explained, as_json=is_json)

    def lines_of(opened: Any) -> Iterator[Lines]:
        kept = [*keep, *(c for c in loaded.encoder.columns_ if c not in keep)] if explain else keep
        if cost is not None and cost.column is not None and cost.column not in kept:
            kept = [*kept, cost.column]
        rows = loaded.rows(opened, chunk=chunk, limit=limit, labelled=False, keep=kept)
        chunks = _lines(loaded, rows, decision, keep=keep, proba=proba, prior=prior, explain=explain)
        # Compute the first chunk now, so that an error is raised before an existing output file is replaced.
        return chain([next(chunks)], chunks)

    if into is not None:
        _write_into(source, query, into, lines_of, out)
        return
    lines = lines_of(open_source(source, query))
    if out is None:
        for text in write(lines):
            emit_text(text.decode("utf-8", "backslashreplace"))
        return
    from steelyard.persistence.files import write_atomically

    write_atomically(out, write(lines), source="predict")


def _print_sql(model: TableModel, source: str | None, dialect: str) -> None:
    """Print the model as a SELECT over the table of SOURCE."""
    from urllib.parse import parse_qs, urlsplit

    from steelyard.sql import expression
    from steelyard.tables.databases import open_database
    from steelyard.tables.source import is_address

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
    from steelyard.sql.scoring import write_predictions
    from steelyard.tables.source import is_address

    if out is not None or not is_address(source):
        raise click.UsageError("--into needs a database as SOURCE and cannot be combined with -o.")
    n_rows = write_predictions(source, query, into, lines_of)
    print_status(f"wrote {n_rows:,} rows into the new table {into}")


def _lines(
    model: TableModel,
    rows: TableStream,
    decision: Decision,
    *,
    keep: tuple[str, ...],
    proba: bool,
    prior: str | None = None,
    explain: _Explain | None = None,
) -> Iterator[Lines]:
    """Yield the predictions of each chunk as rows of the output."""
    from steelyard.streams.predictions import predict_chunk, rows_for_model

    needs_probabilities = proba or decision.cost is not None
    for chunk in rows:
        answers = predict_chunk(model.estimator, chunk)
        found = (
            probabilities(model.estimator, rows_for_model(model.estimator, chunk), prior)
            if needs_probabilities
            else None
        )
        columns: dict[str, list[Any]] = {
            "row": list(range(chunk.first_row + 1, chunk.first_row + len(chunk) + 1))
        }
        columns |= {name: chunk.kept[name].tolist() for name in keep}
        miss_cost = None if decision.cost is None else decision.cost.of_rows(chunk)
        columns["label"] = decision.labels(answers, found, miss_cost)
        columns |= _class_columns("score", answers.classes, answers.scores)
        if proba and found is not None:
            columns |= _class_columns("proba", answers.classes, found)
        if explain is not None:
            columns |= explain(chunk, columns["label"])
        yield [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _explainer(model: TableModel, n_columns: int, *, as_json: bool) -> _Explain:
    """Return a function that explains a chunk in a column of texts or, with --json, of dictionaries.

    The labels of the output can differ from the sign of the score, because of a threshold, a cost or a target
    rate. The texts explain the labels of the output.
    """

    def explain(chunk: Any, labels: list[Any]) -> dict[str, list[Any]]:
        found = model.explain_chunk(chunk, changes=as_json)
        if not as_json:
            known = set(found.classes.tolist())
            texts = [
                found.summary(row, n_columns, label if label in known else None)
                for row, label in enumerate(labels)
            ]
            return {"explanation": texts}
        rows = found.to_dicts()
        for row, label in zip(rows, labels, strict=True):
            del row["label"], row["score"]
            row["changes"] = [change for change in row.get("changes", ()) if change["label"] != label]
        return {"explanation": rows}

    return explain


def _class_columns(prefix: str, classes: list[Any], values: Any) -> dict[str, list[Any]]:
    return {f"{prefix}_{label}": values[:, k].tolist() for k, label in enumerate(classes)}


# -- output file formats ------------------------------------------------------------------------------


def _writer(out: Path | None, *, as_json: bool) -> Callable[[Iterable[Lines]], Iterator[bytes]]:
    """Return the function that serializes rows in the format given by the file suffix or --json."""
    suffix = "" if out is None else out.suffix.lower()
    by_suffix = {".parquet": _parquet, ".jsonl": _json_lines, ".ndjson": _json_lines, ".json": _json_lines}
    write = by_suffix.get(suffix, _csv)
    if as_json and write is _parquet:
        raise click.UsageError("--json writes JSON lines; the output file must not end with .parquet.")
    return _json_lines if as_json else write


def _csv(chunks: Iterable[Lines]) -> Iterator[bytes]:
    for number, lines in enumerate(chunks):
        text = io.StringIO()
        writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
        if not number:
            writer.writeheader()
        writer.writerows(lines)
        yield text.getvalue().encode("utf-8", "backslashreplace")


def _json_lines(chunks: Iterable[Lines]) -> Iterator[bytes]:
    for lines in chunks:
        yield "".join(json_text(line) + "\n" for line in lines).encode()


def _parquet(chunks: Iterable[Lines]) -> Iterator[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    buffer = _DrainableBuffer()
    writer = None
    for lines in chunks:
        schema = None if writer is None else writer.schema
        table = pa.Table.from_pylist(lines, schema=schema)
        writer = writer or parquet.ParquetWriter(buffer, table.schema)
        writer.write_table(table)
        yield buffer.drain()
    if writer is not None:
        writer.close()
    yield buffer.drain()


class _DrainableBuffer(io.BytesIO):
    """File in memory whose contents are removed when they are read, so that it stays small."""

    def drain(self) -> bytes:
        """Return the bytes written since the last call."""
        data = self.getvalue()
        self.seek(0)
        self.truncate()
        return data
