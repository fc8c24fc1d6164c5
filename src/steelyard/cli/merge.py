"""``steelyard merge``: one model of several that were taught apart."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli.models_io import load_table_model, summary_of
from steelyard.cli.options import MODEL_FILE, OUT_FILE
from steelyard.cli.output import emit_json, emit_pairs, json_option, talk
from steelyard.persistence import save

__all__ = ["merge_command"]


@click.command("merge")
@click.argument("models", nargs=-1, required=True, type=MODEL_FILE)
@click.option(
    "-o", "--out", type=OUT_FILE, required=True, metavar="FILE", help="Where to save the merged model."
)
@json_option
def merge_command(models: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Merge MODELS, taught on different rows of the same columns, into one that has learned them all.

    Categories that only some of them have met are brought together.
    """
    first, *others = (load_table_model(path) for path in models)
    for other in others:
        first.merge(other)
    save(first, out)
    talk(f"merged {len(models)} models into {out}")
    summary = {"model": str(out), "merged": len(models), **summary_of(first)}
    emit_json(summary) if as_json else emit_pairs(summary)
