"""``steelyard verify``: repeat the proof of a certificate of forgetting."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli.options import MODEL_FILE
from steelyard.cli.output import emit_json, emit_pairs, json_option

__all__ = ["verify_command"]


@click.command("verify")
@click.argument("certificate", type=MODEL_FILE)
@click.option(
    "--against", "sources", multiple=True, required=True, metavar="ROWS", help="A table of rows that remain."
)
@json_option
@click.pass_context
def verify_command(
    context: click.Context, *, certificate: Path, sources: tuple[str, ...], as_json: bool
) -> None:
    """Learn the rows that remain from scratch, on the CERTIFICATE's grid, and compare digests.

    Ends with status 1 if they differ: the model that was certified does not hold exactly these rows.
    """
    from steelyard.proximal import Certificate
    from steelyard.tables import TableModel

    paper = Certificate.from_json(certificate.read_bytes())
    model = TableModel.of_certificate(paper)
    n_rows = sum(model.learn(model.open(source, labelled=True)) for source in sources)
    found = model.estimator.digest()
    holds = found == paper.digest_after
    facts = {
        "holds": holds,
        "rows": n_rows,
        "rows expected": sum(count for _, count in paper.left),
        "digest": found,
        "digest certified": paper.digest_after,
        "forgotten": dict(paper.forgotten),
        "when": paper.when,
    }
    emit_json(facts) if as_json else emit_pairs(facts)
    if not holds:
        context.exit(1)
