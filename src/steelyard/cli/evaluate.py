"""``steelyard evaluate``: how a saved model does on labelled rows."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli.models_io import load_table_model
from steelyard.cli.options import MODEL_FILE
from steelyard.cli.output import emit_json, emit_pairs, emit_table, json_option
from steelyard.cli.positive import positive_refusal

__all__ = ["evaluate_command"]


@click.command("evaluate")
@click.argument("model", type=MODEL_FILE)
@click.argument("source")
@click.option("--positive", metavar="LABEL", help="The positive class; the rarer of two by default.")
@click.option("--chunk", type=click.IntRange(1), default=1000, show_default=True, metavar="N")
@json_option
def evaluate_command(model: Path, source: str, positive: str | None, chunk: int, as_json: bool) -> None:
    """Test MODEL on the labelled rows of SOURCE; it learns nothing from them.

    Measures come with the ends of a 95 % band (block bootstrap).
    """
    from steelyard.evaluation import Race
    from steelyard.evaluation.tracking import METRICS

    known = load_table_model(model)
    metrics = [name for name in METRICS if name != "pmauc"]
    race = Race({"model": known.learner}, metrics=metrics, positive=positive, learns=False)
    race.run(known.rows(source, chunk=chunk))
    if (refusal := positive_refusal(race, positive)) is not None:
        raise refusal
    result = race.result()
    labels_seen, confusion = result.confusion("model")
    facts = {"rows": result.n_rows, "positive": result.positive, **result.totals("model")}
    if as_json:
        table = {"labels": labels_seen, "counts": confusion.astype(int).tolist()}
        emit_json({**facts, "confusion": table})
        return
    emit_pairs(facts)
    click.echo()
    rows = [
        {
            "true \\ predicted": label,
            **{str(x): int(n) for x, n in zip(labels_seen, confusion[row], strict=True)},
        }
        for row, label in enumerate(labels_seen)
    ]
    emit_table(["true \\ predicted", *map(str, labels_seen)], rows)
