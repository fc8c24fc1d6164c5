"""``steelyard forget``: take rows out of a saved model."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli.models_io import load_table_model, summary_of
from steelyard.cli.options import MODEL_FILE, OUT_FILE
from steelyard.cli.output import emit_json, emit_pairs, json_option, talk
from steelyard.persistence import save

__all__ = ["forget_command"]


@click.command("forget")
@click.argument("model", type=MODEL_FILE)
@click.argument("rows")
@click.option(
    "-o", "--out", type=OUT_FILE, metavar="FILE", help="Write here; by default MODEL itself is replaced."
)
@json_option
def forget_command(model: Path, rows: str, out: Path | None, as_json: bool) -> None:
    """Make MODEL as if the labelled ROWS (a table) had never come, all of them or none."""
    known = load_table_model(model)
    n_rows = known.forget(rows)
    save(known, out or model)
    talk(f"forgot {n_rows:,} rows; written to {out or model}")
    summary = {"model": str(out or model), "forgot": n_rows, **summary_of(known)}
    emit_json(summary) if as_json else emit_pairs(summary)
