"""``steelyard export``: a saved model as C source code."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli.files import IN_FILE, OUT_FILE
from steelyard.cli.output import emit_facts, json_option


@click.command("export")
@click.argument("model", type=IN_FILE)
@click.option("--c", "c_file", type=OUT_FILE, metavar="FILE.h", required=True, help="C header to write.")
@click.option("--name", default="model", show_default=True, metavar="NAME", help="Prefix of all names in C.")
@json_option
def export_command(model: Path, c_file: Path, name: str, as_json: bool) -> None:
    """Write MODEL, a proximal model without a feature map, as a C header.

    The header contains the weights, the names of features and labels, and the functions NAME_scores() and
    NAME_class(). NAME_set_category() sets the features of a categorical column.
    """
    from steelyard.compat.c_header import c_header
    from steelyard.persistence import load
    from steelyard.persistence.files import write_atomically

    text = c_header(load(model), name)
    write_atomically(c_file, [text.encode()], source="export")
    facts = {"file": str(c_file), "kind": "C header", "name": name, "bytes": len(text)}
    emit_facts(facts, as_json=as_json)
