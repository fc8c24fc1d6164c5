"""``steelyard verify``: check a certificate of forgetting against the remaining rows."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli.files import IN_FILE
from steelyard.cli.output import emit_facts, json_option


@click.command("verify")
@click.argument("certificate", type=IN_FILE)
@click.option(
    "--against", "sources", multiple=True, required=True, metavar="ROWS", help="Table of the remaining rows."
)
@json_option
@click.pass_context
def verify_command(
    context: click.Context, *, certificate: Path, sources: tuple[str, ...], as_json: bool
) -> None:
    """Learn the remaining rows from scratch, with the quantizer of CERTIFICATE, and compare digests.

    The exit code is 1 if the digests differ: the certified model has not learned exactly these rows.
    """
    from steelyard.proximal import Certificate
    from steelyard.tables import TableModel

    claim = Certificate.from_json(certificate.read_bytes())
    model = TableModel.of_certificate(claim)
    n_rows = sum(model.learn(model.open(source, labelled=True)) for source in sources)
    digest = model.estimator.digest()
    holds = digest == claim.digest_after
    facts = {
        "holds": holds,
        "rows": n_rows,
        "rows expected": sum(count for _, count in claim.left),
        "digest": digest,
        "digest certified": claim.digest_after,
        "forgotten": dict(claim.forgotten),
        "when": claim.when,
    }
    emit_facts(facts, as_json=as_json)
    if not holds:
        context.exit(1)
