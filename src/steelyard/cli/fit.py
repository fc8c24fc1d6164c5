"""``steelyard fit``: learn a table and save the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from steelyard.cli import options as opt
from steelyard.cli.files import (
    IN_FILE,
    check_can_be_saved,
    load_table_model,
    open_source,
    open_table,
    save_model,
    summary_of,
)
from steelyard.cli.options import ColumnOptions
from steelyard.cli.output import emit_facts, emit_text, json_option, print_message, print_status
from steelyard.cli.registry import make_models, parse_settings

if TYPE_CHECKING:
    from steelyard.tables import TableModel
    from steelyard.tables.columns import Columns
    from steelyard.tables.databases import DatabaseSource

_ALLOWED_WITH_CONTINUE = {"source", "out", "base", "query", "weight", "how", "chunk", "limit", "as_json"}


@click.command("fit")
@click.argument("source")
@opt.target("Label column; required unless --continue is given.")
@opt.out("Output file for the model.")
@click.option("--continue", "base", type=IN_FILE, metavar="MODEL", help="Saved model to train further.")
@opt.query
@click.option("--weight", metavar="COL", help="Database column with the weight of each row.")
@opt.how
@click.option(
    "--show",
    is_flag=False,
    flag_value="",
    metavar="[DIALECT]",
    help="Print the SELECT statements that compute the sums, optionally in another SQL dialect, and learn "
    "nothing.",
)
@opt.model(multiple=False, peers=False, note=" Default: auto; for a database: proximal.")
@opt.seed
@opt.columns
@json_option
def fit_command(
    *,
    source: str,
    target: str | None,
    out: Path | None,
    base: Path | None,
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
    """Learn all rows of SOURCE in one pass with bounded memory, and save the model.

    SOURCE is a file, - for standard input, or a database table: duckdb:///shop.db?table=payments,
    sqlite:///..., postgresql://... . With few columns the sums are computed inside the database and no row
    leaves it. After an error nothing is saved.
    """
    from steelyard.tables import TableEncoder, TableModel
    from steelyard.tables.databases import is_address, open_database

    if not is_address(source):
        _check_no_database_options(query, weight, how, show)
    if target is None and (base is None or show is not None):
        raise click.UsageError("Missing option '--target', the label column.")
    if show is not None:
        assert target is not None
        _print_queries(open_database(source, query), target, columns, weight, show)
        return
    if out is None:
        raise click.UsageError("Missing option '-o', the output file for the model.")
    opened = open_source(source, query)
    if base is not None:
        _check_options_with_continue()
        model = load_table_model(base)
    else:
        assert target is not None
        # The default for databases is proximal, because the database can compute its sums.
        model_name = model_name or ("proximal" if is_address(source) else "auto")
        (learner,) = make_models([model_name], parse_settings(settings), seed).values()
        check_can_be_saved(learner, model_name)
        model = TableModel(learner, TableEncoder(_missing(columns, source)), target, columns.time)
    before = model.learned()
    if is_address(source) and columns.limit is None and columns.time is None:
        from steelyard.sql.learning import learn

        rows = opened if query is not None else open_database(source)
        learn(model, rows, _columns_of(model, columns, weight), weight=weight, how=how)
        n_rows = model.history[-1]["rows"]
    elif base is not None:
        n_rows = model.learn(model.open(opened, labelled=True, chunk=columns.chunk, limit=columns.limit))
    else:
        stream = open_table(opened, model.target, columns)
        model.encoder = stream.encoder
        n_rows = model.learn(stream)
    if (earlier := before.get(model.history[-1].get("id", ""))) is not None:
        print_message(
            f"note: the same rows were learned before from {earlier['source']}; they now count twice."
        )
    emit_facts({"model": str(out), "learned": n_rows, **summary_of(model)}, as_json=as_json)
    save_model(model, out)
    print_status(f"learned {n_rows:,} rows; wrote {out}")


def _missing(columns: ColumnOptions, source: str | None) -> str:
    """Return the treatment of missing values. For databases the default is "refuse", needed for push-down."""
    from steelyard.tables.databases import is_address

    is_default = click.get_current_context().get_parameter_source("missing") is ParameterSource.DEFAULT
    is_database = source is None or is_address(source)
    return "refuse" if is_default and is_database else columns.missing


def _check_no_database_options(query: str | None, weight: str | None, how: str, show: str | None) -> None:
    given = {"--query": query, "--weight": weight, "--show": show, "--how": None if how == "auto" else how}
    for name, value in given.items():
        if value is not None:
            raise click.UsageError(f"{name} needs a database, but SOURCE is not the address of a database.")


def _columns_of(model: TableModel, columns: ColumnOptions, weight: str | None) -> Columns:
    """Return the columns of a saved model or, for a new model, the columns that the options define."""
    from steelyard.tables.columns import Columns

    if model.encoder.is_fitted:
        return model.encoder.roles(model.target)
    drop = (*columns.drop, *(() if weight is None else (weight,)))
    return Columns(model.target, None, columns.features or None, drop, columns.categorical)


def _print_queries(
    rows: DatabaseSource, target: str, columns: ColumnOptions, weight: str | None, dialect: str
) -> None:
    """Print the SELECT statements that compute the sums of a database table."""
    from steelyard.sql.learning import queries_of
    from steelyard.tables import TableEncoder, TableModel

    encoder = TableEncoder(_missing(columns, None))
    chosen = _columns_of(TableModel(None, encoder, target), columns, weight)
    for text in queries_of(rows, chosen, encoder, weight=weight, dialect=dialect or None):
        emit_text(f"{text};\n\n")


def _check_options_with_continue() -> None:
    """Raise a usage error for options that have no effect on a saved model."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name not in _ALLOWED_WITH_CONTINUE:
            raise click.UsageError(
                f"{option.opts[0]} cannot be changed with --continue: columns and parameters come from the "
                "saved model."
            )
