"""``steelyard drift``: changes between two periods and their causes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steelyard.cli import options as opt
from steelyard.cli.files import load_table_model, open_table
from steelyard.cli.options import ColumnOptions
from steelyard.cli.output import emit_json, emit_text, json_option

if TYPE_CHECKING:
    from steelyard.tables import TableModel

_SAVED = (".stats", ".steelyard")  # other files are tables


@click.command("drift")
@click.argument("before")
@click.argument("after")
@opt.target("Label column of tables. If one period is a saved file, its label column is used.")
@opt.columns
@json_option
def drift_command(
    *, before: str, after: str, target: str | None, columns: ColumnOptions, as_json: bool
) -> None:
    """Show what changed from BEFORE to AFTER: class frequencies, single columns, or the concept.

    BEFORE and AFTER are statistics (.stats, written by `steelyard statistics`, possibly merged from several
    machines), models of class ProximalSVC (.steelyard), or tables with a label column. Only sums for each
    class are compared, so the rows of statistics files are not needed.
    """
    saved = {
        name: load_table_model(Path(name), accepts_statistics=True)
        for name in (before, after)
        if name.endswith(_SAVED)
    }
    for model in saved.values():
        model.check_has_statistics()  # before a long table is read
    first = saved.get(before) or _read(before, saved.get(after), target, columns)
    second = saved.get(after) or _read(after, first, target, columns)
    report = second.drift_report(first)
    if as_json:
        emit_json({"before": before, "after": after, **report.as_dict()})
    else:
        emit_text(f"{report}\n")


def _read(source: str, like: TableModel | None, target: str | None, columns: ColumnOptions) -> TableModel:
    """Return a model of the rows of a table, with the columns of the model ``like`` if it is given."""
    from steelyard import ProximalSVC
    from steelyard.tables import TableModel

    if like is not None:
        model = like.unlearned()
    elif target is None:
        raise click.UsageError("Missing option '--target', the label column of a table.")
    else:
        model = TableModel(ProximalSVC(), None, target, columns.time)
    stream = open_table(source, model.target, columns, encoder=None if like is None else model.encoder)
    model.encoder = stream.encoder
    model.learn(stream)
    return model
