"""``steelyard forget`` removes rows from a saved model, ``steelyard verify`` checks a certificate of that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import IN_FILE, OUT_FILE, load_table_model, rollback_on_error, save_model, summary_of
from steelyard.cli.output import emit_facts, json_option, print_status
from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard.tables import TableModel


@click.command("forget")
@click.argument("model", type=IN_FILE)
@click.argument("rows")
@opt.out("Output file; the default replaces MODEL.")
@click.option("--again", is_flag=True, help="Forget rows again that were learned more than once.")
@click.option(
    "--certificate", type=OUT_FILE, metavar="FILE", help="Write a JSON certificate, for `steelyard verify`."
)
@json_option
def forget_command(
    *, model: Path, rows: str, out: Path | None, again: bool, certificate: Path | None, as_json: bool
) -> None:
    """Remove the labelled ROWS (a table) from MODEL, as if they had never been learned.

    Either all rows are removed or none. The printed receipt contains the id and the number of the removed
    rows and the remaining class counts. With a certificate, anyone who has the remaining rows can fit a model
    to them and compare the digests (`steelyard verify`).
    """
    loaded, path = load_table_model(model), out or model
    if certificate is not None and not hasattr(loaded.estimator, "certify_forget"):
        raise ParameterError(
            f"--certificate: a {type(loaded.estimator).__name__} has no digest that others could verify.",
            hint="without --certificate the rows are forgotten, and the receipt states what is covered; a "
            "model of `steelyard fit --model proximal` issues certificates",
        )
    before = summary_of(loaded)["classes"]
    if certificate is None:
        claim = None
        loaded.forget(rows, again=again)
        save_model(loaded, path)
    else:
        claim = loaded.forget_certified(rows, again=again)
        with rollback_on_error(certificate, claim.to_json() + "\n"):
            save_model(loaded, path)
        print_status(f"wrote the certificate to {certificate}")
    print_status(f"forgot {loaded.history[-1]['rows']:,} rows; wrote {path}")
    receipt = _receipt(loaded, before, path)
    if claim is not None:
        receipt |= {"digest before": claim.digest_before, "digest after": claim.digest_after}
    emit_facts(receipt, as_json=as_json)


def _receipt(model: TableModel, before: Any, path: Path) -> dict[str, Any]:
    """Return id, number, source and time of the forgotten rows, and a summary of the model."""
    from steelyard.base import forgetting_scope

    entry = model.history[-1]
    after = summary_of(model)
    receipt = {"model": str(path), "forgot": entry["rows"]}
    receipt |= {name: entry[name] for name in ("id", "source", "when")}
    if isinstance(before, dict):
        removed = {label: n - after["classes"].get(label, 0.0) for label, n in before.items()}
        receipt["forgot by class"] = {label: n for label, n in removed.items() if n}
    receipt["complete"], receipt["covers"] = forgetting_scope(model.estimator)
    return {**receipt, **after}


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
