"""``steelyard export``: a saved model in a form that needs no Python."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli.files import OUT_FILE
from steelyard.cli.options import MODEL_FILE
from steelyard.cli.output import emit_json, emit_pairs, json_option

__all__ = ["export_command"]


@click.command("export")
@click.argument("model", type=MODEL_FILE)
@click.option(
    "--c", "c_file", type=OUT_FILE, metavar="FILE.h", required=True, help="A C header of a linear model."
)
@click.option(
    "--name", default="model", show_default=True, metavar="NAME", help="What names in C begin with."
)
@json_option
def export_command(model: Path, c_file: Path, name: str, as_json: bool) -> None:
    """Write MODEL, a proximal model without a feature map, for programs without Python.

    The header has the planes, the names of features and labels, NAME_scores() and NAME_class(); a category is
    a feature of its own, which NAME_set_category() sets.
    """
    from steelyard.compat.c_header import c_header
    from steelyard.persistence import load
    from steelyard.persistence.files import write_atomically

    text = c_header(load(model), name)
    write_atomically(c_file, [text.encode()], source="export")
    facts = {"file": str(c_file), "kind": "C header", "name": name, "bytes": len(text)}
    if as_json:
        emit_json(facts)
    else:
        emit_pairs(facts)
