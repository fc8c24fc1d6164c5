"""``steelyard fit``: learn a table and save the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from steelyard.cli.models_io import check_can_be_saved, load_table_model, open_table, summary_of
from steelyard.cli.options import MODEL_FILE, OUT_FILE, column_options, model_options
from steelyard.cli.output import emit_json, emit_pairs, json_option, talk
from steelyard.cli.registry import make_models, parse_settings
from steelyard.persistence import save
from steelyard.tables import TableModel

__all__ = ["fit_command"]


@click.command("fit")
@click.argument("source")
@click.option("--target", metavar="COL", help="Column of the labels; needed unless --continue is given.")
@click.option("-o", "--out", type=OUT_FILE, required=True, metavar="FILE", help="Where to save the model.")
@click.option("--continue", "known", type=MODEL_FILE, metavar="MODEL", help="Go on with a saved model.")
@model_options(multiple=False, peers=False)
@column_options
@json_option
def fit_command(source: str, out: Path, known: Path | None, as_json: bool, **options: Any) -> None:
    """Learn all rows of SOURCE, in one pass and bounded memory, and save the model.

    On an error nothing is saved.
    """
    if known is not None:
        _check_nothing_contradicts()
        model = load_table_model(known)
        stream = model.open(source, labelled=True, chunk=options["chunk"], limit=options["limit"])
    else:
        if options["target"] is None:
            raise click.UsageError("--target must name the column of the labels.")
        (learner,) = make_models([options["model_name"]], parse_settings(options["settings"])).values()
        check_can_be_saved(learner, options["model_name"])
        stream = open_table(source, options)
        model = TableModel(learner, stream.encoder, options["target"], options["time"])
    n_rows = model.learn(stream)
    save(model, out)
    talk(f"learned {n_rows:,} rows into {out}")
    summary = {"model": str(out), "learned": n_rows, **summary_of(model)}
    emit_json(summary) if as_json else emit_pairs(summary)


def _check_nothing_contradicts() -> None:
    """A saved model has its columns and parameters; options about them would be without effect."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name not in {"source", "out", "known", "chunk", "limit", "as_json"}:
            raise click.UsageError(
                f"{option.opts[0]} cannot be changed with --continue: the saved model has its columns and "
                "parameters already."
            )
