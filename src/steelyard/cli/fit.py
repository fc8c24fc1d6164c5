"""``steelyard fit``: learn a table and save the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from steelyard.cli.files import OUT_FILE, save_model
from steelyard.cli.models_io import (
    check_can_be_saved,
    load_table_model,
    open_table,
    source_of,
    summary_of,
)
from steelyard.cli.options import (
    MODEL_FILE,
    ColumnOptions,
    column_options,
    how_option,
    model_options,
    query_option,
    seed_option,
)
from steelyard.cli.output import emit_json, emit_pairs, emit_text, json_option, talk, tell
from steelyard.cli.registry import make_models, parse_settings

if TYPE_CHECKING:
    from steelyard.tables import TableModel
    from steelyard.tables.columns import Columns
    from steelyard.tables.databases import DatabaseSource

__all__ = ["fit_command"]


@click.command("fit")
@click.argument("source")
@click.option("--target", metavar="COL", help="Column of the labels; needed unless --continue is given.")
@click.option("-o", "--out", type=OUT_FILE, metavar="FILE", help="Where to save the model.")
@click.option("--continue", "known", type=MODEL_FILE, metavar="MODEL", help="Go on with a saved model.")
@query_option
@click.option("--weight", metavar="COL", help="Column of a database that says how often each row counts.")
@how_option
@click.option(
    "--show",
    is_flag=False,
    flag_value="",
    metavar="[DIALECT]",
    help="Print the SELECTs that take the sums, perhaps for another engine, and learn nothing.",
)
@model_options(multiple=False, peers=False, unnamed="auto, of a database proximal")
@seed_option
@column_options
@json_option
def fit_command(
    *,
    source: str,
    target: str | None,
    out: Path | None,
    known: Path | None,
    query: str | None,
    weight: str | None,
    how: str,
    show: str | None,
    model_name: str | None,
    settings: tuple[str, ...],
    seed: int,
    columns: ColumnOptions,
    as_json: bool,
) -> None:
    """Learn all rows of SOURCE, in one pass and bounded memory, and save the model.

    SOURCE is a file, - for standard input, or a table in a database: duckdb:///shop.db?table=payments,
    sqlite:///..., postgresql://...; few columns are summed up inside the database, and no row leaves it.
    On an error nothing is saved.
    """
    from steelyard.tables import TableEncoder, TableModel
    from steelyard.tables.databases import is_address, open_database

    if not is_address(source):
        _check_no_database(query, weight, how, show)
    if show is not None:
        if target is None:
            raise click.UsageError("--target must name the column of the labels.")
        rows = open_database(source, query)
        _show(rows, target, columns, weight, show)
        return
    if out is None:
        raise click.UsageError("-o must say where to save the model.")
    given = source_of(source, query)
    if known is not None:
        _check_nothing_contradicts()
        model = load_table_model(known)
        target = model.target
    else:
        if target is None:
            raise click.UsageError("--target must name the column of the labels.")
        # Planes are the model whose sums a database can take itself.
        model_name = model_name or ("proximal" if is_address(source) else "auto")
        (learner,) = make_models([model_name], parse_settings(settings), seed).values()
        check_can_be_saved(learner, model_name)
        model = TableModel(learner, TableEncoder(columns.missing), target, columns.time)
    before = model.learned()
    if is_address(source) and columns.limit is None and columns.time is None:
        from steelyard.sql.learning import learn

        rows = given if query is not None else open_database(source)
        learn(model, rows, _columns_of(model, columns, weight), weight=weight, how=how)
        n_rows = model.history[-1]["rows"]
    elif known is not None:
        n_rows = model.learn(model.open(given, labelled=True, chunk=columns.chunk, limit=columns.limit))
    else:
        stream = open_table(given, target, columns)
        model.encoder = stream.encoder
        n_rows = model.learn(stream)
    if (again := before.get(model.history[-1].get("id", ""))) is not None:
        tell(f"note: these very rows were learned before, from {again['source']}; they count once more now.")
    summary = {"model": str(out), "learned": n_rows, **summary_of(model)}
    emit_json(summary) if as_json else emit_pairs(summary)
    save_model(model, out)
    talk(f"learned {n_rows:,} rows into {out}")


def _check_no_database(query: str | None, weight: str | None, how: str, show: str | None) -> None:
    for name, given in (("--query", query), ("--weight", weight), ("--show", show)):
        if given is not None:
            raise click.UsageError(f"{name} is for databases; SOURCE is none.")
    if how != "auto":
        raise click.UsageError("--how is for databases; SOURCE is none.")


def _columns_of(model: TableModel, columns: ColumnOptions, weight: str | None) -> Columns:
    """Which columns are what: as the model knows, or as was written."""
    from steelyard.tables.columns import Columns

    encoder = model.encoder
    if "columns_" in vars(encoder):
        return Columns(model.target, None, tuple(encoder.columns_), (), tuple(encoder.categorical_))
    left = (*columns.drop, *(() if weight is None else (weight,)))
    return Columns(model.target, None, columns.features or None, left, columns.categorical)


def _show(
    rows: DatabaseSource, target: str, columns: ColumnOptions, weight: str | None, dialect: str
) -> None:
    """Print what a database would be asked."""
    from steelyard.sql.learning import queries_of
    from steelyard.tables import TableEncoder, TableModel

    encoder = TableEncoder(columns.missing)
    chosen = _columns_of(TableModel(None, encoder, target), columns, weight)
    for text in queries_of(rows, chosen, encoder, weight=weight, dialect=dialect or None):
        emit_text(f"{text};\n\n")


def _check_nothing_contradicts() -> None:
    """A saved model has its columns and parameters; options about them would be without effect."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name not in {
            "source",
            "out",
            "known",
            "query",
            "weight",
            "how",
            "chunk",
            "limit",
            "as_json",
        }:
            raise click.UsageError(
                f"{option.opts[0]} cannot be changed with --continue: the saved model has its columns and "
                "parameters already."
            )
