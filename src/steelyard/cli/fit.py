"""``steelyard fit``: learn a table and save the model."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from steelyard.cli.files import OUT_FILE, save_model
from steelyard.cli.models_io import check_can_be_saved, load_table_model, open_table, summary_of
from steelyard.cli.options import MODEL_FILE, ColumnOptions, column_options, model_options
from steelyard.cli.output import emit_json, emit_pairs, json_option, talk, tell
from steelyard.cli.registry import make_models, parse_settings

__all__ = ["fit_command"]


@click.command("fit")
@click.argument("source")
@click.option("--target", metavar="COL", help="Column of the labels; needed unless --continue is given.")
@click.option("-o", "--out", type=OUT_FILE, required=True, metavar="FILE", help="Where to save the model.")
@click.option("--continue", "known", type=MODEL_FILE, metavar="MODEL", help="Go on with a saved model.")
@model_options(multiple=False, peers=False)
@column_options
@json_option
def fit_command(
    *,
    source: str,
    target: str | None,
    out: Path,
    known: Path | None,
    model_name: str,
    settings: tuple[str, ...],
    columns: ColumnOptions,
    as_json: bool,
) -> None:
    """Learn all rows of SOURCE, in one pass and bounded memory, and save the model.

    On an error nothing is saved.
    """
    from steelyard.tables import TableModel

    if known is not None:
        _check_nothing_contradicts()
        model = load_table_model(known)
        stream = model.open(source, labelled=True, chunk=columns.chunk, limit=columns.limit)
    else:
        if target is None:
            raise click.UsageError("--target must name the column of the labels.")
        (learner,) = make_models([model_name], parse_settings(settings)).values()
        check_can_be_saved(learner, model_name)
        stream = open_table(source, target, columns)
        model = TableModel(learner, stream.encoder, target, columns.time)
    before = model.learned()
    n_rows = model.learn(stream)
    if (again := before.get(model.history[-1].get("id", ""))) is not None:
        tell(f"note: these very rows were learned before, from {again['source']}; they count once more now.")
    summary = {"model": str(out), "learned": n_rows, **summary_of(model)}
    emit_json(summary) if as_json else emit_pairs(summary)
    save_model(model, out)
    talk(f"learned {n_rows:,} rows into {out}")


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
