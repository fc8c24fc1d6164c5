"""``steelyard forget``: take rows out of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.files import OUT_FILE, save_model, written_with
from steelyard.cli.models_io import load_table_model, summary_of
from steelyard.cli.options import MODEL_FILE
from steelyard.cli.output import emit_json, emit_pairs, json_option, talk

if TYPE_CHECKING:
    from steelyard.tables import TableModel

__all__ = ["forget_command"]


@click.command("forget")
@click.argument("model", type=MODEL_FILE)
@click.argument("rows")
@click.option(
    "-o", "--out", type=OUT_FILE, metavar="FILE", help="Write here; by default MODEL itself is replaced."
)
@click.option(
    "--again", is_flag=True, help="These rows were learned more than once and are forgotten once more."
)
@click.option(
    "--certificate",
    type=OUT_FILE,
    metavar="FILE",
    help="Write a certificate (JSON) here, for `steelyard verify`.",
)
@json_option
def forget_command(
    *, model: Path, rows: str, out: Path | None, again: bool, certificate: Path | None, as_json: bool
) -> None:
    """Make MODEL as if the labelled ROWS (a table) had never come, all of them or none.

    Prints a receipt: which rows went, by an id that follows from them, and what is left. A certificate lets
    others repeat the proof: whoever has the rows that remain refits them and compares digests.
    """
    known = load_table_model(model)
    before = summary_of(known)["classes"]
    if certificate is None:
        n_rows = known.forget(rows, again=again)
        paper = None
    else:
        paper = known.forget_certified(rows, again=again)
        n_rows = known.history[-1]["rows"]
    # Before the receipt, which says that it was done.
    if paper is None or certificate is None:
        save_model(known, out or model)
    else:
        with written_with(certificate, paper.to_json() + "\n"):
            save_model(known, out or model)
        talk(f"wrote the certificate to {certificate}")
    talk(f"forgot {n_rows:,} rows; written to {out or model}")
    receipt = _receipt(known, before, out or model)
    if paper is not None:
        receipt |= {"digest before": paper.digest_before, "digest after": paper.digest_after}
    emit_json(receipt) if as_json else emit_pairs(receipt)


def _receipt(model: TableModel, before: Any, out: Path) -> dict[str, Any]:
    """What was forgotten, from where and when, and what the model has left."""
    entry = model.history[-1]
    after = summary_of(model)
    receipt = {
        "model": str(out),
        "forgot": entry["rows"],
        "id": entry["id"],
        "source": entry["source"],
        "when": entry["when"],
    }
    if isinstance(before, dict):
        gone = {label: n - after["classes"].get(label, 0.0) for label, n in before.items()}
        receipt["forgot by class"] = {label: n for label, n in gone.items() if n}
    return {**receipt, **after}
